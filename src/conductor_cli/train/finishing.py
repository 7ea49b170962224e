"""The end of a real conductor's training: its last checkpoint becomes a GGUF file. Imports torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.models.weights.disk import check_room
from conductor_cli.train.base import Base, loaded, quiet
from conductor_cli.train.checkpoints import last_checkpoint
from conductor_cli.train.extra import needs
from conductor_cli.train.presets import Recipe

KINDS: Final = ("qwen2",)
"""The architectures that can be exported."""


def check_kind(base: Base) -> None:
    """Raise `ConfigError` where a model like this cannot be exported."""
    if base.kind not in KINDS:
        said = f"the export knows {', '.join(KINDS)}, and {base.directory.name} is {base.kind}"
        raise ConfigError(said, hint="leave out --export, and convert the last checkpoint with llama.cpp's own script")


def exported(directory: Path, base: Base, recipe: Recipe, *, merged: bool) -> Path:
    """The GGUF file of the last checkpoint: an adapter, or with `merged` (and where there is none) a whole model.

    Raises `ConductorUnusable` where the disk has no room for it, `ConfigError` without a checkpoint, `ModelError`.
    """
    from conductor_cli.train.gguf_export import export_adapter, export_model

    check_kind(base)
    checkpoint = last_checkpoint(directory)
    if checkpoint is None:
        raise ConfigError(f"there is no checkpoint in {directory}", hint="train first")
    if recipe.lora is not None and not merged:
        check_room(directory, 4 * base.shape.adapter, "--out")
        return export_adapter(checkpoint, base.directory, directory / "adapter.gguf")
    check_room(directory, (6 if merged else 2) * base.shape.weights, "--out")
    path = directory / "conductor.gguf"
    if recipe.lora is None:
        return export_model(checkpoint, path, name=directory.absolute().name)
    whole = directory / "merged"
    try:
        _merge(checkpoint, base, whole)
        return export_model(whole, path, name=directory.absolute().name)
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def _merge(checkpoint: Path, base: Base, whole: Path) -> None:
    """Lay the adapter into the weights of its base."""
    with needs("peft"):
        from peft import PeftModel
    model, _ = loaded(base, lora=None)
    try:
        with quiet():
            PeftModel.from_pretrained(model, checkpoint).merge_and_unload().save_pretrained(whole)
            base.reader.save_pretrained(whole)
    except (OSError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:160]
        raise ModelError("file", f"{checkpoint} cannot be merged: {said}", hint="export the adapter instead") from error
