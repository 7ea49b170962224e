"""Local models: a GGUF file through llama.cpp.

adapter     `Llama`: the model as the event loop sees it; its thread
call        one call between the event loop and the thread
engine      one loaded model: request -> chunks
loading     file -> model and context
library     the one import of `llama_cpp`; its log; stopping it
gguf        what a file says of itself; the check before llama.cpp sees it
tensors     the sizes of a file's tensors; the types that llama.cpp can compute with
about       a file in a few words; the parts of a divided one
memory, prefixes    what was read before; the states of fixed prefixes on disk
template, prompt, vocabulary    messages -> text -> tokens
sampling, gbnf                  which token comes next; grammars
reply       bytes of tokens -> chunks
cores       how many threads are worth having
repack, trial       whether rearranging weights pays on this machine
measure     how fast a model plans here
overlay     the check before llama.cpp sees an adapter
lora, safetensors, writing    an adapter in PEFT form -> GGUF
build       what is used of llama-cpp-python, and what the installed one has
"""

from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.model_info import ModelInfo, read_model_info

__all__ = ["Llama", "LlamaOptions", "ModelInfo", "read_model_info"]
