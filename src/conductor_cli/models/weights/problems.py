"""What is wrong with the model store, as far as a look tells, and how each model comes back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.weights.model_store import Manifest, ModelStore
from conductor_cli.models.weights.registry import load_registry

_FILE: Final = "file:"
_HUB: Final = "hub:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProblem:
    """A model by its name, what is wrong with it, and what to do."""

    name: str
    problem: str
    hint: str


def find_problems(store: ModelStore, environ: Mapping[str, str]) -> tuple[ModelProblem, ...]:
    """Manifests that cannot be read, files that are gone or of another size."""
    found = []
    for damaged in store.damaged():
        hint = f"conductor model rm {damaged.name}; then pull or import it again"
        found.append(ModelProblem(name=damaged.name, problem=damaged.problem, hint=hint))
    gone = ((manifest, fault) for manifest in store.manifests() if (fault := manifest.fault()))
    found += [
        ModelProblem(name=manifest.name, problem=fault, hint=repair_hint(manifest, environ)) for manifest, fault in gone
    ]
    return tuple(found)


def repair_hint(manifest: Manifest, environ: Mapping[str, str]) -> str:
    """What brings back this very model when it is gone or damaged: the file it was made of, or else a pull."""
    source = Path(manifest.source.removeprefix(_FILE)) if manifest.source.startswith(_FILE) else None
    if source is not None and _is_other(source, manifest):
        return _import(str(source), manifest)
    if _is_listed(manifest.name, environ):
        return f"conductor model pull {manifest.name}"
    if source is not None:
        return f"put {source} there again, then: {_import(str(source), manifest)}"
    repo = manifest.source.removeprefix(_HUB)
    return f"the registry does not list it any more: get it from {repo}, then: {_import('FILE', manifest)}"


def _import(path: str, manifest: Manifest) -> str:
    base = f" --base {shlex.quote(manifest.base)}" if manifest.base else ""
    return f"conductor model import {path if path == 'FILE' else shlex.quote(path)} --name {manifest.name}{base}"


def _is_other(source: Path, manifest: Manifest) -> bool:
    """Whether there is a source with bytes of its own, as many as the model has: not the damaged ones once more."""
    try:
        if source.is_dir() or source.suffix == ".safetensors":  # an adapter was converted from it
            return True
        return source.stat().st_size == manifest.files[0].size and not _is_same(source, manifest.path)
    except OSError:
        return False


def _is_same(source: Path, path: Path) -> bool:
    return path.exists() and path.samefile(source)


def _is_listed(name: str, environ: Mapping[str, str]) -> bool:
    try:
        return any(entry.name == name for entry in load_registry(environ))
    except ConfigError:
        return False
