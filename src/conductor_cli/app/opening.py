"""From settings to an `Orchestra` that is ready to run.

The model that plans, the workers, the policy, the limits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cache, partial
from typing import Final, NamedTuple, TypedDict

from conductor_cli.app.expectations import read_usual_replies, read_usual_steps
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.learning import read_learned, with_learned_cards
from conductor_cli.app.planner_resolution import (
    describe_planning_model,
    max_planned_steps,
    open_model_store,
    read_guided,
    resolve_planner,
    resolve_profile,
    served_model,
)
from conductor_cli.app.rehearsal import rehearsal_limits, rehearsal_pool, with_rehearsal_profiles
from conductor_cli.app.worker_selection import build_guard, resolve_pool, without_pool
from conductor_cli.app.worker_tools import TOOLS_SETTING, open_tools, pool_with_tools
from conductor_cli.config.settings import Settings
from conductor_cli.config.tables import ConfiguredProvider
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    Failure,
    KeyMissing,
    ModelError,
)
from conductor_cli.core.learning import Learned
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import ROUTED, Profile, WorkerProfile
from conductor_cli.core.tools import RunTools
from conductor_cli.core.trace import PLAN_FILE
from conductor_cli.core.usage import Price
from conductor_cli.models.addresses import base_url_of
from conductor_cli.models.base import BehindServer, Model
from conductor_cli.models.catalog import StoredKeys, open_model
from conductor_cli.models.key_hints import key_hint
from conductor_cli.models.prices import with_prices
from conductor_cli.models.recipients import is_at_provider, recipient_of
from conductor_cli.models.worker_options import model_of
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.rehearsal.players import rehearsal_conductor
from conductor_cli.run import Orchestra, Team
from conductor_cli.run.circuits import Circuits
from conductor_cli.run.orchestra import model_turns
from conductor_cli.state.interfaces import AttachmentStore, Spender, Spending
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import local_now
from conductor_cli.state.spending_file import FILE
from conductor_cli.state.stored_run import SEPARATOR, RunQuery
from conductor_cli.system.known_secrets import KNOWN_SECRETS

MAX_CHOICES: Final = 64  # Settings whose workers are kept: a server has few at a time
SHARED_SECONDS: Final = 60.0
"""For how long runs that begin share one orchestra: what it has read of older runs, such as the
length of usual replies, is no older.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenWorkers:
    """The workers that take part, remarks about them, and the policy with all it is about."""

    pool: Pool
    remarks: tuple[str, ...]
    pool_policy: PoolPolicy


class _Choice(NamedTuple):
    """What workers were chosen by, and which."""

    settings: Settings
    planner: Worker | None
    only: tuple[str, ...]
    chosen: _ChosenWorkers


class _Shared(NamedTuple):
    """An orchestra that several runs share, and what it was opened by."""

    settings: Settings
    given_planner: Worker | None
    opened_planner: Worker | None
    profile: Profile
    learned: Learned
    orchestra: Orchestra
    ends: float


