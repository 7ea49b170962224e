"""A GGUF file that `export` wrote -> the model that it came from, to be trained on. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conductor_cli.core.errors import ModelError
from conductor_cli.train.course import Course
from conductor_cli.train.extra import needs
from conductor_cli.train.network import new_model
from conductor_cli.train.qwen2 import names

with needs("torch"):
    import torch


def loaded(path: Path, course: Course) -> Any:  # noqa: ANN401 - a model of transformers, untyped
    """The model of a file that was made by `course`. Raises `ModelError` where the file is not there or another's."""
    with needs("gguf"):
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
