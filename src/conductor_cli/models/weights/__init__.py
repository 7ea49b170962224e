"""Model files on this machine: downloading, importing, verifying and removing them.

registry         the models that are known by name, with files, sizes and licences; the memory that a model needs
model_store      a manifest for each model on this machine; `ModelFile`, the one record of a file
huggingface      the hub through its own library: its settings, what it has, the bytes of a file, and its errors
hub_model        a GGUF model of the hub that the registry does not list: which files are meant, what it is called
download         pulling a model into the hub's cache, and removing it or what a stopped pull has left
import_file      a file that is on this machine already
verify           SHA-256, what is wrong with stored models, and how to repair them
"""