class LoadedModels:
    """Whoever opens the same worker again is given the model that is open. Close it."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._turns: dict[int, FairPlaces] = {}
        self._slots: dict[tuple[str, int], FairPlaces] = {}
        self._choices: dict[int, _Choice] = {}
        self._shared: dict[tuple[object, ...], _Shared] = {}
        self.circuits = Circuits()  # Which of their workers are skipped for a time

    def choice_for(
        self, settings: Settings, planner: Worker | None, only: Sequence[str]
    ) -> _ChosenWorkers | None:
        """Return the workers that were chosen before by the same settings; None where none were."""
        choice = self._choices.get(id(settings))
        if choice is None or choice.planner != planner or choice.only != tuple(only):
            return None
        return choice.chosen

    def keep_choice(
        self,
        settings: Settings,
        planner: Worker | None,
        only: Sequence[str],
        chosen: _ChosenWorkers,
    ) -> None:
        """Keep the workers that settings choose, for the next run under the same ones."""
        if len(self._choices) >= MAX_CHOICES:
            self._choices.clear()
        # It holds the settings, so that no others get their id meanwhile.
        self._choices[id(settings)] = _Choice(settings, planner, tuple(only), chosen)

    async def find_shared(
        self, request: OpeningRequest, planner: Worker | None, learned: Learned
    ) -> _Shared | None:
        """Return the orchestra that was opened for the like of a request; None where none was.

        All that it was opened by is looked at again. Raises `ConductorUnusable`.
        """
        shared = self._shared.get(_share_key(request))
        if shared is None or time.monotonic() > shared.ends:
            return None
        if shared.given_planner != planner or shared.learned != learned:
            return None
        profile = await resolve_profile(request.settings, shared.orchestra.team.model)
        return shared if profile == shared.profile else None

    def share(self, request: OpeningRequest, shared: _Shared) -> None:
        """Keep an orchestra for the next run, unless that may have more workers or other tools."""
        orchestra = shared.orchestra
        names_model = shared.given_planner is None or bool(model_of(shared.given_planner))
        is_fixed = names_model and not orchestra.team.unavailable and orchestra.tools is None
        if request.shared_by is None or not is_fixed or not _chooses_once(request):
            return
        if len(self._shared) >= MAX_CHOICES:
            self._shared.clear()
        # It holds the settings, so that no others get their id meanwhile.
        self._shared[_share_key(request)] = shared

    def open(self, worker: Worker, *, environ: Mapping[str, str], stored: StoredKeys) -> Model:
        """Return the model of a worker. Raises as `catalog.open_model`."""
        # Of a local model its files alone count, so that weights are in memory once: the model that
        # plans and the workers that use the same file take turns on it. Of another worker all but
        # what is said or measured of it.
        if worker.kind == "llama":
            identity = repr(served_model(worker))
        else:
            bare = replace(
                worker, about="", card=Card(), price=None, tags=(), accepts=None, tools=()
            )
            identity = repr(bare)
        if identity not in self._models:
            self._models[identity] = open_model(
                worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS
            )
        return self._models[identity]

    def turns_for(
        self, pool: Pool, workers: Mapping[str, Model], planner: Model | None
    ) -> Mapping[int, FairPlaces]:
        """Return the turns on all models that are open, which all runs share.

        Those of these workers are added, and of a `planner` in this process.
        """
        for key, turns in model_turns(pool, workers, planner).items():
            self._turns.setdefault(key, turns)
        return self._turns

    def slots_for(
        self, pool: Pool, providers: Sequence[ConfiguredProvider]
    ) -> dict[str, FairPlaces]:
        """Return the turns of each worker at its provider, by the worker's name.

        That is the first of `providers` that it is at. All runs share them.
        """
        slots: dict[str, FairPlaces] = {}
        for worker in pool:
            for provider in providers:
                if is_at_provider(worker, provider.name):
                    key = provider.name.lower(), provider.parallel
                    turns = FairPlaces(provider.parallel)
                    slots[worker.name] = self._slots.setdefault(key, turns)
                    break
        return slots

    async def close(self) -> None:
        """Close every model. One that fails to close must not hide the answer."""
        models = self._models
        self._models = {}
        await asyncio.gather(*(model.close() for model in models.values()), return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningRequest:
    """What is to be opened.

    - `only` are the workers that a command line names; `stored` are those of a run that is resumed,
      of which those that still exist are used.
    - Without `planning` no planner is opened, and without `asking` no worker.
    - Models are taken from `loaded` where it is given, and what is opened stays there.
    - `attachments` has the bytes of attached files.
    - `spend` opens the record of what is spent, which several orchestras may share.
    - Runs of the same `shared_by`, which says who spends, share an orchestra where all else is the
      same; None opens another one. They have no attachments.
    - With `learning` the planner reads cards with what the user's ratings say; evaluations and
      training leave that off, so that their results can be repeated.
    """

    settings: Settings
    only: Sequence[str] = ()
    stored: Sequence[str] = ()
    planning: bool = True
    asking: bool = True
    seed: int | None = None
    loaded: LoadedModels | None = None
    attachments: AttachmentStore | None = None
    spend: Callable[..., Spending] | None = None
    shared_by: Spender | None = None
    learning: bool = False


def _chooses_once(request: OpeningRequest) -> bool:
    """Return whether the settings alone decide who takes part.

    Without workers in the settings they are looked for on this machine, each time.
    """
    settings = request.settings
    return bool(settings.workers) and not (settings.plain_model or request.stored)


def _share_key(request: OpeningRequest) -> tuple[object, ...]:
    """Return what is equal in requests that may share an orchestra."""
    wants = request.planning, request.asking, request.learning, request.seed
    return id(request.settings), tuple(request.only), request.shared_by, *wants


@dataclass
class OpenedOrchestra:
    """An orchestra that is ready, its open models, and the planner as a worker. Close it."""

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


async def open_orchestra(request: OpeningRequest) -> OpenedOrchestra:
    """Open the model that plans and every worker, as far as the request wants them.

    Raises `ConductorUnusable`, `KeyMissing`, `ConfigError`, `PolicyError` or `UsageError`.
    """
    settings = request.settings
    if request.stored:
        # A resumed run keeps its own workers, whatever pool the settings name today.
        settings = without_pool(settings)
    planner = _find_planner(settings) if request.planning else None
    loaded = request.loaded or LoadedModels()
    learned = Learned()
    if request.learning:
        learned, _ = read_learned(settings)
    shared = await loaded.find_shared(request, planner, learned)
    if shared is not None:
        return OpenedOrchestra(
            orchestra=shared.orchestra, loaded=loaded, planner=shared.opened_planner
        )
    chosen = await _choose_workers(request, settings, planner, loaded)
    opened_planner = _NO_PLANNER
    if planner is not None:
        # Before any model is opened, which may take long
        chosen.pool_policy.check_conductor()
        opened_planner = await _open_planner(planner, settings, loaded, chosen.pool)
    opened_workers = _OpenedWorkers(pool=chosen.pool, models={}, absent={})
    if request.asking:
        opened_workers = _open_workers(chosen.pool, settings, loaded)
    opened_tools = _open_tools(request, settings, opened_workers, learned)
    daily_spend = _open_spending(request, settings, opened_planner.worker)
    loaded.circuits.shared_circuits = open_state(settings.paths).circuits
    profile = await resolve_profile(settings, opened_planner.model)
    team = _build_team(
        settings, chosen, opened_planner, opened_workers, opened_tools, profile, loaded
    )
    orchestra = Orchestra(
        team=team,
        limits=rehearsal_limits(settings.limits) if settings.rehearsal else settings.limits,
        timeouts=settings.timeouts,
        seed=request.seed,
        circuits=loaded.circuits,
        provider_slots=loaded.slots_for(team.pool, settings.providers),
        daily_spend=daily_spend,
        attachments=request.attachments,
        tools=opened_tools.tools,
        random=random.Random(request.seed),  # noqa: S311 - jitter, no secret
    )
    loaded.share(
        request,
        _Shared(
            settings=settings,
            given_planner=planner,
            opened_planner=opened_planner.worker,
            profile=profile,
            learned=learned,
            orchestra=orchestra,
            ends=time.monotonic() + SHARED_SECONDS,
        ),
    )
    return OpenedOrchestra(orchestra=orchestra, loaded=loaded, planner=opened_planner.worker)


def _build_team(
    settings: Settings,
    chosen: _ChosenWorkers,
    planner: _OpenedPlanner,
    workers: _OpenedWorkers,
    tools: _OpenedTools,
    profile: Profile,
    loaded: LoadedModels,
) -> Team:
    """Return who takes part in a run, of what was opened."""
    is_routed = profile is ROUTED
    team = Team(
        model=planner.model,
        pool=tools.pool,
        workers=workers.models,
        unavailable=workers.absent,
        pool_policy=chosen.pool_policy,
        profile=profile,
        worker_profile=_worker_profile(settings),
        max_steps=max_planned_steps(planner.worker, profile),
        usual_steps=cache(partial(read_usual_steps, settings)),
        describe_gain=partial(_describe_gain, settings),
        mode="mini" if is_routed else settings["conductor.mode"],
        revises=settings["planner.revise"],
        notices=(*chosen.remarks, *planner.remarks, *tools.remarks),
        **_facts_of_planner(planner, workers, settings, loaded),
    )
    if settings.rehearsal:
        team = with_rehearsal_profiles(team, planner.worker)
    return team


def open_planner(settings: Settings, loaded: LoadedModels) -> Model:
    """Return the model that plans, as `open_orchestra` opens it.

    Raises as that does, or `ModelError`.
    """
    return loaded.open(
        _find_planner(settings), environ=settings.environ, stored=open_key_store(settings)
    )


def _find_planner(settings: Settings) -> Worker:
    if settings.rehearsal and settings.origins["planner.model"] != "command line":
        return rehearsal_conductor()
    planner = resolve_planner(settings)
    if settings.rehearsal:
        return planner
    return with_prices([planner])[0][0]


async def _choose_workers(
    request: OpeningRequest, settings: Settings, planner: Worker | None, loaded: LoadedModels
) -> _ChosenWorkers:
    """Return the workers that take part. They are chosen once where the settings alone decide."""
    is_fixed = _chooses_once(request)
    if is_fixed:
        chosen = loaded.choice_for(settings, planner, request.only)
        if chosen is not None:
            return chosen
    pool, remarks = await _choose_pool(request, settings, planner)
    guard = build_guard(settings, pool, planner)
    chosen = _ChosenWorkers(pool=pool, remarks=remarks, pool_policy=guard)
    if is_fixed:
        loaded.keep_choice(settings, planner, request.only, chosen)
    return chosen


async def _choose_pool(
    request: OpeningRequest, settings: Settings, planner: Worker | None
) -> tuple[Pool, tuple[str, ...]]:
    """Return the workers that take part, and remarks about them."""
    pool, remarks = await resolve_pool(settings, planner, request.only)
    existing = [name for name in request.stored if name in pool]
    if existing and not request.only:
        pool = pool.subset(existing)
    return pool, remarks


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedPlanner:
    """The model that plans; `also_worker` is the worker that is the same model, where one is."""

    worker: Worker | None = None
    model: Model | None = None
    also_worker: str = ""
    remarks: tuple[str, ...] = ()


_NO_PLANNER: Final = _OpenedPlanner()


async def _open_planner(
    planner: Worker, settings: Settings, loaded: LoadedModels, pool: Pool
) -> _OpenedPlanner:
    """Open the model that plans. Raises `ConductorUnusable` or `KeyMissing`."""
    try:
        model = loaded.open(planner, environ=settings.environ, stored=open_key_store(settings))
    except ModelError as error:
        message = f"the planner cannot be used: {error.message}"
        raise ConductorUnusable(message, hint=error.hint) from None
    # Its provider's preset or its server may choose the model.
    model_id = model_of(planner)
    if not model_id and isinstance(model, BehindServer):
        model_id = await model.chosen_model()
    worker = replace(planner, model=model_id)
    also_worker = _find_same_worker(pool, planner, worker)
    remarks: tuple[str, ...] = ()
    if model_id and not model_of(planner):
        also = ""
        if also_worker:
            also = f", and is also the worker {also_worker}"
        remark = (
            f"{model_id} plans{also}: it is the first chat model that "
            f"{base_url_of(planner)} lists; to choose another: --planner URL#MODEL"
        )
        remarks = (remark,)
    return _OpenedPlanner(worker=worker, model=model, also_worker=also_worker, remarks=remarks)


def _find_same_worker(pool: Pool, given: Worker, planner: Worker) -> str:
    """Return the name of the worker that is the planner's model, too; empty where none is.

    It has the same name, the same address and id, or the same file.
    """
    planning_models = {served_model(given), served_model(planner)}
    for worker in pool:
        if worker.name == given.name or served_model(worker) in planning_models:
            return worker.name
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedWorkers:
    """The workers by name, and why those that are `absent` cannot be asked."""

    pool: Pool
    models: Mapping[str, Model]
    absent: Mapping[str, Failure]


def _open_workers(pool: Pool, settings: Settings, loaded: LoadedModels) -> _OpenedWorkers:
    """Open every worker but the planner itself.

    One that cannot be opened does not stop a run that others can answer. Raises `KeyMissing` or
    `ConfigError` where none can be.
    """
    models = dict[str, Model]()
    absent = dict[str, Failure]()
    first_error: KeyMissing | ModelError | None = None
    keys = open_key_store(settings)
    for worker in pool:
        if worker.kind == SELF:
            continue
        try:
            models[worker.name] = loaded.open(
                _with_cache(worker, settings), environ=settings.environ, stored=keys
            )
        except (KeyMissing, ModelError) as error:
            absent[worker.name] = error.failure
            first_error = first_error or error
    if first_error is not None and not models:
        if isinstance(first_error, KeyMissing):
            raise first_error
        raise ConfigError(first_error.message, hint=first_error.hint)
    members = tuple(_with_carried_media(worker, models.get(worker.name)) for worker in pool)
    return _OpenedWorkers(pool=Pool(workers=members), models=models, absent=absent)


def _with_cache(worker: Worker, settings: Settings) -> Worker:
    """Return a worker whose states of prompt prefixes are remembered on disk, where it has such.

    The worker may name another directory.
    """
    if worker.kind != "llama":
        return worker
    return replace(worker, options={"cache": str(settings.paths.cache), **worker.options})


def _with_carried_media(worker: Worker, model: Model | None) -> Worker:
    """Return a worker that accepts only the attachments that its adapter can carry."""
    if model is None or not worker.accepts:
        return worker
    accepts = tuple(kind for kind in worker.accepts if kind in model.features)
    return replace(worker, accepts=accepts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedTools:
    """The pool with what is known of its tools and its work, the tools, and remarks."""

    pool: Pool
    tools: RunTools | None = None
    remarks: tuple[str, ...] = ()


def _open_tools(
    request: OpeningRequest, settings: Settings, opened: _OpenedWorkers, learned: Learned
) -> _OpenedTools:
    """Return the pool with its tools and what was `learned`. The demo models have neither."""
    pool = opened.pool
    if settings.rehearsal:
        return _OpenedTools(pool=pool)
    pool = with_learned_cards(pool, learned)
    pool, remarks = pool_with_tools(settings, pool, opened.models, asking=request.asking)
    tools = open_tools(settings, pool, request.attachments)
    return _OpenedTools(pool=pool, tools=tools, remarks=tuple(remarks))


def _open_spending(
    request: OpeningRequest, settings: Settings, planner: Worker | None
) -> Spending | None:
    """Open the record of what is spent. The demo models spend nothing."""
    if settings.rehearsal:
        return None
    spend = request.spend or open_state(settings.paths).spending
    return spend(settings.day_limits, planner=planner)


def _worker_profile(settings: Settings) -> WorkerProfile:
    return WorkerProfile(
        usual_replies=cache(partial(read_usual_replies, settings)),
        fits_files=settings["attachments.fit"],
        reads_directories=settings["attachments.tools"] and settings[TOOLS_SETTING] != "none",
    )


class _FactsOfPlanner(TypedDict, total=False):
    name: str
    planner_worker: str
    recipient: str
    key_hint: str
    price: Price | None
    constrained: bool
    turns: Mapping[int, FairPlaces]


def _facts_of_planner(
    opened_planner: _OpenedPlanner,
    opened_workers: _OpenedWorkers,
    settings: Settings,
    loaded: LoadedModels,
) -> _FactsOfPlanner:
    """Return what a team knows of who plans, and the turns on all of its models."""
    planner = opened_planner.worker
    pool = opened_workers.pool
    models = opened_workers.models
    if planner is None:
        return {"name": PLAN_FILE, "turns": loaded.turns_for(pool, models, None)}
    is_in_process = planner.kind == "llama"
    in_process = opened_planner.model if is_in_process else None
    return {
        "name": _name_planner(planner, settings),
        "planner_worker": opened_planner.also_worker,
        "recipient": recipient_of(planner),
        "key_hint": key_hint(planner),
        "price": planner.price,
        "constrained": is_in_process,
        "turns": loaded.turns_for(pool, models, in_process),
    }


def _describe_gain(settings: Settings, planner: str) -> str:
    """Return what plans of a planner were measured to gain; empty where nothing was measured."""
    if not settings.paths.evaluations.is_dir():
        return ""
    # Only where a plan is shown: it imports all scorers
    from conductor_cli.app.stored_evaluations import describe_measured_gain

    return describe_measured_gain(settings, planner)


def _name_planner(planner: Worker, settings: Settings) -> str:
    """Return the planner's name, with what guides it. Raises `ConductorUnusable`."""
    guide = ""
    is_demo = planner.kind == "llama" and planner == rehearsal_conductor()
    if not is_demo:
        guide = read_guided(settings).name
    return describe_planning_model(planner, open_model_store(settings)) + guide


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
    # Of each run its tokens and the workers that it asked
    spent: list[tuple[int, set[str]]] = []
    if newest_only:
        run = state.traces.last_begun()
        if run >= since:
            trace = state.traces.trace(run, pieces=False)
            spent.append((trace.usage.tokens, {record.worker for record in trace.steps}))
    else:
        rows, _ = state.traces.newest(RunQuery(since=since), -1)
        for row in rows:
            names = {name for name in row.workers.split(SEPARATOR) if name}
            spent.append((row.tokens, names))
    traced = sum(tokens for tokens, workers in spent if not workers <= demo)
    recorded = state.read_tokens(today)
    if recorded >= traced:
        return ""
    return (
        f"{settings.paths.spending / FILE} has lost calls: it has {recorded:,} tokens of today, "
        "the traces of today have "
        f"{traced:,}; limits of the day leave too much"
    )
