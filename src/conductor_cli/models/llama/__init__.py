"""Local models: a GGUF file through llama.cpp.

adapter     `Llama`: the model as the event loop sees it; its thread
call        one call between the event loop and the thread
engine      one loaded model: request -> chunks
loading     file -> model and context
library     the one import of `llama_cpp`; its log; stopping it
gguf        what a file says of itself; the check before llama.cpp sees it
about       a file in a few words; the parts of a divided one
memory, prefixes    what was read before; the states of fixed prefixes on disk
template, prompt, vocabulary    messages -> text -> tokens
sampling, gbnf                  which token comes next; grammars
reply       bytes of tokens -> chunks
cores       how many threads are worth having
"""

from conductor_cli.models.llama.about import About, describe
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.library import build_info
from conductor_cli.models.llama.loading import Options

__all__ = ["About", "Llama", "Options", "build_info", "describe"]
