"""From settings to a `Orchestra` that is ready to run.

The model that plans, the workers, the policy, the limits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC

from conductor_cli.app.keys import open_key_store
from conductor_cli.app.learning import read_learned, with_learned_cards
from conductor_cli.app.planner_resolution import (
    describe_planning_model,
    open_model_store,
    read_guided,
    resolve_planner,
    resolve_profile,
    served_model,
)
from conductor_cli.app.rehearsal import rehearsal_pool, with_rehearsal_profiles
from conductor_cli.app.worker_selection import build_guard, resolve_pool, without_pool
from conductor_cli.app.worker_tools import open_tools, pool_with_tools
from conductor_cli.config.settings import Settings
from conductor_cli.config.tables import ConfiguredProvider
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    Failure,
    KeyMissing,
    ModelError,
)
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import ROUTED
from conductor_cli.models.addresses import base_url_of
from conductor_cli.models.base import BehindServer, Model
from conductor_cli.models.catalog import StoredKeys, open_model
from conductor_cli.models.key_hints import key_hint
from conductor_cli.models.prices import with_prices
from conductor_cli.models.recipients import is_at_provider, recipient_of
from conductor_cli.models.worker_options import model_of
from conductor_cli.rehearsal.players import rehearsal_conductor
from conductor_cli.run import Orchestra
from conductor_cli.run.circuits import Circuits
from conductor_cli.state.interfaces import AttachmentStore, Spending
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import FILE, local_now
from conductor_cli.state.stored_run import SEPARATOR, RunQuery
from conductor_cli.system.known_secrets import KNOWN_SECRETS


class LoadedModels:
    """Whoever opens the same worker again is given the model that is open. Close it."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._slots: dict[tuple[str, int], asyncio.Semaphore] = {}
        self.circuits = Circuits()  # Which of their workers are skipped for a time

    def open(self, worker: Worker, *, environ: Mapping[str, str], stored: StoredKeys) -> Model:
        """The model of a worker. Raises as `catalog.open_model`."""
        # Of a local model its files alone count, so that weights are in memory once: the model that
        # plans and the workers that use the same file take turns on it. Of another worker all but
        # what is said or measured of it.
        bare = replace(worker, about="", card=Card(), price=None, tags=(), accepts=None, tools=())
        identity = repr(served_model(worker) if worker.kind == "llama" else bare)
        if identity not in self._models:
            self._models[identity] = open_model(
                worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS
            )
        return self._models[identity]

    def slots_for(
        self, pool: Pool, providers: Sequence[ConfiguredProvider]
    ) -> dict[str, asyncio.Semaphore]:
        """By the name of a worker, the turns at the first of `providers` that it is at, which all
        runs share.
        """
        slots = {}
        for worker in pool:
            for provider in [each for each in providers if is_at_provider(worker, each.name)][:1]:
                key = provider.name.lower(), provider.parallel
                slots[worker.name] = self._slots.setdefault(
                    key, asyncio.Semaphore(provider.parallel)
                )
        return slots

    async def close(self) -> None:
        """Close every model. One that fails to close must not hide the answer."""
        models = self._models
        self._models = {}
        await asyncio.gather(*(model.close() for model in models.values()), return_exceptions=True)


@dataclass
class OpenedOrchestra:
    """A conductor that is ready to run, its open models, and the planner as a worker. Close it."""

    orchestra: Orchestra
    loaded: LoadedModels
    planner: Worker | None = None
    # After `close` or `leave`: why what was spent could not be recorded, else empty
    problem: str = ""

    async def close(self) -> None:
        """Close every model, and the record of what was spent."""
        await self.loaded.close()
        self.leave()

    def leave(self) -> None:
        """Close only the record of what was spent; the models are somebody else's."""
        daily_spend = self.orchestra.daily_spend
        if daily_spend is not None:
            daily_spend.close()
            self.problem = daily_spend.take_problem()


