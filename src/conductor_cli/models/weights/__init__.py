"""Model files on this machine: downloading, importing, verifying and removing them.

registry         the models that are known by name, with files, sizes and licences
model_store      a manifest for each model on this machine
download         pulling a model: its files into the hub's cache, checked, and its manifest
hub              the hub's address, the token, what the hub says about a file, and its errors
http_download    the bytes of a file, by ranged requests that continue where the last one stopped
cache            the hub's cache directory, and unfinished downloads in it
import_file      a file that is on this machine already
verify, hashing  reading files again and comparing them
removal          removing models and unfinished downloads
problems         what is wrong with stored models, and how to repair them
memory_estimate  how much memory a model needs
"""
