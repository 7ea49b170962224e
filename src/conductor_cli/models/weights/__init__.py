"""Model files on this machine: getting them, checking them, and what is known of them.

registry    the models that are known by name, with file, size and licence
pull        a registry entry -> files in the hub's cache, checked; its parts: fetch, transfer, plain, cache
adopt       a file that is already here -> the shelf; checking and removing what is on it
receipts    the shelf: a receipt for each model
digest      SHA-256
"""
