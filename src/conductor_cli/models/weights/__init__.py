"""Model files on this machine: downloading, importing, verifying and removing them.

registry         the models that are known by name, with files, sizes and licences; the memory that a model needs
model_store      a manifest for each model on this machine
download         pulling a model: its files into the hub's cache, checked, and its manifest
hub_model        any other GGUF model of the hub: which files are meant, what it is called, what it needs
hub              the hub through its own library: its settings, what it has, the bytes of a file, and its errors
import_file      a file that is on this machine already
hashing          the SHA-256 of a file
verify           what is wrong with stored models, and how to repair them
removal          removing models and unfinished downloads
"""
