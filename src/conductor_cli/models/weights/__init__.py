"""Model files on this machine: getting them, checking them, and what is known of them.

registry    the models that are known by name, with file, size and licence
pull        a registry entry -> files in the hub's cache, checked, and a receipt
bring       one file of it: asked for at the hub, fetched if it is not here, checked, named in the cache
transfer    its bytes, by the hub's library in a child process (fetch), or by plain HTTP of our own (plain)
adopt       a file that is already here -> the shelf; checking and removing what is on it
receipts    the shelf: a receipt for each model
digest      SHA-256
disk        its room, and files that take the place of others whole or not at all
"""
