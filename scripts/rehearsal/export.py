"""A demo model and its tokenizer to a GGUF file for llama.cpp, and back. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gguf import GGUFReader, LlamaFileType

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import MAX_LAYERS
from conductor_cli.models.llama.gguf_writer import LazyTensor, new_writer, write_gguf
from conductor_cli.train.dependencies import require
from conductor_cli.train.gguf_export import ARCHITECTURE, add_hyperparameters, add_vocabulary, list_weights
from scripts.rehearsal.courses import Course
from scripts.rehearsal.model import new_model
from scripts.rehearsal.tokenizer import END, PAD, token_of

with require("torch"):
    import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAYER_ORDER: Final = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")

TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The chat template: nothing but the messages, since `render` writes all that the models read."""


def export(model: Any, tokenizer: Tokenizer, path: Path, *, name: str) -> None:  # noqa: ANN401
    """Write the model to `path`: matrices in 16 bits, the rest in 32. Raises `ModelError` if it cannot be written."""
    writer = new_writer(ARCHITECTURE)
    writer.add_name(f"conductor rehearsal, {name}")
    writer.add_license("apache-2.0")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    add_hyperparameters(writer, model.config)
    add_vocabulary(writer, tokenizer, tokenizer.get_vocab_size())
    end = token_of(tokenizer, END)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(token_of(tokenizer, PAD))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)
    weights, wanted = model.state_dict(), list_weights(model.config)
    tensors = [_to_tensor(wanted[name].gguf_name, weights[name]) for name in sorted(wanted, key=_position)]
    write_gguf(path, writer, tensors)


def _position(name: str) -> tuple[int, int]:
    """Where a weight stands in the file. The shipped files are in this order, and a training reproduces their bytes."""
    if ".layers." not in name:
        return (-1 if "embed" in name else MAX_LAYERS), 0
    _, _, layer, module, *_ = name.split(".")
    return int(layer), LAYER_ORDER.index(module)


def _to_tensor(name: str, weight: Any) -> LazyTensor:  # noqa: ANN401
    load: Callable[[], Any] = partial(torch.Tensor.numpy, weight)
    return LazyTensor(name, tuple(weight.shape), "float16" if weight.dim() > 1 else "float32", load)


def rounded(model: Any) -> Any:  # noqa: ANN401
    """A copy of the model with its matrices rounded as in the file."""
    copied = deepcopy(model).eval()
    with torch.no_grad():
        for weight in copied.parameters():
            if weight.dim() > 1:
                weight.copy_(weight.half().float())
    return copied


def loaded(path: Path, course: Course) -> Any:  # noqa: ANN401 - a model of transformers, untyped
    """The model in a file that was made by `course`. Raises `ModelError` for any other file."""
    try:
        tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
        model = new_model(course, len(tensors["token_embd.weight"]))
        wanted = list_weights(model.config)
        weights = {name: torch.tensor(tensors[weight.gguf_name]).float() for name, weight in wanted.items()}
        model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    except (OSError, ValueError, KeyError, IndexError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError("file", f"{path} is not a model of this course: {reason}", hint="export it again") from error
    return model
