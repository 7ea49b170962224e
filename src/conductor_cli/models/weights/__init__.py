"""Model files on this machine: getting them, checking them, and what is known of them.

registry    the models that are known by name, with file, size and licence
pull        a registry entry -> files in the hub's cache, checked, and a manifest
bring       one file of it: asked for at the hub, fetched if it is not here, checked, named in the cache
transfer    its bytes, by the hub's library in a child process (fetch), or by plain HTTP of our own (plain)
unfinished  what a pull that was stopped has left
adopt       a file that is already here -> the model store
sound       whether a file that nobody vouches for is a model at all
keeping     what is in the model store, checked and removed
remedy      what is wrong with it, and how each model comes back
need        how much memory a model takes
manifests    the model store: a manifest for each model
digest      SHA-256
disk        its room, and files that take the place of others whole or not at all
"""
