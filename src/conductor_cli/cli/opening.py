"""From settings to a `Conductor`: which model plans, which workers there are, and opening them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import (
    ConductorError,
    ConductorUnusable,
    ConfigError,
    Failure,
    KeyMissing,
    ModelError,
    PolicyError,
    UsageError,
)
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import PROFILES
from conductor_cli.core.usage import FREE

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.port import Model
    from conductor_cli.run import Conductor

IDENTITY: Final = len("sha256-ends:") + 16
"""Characters of a file's identity hash that name it: 64 bits are enough to tell one file from another."""


@dataclass
class Opened:
    """A conductor ready to run, and the models to close after it."""

    conductor: Conductor
    models: list[Model] = field(default_factory=list)

    async def close(self) -> None:
        """Close every model. One that fails to close must not hide the answer."""
        await asyncio.gather(*(model.close() for model in self.models), return_exceptions=True)


async def open_conductor(
    settings: Settings,
    *,
    only: Sequence[str] = (),
    stored: Sequence[str] = (),
    planning: bool = True,
    streams: bool = False,
    seed: int | None = None,
) -> Opened:
    """Open the conductor model (unless a plan is given, `planning` false) and every worker.

    `only` are the workers that a command line names, `stored` those of a run that is resumed, as far as they exist.
    Raises `ConductorUnusable`, `KeyMissing` or `ConfigError`.
    """
    from conductor_cli.run import Conductor

    planner = planner_of(settings) if planning else None
    pool, remarks = await pool_of(settings, planner, only)
    kept = [name for name in stored if name in pool]
    pool = pool.subset(kept) if kept and not only else pool
    model = _open_planner(planner, settings) if planner is not None and planning else None
    workers, absent = _open_workers(pool, settings, planner, model)
    profile = PROFILES[settings["conductor.profile"]]
    name = described(planner) if planner else "plan file"
    conductor = Conductor(
        model=model, pool=pool, workers=workers, absent=absent, remarks=remarks, name=name,
        profile=profile, limits=settings.limits, patience=settings.patience,
        mode=settings["conductor.mode"], exact=planner is not None and planner.kind == "llama",
        price=planner.price if planner else None, streams_answer=streams, seed=seed, random=random.Random(seed),  # noqa: S311 - jitter, no secret
    )  # fmt: skip
    return Opened(conductor=conductor, models=_distinct(model, workers))


def _distinct(model: Model | None, workers: Mapping[str, Model]) -> list[Model]:
    everything = [*workers.values(), *([model] if model is not None else [])]
    return list({id(item): item for item in everything}.values())


def planner_of(settings: Settings) -> Worker:
    """The model that plans, as a worker of its own: a GGUF file, a URL, a listed worker, or provider/model."""
    from conductor_cli.models.presets import PRESETS, is_free

    text = settings["conductor.model"]
    if not text:
        raise ConductorUnusable(
            "no conductor model is chosen",
            hint="conductor model use FILE.gguf, or for one run: --conductor FILE.gguf | URL | provider/model",
        )
    if text.startswith(("http://", "https://")):
        url, _, name = text.partition("#")
        if "@" in url.partition("://")[2].partition("/")[0]:
            raise ConfigError("the conductor's address holds a password", hint="list it as a worker, with key_env")
        return Worker(name="conductor", kind="openai-compatible", model=name, options={"base_url": url})
    listed = next((item.worker for item in settings.workers if item.worker.name == text), None)
    if listed is not None:
        return listed
    path = Path(text).expanduser()
    provider, slash, name = text.partition("/")
    if path.suffix == ".gguf" or path.exists():
        return _local(path, settings)
    if slash and provider in PRESETS:
        hosted = Worker(name="conductor", kind=provider, model=name)
        return replace(hosted, price=FREE if is_free(hosted) else None)
    raise ConductorUnusable(
        f"the conductor model {text!r} is no file, URL, worker or provider/model", hint="conductor model use FILE.gguf"
    )


def _local(path: Path, settings: Settings) -> Worker:
    options: dict[str, Any] = {"gpu_layers": settings["conductor.gpu_layers"], "context": settings["conductor.context"]}
    if settings["conductor.threads"]:
        options["threads"] = settings["conductor.threads"]
    return Worker(name="conductor", kind="llama", model=str(path.absolute()), options=options, parallel=1, price=FREE)


async def pool_of(settings: Settings, planner: Worker | None, only: Sequence[str]) -> tuple[Pool, tuple[str, ...]]:
    """The workers: those of the files, else what is at hand, else the conductor model itself; and what to say of it."""
    listed = tuple(item.worker for item in settings.workers if item.enabled)
    for name in only:
        if name in [item.worker.name for item in settings.workers if not item.enabled]:
            raise PolicyError(f"worker {name!r} is disabled", hint=f"conductor workers enable {name}")
    remarks: tuple[str, ...] = ()
    if not settings.workers:
        from conductor_cli.models.discover import discover

        listed = await discover(settings.environ)
        if not listed:
            listed = (replace(planner or planner_of(settings), name="local", about="the conductor's own model"),)
        remarks = (_said(listed),)
    pool = Pool(workers=listed)
    return (named(pool, only) if only else pool), remarks


def named(pool: Pool, names: Sequence[str]) -> Pool:
    """The workers that a command line names. Raises `UsageError` for an unknown one."""
    try:
        return pool.subset(names)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _said(found: Sequence[Worker]) -> str:
    if [worker.name for worker in found] == ["local"]:
        return "no workers are configured and none was found at hand: the conductor model answers too"
    return f"no workers are configured; found at hand: {', '.join(worker.name for worker in found)}"


def _open_planner(planner: Worker, settings: Settings) -> Model:
    from conductor_cli.models.catalog import open_model

    try:
        return open_model(planner, environ=settings.environ)
    except ModelError as error:
        raise ConductorUnusable(f"the conductor model cannot be used: {error.message}", hint=error.hint) from None


def _open_workers(
    pool: Pool, settings: Settings, planner: Worker | None, model: Model | None
) -> tuple[dict[str, Model], dict[str, Failure]]:
    """A model for each worker; those that cannot be opened are absent, unless that leaves none."""
    from conductor_cli.models.catalog import open_model

    workers: dict[str, Model] = {}
    absent: dict[str, Failure] = {}
    first: ConductorError | None = None
    # Weights are loaded once: plan and steps take turns on them.
    loaded = {planner.model: model} if model is not None and planner is not None and planner.kind == "llama" else {}
    for worker in pool:
        if worker.kind == SELF:
            continue
        if worker.kind == "llama" and worker.model in loaded:
            workers[worker.name] = loaded[worker.model]
            continue
        try:
            workers[worker.name] = open_model(worker, environ=settings.environ)
            loaded |= {worker.model: workers[worker.name]} if worker.kind == "llama" else {}
        except (KeyMissing, ModelError) as error:
            absent[worker.name] = error.failure
            first = first or error
    if first is not None and not workers:
        raise first if isinstance(first, KeyMissing) else ConfigError(first.message, hint=first.hint)
    return workers, absent


def described(planner: Worker) -> str:
    """The conductor model's name; a file's with its identity hash, so that a trace says which weights planned."""
    if planner.kind != "llama":
        return (
            f"{planner.kind}/{planner.model}" if planner.model else str(planner.options.get("base_url", planner.kind))
        )
    from conductor_cli.models.llama import describe

    try:
        path = Path(planner.model)
        return f"{path.name} {describe(path).identity[:IDENTITY]}"
    except ModelError as error:
        raise ConductorUnusable(f"the conductor model cannot be used: {error.message}", hint=error.hint) from None