def open_planner(settings: Settings, loaded: LoadedModels) -> Model:
    """Return the model that plans, as `open_orchestra` opens it.

    Raises as that does, or `ModelError`.
    """
    return loaded.open(
        _find_planner(settings), environ=settings.environ, stored=open_key_store(settings)
    )


def _find_planner(settings: Settings) -> Worker:
    if settings.rehearsal and settings.origins["conductor.model"] != "command line":
        return rehearsal_conductor()
    planner = resolve_planner(settings)
    return planner if settings.rehearsal else with_prices([planner])[0][0]


async def open_orchestra(
    settings: Settings,
    *,
    only: Sequence[str] = (),
    stored: Sequence[str] = (),
    planning: bool = True,
    asking: bool = True,
    seed: int | None = None,
    loaded: LoadedModels | None = None,
    attachments: AttachmentStore | None = None,
    spend: Callable[..., Spending] | None = None,
    learning: bool = False,
) -> OpenedOrchestra:
    """Open the model that plans, unless `planning` is false, and every worker, unless `asking` is
    false.

    `only` are the workers that a command line names; `stored` are those of a run that is resumed,
    of which those that still exist are used. Models are taken from `loaded` where it is given, and
    what is opened stays there. `attachments` has the bytes of attached files. `spend` opens the
    record of what is spent, which several conductors may share. With `learning` the planner reads
    cards with what the user's ratings say; evaluations and training leave that off, so that their
    results can be repeated.

    Raises `ConductorUnusable`, `KeyMissing`, `ConfigError`, `PolicyError` or `UsageError`.
    """
    # A resumed run keeps its own workers, whatever pool the settings name today.
    settings = without_pool(settings) if stored else settings
    planner = _find_planner(settings) if planning else None
    pool, remarks = await resolve_pool(settings, planner, only)
    existing = [name for name in stored if name in pool]
    if existing and not only:
        pool = pool.subset(existing)
    pool_policy = build_guard(settings, pool, planner)
    # Checked before any model is opened, which may take long.
    if planner is not None:
        pool_policy.check_conductor()

    loaded = loaded or LoadedModels()
    model = None
    also_worker = ""
    if planner is not None:
        try:
            model = loaded.open(planner, environ=settings.environ, stored=open_key_store(settings))
        except ModelError as error:
            message = f"the planner cannot be used: {error.message}"
            raise ConductorUnusable(message, hint=error.hint) from None
        # Its provider's preset or its server may choose the model.
        given = planner
        chosen = model_of(planner)
        if not chosen and isinstance(model, BehindServer):
            chosen = await model.chosen_model()
        planner = replace(given, model=chosen)
        # The same name, the same address and id, or the same file: then a worker is the planner's
        # model, too.
        same = {served_model(given), served_model(planner)}
        also_worker = next(
            (item.name for item in pool if item.name == given.name or served_model(item) in same),
            "",
        )
        if chosen and not model_of(given):
            also = f", and is also the worker {also_worker}" if also_worker else ""
            choice = (
                f"{chosen} plans{also}: it is the first chat model that {base_url_of(given)} "
                "lists; "
            )
            remarks = (*remarks, f"{choice}to choose another: --conductor URL#MODEL")
    workers = dict[str, Model]()
    absent = dict[str, Failure]()
    first: KeyMissing | ModelError | None = None
    for worker in pool if asking else ():
        if worker.kind == SELF:
            continue
        # The states of prompt prefixes are remembered on disk, unless the worker names another
        # directory.
        cache = {"cache": str(settings.paths.cache)} if worker.kind == "llama" else {}
        opened = replace(worker, options={**cache, **worker.options})
        try:
            workers[worker.name] = loaded.open(
                opened, environ=settings.environ, stored=open_key_store(settings)
            )
        # One worker that cannot be opened does not stop a run that others can answer.
        except (KeyMissing, ModelError) as error:
            absent[worker.name] = error.failure
            first = first or error
    if first is not None and not workers:
        raise (
            first if isinstance(first, KeyMissing) else ConfigError(first.message, hint=first.hint)
        )
    # Those attachments are left to each worker that its adapter can carry.
    carried = {name: model.features for name, model in workers.items()}
    pool = Pool(
        workers=tuple(
            replace(
                worker,
                accepts=tuple(kind for kind in worker.accepts if kind in carried[worker.name]),
            )
            if worker.accepts and worker.name in carried
            else worker
            for worker in pool
        )
    )
    tools = None
    if not settings.rehearsal:
        if learning:
            pool = with_learned_cards(pool, read_learned(settings)[0])
        pool, without = pool_with_tools(settings, pool, workers, asking=asking)
        tools = open_tools(settings, pool, attachments)
        remarks = (*remarks, *without)
    spend = spend or open_state(settings.paths).spending
    daily_spend = None if settings.rehearsal else spend(settings.day_limits, planner=planner)
    loaded.circuits.shared_circuits = open_state(settings.paths).circuits
    profile = await resolve_profile(settings, model)
    name = "plan file"
    if planner is not None:
        guided = "" if planner == rehearsal_conductor() else read_guided(settings).name
        name = describe_planning_model(planner, open_model_store(settings)) + guided
    orchestra = Orchestra(
        model=model,
        pool=pool,
        workers=workers,
        unavailable=absent,
        name=name,
        profile=profile,
        limits=settings.limits,
        timeouts=settings.timeouts,
        mode="mini" if profile is ROUTED else settings["conductor.mode"],
        revises=settings["conductor.revise"],
        circuits=loaded.circuits,
        provider_slots=loaded.slots_for(pool, settings.providers),
        constrained=planner is not None and planner.kind == "llama",
        price=planner.price if planner else None,
        recipient=recipient_of(planner) if planner else "",
        key_hint=key_hint(planner) if planner else "",
        planner_worker=also_worker,
        notices=remarks,
        seed=seed,
        daily_spend=daily_spend,
        pool_policy=pool_policy,
        attachments=attachments,
        tools=tools,
        random=random.Random(seed),  # noqa: S311 - jitter, no secret
    )
    if settings.rehearsal:
        orchestra = with_rehearsal_profiles(orchestra, planner)
    return OpenedOrchestra(orchestra=orchestra, loaded=loaded, planner=planner)


