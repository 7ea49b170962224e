"""Local models as data: listing, choosing, verifying and removing them.

The functions return what a command prints. `models/weights/` knows files only; here the settings
come in: which model plans, and where its prompt states are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.app.planner_resolution import (
    open_model_store,
    planner_manifest,
    resolve_planner,
)
from conductor_cli.config.files import set_value
from conductor_cli.config.settings import Settings
from conductor_cli.core.chat import PromptProgress
from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError, UsageError
from conductor_cli.core.mappings import by_name
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.llama.bindings import is_installed
from conductor_cli.models.weights.download import (
    Removal,
    find_stopped_pulls,
    plan_removal,
    pull_model,
    remove_model,
    unfinished_files,
)
from conductor_cli.models.weights.hub_model import find_hub_model, parse_reference
from conductor_cli.models.weights.model_store import MANIFEST, Manifest
from conductor_cli.models.weights.packaged_adapter import install_packaged, source_of
from conductor_cli.models.weights.registry import (
    RegistryModel,
    find_registry_model,
    listed_model,
    load_registry,
    manifest_memory,
)
from conductor_cli.models.weights.verify import (
    CheckedFile,
    Report,
    check_model_of,
    find_problems,
    verify_model,
)

USUAL_RATE: Final = 10_000_000  # Bytes a second that an estimate of a download's time assumes

# Listing

ModelState = Literal["installed", "not installed", "partial", "damaged", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model in the list.

    Sizes are in bytes, 0 where unknown; `partial` are those that a stopped pull has left.

    A model `elsewhere` plans, and is not in the model store: a file, a server, or a provider's
    model.
    """

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

    def to_json(self) -> dict[str, Any]:
        """For `--json`; what is not known is null."""
        fields = asdict(self)
        for key, value in fields.items():
            if not value and not isinstance(value, bool):
                fields[key] = None
        return fields


def list_model_rows(settings: Settings) -> list[ModelRow]:
    """Return the registry's models, then other stored ones, and stopped pulls.

    The model that plans comes last if it is none of these.
    """
    store = open_model_store(settings)
    planning = stored_planner(settings)
    manifests = by_name(store.manifests())
    damaged = store.damaged()
    registry = by_name(load_registry(settings.environ))
    memory = {model.name: model.memory for model in registry.values()}
    default = next(iter(registry))

    rows = []
    for name in dict.fromkeys((*registry, *manifests, *damaged)):
        row = ModelRow(name=name, state="damaged")
        if (model := registry.get(name)) is not None:
            row = _registry_row(model)
        if name in damaged:
            row = replace(
                row, state="damaged", path=str(store.folder(name) / MANIFEST), about=damaged[name]
            )
        elif (manifest := manifests.get(name)) is not None:
            row = _stored_row(row, manifest, manifest_memory(manifest, manifests, memory))
        rows.append(replace(row, in_use=name == planning, default=name == default))
    rows += map(_stopped_row, find_stopped_pulls(registry.values()))
    if (chosen := settings["planner.model"]) and not planning:
        source = settings.origins["planner.model"]
        rows.append(ModelRow(name=chosen, state="elsewhere", source=source, in_use=True))
    return rows


def _registry_row(model: RegistryModel) -> ModelRow:
    partial = _pulled_bytes(model)
    state: ModelState = "not installed"
    if partial:
        state = "partial"
    source = f"hub:{model.repo}@{model.revision}"
    if model.is_packaged:
        source = source_of(model)
    return ModelRow(
        name=model.name,
        state=state,
        size=model.size,
        memory=model.memory,
        partial=partial,
        licence=model.licence,
        base=model.base,
        source=source,
        about=model.about,
    )


def _stored_row(row: ModelRow, manifest: Manifest, memory: int) -> ModelRow:
    state: ModelState = "installed"
    if manifest.fault():
        state = "damaged"
    return replace(
        row,
        state=state,
        size=manifest.size,
        memory=memory,
        base=manifest.base,
        licence=manifest.licence,
        source=manifest.source,
        path=str(manifest.path),
        hash_source=manifest.hash_source,
    )


def _stopped_row(model: RegistryModel) -> ModelRow:
    """Return the row of a stopped pull: it has no name yet, so it is called as it was pulled."""
    source = f"hub:{model.repo}"
    partial = _pulled_bytes(model)
    return ModelRow(name=model.reference, state="partial", partial=partial, source=source)


def _pulled_bytes(model: RegistryModel) -> int:
    """Return the size of what is there of a model whose pull has not ended."""
    return sum(path.stat().st_size for path in unfinished_files(model))


# Pulling


def model_to_pull(name: str | None, settings: Settings) -> RegistryModel:
    """Return what a name of the registry means, or `OWNER/REPO[:CHOICE]` on the hub.

    Without one, the default.

    Raises `ConductorUnusable` with what to do for another text.
    """
    if name is None:
        return load_registry(settings.environ)[0]
    reference = parse_reference(name)
    if reference is None or Path(name).is_file():  # a file on this machine is imported
        return find_registry_model(name, settings.environ)
    return find_hub_model(*reference, open_model_store(settings), settings.environ)


def models_to_pull(model: RegistryModel, settings: Settings) -> list[RegistryModel]:
    """Return a model with what it cannot be used without: a packaged adapter after its base."""
    if not model.is_packaged:
        return [model]
    return [find_registry_model(model.base, settings.environ), model]


