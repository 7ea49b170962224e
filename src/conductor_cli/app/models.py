"""Local models as data: listing, pulling, importing, choosing, verifying and removing them.

The functions return what a command prints; none of them prints. `model_store` and friends below know files only; here
the settings come in: which model plans, and where its prompt states are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.app.planner_resolution import (
    describe_planner,
    has_no_model,
    open_model_store,
    planner_manifest,
    resolve_planner,
)
from conductor_cli.config import Settings
from conductor_cli.config.files import set_value
from conductor_cli.core.errors import ConductorError, ConductorUnusable, ModelError, UsageError
from conductor_cli.models.llama.model_info import part_files, read_model_info
from conductor_cli.models.llama.prefix_cache import delete_states
from conductor_cli.models.machine import Memory, read_memory
from conductor_cli.models.weights.cache import Cache
from conductor_cli.models.weights.download import PullEstimate, estimate_pull
from conductor_cli.models.weights.hub import OFFICIAL, is_offline
from conductor_cli.models.weights.memory_estimate import file_memory, manifest_memory
from conductor_cli.models.weights.model_store import MANIFEST, Manifest
from conductor_cli.models.weights.problems import repair_hint
from conductor_cli.models.weights.progress import Report
from conductor_cli.models.weights.registry import RegistryModel, find_model, listed_model, load_registry
from conductor_cli.models.weights.removal import Removal, bytes_freed, plan_removal, remove_model, unfinished_files
from conductor_cli.models.weights.verify import CheckedFile, verify_model, verify_unknown_file

USUAL_RATE: Final = 10_000_000
"""Bytes a second that an estimate of a download's time assumes."""

ModelState = Literal["installed", "not installed", "partial", "damaged"]


def describe_hash_source(manifest: Manifest) -> str:
    """What the SHA-256 of a model was compared with."""
    if manifest.hash_source == "registry":
        return "matches conductor's registry"
    if manifest.hash_source == "hub" and manifest.endpoint == OFFICIAL:
        return "matches what the hub reported at the first download; not in conductor's registry"
    if manifest.hash_source == "hub":
        return f"checksum reported by {manifest.endpoint} only, not independently verified; saved for next time"
    return "nothing to compare it with; saved for next time"


# Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model in the list. Sizes are in bytes, 0 where unknown; `partial` are those that a stopped pull has left."""

    name: str
    state: ModelState
    size: int = 0
    memory: int = 0
    partial: int = 0
    licence: str = ""
    source: str = ""
    path: str = ""
    base: str = ""
    hash_source: str = ""
    default: bool = False
    in_use: bool = False
    about: str = ""

    def data(self) -> dict[str, Any]:
        """For `--json`; what is not known is null."""
        return {
            "name": self.name, "state": self.state, "in_use": self.in_use, "default": self.default,
            "size": self.size or None, "memory": self.memory or None, "partial": self.partial or None,
            "licence": self.licence or None, "source": self.source, "path": self.path or None,
            "base": self.base or None, "hash_source": self.hash_source or None, "about": self.about or None,
        }  # fmt: skip


def list_models(settings: Settings) -> list[ModelRow]:
    """The registry's models, then other stored ones, then the model that plans if it is neither."""
    store, cache = open_model_store(settings), Cache.from_environment(settings.environ)
    manifests = {manifest.name: manifest for manifest in store.manifests()}
    damaged = store.damaged()
    registry = {model.name: model for model in load_registry(settings.environ)}
    memory = {model.name: model.memory for model in registry.values()}
    chosen, planner = settings["conductor.model"], None
    with suppress(ConductorUnusable):  # its manifest cannot be read: a row says so
        planner = planner_manifest(settings)

    rows = []
    for name in dict.fromkeys((*registry, *manifests, *damaged)):
        default = name == next(iter(registry))  # the registry's first model
        model, manifest = registry.get(name), manifests.get(name)
        if name in damaged:
            path = str(store.folder(name) / MANIFEST)
            rows.append(
                ModelRow(
                    name=name, state="damaged", path=path, about=damaged[name], in_use=name == chosen, default=default
                )
            )
            continue
        partial = bytes_freed(unfinished_files(model, store, cache)) if model else 0
        about = model.about if model else ""
        if manifest is not None:
            row = ModelRow(
                name=name, state="damaged" if manifest.fault() else "installed", size=manifest.size, partial=partial,
                memory=manifest_memory(manifest, manifests, memory), base=manifest.base, licence=manifest.licence,
                source=manifest.source, path=str(manifest.path), hash_source=manifest.hash_source, default=default,
                in_use=planner is not None and planner.name == name, about=about,
            )  # fmt: skip
        else:
            assert model is not None
            row = ModelRow(
                name=name, state="partial" if partial else "not installed", size=model.size, memory=model.memory,
                partial=partial, licence=model.licence, base=model.base, source=f"hub:{model.repo}@{model.revision}",
                default=default, about=about,
            )  # fmt: skip
        rows.append(row)
    return rows + ([_unlisted_planner(settings)] if planner is None and chosen and chosen not in damaged else [])