def find_lost_calls(settings: Settings, *, newest_only: bool = False) -> str:
    """Return what the record of today's spending lacks of the calls in today's traces.

    Empty where it lacks nothing.

    It may have more than the traces, which need not be kept, but never less, unless the file was
    damaged or replaced. What the demo models did is in no record. With `newest_only` one trace is
    read, which a single question has time for. Raises `ConfigError`, `UsageError` and `OSError`.
    """
    today = local_now().date()
    state = open_state(settings.paths)
    demo = set(rehearsal_pool().names)
    since = f"{local_now().replace(hour=0, minute=0, second=0).astimezone(UTC):%Y%m%d-%H%M%S}"
    if newest_only:
        newest = [
            state.traces.trace(run, pieces=False) for run in state.traces.runs()[:1] if run >= since
        ]
        found = [
            (trace.usage.tokens, {record.worker for record in trace.steps}) for trace in newest
        ]
    else:
        rows, _ = state.traces.newest(RunQuery(since=since), -1)
        found = [(row.tokens, set(filter(None, row.workers.split(SEPARATOR)))) for row in rows]
    traced = sum(tokens for tokens, workers in found if not workers <= demo)
    recorded = sum(row.usage.tokens for row in state.read_spent(today))
    if recorded >= traced:
        return ""
    return (
        f"{settings.paths.spending / FILE} has lost calls: it has {recorded:,} tokens of today, "
        "the traces of today"
        f" have {traced:,}; limits of the day leave too much"
    )
