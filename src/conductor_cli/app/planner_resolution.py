"""Which model plans: from a name, a file, an address or nothing to a worker that can be opened."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError, KeyMissing, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import PROFILES, PROMPTED, PROMPTED_JSON, Profile
from conductor_cli.core.usage import FREE

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.base import Model
    from conductor_cli.models.weights.model_store import Manifest, ModelStore

IDENTITY: Final = len("sha256-ends:") + 16
"""Characters of a file's identity hash that name it: 64 bits are enough to tell one file from another."""

WORTH_REMEMBERING: Final = 16 << 20
"""Bytes of a model below which its prompt is read again faster than a file could be written for it."""


def resolve_planner(settings: Settings) -> Worker:
    """The model that plans, as a worker of its own.

    It is a URL, a listed worker, a stored model, a GGUF file, or provider/model; where nothing is chosen, the model
    store's default. Raises `ConductorUnusable` or `ConfigError`, that also for an adapter that would lie over nothing.
    """
    planner = _planner_of(settings)
    if _adapter(settings) not in ("", planner.options.get("adapter")):
        given = settings.origins["conductor.adapter"] == "command line"
        raise ConfigError(
            f"an adapter is laid over a GGUF file, and the conductor is {settings['conductor.model']}",
            hint="leave --adapter out" if given else "conductor config set conductor.adapter default",
        )
    return planner


def _adapter(settings: Settings) -> str:
    """The adapter that the settings name, by its whole path, or empty."""
    named = settings["conductor.adapter"]
    return str(Path(named).expanduser().absolute()) if named else ""


def _planner_of(settings: Settings) -> Worker:
    text = settings["conductor.model"]
    if text.startswith(("http://", "https://")):
        return _served(text)
    listed = next((item.worker for item in settings.workers if item.worker.name == text), None)
    if listed is not None:
        return listed
    manifest = planner_manifest(settings)
    if manifest is not None:
        return _shelved(manifest, settings)
    if not text:
        raise _nothing_chosen(settings)
    return _named(text, settings)


def planner_manifest(settings: Settings) -> Manifest | None:
    """The manifest of the model that plans: by its name or file, or the default where nothing is chosen."""
    store, text = open_model_store(settings), settings["conductor.model"]
    if not text:
        return _default(store, settings)
    if text.startswith(("http://", "https://")) or any(item.worker.name == text for item in settings.workers):
        return None
    found = store.find(text)
    if found is not None:
        return found
    path = Path(text).expanduser().absolute()
    if path.suffix != ".gguf" and not path.is_file():
        return None
    return next((manifest for manifest in store.manifests() if manifest.path in (path, path.resolve())), None)


def open_model_store(settings: Settings) -> ModelStore:
    """Where the manifests of local models are."""
    from conductor_cli.models.weights.model_store import ModelStore

    return ModelStore(settings.paths.models)


def has_no_model(settings: Settings) -> bool:
    """Whether no model is chosen and none is in the model store, so that only getting one can help."""
    store = open_model_store(settings)
    return not settings["conductor.model"] and not store.manifests() and not store.damaged()


def _default(store: ModelStore, settings: Settings) -> Manifest | None:
    """The registry's first model where it is in the model store, else the model store's only one."""
    from conductor_cli.models.weights.registry import load_registry

    manifests = store.manifests()
    first = load_registry(settings.environ)[0].name if manifests else ""
    found = next((manifest for manifest in manifests if manifest.name == first), None)
    return found or (manifests[0] if len(manifests) == 1 else None)


def _nothing_chosen(settings: Settings) -> ConductorUnusable:
    from conductor_cli.models.weights.registry import load_registry

    names = ", ".join(manifest.name for manifest in open_model_store(settings).manifests())
    if names:
        return ConductorUnusable(f"no conductor model is chosen; here are: {names}", hint="conductor model use NAME")
    damaged = open_model_store(settings).damaged()
    if damaged:
        hint = f"conductor model rm {damaged[0].name}; then pull or import it again"
        raise ConductorUnusable(damaged[0].problem, hint=hint)
    first = load_registry(settings.environ)[0]
    pull = f"conductor model pull ({first.name}, {format_size(first.size) if first.size else 'size unknown'})"
    own = "conductor model use FILE.gguf | URL | provider/model"
    return ConductorUnusable("no conductor model is chosen", hint=f"{pull}, or one of yours: {own}")


def _served(text: str) -> Worker:
    url, _, name = text.partition("#")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("the conductor's address holds a password", hint="list it as a worker, with key_env")
    return Worker(name="conductor", kind="openai-compatible", model=name, options={"base_url": url})


def _named(text: str, settings: Settings) -> Worker:
    """A file, a name that the registry knows, or provider/model."""
    from conductor_cli.models.presets import PRESETS, is_free
    from conductor_cli.models.weights.registry import load_registry

    path = Path(text).expanduser()
    provider, slash, name = text.partition("/")
    if path.suffix == ".gguf" or path.exists():
        return _local(path, settings)
    if any(entry.name == text for entry in load_registry(settings.environ)):
        raise ConductorUnusable(f"the conductor model {text} is not here yet", hint=f"conductor model pull {text}")
    if slash and provider in PRESETS:
        hosted = Worker(name="conductor", kind=provider, model=name)
        return replace(hosted, price=FREE if is_free(hosted) else None)
    raise ConductorUnusable(
        f"the conductor model {text!r} is no model that is here, and no file, URL, worker or provider/model",
        hint="conductor model list, or conductor model use FILE.gguf",
    )