def _unlisted_planner(settings: Settings) -> ModelRow:
    """The model that plans and is neither stored nor in the registry: a file, a server or a provider's model."""
    name = settings["conductor.model"]
    path = Path(name).expanduser()
    state: ModelState = "not installed"
    with suppress(ConductorError):
        resolve_planner(settings)
        state = "installed"
    size = 0
    with suppress(ModelError, OSError):  # not all parts are there
        size = sum(part.stat().st_size for part in part_files(path))
    memory = file_memory(path, size) if size else 0
    source = settings.origins["conductor.model"]
    return ModelRow(name=name, state=state, size=size, memory=memory, source=source, in_use=True)


def find_stored(name: str, settings: Settings) -> Manifest:
    """The stored model of this name. Raises `ConductorUnusable` with what to do where there is none."""
    manifest = open_model_store(settings).find(name)
    if manifest is not None:
        return manifest
    find_model(name, settings.environ)
    raise ConductorUnusable(f"{name} is not installed", hint=f"conductor model pull {name}")


# Pulling


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPlan:
    """What a pull needs. `memory` is the machine's; `smaller` a model that fits it where the wanted one does not."""

    model: RegistryModel
    estimate: PullEstimate
    memory: Memory
    smaller: RegistryModel | None = None


def find_installed(model: RegistryModel, settings: Settings) -> Manifest | None:
    """The stored model if its files are there and it is still what the registry means."""
    manifest = open_model_store(settings).find_readable(model.name)
    if manifest is None or manifest.fault() or len(manifest.files) != len(model.parts):
        return None
    pairs = zip(model.parts, manifest.files, strict=True)
    return manifest if all(part.sha256 in {"", file.sha256} for part, file in pairs) else None


def is_whole(manifest: Manifest, report: Report) -> bool:
    """Whether the files of a stored model are unchanged; they are read for that."""
    return not any(checked.problem for checked in verify_model(manifest, report))


def plan_pull(model: RegistryModel, settings: Settings) -> PullPlan:
    """What a pull of this model needs, and what the machine has."""
    memory = read_memory()
    # A model that does not fit is still offered: the person may know better, and swap exists.
    smaller = None
    if memory.total and model.memory > memory.total:
        fitting = [
            other for other in load_registry(settings.environ) if other.memory <= memory.total and not other.base
        ]
        smaller = max(fitting, key=lambda other: other.size, default=None)
    return PullPlan(model=model, estimate=estimate_pull(model, settings.environ), memory=memory, smaller=smaller)


def plan_first_pull(settings: Settings) -> PullPlan | None:
    """The pull of the default model that a person should be asked about once; None where there is nothing to ask."""
    if not has_no_model(settings) or _refusal_file(settings).exists():
        return None
    plan = plan_pull(load_registry(settings.environ)[0], settings)
    return None if is_offline(settings.environ) and not plan.estimate.cached else plan


def remember_refusal(settings: Settings) -> None:
    """Do not ask again whether to download the default model."""
    with suppress(OSError):  # then it is asked again
        path = _refusal_file(settings)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text("The question whether to download the default conductor model was answered with no.\n")


def forget_refusal(settings: Settings) -> None:
    """Allow that question again: the person downloads a model after all."""
    with suppress(OSError):
        _refusal_file(settings).unlink(missing_ok=True)


def _refusal_file(settings: Settings) -> Path:
    return settings.paths.state / "no-model-wanted"


# Choosing


def should_become_planner(name: str, settings: Settings, *, use: bool | None) -> bool:
    """Whether a model that was just installed should plan: as asked for, else if no other model does."""
    other = settings["conductor.model"]
    if not other:
        with suppress(ConductorUnusable):  # the manifest of what plans cannot be read
            manifest = planner_manifest(settings)
            other = manifest is not None and manifest.name != name
    return use is True or (use is None and not other)


def is_planner(name: str, settings: Settings) -> bool:
    """Whether the stored model of this name plans."""
    chosen = settings["conductor.model"]
    # Without a readable manifest only the setting says which model plans.
    if {name, chosen} & open_model_store(settings).damaged().keys():
        return bool(chosen == name)
    manifest = planner_manifest(settings)
    return manifest is not None and manifest.name == name


