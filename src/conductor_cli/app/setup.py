"""Setting up: what there is on this machine, and which steps are proposed.

A planner on this machine is proposed first where it works well: the trained one on a small machine,
a larger one with a GPU or eight cores, one that a server here has loaded. Where none does and there
is a key, a hosted one is: it sends questions only to a provider that workers send them to anyway,
and is quicker than an untrained model on a few cores.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.app.keys import FoundKey, find_keys, key_state, open_key_store
from conductor_cli.app.models import USUAL_RATE, models_to_pull
from conductor_cli.app.planner_resolution import (
    TRY_DEMO,
    describe_planning_model,
    open_model_store,
    resolve_planner,
)
from conductor_cli.app.worker_selection import discovered_workers, policy_objection
from conductor_cli.app.workers import UNKNOWN_PRICE, describe_price, free_name, model_address
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_count, format_duration, format_money, format_size
from conductor_cli.core.mappings import by_name, names_of
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.addresses import base_url_of
from conductor_cli.models.command.process import installed_agents
from conductor_cli.models.llama.bindings import built_wheel_command, is_installed
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import with_prices
from conductor_cli.models.recipients import costs_nothing, is_local, recipient_of
from conductor_cli.models.weights.download import missing_bytes
from conductor_cli.models.weights.huggingface import cache_directory
from conductor_cli.models.weights.registry import RegistryModel, load_registry
from conductor_cli.models.worker_options import model_of
from conductor_cli.state.key_store import probe_keyring
from conductor_cli.system import disk
from conductor_cli.system.hardware import Gpu, Memory, find_gpus, physical_cores, read_memory

NO_MODEL: Final = "none"  # What `--model` says for no planner

FREE_LICENCES: Final = frozenset({"Apache-2.0", "MIT"})
"""What is proposed unasked; a model under another licence is for whoever asks for it."""

SMALL_BYTES: Final = 5 << 29  # Of a small planner, of up to 3B
SMALL_MACHINE_CORES: Final = 8  # Below it and without a GPU, a 7B is slow to read a prompt
SPARE_BYTES: Final = 1 << 30  # Of memory, left for everything else

LIMITS: Final = {"run": (Decimal("0.50"), 200_000), "day": (Decimal(5), 2_000_000)}
"""What is proposed for a run and a day: US dollars, or tokens where a price is not known.

Five steps that each read 20,000 tokens and write 2,000 at 2 and 10 dollars a million cost 0.30.
"""


# What there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What there is on this machine.

    Memory and `free`, the room for downloads, are in bytes, 0 where unknown.

    `cores` are physical ones, 0 where unknown; `llama` says whether llama.cpp is installed, which
    local models need. `keyring` is the name of one that works, or empty. `workers` are those that a
    run would use where none are set up. `agents` are kinds of programs: they act with the user's
    rights, so they are only named and never added unasked.
    """

    memory: Memory
    cores: int = 0
    gpus: tuple[Gpu, ...] = ()
    llama: bool = True
    downloads: Path
    free: int
    keyring: str = ""
    keys: tuple[FoundKey, ...] = ()
    workers: tuple[Worker, ...] = ()
    agents: tuple[str, ...] = ()

    def lines(self) -> dict[str, str]:
        """Return what a person reads, by topic; it contains no key."""
        servers = [f"{worker.model} ({worker.kind})" for worker in self.workers if is_local(worker)]
        lines = {
            "memory": f"{format_size(self.memory.total)}, {format_size(self.memory.available)} free"
        }
        if not self.llama:
            command = built_wheel_command()
            lines["llama.cpp"] = f"not installed; models on this machine need it: {command}"
        lines["GPU"] = ", ".join(names_of(self.gpus)) or "none"
        lines["disk"] = f"{format_size(self.free)} free for models in {self.downloads}"
        lines["keyring"] = self.keyring or "none that works"
        lines["keys"] = ", ".join(f"{key.provider} in {key.source}" for key in self.keys) or "none"
        lines["servers"] = ", ".join(servers) or "none on this machine"
        lines["agents"] = "none"
        if self.agents:
            add = f"conductor workers add NAME --kind {self.agents[0]}"
            lines["agents"] = f"{', '.join(self.agents)}; to add one: {add}"
        return lines


