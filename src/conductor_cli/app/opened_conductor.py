"""From settings to a `Conductor`: which workers there are, and opening them and the model that plans."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_cli.app.planner_resolution import describe_planner, open_model_store, resolve_planner, resolve_profile
from conductor_cli.app.policy_filter import allowed_workers, build_guard, filter_pool
from conductor_cli.app.worker_selection import check_rehearsal, check_workers_in_pool, offered_workers, without_pool
from conductor_cli.cli.keys.rows import stored_at_hand, stored_keys
from conductor_cli.cli.options import choose_workers
from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import (
    ConductorError,
    ConductorUnusable,
    ConfigError,
    Failure,
    KeyMissing,
    ModelError,
    PolicyError,
)
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.app.loaded_models import LoadedModels
    from conductor_cli.config import Settings
    from conductor_cli.models.base import Model
    from conductor_cli.models.catalog import StoredKeys
    from conductor_cli.models.daily_spend import DailySpend
    from conductor_cli.run import Conductor


@dataclass
class OpenedConductor:
    """A conductor ready to run, the models to close after it, and which worker the one that plans would be."""

    conductor: Conductor
    models: list[Model] = field(default_factory=list)
    planner: Worker | None = None

    async def close(self) -> None:
        """Close every model, and the day book. One that fails to close must not hide the answer."""
        await asyncio.gather(*(model.close() for model in self.models), return_exceptions=True)
        self.leave()

    def leave(self) -> None:
        """Close the day book only: somebody else keeps the models."""
        book = self.conductor.daily_spend
        if book is not None:
            book.close()
            if book.problem:
                print_notice(book.problem)


async def open_conductor(
    settings: Settings,
    *,
    only: Sequence[str] = (),
    stored: Sequence[str] = (),
    planning: bool = True,
    streams: bool = False,
    seed: int | None = None,
    rehearsal: bool = False,
    day_limits: bool = True,
    loaded: LoadedModels | None = None,
) -> OpenedConductor:
    """Open the conductor model (unless a plan is given, `planning` false) and every worker.

    `only` are the workers that a command line names, `stored` those of a run that is resumed, as far as they exist.
    With `rehearsal` all of them are those that ship with this package, and what they do is not written into the day
    book. Without `day_limits` it is written there, and held to nothing. Models that are `loaded` are taken from there,
    and what is opened stays there. Raises `ConductorUnusable`, `KeyMissing` or
    `ConfigError`.
    """
    settings = without_pool(settings) if stored else settings
    if rehearsal:
        from conductor_cli.app.rehearsal import find_rehearsal_planner, rehearsal_pool, with_rehearsal_profiles

        check_rehearsal(settings)
        planner = find_rehearsal_planner(settings) if planning else None
        pool, remarks = filter_pool(rehearsal_pool(only), settings, only, planner)
    else:
        planner = _priced(resolve_planner(settings), settings) if planning else None
        pool, remarks = await resolve_pool(settings, planner, only)
    kept = [name for name in stored if name in pool]
    pool = pool.subset(kept) if kept and not only else pool
    guard = build_guard(settings, pool, planner)
    if planner is not None:
        guard.check_conductor()
    keys = stored_keys(settings)
    opener = loaded.open if loaded is not None else _opener()
    model = _open_planner(planner, settings, keys, opener) if planner is not None and planning else None
    workers, absent = _open_workers(pool, settings, keys, planner, model, opener)
    conductor = await _conductor(settings, planner, model, pool)
    if rehearsal:
        conductor = with_rehearsal_profiles(conductor, planner)
    daily_spend = None if rehearsal else _daily_spend(settings, planner, held=day_limits)
    conductor = replace(
        conductor, workers=workers, absent=absent, remarks=remarks, streams_answer=streams, seed=seed,
        daily_spend=daily_spend, guard=guard,
        random=random.Random(seed),  # noqa: S311 - jitter, no secret
    )  # fmt: skip
    models = _distinct(model, workers) if loaded is None else []
    return OpenedConductor(conductor=conductor, models=models, planner=planner)


def _daily_spend(settings: Settings, planner: Worker | None, *, held: bool) -> DailySpend:
    from conductor_cli.core.pool import DayLimits
    from conductor_cli.models.daily_spend import DailySpend

    return DailySpend(settings.paths.spending, settings.day_limits if held else DayLimits(), planner=planner)


async def open_planner(settings: Settings) -> OpenedConductor:
    """Open the model that plans and none of the workers, though it knows of all. Raises as `open_conductor`."""
    planner = _priced(resolve_planner(settings), settings)
    pool, _ = await resolve_pool(settings, planner, ())
    build_guard(settings, pool, planner).check_conductor()
    model = _open_planner(planner, settings, stored_keys(settings), _opener())
    conductor = await _conductor(settings, planner, model, pool)
    conductor = replace(conductor, daily_spend=_daily_spend(settings, planner, held=True))
    return OpenedConductor(conductor=conductor, models=[model])


def _priced(planner: Worker, settings: Settings) -> Worker:
    """The conductor model with its price; what is wrong with the table is said with the pool."""
    from conductor_cli.models.prices import with_prices

    return with_prices([planner], settings.paths.cache)[0][0]


async def _conductor(settings: Settings, planner: Worker | None, model: Model | None, pool: Pool) -> Conductor:
    from conductor_cli.models.presets import recipient_of
    from conductor_cli.run import Conductor

    name = describe_planner(planner, open_model_store(settings)) if planner else "plan file"
    return Conductor(
        model=model, pool=pool, workers={}, name=name,
        profile=await resolve_profile(settings, model), limits=settings.limits, patience=settings.patience,
        mode=settings["conductor.mode"], exact=planner is not None and planner.kind == "llama",
        price=planner.price if planner else None, recipient=recipient_of(planner) if planner else "",
    )  # fmt: skip


def _distinct(model: Model | None, workers: Mapping[str, Model]) -> list[Model]:
    everything = [*workers.values(), *([model] if model is not None else [])]
    return list({id(item): item for item in everything}.values())


async def resolve_pool(settings: Settings, planner: Worker | None, only: Sequence[str]) -> tuple[Pool, tuple[str, ...]]:
    """The workers: those of the files, else what is at hand, else the conductor model itself; and what to say of it.

    Here they get their prices, where neither the settings nor their kind say one.
    """
    from conductor_cli.models.prices import with_prices

    listed = offered_workers(settings)
    check_workers_in_pool(settings, only)
    for name in only:
        if name in [item.worker.name for item in settings.workers if not item.enabled]:
            raise PolicyError(f"worker {name!r} is disabled", hint=f"conductor workers enable {name}")
    remarks: tuple[str, ...] = ()
    if not settings.workers:
        from conductor_cli.models.discovery import discover

        found = await discover(settings.environ, stored_at_hand(stored_keys(settings)))
        listed = tuple(map(settings.cards.on, allowed_workers(settings, found)))
        if not listed:
            listed = (replace(planner or _as_worker(settings), name="local", about="the conductor's own model"),)
        remarks = (_said(listed),)
    listed, problem = with_prices(listed, settings.paths.cache)
    remarks = (*remarks, *filter(None, [problem]))
    if settings.cards.problem:
        remarks = (*remarks, f"{settings.cards.problem}; workers are taken without measured cards")
    pool = Pool(workers=listed)
    pool, said = filter_pool(choose_workers(pool, only) if only else pool, settings, only, planner)
    return pool, (*remarks, *said)


def _as_worker(settings: Settings) -> Worker:
    """The conductor model, where it is to work and not to plan. Raises `ConfigError`: there is nobody else."""
    try:
        return resolve_planner(settings)
    except ConductorUnusable:
        hint = "conductor workers add NAME --kind KIND, or keys set PROVIDER; doctor shows what was looked for"
        raise ConfigError("no workers are configured and none was found at hand", hint=hint) from None


def _said(found: Sequence[Worker]) -> str:
    if [worker.name for worker in found] == ["local"]:
        return "no workers are configured and none was found at hand: the conductor model answers too"
    return f"no workers are configured; found at hand: {', '.join(worker.name for worker in found)}"


_Opener = Callable[..., "Model"]
"""What `catalog.open_model` does."""


def _opener() -> _Opener:
    from conductor_cli.models.catalog import open_model

    return open_model


def _open_planner(planner: Worker, settings: Settings, keys: StoredKeys, opener: _Opener) -> Model:
    try:
        return opener(planner, environ=settings.environ, stored=keys)
    except ModelError as error:
        raise ConductorUnusable(f"the conductor model cannot be used: {error.message}", hint=error.hint) from None


def _open_workers(
    pool: Pool, settings: Settings, keys: StoredKeys, planner: Worker | None, model: Model | None, opener: _Opener
) -> tuple[dict[str, Model], dict[str, Failure]]:
    """A model for each worker; those that cannot be opened are absent, unless that leaves none."""
    workers: dict[str, Model] = {}
    absent: dict[str, Failure] = {}
    first: ConductorError | None = None
    # Weights are loaded once: plan and steps take turns on them.
    loaded = {_weights(planner): model} if model is not None and planner is not None else {}
    for worker in pool:
        if worker.kind == SELF:
            continue
        if worker.kind == "llama" and _weights(worker) in loaded:
            workers[worker.name] = loaded[_weights(worker)]
            continue
        try:
            workers[worker.name] = opener(_with_cache(worker, settings), environ=settings.environ, stored=keys)
            loaded[_weights(worker)] = workers[worker.name]
        except (KeyMissing, ModelError) as error:
            absent[worker.name] = error.failure
            first = first or error
    if first is not None and not workers:
        raise first if isinstance(first, KeyMissing) else ConfigError(first.message, hint=first.hint)
    return workers, absent


def _weights(worker: Worker) -> tuple[str, ...]:
    """What a local worker has in memory; nothing that another kind could share."""
    if worker.kind != "llama":
        return ("remote", worker.name)
    files = (worker.model, str(worker.options.get("adapter") or ""))
    return tuple(str(Path(file).expanduser().resolve()) if file else "" for file in files)


def _with_cache(worker: Worker, settings: Settings) -> Worker:
    """A local worker keeps the states of its prompt prefixes on disk, unless its options name another directory."""
    if worker.kind != "llama":
        return worker
    return replace(worker, options={"cache": str(settings.paths.cache), **worker.options})