# Verifying


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file that was read again. `compared` says what its SHA-256 was compared with, `hint` how to repair it."""

    name: str
    checked: CheckedFile
    compared: str
    hint: str

    @property
    def problem(self) -> str:
        return self.checked.problem

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        state, found = "damaged" if self.problem else "ok", self.checked
        return {
            "name": self.name, "path": str(found.path), "state": state, "sha256": found.sha256 or None,
            "compared": self.compared, "problem": self.problem or None, "hint": self.hint if self.problem else None,
        }  # fmt: skip


def verify_files(name: str | None, settings: Settings, report: Report) -> list[VerifiedFile]:
    """Verify a model by name or file; without one the model that plans, or all stored ones if no file does."""
    manifests, files = _select_to_verify(name, settings)
    found = [
        VerifiedFile(
            name=manifest.name, checked=checked, compared=describe_hash_source(manifest),
            hint=repair_hint(manifest, settings.environ),
        )
        for manifest in manifests for checked in verify_model(manifest, report)
    ]  # fmt: skip
    unknown = "nothing to compare it with; conductor model import would save it"
    return found + [
        VerifiedFile(
            name=path.name, checked=verify_unknown_file(path, report), compared=unknown, hint="get the file again"
        )
        for path in files
    ]


def _select_to_verify(name: str | None, settings: Settings) -> tuple[Sequence[Manifest], list[Path]]:
    """Stored models, and files without a manifest."""
    store = open_model_store(settings)
    if name is not None:
        path = Path(name).expanduser()
        if store.find(name) is not None or not path.exists():
            return [find_stored(name, settings)], []
        found = [m for m in store.manifests() if path.absolute() in [file.path for file in m.files]]
        return found, [] if found else [path.absolute()]

    manifest = planner_manifest(settings)
    if manifest is not None:
        # An adapter is useless without an intact base, so both are verified.
        base = store.find(manifest.base)
        files = [Path(manifest.base)] if manifest.base and base is None else []
        return [manifest, *([base] if base else [])], files
    chosen, manifests = settings["conductor.model"], store.manifests()
    if chosen and Path(chosen).expanduser().is_file():
        return [], [Path(chosen).expanduser()]
    if chosen or not manifests:
        planner = resolve_planner(settings)  # raises with what to do where no model is chosen
        if planner.kind == "llama" and not Path(planner.model).is_file():
            raise ConductorUnusable(
                f"the model that plans is missing: {planner.model}",
                hint="restore the file, or choose another: conductor model use NAME | FILE",
            )
    if not manifests:
        raise ConductorUnusable("no model is installed", hint="conductor model pull")
    return manifests, []


# Removing


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan:
    """What would go with a model. `adapters` cannot be used without it; `plans`: it is the one that plans."""

    name: str
    removal: Removal
    adapters: tuple[str, ...] = ()
    plans: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalResult:
    """The bytes that are free now, the files that stay, and the setting that still names the model, if one does."""

    freed: int
    kept: tuple[Path, ...]
    named_by: str = ""


def plan_model_removal(name: str, settings: Settings) -> RemovalPlan:
    """What would go with a model: its files, and what a stopped pull has left. Raises `UsageError` for nothing."""
    store, cache = open_model_store(settings), Cache.from_environment(settings.environ)
    removal = plan_removal(name, store, listed_model(name, settings.environ), cache)
    installed = [*(found.name for found in store.manifests()), *store.damaged()]
    if name not in installed and not removal.names:
        hint = f"installed: {', '.join(installed)}" if installed else "conductor model list"
        raise UsageError(f"no model {name!r} is installed", hint=hint)
    adapters = tuple(other.name for other in store.manifests() if other.base == name)
    return RemovalPlan(name=name, removal=removal, adapters=adapters, plans=is_planner(name, settings))


def remove_installed(plan: RemovalPlan, settings: Settings) -> RemovalResult:
    """Remove a model, its prompt states, and the choice of it. Raises `ConductorUnusable` for a file that stays."""
    store, cache = open_model_store(settings), Cache.from_environment(settings.environ)
    manifest = store.find_readable(plan.name)
    freed = 0
    # First the prompt states, which are found by reading the model file. Those of a file that is also stored under
    # another name stay; those of a damaged file go when others need the room.
    others = [other.hashes for other in store.manifests() if other.name != plan.name]
    if manifest is not None and manifest.hashes not in others:
        with suppress(ModelError):
            freed = delete_states(settings.paths.prefixes, read_model_info(manifest.path).identity)
    removal = remove_model(plan.name, store, listed_model(plan.name, settings.environ), cache)
    origin = settings.origins["conductor.model"] if plan.plans and settings["conductor.model"] else ""
    # Only conductor's own settings are changed; a choice in config.toml or a variable is the user's.
    if origin == str(settings.paths.own_file):
        set_value(settings.paths, "conductor.model", None)
        origin = ""
    return RemovalResult(freed=freed + removal.freed, kept=removal.kept, named_by=origin)


def describe_current_planner(settings: Settings) -> str:
    """The name of the model that plans now. Raises `ConductorError` where none can."""
    planner, manifest = resolve_planner(settings), planner_manifest(settings)
    return manifest.name if manifest is not None else describe_planner(planner)