def _shelved(manifest: Manifest, settings: Settings) -> Worker:
    """A model of the model store; for an adapter its base, with the adapter laid over it."""
    _check(manifest, settings)
    if not manifest.base:
        return _local(manifest.path, settings)
    if settings["conductor.adapter"]:
        raise ConfigError(
            f"conductor.adapter is set, and {manifest.name} is an adapter itself",
            hint="conductor config set conductor.adapter default",
        )
    base = open_model_store(settings).find(manifest.base)
    if base is not None:
        _check(base, settings)
    path = base.path if base is not None else Path(manifest.base)
    if not path.is_file():
        raise ConductorUnusable(
            f"{manifest.name} is laid over {manifest.base}, which is not here",
            hint=how_to_get_model(manifest.base, settings),
        )
    planner = _local(path, settings)
    return replace(planner, options={**planner.options, "adapter": str(manifest.path)})


def _check(manifest: Manifest, settings: Settings) -> None:
    """Whether the files are still there, by their sizes. Raises `ConductorUnusable`."""
    from conductor_cli.models.weights.problems import repair_hint

    fault = manifest.fault()
    if fault:
        hint = repair_hint(manifest, settings.environ)
        raise ConductorUnusable(f"the model {manifest.name} cannot be used: {fault}", hint=hint)


def how_to_get_model(name: str, settings: Settings) -> str:
    """How to get a model that is not in the model store."""
    from conductor_cli.models.weights.registry import load_registry

    if any(entry.name == name for entry in load_registry(settings.environ)):
        return f"conductor model pull {name}"
    return f"conductor model import FILE --name {name}" if "/" not in name else "put the file there again"


def _local(path: Path, settings: Settings) -> Worker:
    options: dict[str, Any] = {"gpu_layers": settings["conductor.gpu_layers"], "context": settings["conductor.context"]}
    if settings["conductor.threads"]:
        options["threads"] = settings["conductor.threads"]
    if adapter := _adapter(settings):
        options["adapter"] = adapter
    if path.is_file() and path.stat().st_size >= WORTH_REMEMBERING:
        options["cache"] = str(settings.paths.cache)
    return Worker(name="conductor", kind="llama", model=str(path.absolute()), options=options, parallel=1, price=FREE)


def missing_key_notice(planner: Worker, settings: Settings) -> str:
    """What to say of a conductor behind an API whose key is not at hand, else nothing. Raises `ConfigError`."""
    from conductor_cli.app.keys import open_key_store
    from conductor_cli.models.catalog import api_key_of
    from conductor_cli.models.presets import PRESETS

    try:
        if planner.kind in PRESETS:
            api_key_of(planner, settings.environ, open_key_store(settings))
    except KeyMissing as error:
        return f"{error.message}; without it nothing is planned ({error.hint})"
    return ""


def describe_planner(planner: Worker, store: ModelStore | None = None) -> str:
    """The conductor model's name; a file's with its identity hash, so that a trace says which weights planned.

    A file that `store` knows is called as it is there. Raises `ConductorUnusable`.
    """
    if planner.kind != "llama":
        return (
            f"{planner.kind}/{planner.model}" if planner.model else str(planner.options.get("base_url", planner.kind))
        )
    adapter = str(planner.options.get("adapter") or "")
    names = {manifest.path: manifest.name for manifest in (store.manifests() if store is not None else ())}
    over = f" + {_identified('adapter', Path(adapter), names)}" if adapter else ""
    return _identified("conductor model", Path(planner.model), names) + over


def _identified(what: str, path: Path, names: Mapping[Path, str]) -> str:
    from conductor_cli.models.llama import read_model_info

    try:
        return f"{names.get(path, path.name)} {read_model_info(path).identity[:IDENTITY]}"
    except ModelError as error:
        raise ConductorUnusable(f"the {what} cannot be used: {error.message}", hint=error.hint) from None


def configured_profile(settings: Settings) -> Profile:
    """How the chosen conductor is spoken to: what the settings say, else what is known of the model."""
    name = settings["conductor.profile"]
    return PROFILES.get(_known_profile(settings) if name == "auto" else name, PROMPTED)


async def resolve_profile(settings: Settings, model: Model | None) -> Profile:
    """How the opened conductor `model` is spoken to.

    Where nothing is set, and nothing known of it says otherwise, it writes JSON if its server holds replies to a schema
    and to no grammar.
    """
    from conductor_cli.models.structured_output import SupportsConstraints

    profile = configured_profile(settings)
    is_open = settings["conductor.profile"] == "auto" and profile is PROMPTED
    if is_open and isinstance(model, SupportsConstraints) and await model.holds() == "schema":
        return PROMPTED_JSON
    return profile


def _known_profile(settings: Settings) -> str:
    """The profile of the model's manifest, else of the registry's entry for a file that is called like its own."""
    from conductor_cli.models.weights.registry import load_registry

    with suppress(ConductorUnusable):  # told where the model is opened; a plan that is there needs none
        manifest = planner_manifest(settings)
        if manifest is not None:
            return manifest.profile
        name = Path(settings["conductor.model"]).name if settings["conductor.model"].endswith(".gguf") else ""
        return next(
            (
                entry.profile
                for entry in load_registry(settings.environ)
                if name and Path(entry.parts[0].file).name == name
            ),
            "",
        )
    return ""
