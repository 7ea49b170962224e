"""Which model plans.

From a URL, a worker, a stored model, a GGUF file, provider/model or nothing to a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError, suggest
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import MAX_STEPS, SMALL_PLANNER_STEPS, UNMEASURED_STEPS
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import PROFILES, PROMPTED, PROMPTED_JSON, ROUTED, Guide, Profile
from conductor_cli.core.usage import FREE
from conductor_cli.models.addresses import base_url_of, holds_password, with_scheme
from conductor_cli.models.base import Model
from conductor_cli.models.command.programs import PROGRAMS, command_of, describe_program
from conductor_cli.models.llama.bindings import is_installed
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.recipients import costs_nothing
from conductor_cli.models.router import SUFFIX, Router, RouterFile, read_planner
from conductor_cli.models.weights.model_store import Manifest, ModelStore
from conductor_cli.models.weights.registry import is_absent, load_registry, not_in_build
from conductor_cli.models.worker_options import model_of

if TYPE_CHECKING:
    from conductor_cli.models.structured_output import SupportsConstraints

IDENTITY_CHARS: Final = len("sha256-ends:") + 16
"""Characters of a file's identity hash that name it: 64 bits are enough to tell one file from
another.
"""

TRY_DEMO: Final = 'conductor ask --demo "What is the capital of France?"'
"""A first question to the demo models, for whoever has no model yet."""


def resolve_planner(settings: Settings) -> Worker:
    """Return the model that plans, as a worker.

    Its name is `conductor`, or its own if it is a configured worker. The setting is a URL, a
    configured worker, a stored model, a GGUF file, or provider/model; where it is empty, the model
    store's default is taken. Raises `ConductorUnusable` or `ConfigError`.
    """
    settings = read_guided(settings).settings
    text = settings["planner.model"]
    configured = settings.worker(text)
    if _is_url(text):
        url, _, model = text.partition("#")
        # The URL is stored in traces and shown, so it must not hold a password.
        if holds_password(url):
            hint = "configure it as a worker with key_env instead"
            raise ConfigError("the planner's URL holds a password", hint=hint)
        planner = Worker(
            name="conductor", kind="openai-compatible", model=model, options={"base_url": url}
        )
    elif configured is not None:
        planner = configured
    elif (manifest := planner_manifest(settings)) is not None:
        planner = _from_store(manifest, settings)
    elif text:
        planner = _from_name(text, settings)
    else:
        raise _nothing_chosen(settings)
    if _adapter(settings) not in ("", planner.options.get("adapter")):
        message = (
            f"the adapter cannot be applied: the planner is {text}, and not a GGUF file of its own"
        )
        hint = "conductor config set planner.adapter default"
        raise ConfigError(message, hint=hint)
    return planner


class Guided(NamedTuple):
    """What a file of `conductor tune` says of the planner.

    The settings with the planner that it names, its guide, and what says so in the planner's name.
    """

    settings: Settings
    guide: Guide
    name: str


def read_guided(settings: Settings) -> Guided:
    """Return what the file of a guided planner says; the settings as they are where they name none.

    Raises `ConductorUnusable`.
    """
    text = settings["planner.model"]
    if SUFFIX not in text:  # asked several times for each run, and most are no file
        return Guided(settings, Guide(), "")
    path = Path(text).expanduser()
    if path.suffix != SUFFIX or not path.is_file():
        return Guided(settings, Guide(), "")
    try:
        file = read_planner(path)
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    if isinstance(file, RouterFile):
        return Guided(settings, Guide(), "")
    values = {**settings.values, "planner.model": file.planner}
    name = f" + {_describe_file('guide', path, {})}"
    return Guided(replace(settings, values=values), file, name)


def planner_manifest(settings: Settings) -> Manifest | None:
    """Return the manifest of the model that plans, None where it is not in the model store.

    It is found by name or by file. Where nothing is chosen, it is the registry's first model, else
    the only one.
    """
    settings = read_guided(settings).settings
    text = settings["planner.model"]
    if _is_url(text) or settings.worker(text) is not None:
        return None
    store = open_model_store(settings)
    if not text:
        manifests = store.manifests()
        if len(manifests) == 1:
            return manifests[0]
        default = ""
        if manifests:
            default = load_registry(settings.environ)[0].name
        for manifest in manifests:
            if manifest.name == default:
                return manifest
        return None
    named = store.find(text)
    if named is not None:
        return named
    path = Path(text).expanduser().absolute()
    if path.suffix != ".gguf" and not path.is_file():
        return None
    for manifest in store.manifests():
        if manifest.path in (path, path.resolve()):
            return manifest
    return None


def open_model_store(settings: Settings) -> ModelStore:
    """Return the store of local models and their manifests."""
    return ModelStore(settings.paths.models)


def has_no_model(settings: Settings) -> bool:
    """Return whether no model is chosen and none is stored.

    Then only downloading or naming one can help.
    """
    if settings["planner.model"]:
        return False
    store = open_model_store(settings)
    return not store.manifests() and not store.damaged()


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _adapter(settings: Settings) -> str:
    """Return the whole path of the adapter that the settings name, or empty."""
    path = settings["planner.adapter"]
    if not path:
        return ""
    return str(Path(path).expanduser().absolute())


def _from_name(text: str, settings: Settings) -> Worker:
    """Return a GGUF file or provider/model.

    Raises `ConductorUnusable`, also for a model that can be downloaded first.
    """
    path = Path(text).expanduser()
    if path.suffix == ".gguf" or path.exists():
        return _from_file(path, settings)
    if text in names_of(load_registry(settings.environ)):
        raise ConductorUnusable(
            f"the planner {text} is not downloaded yet", hint=f"conductor model pull {text}"
        )
    if is_absent(text, settings.environ):
        raise not_in_build(text)
    provider, slash, model = text.partition("/")
    if slash and provider in PRESETS:
        hosted = Worker(name="conductor", kind=provider, model=model)
        return replace(hosted, price=FREE if costs_nothing(hosted) else None)
    names = names_of(open_model_store(settings).manifests())
    names += names_of(load_registry(settings.environ))
    names += settings.worker_names
    otherwise = (
        "conductor model list, conductor model use FILE.gguf, or from the hub: conductor "
        "model pull OWNER/REPO"
    )
    message = (
        f"the planner {text!r} is not a stored model, a file, a URL, a worker or provider/model"
    )
    meant = with_scheme(text)
    if text in PRESETS and PRESETS[text].base_url:  # a provider alone names no model
        meant = f"{text}/{PRESETS[text].model or 'MODEL'}"
    if meant:
        raise ConductorUnusable(message, hint=f"did you mean {meant}?")
    raise ConductorUnusable(message, hint=suggest(text, names, otherwise))


def _from_file(path: Path, settings: Settings) -> Worker:
    options: dict[str, Any] = {
        "gpu_layers": settings["planner.gpu_layers"],
        "context": settings["planner.context"],
    }
    if settings["planner.threads"]:
        options["threads"] = settings["planner.threads"]
    if adapter := _adapter(settings):
        options["adapter"] = adapter
    # A smaller model reads its prompt again faster than the state of it is written to disk.
    if path.is_file() and path.stat().st_size >= 16 << 20:
        options["cache"] = str(settings.paths.cache)
    return Worker(
        name="conductor",
        kind="llama",
        model=str(path.absolute()),
        options=options,
        parallel=1,
        price=FREE,
    )


def _from_store(manifest: Manifest, settings: Settings) -> Worker:
    """Return a stored model; for a stored adapter, its base model with the adapter.

    Raises `ConductorUnusable`.
    """
    base = None
    if manifest.base:
        base = open_model_store(settings).find(manifest.base)
    for stored in (manifest, base):
        problem = ""
        if stored is not None:
            problem = stored.fault()
        if stored is not None and problem:
            from conductor_cli.models.weights.verify import repair_hint  # it reads model files

            hint = repair_hint(stored, settings.environ)
            raise ConductorUnusable(f"the model {stored.name} cannot be used: {problem}", hint=hint)
    if not manifest.base:
        return _from_file(manifest.path, settings)
    path = Path(manifest.base)
    if base is not None:
        path = base.path
    if not path.is_file():
        hint = (
            f"conductor model pull {manifest.base}, or conductor model import FILE --name "
            f"{manifest.base}"
        )
        raise ConductorUnusable(
            f"the adapter {manifest.name} needs {manifest.base}, which is missing", hint=hint
        )
    planner = _from_file(path, settings)
    return replace(planner, options={**planner.options, "adapter": str(manifest.path)})


def _nothing_chosen(settings: Settings) -> ConductorUnusable:
    store = open_model_store(settings)
    if names := ", ".join(names_of(store.manifests())):
        return ConductorUnusable(
            f"no planner is chosen; stored: {names}", hint="conductor model use NAME"
        )
    for name, problem in store.damaged().items():
        return ConductorUnusable(
            problem, hint=f"conductor model rm {name}; then pull or import it again"
        )
    for item in settings.workers:
        if item.enabled and item.worker.kind in PRESETS:
            name = item.worker.name
            hint = (
                f"to have a worker plan: conductor model use {name}; to ask it without a plan: "
                f'conductor ask -m {name} "…"\n'
                "to find or download a planner: conductor setup"
            )
            return ConductorUnusable("no planner is chosen", hint=hint)
    if is_installed():
        hint = f"to find or download one: conductor setup; to try the demo models: {TRY_DEMO}\n"
        hint += (
            "to choose one: conductor model pull, or conductor model use FILE.gguf | URL | "
            "provider/model"
        )
    else:
        # Neither a file nor the demo models can be loaded here
        hint = "to find one: conductor setup; to choose one: conductor model use "
        hint += "WORKER | URL | provider/model"
    return ConductorUnusable("no planner is chosen", hint=hint)


def served_model(worker: Worker) -> tuple[str, ...]:
    """Return where a worker's model is, and its id there."""
    if worker.kind == "llama":
        adapter = str(worker.options.get("adapter") or "")
        return ("llama", _resolved_path(worker.model), _resolved_path(adapter))
    if worker.kind in PROGRAMS:
        return (worker.kind, *command_of(worker))
    return base_url_of(worker) or worker.kind, model_of(worker)


