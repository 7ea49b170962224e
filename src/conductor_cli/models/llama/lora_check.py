"""The check of a LoRA adapter before llama.cpp loads it: llama.cpp aborts the process on some that it does not expect.

How an adapter is laid out: github.com/ggml-org/llama.cpp, src/llama-adapter.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import (
    UNUSABLE_TYPES,
    Header,
    TensorInfo,
    is_matrix,
    read_header_and_tensors,
    short_line,
)
from conductor_cli.models.llama.model_info import read_all_tensors

FIRST: Final = ".lora_a"
SECOND: Final = ".lora_b"
EMBEDDING: Final = "token_embd.weight"


def check_adapter(path: Path, base: Header, base_path: Path, *, source: Path | None = None) -> None:
    """Raise `ModelError` of kind `file` if the adapter `path` cannot be applied to the base model.

    Errors name `source` if the file was just made from it.
    """
    header, tensors = read_header_and_tensors(path)
    path = source or path
    kind = header.values.get("general.type")
    if kind != "adapter" or header.values.get("adapter.type") != "lora":
        raise ModelError(
            "file", f"{path} is not a LoRA adapter", hint="import one in PEFT format: conductor model import DIR"
        )
    if header.architecture != base.architecture:
        raise ModelError(
            "file",
            f"{path} is for the architecture {short_line(header.architecture)!r}, "
            f"not for {short_line(base.architecture)!r}",
            hint="an adapter fits the model that it was trained on, and no other",
        )  # fmt: skip
    alpha = header.values.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise _damaged(path, "it has no alpha")
    if any(tensor.kind in UNUSABLE_TYPES for tensor in tensors.values()):
        raise _damaged(path, "its numbers are of a type that cannot be multiplied")
    _check_pairs(path, tensors)
    _check_targets(path, tensors, read_all_tensors(base_path), base_path)


def _check_targets(
    path: Path, tensors: Mapping[str, TensorInfo], base: Mapping[str, TensorInfo], base_path: Path
) -> None:
    """Check that each pair changes a matrix of the base model. llama.cpp ignores one for a norm or a bias."""
    for name in (name.removesuffix(FIRST) for name in tensors if name.endswith(FIRST)):
        if name not in base:
            raise _of_another(path, base_path, f"it changes {short_line(name)}, which it does not have")
        if not is_matrix(name, base[name]):
            raise _damaged(path, f"it changes {short_line(name)}, which is not a matrix: llama.cpp would ignore that")
        first, second = tensors[name + FIRST].shape, tensors[name + SECOND].shape
        # The shape of B times A. For the embedding, llama.cpp has A in the other order.
        made = (second[1], first[1]) if name == EMBEDDING else (first[0], second[1])
        if made != (there := base[name].shape[:2]):
            why = f"it changes {short_line(name)} of {made[0]} x {made[1]}, where that has {there[0]} x {there[1]}"
            raise _of_another(path, base_path, why)
    if EMBEDDING + FIRST in tensors and "output.weight" not in base:
        raise _damaged(path, "it changes the embedding of a model that uses the same matrix for its output")


def _check_pairs(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    firsts = {name.removesuffix(FIRST): tensor.shape for name, tensor in tensors.items() if name.endswith(FIRST)}
    seconds = {name.removesuffix(SECOND): tensor.shape for name, tensor in tensors.items() if name.endswith(SECOND)}
    if firsts.keys() != seconds.keys() or len(firsts) + len(seconds) != len(tensors) or not firsts:
        raise _damaged(path, "its tensors are not pairs")
    for name, first in firsts.items():
        second = seconds[name]
        rank = first[1] if len(first) == 2 and name != EMBEDDING else first[0]
        if len(first) != 2 or len(second) != 2 or second[0] != rank:
            raise _damaged(path, f"the two parts of {short_line(name)} do not fit together")


def _of_another(path: Path, base: Path, why: str) -> ModelError:
    hint = "an adapter fits the model that it was trained on, and no other"
    return ModelError("file", f"{path} is for another model than {base.name}: {why}", hint=hint)


def _damaged(path: Path, problem: str) -> ModelError:
    return ModelError("file", f"{path} is damaged: {problem}", hint="convert it again: conductor model import DIR")