def look_around(settings: Settings) -> Findings:
    """Look at this machine. Raises `ConfigError`."""
    with ThreadPoolExecutor(1) as pool:  # a keyring may take seconds to answer
        keyring = pool.submit(probe_keyring, settings.environ)
        downloads = cache_directory()
        free = 0
        with suppress(OSError):
            free = disk.free_bytes(downloads)
        findings = Findings(
            memory=read_memory(),
            cores=physical_cores(),
            gpus=find_gpus(settings.environ),
            llama=is_installed(),
            downloads=downloads,
            free=free,
            agents=installed_agents(settings.environ),
        )
        findings = look_at_keys(findings, settings)
        with suppress(ConductorError):  # none works, which the caller sees by the empty name
            findings = replace(findings, keyring=keyring.result())
        return findings


def look_at_keys(findings: Findings, settings: Settings) -> Findings:
    """Return the same findings with the keys and workers there are now. The keyring is not asked.

    Raises `ConfigError`.
    """
    # Of several keys for one provider the first wins, as in a run.
    first = {key.provider: key for key in reversed(find_keys(settings, open_key_store(settings)))}
    workers = tuple(item.worker for item in discovered_workers(settings))
    return replace(findings, keys=tuple(first.values())[::-1], workers=workers)


def without_refused(findings: Findings, settings: Settings) -> Findings:
    """Return the same findings without the new workers, which a person did not want.

    Nor does such a model plan, or another one of a provider that no worker of theirs is at.
    """
    providers = {worker.kind for worker in settings.enabled_workers}
    keys = tuple(key for key in findings.keys if key.provider in providers)
    return replace(findings, workers=(), keys=keys)


# Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """One thing to set up.

    `command` has the words after `conductor` that do it; empty where it is done already.
    """

    kind: Literal["model", "worker", "limit"]
    name: str
    text: str
    command: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return not self.command

    @property
    def command_line(self) -> str:
        return shlex.join(["conductor", *self.command])

    def to_json(self) -> dict[str, Any]:
        command = None
        if not self.done:
            command = self.command_line
        return {
            "step": self.kind,
            "name": self.name,
            "done": self.done,
            "about": self.text,
            "command": command,
        }


def propose_steps(
    findings: Findings, settings: Settings, wanted_model: str = ""
) -> list[SetupStep]:
    """Return everything to set up, and what is done already.

    The model comes last: its prompt names the workers.
    """
    return [
        *propose_workers(findings, settings),
        *propose_limits(new_workers(findings, settings), settings),
        *propose_model(findings, settings, wanted_model),
    ]


def next_step(settings: Settings) -> str:
    """Return the most useful command now: to ask, or what is still missing for that."""
    try:
        planner = resolve_planner(settings)
    except ConductorError as error:
        try:
            disk.try_writing(settings.paths.config)
        except OSError as refused:
            return (
                f"nothing can be set up, because {settings.paths.config} cannot be written "
                f"({refused.strerror}); "
                "next: HOME=DIR conductor setup, with a directory of yours, or "
                f"{PREFIX}CONFIG_DIR=DIR"
            )
        next_command = "conductor model use WORKER | URL | provider/model"
        if is_installed():
            next_command = (
                "conductor model pull, or conductor model use NAME | FILE.gguf | URL | "
                f"provider/model; to try it without: {TRY_DEMO}"
            )
        return f"{error.message}, so no question can be answered yet; next: {next_command}"
    if key_state(planner, settings.environ, open_key_store(settings)) == "missing":
        return f"next: conductor keys set {planner.kind}, since the model that plans has no key"
    return 'next: conductor ask "…"; conductor doctor checks that everything works'


# Workers


def propose_workers(findings: Findings, settings: Settings) -> list[SetupStep]:
    """Return the workers that are set up, then the new ones."""
    steps = list[SetupStep]()
    store = open_key_store(settings)
    for item in settings.workers:
        [worker] = with_prices([item.worker])[0]
        parts = [
            f"{worker.name}: {worker.kind} {model_of(worker)}".rstrip(),
            _describe_price(worker),
        ]
        if not item.enabled:
            parts.append("disabled")
        if key_state(worker, settings.environ, store) == "missing":
            parts.append(f"its key is missing: conductor keys set {worker.kind}")
        steps.append(SetupStep(kind="worker", name=worker.name, text=", ".join(parts)))
    for worker in new_workers(findings, settings):
        command = ["workers", "add", worker.name, "--kind", worker.kind]
        if worker.model:
            command += ["--model", worker.model]
        if base_url := worker.options.get("base_url"):
            command += ["--base-url", str(base_url)]
        recipient = recipient_of(worker)
        price = _describe_price(worker)
        text = f"{worker.name}: {worker.kind} {worker.model}, sends text to {recipient}, {price}"
        steps.append(SetupStep(kind="worker", name=worker.name, text=text, command=tuple(command)))
    return steps


def new_workers(findings: Findings, settings: Settings) -> list[Worker]:
    """Return the workers that were found and are not set up yet, each under a free name.

    Those that a rule forbids are left out.
    """
    names = set(settings.worker_names)
    # The same model of the same provider under another name would only answer twice.
    models = {model_address(item.worker) for item in settings.workers}
    allowed = [worker for worker in findings.workers if not policy_objection(settings, worker)]
    workers: list[Worker] = []
    for worker in with_prices(allowed)[0]:
        if model_address(worker) not in models:
            name = free_name(worker.name, names)
            names.add(name)
            workers.append(replace(worker, name=name))
    return workers


def _known_price(worker: Worker) -> Price | None:
    """Return the price of a worker's tokens, None where it is not known.

    A model on this machine costs nothing.
    """
    if worker.price:
        return worker.price
    if costs_nothing(worker):
        return FREE
    return None


def _describe_price(worker: Worker) -> str:
    price = _known_price(worker)
    if price is None:
        return f"price {UNKNOWN_PRICE}"
    return describe_price(price)


# Limits


def propose_limits(added: Sequence[Worker], settings: Settings) -> list[SetupStep]:
    """Return limits on what a run and a day may use, where a worker may cost something.

    That is one that is set up, or `added`. They are in dollars where every price is known, since a
    limit in dollars is refused for workers without one; else in tokens.
    """
    paid_for = [*settings.enabled_workers, *added]
    with suppress(ConductorError):  # planning is paid for, too
        paid_for.append(resolve_planner(settings))
    prices = [_known_price(worker) for worker in with_prices(paid_for)[0]]
    may_cost = any(price is None or not price.is_free for price in prices)
    steps: list[SetupStep] = []
    for period, (dollars, tokens) in LIMITS.items():
        # Whoever limits calls or tokens has decided; a limit in dollars is not proposed on top of
        # that.
        name = _limit_of(settings, period)
        if name:
            text = _describe_limit(name, settings[name], period)
            steps.append(SetupStep(kind="limit", name=name, text=text))
        elif may_cost:
            limit: Decimal | int = dollars
            if None in prices:
                limit = tokens
            kind = "cost"
            if None in prices:
                kind = "tokens"
            name = _limit_setting(kind, period)
            command = ("config", "set", name, f"{limit}")
            text = _describe_limit(name, limit, period)
            steps.append(SetupStep(kind="limit", name=name, text=text, command=command))
    return steps


def _limit_of(settings: Settings, period: str) -> str:
    """Return the name of a limit of a period that is set; empty where none is."""
    for kind in ("cost", "tokens", "calls"):
        name = _limit_setting(kind, period)
        if settings[name] is not None:
            return name
    return ""


def _limit_setting(kind: str, period: str) -> str:
    if period == "day":
        return f"limits.{kind}_day"
    return f"limits.{kind}"


def _describe_limit(name: str, limit: Decimal | int, period: str) -> str:
    if "cost" in name:
        amount = format_money(limit)
    else:
        unit = name.partition(".")[2].removesuffix("_day")
        amount = f"{limit:,} {unit}"
    return f"{name}: at most {amount} a {period}"


# The planner


def propose_model(findings: Findings, settings: Settings, wanted: str = "") -> list[SetupStep]:
    """Return the model in use, the `wanted` one, or one that suits this machine; empty for none.

    Raises `ConductorUnusable` or `ConfigError` for an unusable registry.
    """
    chosen = settings["planner.model"]
    listed = by_name(load_registry(settings.environ))
    if wanted == NO_MODEL:
        return []
    if wanted in listed:
        return [_pull_step(listed[wanted], settings)]
    if wanted:
        command: tuple[str, ...] = ("model", "use", wanted)
        if Path(wanted).expanduser().is_file():
            command = ("model", "import", wanted, "--use")
        return [SetupStep(kind="model", name=wanted, text=wanted, command=command)]
    try:
        planner = describe_planning_model(resolve_planner(settings), open_model_store(settings))
        return [SetupStep(kind="model", name=chosen or planner, text=planner)]
    except ConductorError as error:
        # What was chosen is never replaced by another model, not even where it cannot be used.
        if chosen in listed:
            return [_pull_step(listed[chosen], settings)]
        if chosen:
            text = f"{chosen} cannot be used: {error.message}"
            return [SetupStep(kind="model", name=chosen, text=text)]
    stored = next(iter(open_model_store(settings).manifests()), None)
    if stored is not None:
        text = f"{stored.name}: {format_size(stored.size)}, installed but not chosen"
        return [
            SetupStep(
                kind="model", name=stored.name, text=text, command=("model", "use", stored.name)
            )
        ]
    return _propose_new_model(findings, settings)


def _propose_new_model(findings: Findings, settings: Settings) -> list[SetupStep]:
    """Return a planner for a machine that has none, the first of those that the module names."""
    model = None
    if findings.llama:
        model = fitting_model(findings, settings)
    hosted = hosted_planner(findings, settings)
    if hosted is not None and (model is None or not _works_well(model, findings)):
        running = _running_planner(findings, settings)
        if running is not None and is_local(running):
            return [_use_running_step(running, _describe_other(hosted))]
        return [_use_hosted_step(hosted, model)]
    if model is None:
        if findings.llama:
            return []
        return propose_running_model(findings, settings)
    text = _describe_size(model, findings, settings)
    if hosted is not None:
        text += _describe_other(hosted)
    step = _pull_step(model, settings)
    return [replace(step, text=step.text + text)]


def _works_well(model: RegistryModel, findings: Findings) -> bool:
    """Return whether plans of a model are quick enough here, or were found to be good."""
    return model.is_packaged or not _is_small_machine(findings)


def _use_hosted_step(hosted: Worker, model: RegistryModel | None) -> SetupStep:
    name = _hosted_name(hosted)
    later = ""
    if model is not None:
        later = f"; to plan on this machine later: conductor model pull {model.name} --use"
    text = (
        f"{name}: sends each question to {recipient_of(hosted)}, {_describe_price(hosted)}{later}"
    )
    return SetupStep(kind="model", name=name, text=text, command=("model", "use", name))


def _describe_other(hosted: Worker) -> str:
    """Return how to have a hosted planner in place of one on this machine."""
    return (
        f"; hosted in its place, with each question sent to {recipient_of(hosted)}: "
        f"conductor model use {_hosted_name(hosted)}"
    )


def _hosted_name(hosted: Worker) -> str:
    return f"{hosted.kind}/{hosted.model}"


def propose_running_model(findings: Findings, settings: Settings) -> list[SetupStep]:
    """Propose the largest model of a server as the planner, where this machine loads none itself.

    Empty where no worker is one. Models on this machine come before others.
    """
    planner = _running_planner(findings, settings)
    if planner is None:
        return []
    return [_use_running_step(planner)]


def _running_planner(findings: Findings, settings: Settings) -> Worker | None:
    workers = list[Worker]()
    for worker in (*settings.enabled_workers, *new_workers(findings, settings)):
        if worker.kind in PRESETS and not policy_objection(settings, worker):
            workers.append(worker)
    return max(
        workers,
        key=lambda worker: (is_local(worker), parameters_of(model_of(worker))),
        default=None,
    )


def _use_running_step(planner: Worker, other: str = "") -> SetupStep:
    text = (
        f"{planner.name}: {model_of(planner)} at {base_url_of(planner)}, which also answers as a "
        f"worker{other}"
    )
    command = ("model", "use", planner.name)
    return SetupStep(kind="model", name=planner.name, text=text, command=command)


def parameters_of(model: str) -> float:
    """Return how many billions of parameters the name of a model says, 0 where it says nothing."""
    sizes = re.findall(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])", model.lower())
    return max(map(float, sizes), default=0.0)


def hosted_planner(findings: Findings, settings: Settings) -> Worker | None:
    """Return the cheapest model that may plan of those whose key is there and that no rule forbids.

    None without a key.
    """
    allowed = []
    for kind in dict.fromkeys(key.provider for key in findings.keys):
        if kind not in PRESETS:
            continue
        planner = Worker(name="conductor", kind=kind, model=PRESETS[kind].planner)
        if planner.model and not policy_objection(settings, planner):
            allowed.append(planner)
    priced = [planner for planner in with_prices(allowed)[0] if planner.price is not None]
    return min(priced, key=_token_price, default=None)


def _token_price(worker: Worker) -> Decimal:
    """Return what a million tokens in and a million out cost in US dollars."""
    if worker.price is None:
        return Decimal(0)
    return Decimal(worker.price.input + worker.price.output)


def fitting_model(findings: Findings, settings: Settings) -> RegistryModel | None:
    """Return the registry's default where there is room for it, else the largest that fits.

    Where there are fewer than eight cores and no GPU, the planner that was trained for that, if
    this build has it; else with few cores the largest that is small. The default was chosen by
    hand; others are proposed under licences only that allow any use.
    """
    trained = _trained_planner(findings, settings)
    if trained is not None:
        return trained
    fitting = _fitting_models(findings, settings)
    default = load_registry(settings.environ)[0].name
    allowed = []
    for model in fitting:
        if model.name == default or model.licence in FREE_LICENCES:
            allowed.append(model)
    small = [model for model in allowed if model.size <= SMALL_BYTES]
    choice = allowed
    if small and _has_few_cores(findings):
        choice = small
    if not choice:
        return None
    return choice[0]


def _trained_planner(findings: Findings, settings: Settings) -> RegistryModel | None:
    """Return the planner of this package on a small machine that holds it: it is the best there."""
    if not _is_small_machine(findings):
        return None
    for model in load_registry(settings.environ):
        if model.is_packaged and _fits_in_memory(model, findings):
            base, _ = models_to_pull(model, settings)
            if _fits_on_disk(base, findings):
                return model
    return None


def _is_small_machine(findings: Findings) -> bool:
    return 0 < findings.cores < SMALL_MACHINE_CORES and not findings.gpus


def _has_few_cores(findings: Findings) -> bool:
    # Two read a first prompt for a 7B in about 90 s
    return 0 < findings.cores < 4 and not findings.gpus


def _fitting_models(findings: Findings, settings: Settings) -> list[RegistryModel]:
    """Return the registry's default and all smaller models that fit, the default first.

    Memory and disk have room for one that fits.
    """
    default, *others = load_registry(settings.environ)
    # The base of a trained planner is not proposed without the training.
    bases = {model.base for model in others if model.is_packaged}
    others.sort(key=lambda model: -model.size)
    models: list[RegistryModel] = []
    for model in (default, *others):
        is_alone = not model.base and model.name not in bases
        is_planner = is_alone and 0 < model.size <= default.size
        if is_planner and _fits_in_memory(model, findings) and _fits_on_disk(model, findings):
            models.append(model)
    return models


def _fits_in_memory(model: RegistryModel, findings: Findings) -> bool:
    if not findings.memory.total:
        return True
    return model.memory + SPARE_BYTES <= findings.memory.total


def _fits_on_disk(model: RegistryModel, findings: Findings) -> bool:
    missing = missing_bytes(model)
    return not missing or missing + disk.MARGIN_BYTES <= findings.free


def _describe_size(model: RegistryModel, findings: Findings, settings: Settings) -> str:
    """Return what to know about small planners before one is downloaded.

    The text is empty where there is no choice.
    """
    larger = load_registry(settings.environ)[0].name
    if model.is_packaged:
        return f"; {model.about}; larger, not compared: conductor setup --model {larger}"
    if model.size <= SMALL_BYTES:
        cores = ""
        if _has_few_cores(findings):
            cores = f", chosen for {format_count(findings.cores, 'core')}"
        return (
            f"{cores}; likely to plan worse than {larger}, which was not measured: "
            f"conductor setup --model {larger}"
        )
    small = []
    for other in _fitting_models(findings, settings):
        if other.size <= SMALL_BYTES:
            small.append(_describe_small(other))
    if not small:
        return ""
    how = "faster, and likely to plan worse, which was not measured"
    return f"; {how}: {', '.join(small)}: conductor setup --model NAME"


def _describe_small(model: RegistryModel) -> str:
    if model.licence in FREE_LICENCES:
        return f"{model.name} ({format_size(model.size)})"
    return f"{model.name} ({format_size(model.size)}, not for commercial use)"


def _pull_step(model: RegistryModel, settings: Settings) -> SetupStep:
    parts = models_to_pull(model, settings)
    missing = sum(missing_bytes(part) for part in parts)
    download = "already downloaded"
    if missing:
        duration = format_duration(missing / USUAL_RATE, tenths=False)
        rate = f"{format_size(USUAL_RATE)}/s"
        download = f"{format_size(missing)} to download, about {duration} at {rate}"
    size = "size unknown"
    if all(part.size for part in parts):
        size = format_size(sum(part.size for part in parts))
    needs = f"needs {format_size(model.memory)} of memory"
    return SetupStep(
        kind="model",
        name=model.name,
        text=f"{model.name}: {size}, licence {model.licence}, {needs}; {download}",
        command=("model", "pull", model.name, "--use", "--yes"),
    )