def _resolved_path(file: str) -> str:
    if not file:
        return ""
    return str(Path(file).expanduser().resolve())


def describe_planning_model(planner: Worker, store: ModelStore | None = None) -> str:
    """Return the planner's name, of a file with its hash: so a trace says which weights planned.

    A file is called as `store` calls it, where it is stored. Raises `ConductorUnusable`.
    """
    if planner.kind in PROGRAMS and not planner.model:
        return describe_program(planner)
    if planner.kind != "llama":
        model = ""
        if planner.model:
            model = f"{planner.kind}/{planner.model}"
        return model or str(planner.options.get("base_url", planner.kind))
    names: dict[Path, str] = {}
    if store is not None:
        names = {manifest.path: manifest.name for manifest in store.manifests()}
    adapter = str(planner.options.get("adapter") or "")
    suffix = ""
    if adapter:
        suffix = f" + {_describe_file('adapter', Path(adapter), names)}"
    return _describe_file("planner", Path(planner.model), names) + suffix


def _describe_file(role: str, path: Path, names: Mapping[Path, str]) -> str:
    if path.suffix == SUFFIX and path.is_file():
        return f"{path.name} sha256:{sha256(path.read_bytes()).hexdigest()[:16]}"
    # A planner behind a URL needs nothing of llama.cpp
    from conductor_cli.models.llama.gguf import read_model_info

    try:
        return f"{names.get(path, path.name)} {read_model_info(path).identity[:IDENTITY_CHARS]}"
    except ModelError as error:
        raise ConductorUnusable(
            f"the {role} cannot be used: {error.message}", hint=error.hint
        ) from None


