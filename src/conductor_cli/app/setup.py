"""Setting up: what there is on this machine, and which steps are proposed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.app.keys import KeyRow, key_state, keys_in_variables, keys_of_workers, open_key_store, stored_row
from conductor_cli.app.models import USUAL_RATE
from conductor_cli.app.planner_resolution import describe_planner, open_model_store, resolve_planner
from conductor_cli.app.policy_filter import policy_objection
from conductor_cli.app.worker_selection import discovered_workers
from conductor_cli.app.workers import UNKNOWN_PRICE, describe_price
from conductor_cli.config import ConfiguredWorker, Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_duration, format_size
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price
from conductor_cli.keys.keyring import probe_keyring
from conductor_cli.models import disk
from conductor_cli.models.machine import Gpu, Memory, find_gpus, physical_cores, read_memory
from conductor_cli.models.presets import PRESETS, is_free, is_local, model_of, recipient_of
from conductor_cli.models.prices import with_prices
from conductor_cli.models.weights.cache import Cache
from conductor_cli.models.weights.download import estimate_pull
from conductor_cli.models.weights.registry import RegistryModel, load_registry

NO_MODEL: Final = "none"
"""What `--model` says for no conductor model."""

FREE_LICENCES: Final = frozenset({"Apache-2.0", "MIT"})
"""What is proposed unasked; a model under another licence is for whoever asks for it."""

SPARE_MEMORY: Final = 1 << 30
"""Bytes of memory that a proposed model leaves for everything else."""

LIMITS: Final = {"run": (Decimal("0.50"), 200_000), "day": (Decimal(5), 2_000_000)}
"""What is proposed for a run and a day: US dollars, or tokens where a price is not known.

Five steps that each read 20,000 tokens and write 2,000 at 2 and 10 dollars a million cost 0.30.
"""

StepKind = Literal["model", "worker", "limit"]


# What there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What there is on this machine. Memory and `free`, the room for downloads, are in bytes, 0 where unknown.

    `keyring` is the name of one that works, or empty. `workers` are those that a run would use where none are set up;
    `planner` is the model that plans, in words, or empty.
    """

    memory: Memory
    cores: int
    gpus: tuple[Gpu, ...]
    downloads: Path
    free: int
    keyring: str
    keys: tuple[KeyRow, ...]
    workers: tuple[Worker, ...]
    planner: str

    @property
    def local_workers(self) -> list[Worker]:
        """The models of servers on this machine."""
        return [worker for worker in self.workers if is_local(worker)]

    def data(self) -> dict[str, Any]:
        """For `--json`; it contains no key."""
        return {
            "memory": {"total": self.memory.total or None, "available": self.memory.available or None},
            "cores": self.cores,
            "gpus": [{"kind": gpu.kind, "name": gpu.name} for gpu in self.gpus],
            "downloads": {"path": str(self.downloads), "free": self.free},
            "keyring": self.keyring or None,
            "keys": [row.data() for row in self.keys],
            "servers": [{"kind": worker.kind, "model": worker.model} for worker in self.local_workers],
            "conductor": self.planner or None,
            "workers": [worker.name for worker in self.workers],
        }


def look_around(settings: Settings) -> Findings:
    """Look at this machine. Raises `ConfigError`."""
    with ThreadPoolExecutor(1) as pool:  # a keyring may take seconds to answer
        keyring = pool.submit(probe_keyring, settings.environ)
        downloads = Cache.from_environment(settings.environ).directory
        free = 0
        with suppress(OSError):
            free = disk.free_bytes(downloads)
        findings = Findings(
            memory=read_memory(), cores=physical_cores(), gpus=find_gpus(settings.environ), downloads=downloads,
            free=free, keyring="", keys=(), workers=(), planner=planner_name(settings),
        )  # fmt: skip
        findings = look_at_keys(findings, settings)
        with suppress(ConductorError):  # none works, which the caller sees by the empty name
            findings = replace(findings, keyring=keyring.result().backend)
        return findings


def look_at_keys(findings: Findings, settings: Settings) -> Findings:
    """The same findings with the keys and workers there are now. The keyring is not asked. Raises `ConfigError`."""
    store = open_key_store(settings)
    rows = [*keys_in_variables(settings), *keys_of_workers(settings)]
    rows += [stored_row(entry, store.path) for entry in store.entries().values()]
    # Of several keys for one provider the first wins, as in a run.
    first = {row.provider: row for row in reversed(rows)}
    workers = tuple(item.worker for item in discovered_workers(settings))
    return replace(findings, keys=tuple(first.values())[::-1], workers=workers)


def planner_name(settings: Settings) -> str:
    """The model that plans, in words; empty where none is chosen or it cannot be used."""
    try:
        return describe_planner(resolve_planner(settings), open_model_store(settings))
    except ConductorError:
        return ""


# Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """One thing to set up. `command` does the same; it is empty where the thing is `done` already."""

    kind: StepKind
    name: str
    text: str
    command: str = ""
    done: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        state = "done" if self.done else "proposed"
        return {
            "step": self.kind, "name": self.name, "state": state, "about": self.text, "command": self.command or None,
            **self.details,
        }  # fmt: skip


def propose_steps(findings: Findings, settings: Settings, wanted_model: str = "") -> list[SetupStep]:
    """Everything to set up, and what is done already. The model comes last: its prompt names the workers."""
    workers = propose_workers(findings, settings)
    # Which limits make sense depends on the prices of the workers, also of those that are only proposed.
    limits = propose_limits(configured_workers(settings, workers), settings)
    model = propose_model(findings, settings, wanted_model)
    return [*workers, *limits, *([] if model is None else [model])]


# Workers


def propose_workers(findings: Findings, settings: Settings) -> list[SetupStep]:
    """The workers that are set up, then those that were found, are new, and that no rule forbids."""
    steps = [_configured_step(item, settings) for item in settings.workers]
    names = {item.worker.name for item in settings.workers}
    known = {(item.worker.kind, model_of(item.worker)) for item in settings.workers}
    allowed = [worker for worker in findings.workers if not policy_objection(settings, worker)]
    for worker in _with_known_prices(allowed):
        if (worker.kind, worker.model) not in known:
            # A second worker of the same name gets a number; names have at most 40 characters.
            candidates = (worker.name, *(f"{worker.name[:36]}-{number}" for number in range(2, 99)))
            steps.append(_new_worker_step(worker, next(name for name in candidates if name not in names)))
            names.add(steps[-1].name)
    return steps


def configured_workers(settings: Settings, steps: Sequence[SetupStep] = ()) -> list[Worker]:
    """The workers that are enabled, with those that steps add, and their prices."""
    workers = [item.worker for item in settings.workers if item.enabled]
    for step in steps:
        if step.kind == "worker" and not step.done:
            table = dict(step.details["worker"])
            workers.append(Worker(name=step.name, kind=table.pop("kind"), model=table.pop("model"), options=table))
    return _with_known_prices(workers)


def _configured_step(item: ConfiguredWorker, settings: Settings) -> SetupStep:
    [worker] = _with_known_prices([item.worker])
    model = model_of(worker) if worker.kind == worker.name else f"{worker.kind} {model_of(worker)}".rstrip()
    parts = [model, _describe_price(worker), *([] if item.enabled else ["disabled"])]
    if key_state(worker, settings.environ, open_key_store(settings)) == "missing":
        parts.append(f"its key is missing: conductor keys set {worker.kind}")
    return SetupStep(kind="worker", name=worker.name, text=", ".join(parts), done=True)


def _new_worker_step(worker: Worker, name: str) -> SetupStep:
    table = {"kind": worker.kind, "model": worker.model, **worker.options}
    flags = {"kind": "--kind", "model": "--model", "base_url": "--base-url"}
    words = [word for key, flag in flags.items() if table.get(key) for word in (flag, str(table[key]))]
    recipient, price = recipient_of(worker), _known_price(worker)
    model = worker.model if worker.kind == name else f"{worker.kind} {worker.model}"
    shown = None if price is None else {"input": f"{price.input:f}", "output": f"{price.output:f}"}
    return SetupStep(
        kind="worker", name=name, text=f"{model}, sends text to {recipient}, {_describe_price(worker)}",
        command=f"conductor workers add {name} {shlex.join(words)}",
        details={"worker": table, "recipient": recipient, "price": shown},
    )  # fmt: skip


def _with_known_prices(workers: Sequence[Worker]) -> list[Worker]:
    """The same workers with the prices that a run would use."""
    return list(with_prices(workers)[0])


def _known_price(worker: Worker) -> Price | None:
    """The price of a worker's tokens, nothing for a model on this machine; None where it is not known."""
    return worker.price or (FREE if is_free(worker) else None)


def _describe_price(worker: Worker) -> str:
    price = _known_price(worker)
    return f"price {UNKNOWN_PRICE}" if price is None else describe_price(price)


# Limits


def propose_limits(workers: Sequence[Worker], settings: Settings) -> list[SetupStep]:
    """Limits on what a run and a day may use, where a worker may cost something.

    They are in dollars where every price is known, since a limit in dollars is refused for workers without one; else
    in tokens.
    """
    with suppress(ConductorError):  # planning is paid for, too
        workers = [*workers, *_with_known_prices([resolve_planner(settings)])]
    prices = [_known_price(worker) for worker in workers]
    costs = any(price is None or any(price.amounts()) for price in prices)
    steps = [_limit_step(period, settings, known=None not in prices) for period in LIMITS]
    return [step for step in steps if step.done or costs]


