"""Local models: a GGUF file through llama.cpp.

From request to chunk: `adapter`, `engine`, `prompt`, `sampling`.
"""

from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.gguf import read_model_info
from conductor_cli.models.llama.loading import LlamaOptions

__all__ = ["Llama", "LlamaOptions", "read_model_info"]
