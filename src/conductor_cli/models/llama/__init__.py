"""Local models: a GGUF file through llama.cpp.

adapter             `Llama`, the model as the event loop sees it, its thread, and a call between the two
engine              one loaded model: request -> chunks
loading             file -> model and context in memory
bindings            the one import of `llama_cpp`, and its version; its log; how a call is cancelled
gguf                the header of a file, the checks before llama.cpp sees it, and the parts of a split model
kv_cache            what a context has read before, and the states of fixed prefixes on disk
prompt, template_sandbox, vocabulary      messages -> text -> tokens, and tokens -> text
sampling            which token comes next, also inside a grammar
lora                an adapter in PEFT form -> GGUF, and the checks before llama.cpp sees an adapter
"""

from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.gguf import read_model_info
from conductor_cli.models.llama.loading import LlamaOptions

__all__ = ["Llama", "LlamaOptions", "read_model_info"]