def _limit_step(period: str, settings: Settings, *, known: bool) -> SetupStep:
    """The limit of a run or a day that is set, or the one that is proposed."""
    suffix = "_day" if period == "day" else ""
    # Whoever limits calls or tokens has decided; a limit in dollars is not proposed on top of that.
    for kind in ("cost", "tokens", "calls"):
        name = f"limits.{kind}{suffix}"
        if (most := settings[name]) is not None:
            return SetupStep(kind="limit", name=name, text=_describe_limit(kind, most, period), done=True)
    dollars, tokens = LIMITS[period]
    kind, most = ("cost", dollars) if known else ("tokens", tokens)
    name = f"limits.{kind}{suffix}"
    return SetupStep(
        kind="limit", name=name, text=_describe_limit(kind, most, period),
        command=f"conductor config set {name} {most}", details={"value": f"{most}"},
    )  # fmt: skip


def _describe_limit(kind: str, most: Decimal | int, period: str) -> str:
    return f"at most {f'${most:f}' if kind == 'cost' else f'{most:,} {kind}'} a {period}"


# The conductor model


def propose_model(findings: Findings, settings: Settings, wanted: str = "") -> SetupStep | None:
    """The model in use, the `wanted` one, or one that suits this machine; None for none.

    Raises `ConductorUnusable` or `ConfigError` for an unusable registry or name.
    """
    if wanted == NO_MODEL:
        return None
    chosen = settings["conductor.model"]
    listed = {model.name: model for model in load_registry(settings.environ)}
    if wanted:
        command = f"conductor model use {shlex.quote(wanted)}"
        step = SetupStep(kind="model", name=wanted, text=wanted, command=command)
        return _pull_step(listed[wanted.lower()], settings) if wanted.lower() in listed else step
    # What works already is never replaced by a proposal.
    if findings.planner:
        return SetupStep(kind="model", name=chosen or findings.planner, text=findings.planner, done=True)
    if chosen:
        # A model of the registry can be downloaded again; another choice is left to the person who made it.
        return _pull_step(listed[chosen], settings) if chosen in listed else _unusable_step(chosen, settings)
    stored = next(iter(open_model_store(settings).manifests()), None)
    if stored is not None:
        text = f"{stored.name}: {format_size(stored.size)}, installed but not chosen"
        return SetupStep(kind="model", name=stored.name, text=text, command=f"conductor model use {stored.name}")
    model = fitting_model(findings, settings)
    return _pull_step(model, settings) if model is not None else _hosted_step(findings, settings)


def fitting_model(findings: Findings, settings: Settings) -> RegistryModel | None:
    """The registry's default where memory and disk have room for it, else the largest that fits."""
    first, *others = load_registry(settings.environ)
    smaller = sorted((model for model in others if model.size <= first.size), key=lambda model: -model.size)
    for model in (first, *smaller):
        fits = not findings.memory.total or model.memory + SPARE_MEMORY <= findings.memory.total
        # The default was chosen by hand; the others are proposed under licences that allow any use only.
        allowed = model is first or model.licence in FREE_LICENCES
        if model.base or not model.size or not fits or not allowed:
            continue
        missing = estimate_pull(model, settings.environ).missing
        if not missing or missing + disk.MARGIN <= findings.free:
            return model
    return None


def _unusable_step(chosen: str, settings: Settings) -> SetupStep:
    problem = "it cannot be read"
    try:
        resolve_planner(settings)
    except ConductorError as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    return SetupStep(kind="model", name=chosen, text=f"{chosen} is chosen but cannot be used: {problem}", done=True)


def _pull_step(model: RegistryModel, settings: Settings) -> SetupStep:
    missing = estimate_pull(model, settings.environ).missing
    duration = format_duration(missing / USUAL_RATE, tenths=False)
    download = f"{format_size(missing)} to download, about {duration} at {format_size(USUAL_RATE)}/s"
    size = format_size(model.size) if model.size else "size unknown"
    text = (
        f"{model.name}: {size}, licence {model.licence}, needs {format_size(model.memory)} of memory; "
        f"{download if missing else 'already downloaded'}"
    )
    details = {
        "size": model.size or None, "missing": missing, "memory": model.memory or None, "licence": model.licence,
        "source": f"hub:{model.repo}@{model.revision}",
    }  # fmt: skip
    command = f"conductor model pull {model.name} --use"
    return SetupStep(kind="model", name=model.name, text=text, command=command, details=details)


def _hosted_step(findings: Findings, settings: Settings) -> SetupStep | None:
    """A provider's model as the conductor, where no local one fits this machine."""
    for worker in findings.workers:
        usable = PRESETS[worker.kind].adapter == "openai" and worker.model
        if usable and not policy_objection(settings, worker, plans=True):
            name = f"{worker.kind}/{worker.model}"
            text = f"{name}: no local model fits this machine, so each question goes to {worker.kind}"
            return SetupStep(kind="model", name=name, text=text, command=f"conductor model use {shlex.quote(name)}")
    return None