def install_model(model: RegistryModel, settings: Settings, report: Report) -> Manifest:
    """Download a model, or install an adapter of this package, whose base is there.

    Raises `ConductorUnusable`, and `ConfigError` where the manifest cannot be written.
    """
    store = open_model_store(settings)
    if not model.is_packaged:
        return pull_model(model, store, report)
    base = store.find(model.base)
    if base is None:
        hint = f"conductor model pull {model.base}"
        raise ConductorUnusable(f"{model.name} needs {model.base}, which is missing", hint=hint)
    return install_packaged(model, base, store, report)


def describe_model(manifest: Manifest, settings: Settings) -> dict[str, Any]:
    """Return a stored model for `--json`: as in the list, with its files."""
    row = by_name(list_model_rows(settings))[manifest.name]
    files = []
    for file in manifest.files:
        file_facts = {
            "path": str(file.path),
            "size": file.size,
            "sha256": file.sha256,
            "downloaded": file.downloaded,
        }
        files.append(file_facts)
    return {**row.to_json(), "files": files}


def find_installed(model: RegistryModel, settings: Settings) -> Manifest | None:
    """Return the stored model if its files are there and it is still what the registry means."""
    manifest = open_model_store(settings).find_readable(model.name)
    if manifest is None or manifest.fault() or len(manifest.files) != len(model.parts):
        return None
    if model.is_packaged:
        is_current = manifest.source == source_of(model)
        return manifest if is_current else None
    pairs = zip(model.parts, manifest.files, strict=True)
    if all(part.sha256 in {"", file.sha256} for part, file in pairs):
        return manifest
    return None


# Choosing


def stored_planner(settings: Settings) -> str:
    """Return the name of the stored model that plans; empty where none of them does."""
    try:
        manifest = planner_manifest(settings)
    except ConductorUnusable:  # its manifest cannot be read, so that only the setting names it
        return str(settings["planner.model"])
    if manifest is not None:
        return manifest.name
    return ""


def checked_planner(settings: Settings) -> Worker:
    """Return the model that plans, whose files were checked where this machine loads it.

    Raises `ConductorUnusable` or `ConfigError`.
    """
    planner = resolve_planner(settings)
    try:
        check_model_of(planner)
    except ModelError as error:
        message = f"the planner cannot be used: {error.message}"
        raise ConductorUnusable(message, hint=error.hint) from None
    return planner


def should_become_planner(name: str, settings: Settings, *, use: bool | None) -> bool:
    """Return whether a model that was just installed should plan.

    As asked for, else if no other model does.
    """
    free = not settings["planner.model"] and stored_planner(settings) in {"", name}
    if use is None:
        return free
    return use


async def prepare_planner(settings: Settings, report: Callable[[PromptProgress], object]) -> Usage:
    """Have a planner on this machine read what comes before every question, and keep its state.

    `report` is told how far it is. Returns what was read: `tokens_in` without `tokens_cached`;
    nothing where the planner is not a model file that can be loaded here. Raises `ConductorError`
    where no question could be answered.
    """
    from conductor_cli.app.opening import OpeningRequest, open_orchestra

    if not is_installed() or resolve_planner(settings).kind != "llama":
        return NO_USAGE
    opened = await open_orchestra(OpeningRequest(settings=settings, learning=True))
    try:
        return await opened.orchestra.prepare(report)
    finally:
        await opened.close()


# Verifying


def verify_files(name: str | None, settings: Settings, report: Report) -> list[CheckedFile]:
    """Verify a stored model; without a name all of them."""
    store = open_model_store(settings)
    environ = settings.environ
    if name is not None:
        if (manifest := store.find(name)) is None:
            find_registry_model(name, environ)  # where that is no model at all
            raise ConductorUnusable(f"{name} is not installed", hint=f"conductor model pull {name}")
        return verify_model(manifest, environ, report)
    damaged = store.damaged()
    checked = [problem for problem in find_problems(store, environ) if problem.name in damaged]
    for manifest in store.manifests():
        checked += verify_model(manifest, environ, report)
    if not checked:
        raise ConductorUnusable("no model is installed", hint="conductor model pull")
    return checked


# Removing


def plan_model_removal(name: str, settings: Settings) -> Removal:
    """Return what would go with a model: its files, and what a stopped pull left.

    Raises `UsageError` for nothing.
    """
    store = open_model_store(settings)
    removal = plan_removal(name, store, _find_pulled(name, settings))
    if not removal.names and name not in store.damaged() and store.find(name) is None:
        raise UsageError(f"no model {name!r} is installed", hint="conductor model list")
    return removal


def remove_installed(name: str, settings: Settings) -> Removal:
    """Remove a model, and the choice of it. Raises `ConductorUnusable` for a file that stays."""
    plans = stored_planner(settings) == name
    removal = remove_model(name, open_model_store(settings), _find_pulled(name, settings))
    # Only conductor's own settings are changed; a choice in config.toml or a variable is the
    # user's.
    if plans and settings.origins["planner.model"] == str(settings.paths.own_file):
        set_value(settings.paths, "planner.model", None)
    return removal


def _find_pulled(name: str, settings: Settings) -> RegistryModel | None:
    """Return the model of the registry, or the stopped pull, that the list calls by this name."""
    if "/" not in name:
        return listed_model(name, settings.environ)
    with suppress(ConfigError):  # the registry cannot be read
        for model in find_stopped_pulls(load_registry(settings.environ)):
            if model.reference == name:
                return model
    return None