async def resolve_profile(settings: Settings, model: Model | None) -> Profile:
    """Return how prompts for the planner are written and its plans read.

    It is the configured profile. Where that is left to the program and nothing is known of the
    model, plans are JSON if the server can enforce a schema but no grammar.
    """
    if isinstance(model, Router):
        return ROUTED
    guided = read_guided(settings)
    settings = guided.settings
    profile = configured_profile(guided.settings)
    if profile.guide != guided.guide:
        profile = replace(profile, guide=guided.guide)
    is_open = settings["planner.profile"] == "auto" and profile.name == PROMPTED.name
    # To ask a protocol of `typing` takes as long as all else here
    if is_open and hasattr(model, "constraint_support"):
        constraint = await cast("SupportsConstraints", model).constraint_support()
        if constraint == "schema":
            return replace(PROMPTED_JSON, guide=guided.guide)
    return profile


SMALL_PLANNER_BYTES: Final = 2_000_000_000
"""A model file below this size is a small one: it has at most 3 billion weights of 5 bits."""


def max_planned_steps(planner: Worker | None, profile: Profile) -> int:
    """Return the most steps of a plan where the settings do not limit them.

    Few for a model file that was not trained to plan and was not measured by `conductor tune`.
    """
    is_measured = bool(profile.guide.proof) or not profile.untrained
    if planner is None or planner.kind != "llama" or is_measured:
        return MAX_STEPS
    if 0 < _size_of_model(Path(planner.model)) < SMALL_PLANNER_BYTES:
        return SMALL_PLANNER_STEPS
    return UNMEASURED_STEPS


def _size_of_model(path: Path) -> int:
    """Return the bytes of a model file with all its parts; 0 where one is missing."""
    from conductor_cli.models.llama.gguf import part_files

    try:
        return sum(part.stat().st_size for part in part_files(path))
    except (ModelError, OSError):
        return 0


def configured_profile(settings: Settings) -> Profile:
    """Return the profile of the settings, else the one that is known for the model.

    That is the one of its manifest, else of a registry file of this name.
    """
    name = settings["planner.profile"]
    if name != "auto":
        return PROFILES.get(name, PROMPTED)
    # A model that cannot be used is reported where it is opened; a plan that is given needs none.
    with suppress(ConductorUnusable):
        manifest = planner_manifest(settings)
        if manifest is not None:
            profile = PROFILES.get(manifest.profile, PROMPTED)
            is_trained_adapter = bool(manifest.base)
            if is_trained_adapter:
                profile = replace(profile, untrained=False)
            return profile
        file = settings["planner.model"]
        if not file.endswith(".gguf"):
            return PROMPTED
        for entry in load_registry(settings.environ):
            if Path(entry.parts[0].file).name == Path(file).name:
                return PROFILES.get(entry.profile, PROMPTED)
    return PROMPTED
