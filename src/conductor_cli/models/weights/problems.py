"""What is wrong with stored models, as far as that shows without reading them, and how each can be repaired."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conductor_cli.models.weights.model_store import Manifest, ModelStore
from conductor_cli.models.weights.registry import listed_model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProblem:
    """A model's name, what is wrong with it, and what to do."""

    name: str
    problem: str
    hint: str


def find_problems(store: ModelStore, environ: Mapping[str, str]) -> tuple[ModelProblem, ...]:
    """Manifests that cannot be read, and files that are missing or have another size."""
    found = [
        ModelProblem(name=name, problem=problem, hint=f"conductor model rm {name}; then pull or import it again")
        for name, problem in store.damaged().items()
    ] + [
        ModelProblem(name=manifest.name, problem=fault, hint=repair_hint(manifest, environ))
        for manifest in store.manifests() if (fault := manifest.fault())
    ]  # fmt: skip
    return tuple(found)


def repair_hint(manifest: Manifest, environ: Mapping[str, str]) -> str:
    """What restores exactly this model: importing the file that it was made from, or else a pull."""
    kind, _, source = manifest.source.partition(":")
    if kind == "file" and _can_repair(Path(source), manifest):
        return _import_command(shlex.quote(source), manifest)
    if listed_model(manifest.name, environ) is not None:
        return f"conductor model pull {manifest.name}"
    if kind == "file":
        return f"restore {source}, then: {_import_command(shlex.quote(source), manifest)}"
    return f"the registry no longer lists it: get it from {source}, then: {_import_command('FILE', manifest)}"


def _import_command(path: str, manifest: Manifest) -> str:
    base = f" --base {shlex.quote(manifest.base)}" if manifest.base else ""
    return f"conductor model import {path} --name {manifest.name}{base}"


def _can_repair(source: Path, manifest: Manifest) -> bool:
    """Whether the source still exists with the right size, and is not the damaged file itself under another name."""
    try:
        if source.is_dir() or source.suffix == ".safetensors":  # an adapter was converted from it
            return True
        same = manifest.path.exists() and manifest.path.samefile(source)
        return source.stat().st_size == manifest.files[0].size and not same
    except OSError:
        return False
