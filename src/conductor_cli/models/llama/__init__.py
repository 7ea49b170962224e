"""Local models: a GGUF file through llama.cpp.

From request to chunk: `adapter`, `engine`, `prompt`, `sampling`. Nothing is imported here, so that
who asks whether llama.cpp is installed loads nothing else.
"""
