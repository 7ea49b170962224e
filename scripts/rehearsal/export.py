"""A model of the rehearsal and its tokenizer -> a GGUF file that llama.cpp runs, and back. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.writing import Kind, Tensor, Value, write
from conductor_cli.train.dependencies import require
from conductor_cli.train.qwen2 import ARCHITECTURE, Qwen2, names
from conductor_cli.train.vocabulary import Marks, spelled
from scripts.rehearsal.courses import Course, Size
from scripts.rehearsal.model import new_model
from scripts.rehearsal.tokenizer import END, PAD, token_of

with require("torch"):
    import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The chat template: the messages and nothing else, since `render` writes all that the models know."""

_MOSTLY_F16: Final = 1


def export(model: Any, tokenizer: Tokenizer, size: Size, path: Path, *, name: str) -> None:  # noqa: ANN401
    """Write the model to `path`: matrices in 16 bits, the rest in 32. Raises `ModelError` where the disk refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, {**_described(model, size, name), **_vocabulary(tokenizer)}, list(_tensors(model, size)))


def rounded(model: Any) -> Any:  # noqa: ANN401
    """A copy of the model with its matrices rounded as the file has them."""
    copied = deepcopy(model).eval()
    with torch.no_grad():
        for weight in copied.parameters():
            if weight.dim() > 1:
                weight.copy_(weight.half().float())
    return copied


def loaded(path: Path, course: Course) -> Any:  # noqa: ANN401 - a model of transformers, untyped
    """The model of a file that was made by `course`. Raises `ModelError` where the file is not there or another's."""
    with require("gguf"):
        from gguf import GGUFReader

    try:
        tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
        model = new_model(course, len(tensors["token_embd.weight"]))
        weights = {ours: torch.tensor(tensors[theirs]).float() for ours, theirs in names(course.size.layers).items()}
        model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    except (OSError, ValueError, KeyError, IndexError, RuntimeError) as error:
        told = " ".join(str(error).split())[:120]
        raise ModelError("file", f"{path} is no model of this course: {told}", hint="export it again") from error
    return model


def _described(model: Any, size: Size, name: str) -> dict[str, Value]:  # noqa: ANN401
    shape = Qwen2(
        width=size.width, layers=size.layers, heads=size.heads, key_heads=size.key_heads, inner=size.inner,
        context=size.context, words=int(model.config.vocab_size), epsilon=float(model.config.rms_norm_eps),
        theta=float(model.config.rope_parameters["rope_theta"]),
    )  # fmt: skip
    return {
        "general.architecture": ARCHITECTURE,
        "general.name": f"conductor rehearsal, {name}",
        "general.license": "apache-2.0",
        "general.file_type": _MOSTLY_F16,
        **shape.values(),
    }


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Value]:
    end = token_of(tokenizer, END)
    marks = Marks(end=end, pad=token_of(tokenizer, PAD), template=TEMPLATE)
    return spelled(tokenizer, marks, tokenizer.get_vocab_size())


def _tensors(model: Any, size: Size) -> Iterator[Tensor]:  # noqa: ANN401
    weights = model.state_dict()
    for ours, theirs in names(size.layers).items():
        yield _tensor(theirs, weights[ours])


def _tensor(name: str, weight: Any) -> Tensor:  # noqa: ANN401
    kind, values = (Kind.F16, weight.half()) if weight.dim() > 1 else (Kind.F32, weight.float())
    return Tensor(name=name, shape=tuple(weight.shape), kind=kind, parts=[values.contiguous().numpy().tobytes()])
