"""Evaluations: load cases, find stored evaluations, open the models, estimate the cost, and run what is left to do.

Which embedder compares texts in an evaluation: a worker's model, or hashed n-grams that need none.

Trained routers at work: whether they fit the workers and the cases, and the plan that each makes for each case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import NamedTuple

from conductor_cli import __version__
from conductor_cli.app import rehearsal
from conductor_cli.app.conductor_factory import OpenedConductor, open_conductor
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.worker_selection import policy_objection
from conductor_cli.config import Settings
from conductor_cli.config.schema import PREFIX
from conductor_cli.core.errors import ConductorError, ConductorUnusable, KeyMissing, PolicyError, UsageError, suggest
from conductor_cli.core.plan import Plan
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.serialization import dump
from conductor_cli.evals.cases import COUNT, NAME, Case, hash_cases, make_basics, read_cases
from conductor_cli.evals.cost import Budget, CostEstimate, estimate_cost, is_free, unpriced_models
from conductor_cli.evals.embeddings import Embedder, HashedNgrams, unit_rows
from conductor_cli.evals.outcomes import Evaluation, EvaluationSpec, Outcome, RunKey
from conductor_cli.evals.programs import judging_in, load_unit_tests, require_libraries, require_sandbox
from conductor_cli.evals.runner import evaluate
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.suites import SUITES, find_suite, read_suite
from conductor_cli.evals.systems import (
    DEFAULT,
    ROUTERS,
    System,
    available_workers,
    needs_planner,
    select_systems,
    unmeasured_workers,
)
from conductor_cli.evals.trained_routers import TrainedRouter, check_apart, plan_cases, read_router
from conductor_cli.models.catalog import api_key_of, secrets_around
from conductor_cli.models.disk import check_writable
from conductor_cli.models.embeddings import EmbeddingServer
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.response_cache import model_identity
from conductor_cli.programs.sandbox import Engine
from conductor_cli.run import Conductor
from conductor_cli.run.conductor import new_run_id
from conductor_cli.state.spending import DailySpend


@asynccontextmanager
async def open_embedder(name: str, settings: Settings) -> AsyncIterator[Embedder]:
    """The embedder of the worker `name`, which may be disabled as a worker; hashed n-grams without a name.

    Nothing is connected to yet. Raises `UsageError` for an unknown worker, `PolicyError` if the policy forbids it: it
    reads questions and answers, `ConfigError` if it cannot make embeddings, `KeyMissing` if its key is not found.
    """
    if not name:
        yield HashedNgrams()
        return
    known = {item.worker.name: item.worker for item in settings.workers}
    if name not in known:
        raise UsageError(f"no worker is named {name!r}", hint=suggest(name, known, "conductor workers list"))
    worker = known[name]
    if reason := policy_objection(settings, worker):
        raise PolicyError(f"worker {name} may not be asked: {reason}", hint=POLICY_HINT)
    KNOWN_SECRETS.add(*secrets_around(worker, settings.environ))
    server = EmbeddingServer(worker, api_key_of(worker, settings.environ, open_key_store(settings)), KNOWN_SECRETS)
    try:
        yield server
    finally:
        await server.close()


RouterPlans = Mapping[str, Mapping[str, Plan]]
"""By the name of a router, then by the id of a case."""


def read_routers(paths: Iterable[Path]) -> tuple[TrainedRouter, ...]:
    """The routers of these files. Raises `UsageError` for one that cannot be read, or for two of one kind."""
    routers = tuple(read_router(path.expanduser()) for path in paths)
    kinds = [router.kind for router in routers]
    if len(set(kinds)) < len(kinds):
        raise UsageError("two routers of one kind cannot be compared at once", hint="compare them one after the other")
    return routers


async def plan_with_routers(
    routers: Sequence[TrainedRouter], cases: Sequence[Case], conductor: Conductor, embedder: Embedder
) -> RouterPlans:
    """The plan of each router for each case.

    Raises `UsageError` if one was trained on any of the cases, with other workers, or on other vectors.
    """
    if not routers:
        return {}
    for router in routers:
        check_apart(router.hashes, cases)
        _check_workers(router, conductor)
        if router.embedder != embedder.name:
            message = f"{router.kind} was trained on embeddings of {router.embedder}, and these are of {embedder.name}"
            raise UsageError(message, hint="name the same worker, --embeddings WORKER, or train it again")
    vectors = unit_rows(await embedder.embed([case.question for case in cases]))
    return {
        router.kind: dict(zip([case.id for case in cases], plan_cases(router, vectors), strict=True))
        for router in routers
    }


def worker_identities(conductor: Conductor) -> dict[str, str]:
    """The workers that can be called, each with the identity of its model."""
    return {worker.name: model_identity(worker) for worker in available_workers(conductor)}


def _check_workers(router: TrainedRouter, conductor: Conductor) -> None:
    known = worker_identities(conductor)
    changed = [name for name, identity in router.workers.items() if known.get(name) != identity]
    if changed:
        message = f"{router.kind} was trained with other workers: {', '.join(changed)} changed, or cannot be called"
        raise UsageError(message, hint="train it again with the workers of today: --train CASES")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What to evaluate: `source` names the set of cases, `systems` is as on the command line.

    Without `systems` the default ones are compared, and the conductor is left out if there is no model that plans.

    `max_cost` is in US dollars, for all parts of a continued evaluation together. With `rehearsal` the demo models run.
    `routers` are those that the systems of their names use. With `reuse` a finished evaluation of the same is taken as
    it is. `embeddings` names the worker that compares texts; without one they are compared by their spelling.
    `sandbox` names the one in which code is run; empty for the first that works.
    """

    source: str
    cases: tuple[Case, ...]
    systems: str | None = None
    workers: tuple[str, ...] = ()
    seed: int = 0
    repeat: int = 1
    parallel: int = 8
    max_cost: Decimal | None = None
    rehearsal: bool = False
    routers: tuple[TrainedRouter, ...] = ()
    reuse: bool = False
    embeddings: str = ""
    sandbox: str = ""

    @property
    def names(self) -> str:
        """The systems to compare, as on the command line."""
        return self.systems or ",".join([DEFAULT, *(router.kind for router in self.routers)])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation whose models are open.

    `stored` is the one that is continued, of which `done` runs are judged. `estimate` is None if nothing will cost
    anything. `left_out` says which systems cannot run, and why. `everything` estimates a comparison of all systems,
    where only the default ones are compared.
    """

    request: EvaluationRequest
    conductor: Conductor
    systems: tuple[System, ...]
    spec: EvaluationSpec
    stored: Evaluation | None
    done: int
    budget: Budget
    estimate: CostEstimate | None
    left_out: tuple[str, ...] = ()
    everything: CostEstimate | None = None

    def create(self, settings: Settings) -> Evaluation:
        """The stored evaluation, created now if it is a new one."""
        directory = evaluations_directory(settings) / new_run_id(datetime.now(UTC))
        return self.stored or Evaluation.create(directory, self.spec, self.request.cases)

    def run(self, evaluation: Evaluation) -> AsyncGenerator[Outcome, None]:
        """Run what is left, and yield each outcome."""
        return evaluate(
            evaluation, self.systems, self.conductor, parallel=self.request.parallel, budget=self.budget
        )  # fmt: skip

    def take_spending_problem(self) -> str:
        """Why something that was spent is not recorded for the day; empty if it is, or if that was asked before."""
        spending = self.conductor.daily_spend
        return spending.take_problem() if spending is not None else ""


class _Parts(NamedTuple):
    """What systems are made of: the conductor, why no model plans (empty if one does), the embedder, the routers."""

    conductor: Conductor
    no_planner: str
    embedder: Embedder
    trained: RouterPlans


@asynccontextmanager
async def open_evaluation(request: EvaluationRequest, settings: Settings) -> AsyncIterator[PreparedEvaluation]:
    """Open the models and find out what is left to do; nothing is called yet. The models are closed at the end.

    The newest evaluation of the same is continued if it is unfinished. Raises `UsageError` if no system can run,
    `PolicyError` if a cost limit cannot be enforced, `ConductorUnusable` or `KeyMissing` if a system that the request
    names needs the conductor model and there is none, `ConfigError` if nothing can be stored or code cannot be run.
    """
    async with (
        open_embedder(request.embeddings, settings) as embedder,
        _open_evaluation(request, settings, embedder) as prepared,
    ):
        yield prepared


@asynccontextmanager
async def _open_evaluation(
    request: EvaluationRequest, settings: Settings, embedder: Embedder
) -> AsyncIterator[PreparedEvaluation]:
    check_writable(evaluations_directory(settings), "the evaluation", f"{PREFIX}STATE_DIR=DIR")
    engine = await asyncio.to_thread(_open_sandbox, request)
    opened, no_planner = await _open_models(request, settings)
    conductor = opened.conductor
    try:
        trained = await plan_with_routers(request.routers, request.cases, conductor, embedder)
        parts = _Parts(conductor, no_planner, embedder, trained)
        found = _select(request.names, request, parts)
        systems = tuple(system for system in found if not system.missing)
        left_out = tuple(f"left out: {system.name}: {system.missing}" for system in found if system.missing)
        if not systems:
            raise UsageError(f"none of these systems can run; {left_out[0]}")
        notes = list(left_out)
        if unmeasured := unmeasured_workers(conductor):
            notes.append(f"without a measured card, so what they are best at is not known: {', '.join(unmeasured)}")
        if _embeds(systems):
            notes.append(embedder.note)
        if settings.cards.problem and not request.rehearsal:
            notes.append(settings.cards.problem)
        learned = [router.digest for router in request.routers] + ([embedder.name] if _embeds(systems) else [])
        spec = _make_spec(request, opened, systems, tuple(notes), learned)
        stored, done = _find_unfinished(request, spec, settings)
        outcomes = stored.outcomes() if stored is not None else ()
        estimate = None if is_free(conductor, systems) else estimate_cost(
            systems, request.cases, conductor, done, request.repeat
        )  # fmt: skip
        spent = stored.spent() if stored is not None else Decimal(0)
        limit = request.max_cost
        # The limit of the day may be tighter than the one of the request. The demo models cost nothing.
        left = None if request.rehearsal else _remaining_today(settings)
        if left is not None and (limit is None or spent + left < limit):
            limit = spent + left
        unpriced = ", ".join(unpriced_models(conductor, systems))
        # A limit that ignores some of the calls would only seem to protect.
        if limit is not None and unpriced:
            hint = "add prices (conductor workers add … --price IN,OUT), or choose other workers: --workers"
            raise PolicyError(f"the cost limit cannot be enforced: no price is known for {unpriced}", hint=hint)
        # Until a run has ended, the least of the estimate is all there is to go by.
        least = estimate.low.cost[0] / estimate.runs if estimate and estimate.runs else Decimal(0)
        expected = max([outcome.usage.cost or Decimal(0) for outcome in outcomes], default=least)
        prepared = PreparedEvaluation(
            request=request, conductor=conductor, systems=systems, spec=spec, stored=stored, done=len(done),
            budget=Budget(limit, spent=spent, expected=expected), estimate=estimate, left_out=left_out,
            everything=_estimate_all(request, parts) if request.systems is None else None,
        )  # fmt: skip
        with judging_in(engine):
            yield prepared
    finally:
        await opened.close()


def _open_sandbox(request: EvaluationRequest) -> Engine | None:
    """The sandbox for the cases with code, whose tests find the modules that they need; None if no case has code."""
    cases = [case for case in request.cases if SCORERS[case.scorer].needs == "sandbox"]
    if not cases:
        return None
    engine = require_sandbox(request.sandbox)
    tested = [load_unit_tests(case.answer) for case in cases if case.scorer == "unittest"]
    if names := [name for tests in tested for name in tests.libraries]:
        require_libraries(engine, names)
    return engine


async def _open_models(request: EvaluationRequest, settings: Settings) -> tuple[OpenedConductor, str]:
    """The models, and why the default systems have to do without the one that plans; empty if they have it."""

    async def opened(*, planning: bool) -> OpenedConductor:
        return await open_conductor(
            settings, only=request.workers, planning=planning, seed=request.seed,
            # The limit of the day is part of the evaluation's budget, so single runs are not held to it.
            rehearsal=request.rehearsal, day_limits=False,
        )  # fmt: skip

    try:
        return await opened(planning=needs_planner(request.names)), ""
    except (ConductorUnusable, KeyMissing, PolicyError) as error:
        if request.systems is not None:
            raise
        return await opened(planning=False), error.message


def _find_unfinished(
    request: EvaluationRequest, spec: EvaluationSpec, settings: Settings
) -> tuple[Evaluation | None, set[RunKey]]:
    """The newest stored evaluation of the same, with its judged runs; none if it is finished and not to be reused.

    One that is to be reused may have judged more systems.
    """
    needed = {
        (system, case.id, draw)
        for system in spec.systems for case in request.cases for draw in range(request.repeat)
    }  # fmt: skip
    for stored in stored_evaluations(settings):
        if stored.spec.identity == spec.identity:
            done = stored.judged()
            return (stored, done) if request.reuse or len(done) < spec.runs else (None, set())
        if request.reuse and _differs_in_systems(stored.spec, spec) and needed <= stored.judged():
            return stored, needed
    return None, set()


def _differs_in_systems(one: EvaluationSpec, other: EvaluationSpec) -> bool:
    """Whether all but the systems is equal."""
    return one.hash == other.hash and [one.identity[0], *one.identity[3:]] == [other.identity[0], *other.identity[3:]]


def _select(names: str, request: EvaluationRequest, parts: _Parts) -> tuple[System, ...]:
    """The named systems; those that plan are missing with the reason why no model plans, if there is one."""
    keywords = rehearsal.skill_keywords() if request.rehearsal else None
    found = select_systems(
        names, parts.conductor, cases=request.cases, keywords=keywords, embedder=parts.embedder, trained=parts.trained
    )
    return tuple(
        replace(system, missing=parts.no_planner) if parts.no_planner and system.plan is None else system
        for system in found
    )


def _embeds(systems: Sequence[System]) -> bool:
    """Whether a system compares texts."""
    return any(system.select is not None or system.name in ROUTERS for system in systems)


def _estimate_all(request: EvaluationRequest, parts: _Parts) -> CostEstimate:
    systems = [system for system in _select("all", request, parts) if not system.missing]
    return estimate_cost(systems, request.cases, parts.conductor, (), request.repeat)


def _make_spec(
    request: EvaluationRequest,
    opened: OpenedConductor,
    systems: Sequence[System],
    notes: tuple[str, ...],
    learned: Sequence[str],
) -> EvaluationSpec:
    """`learned` identifies what systems use beside models."""
    conductor, planner = opened.conductor, opened.planner
    names, hashed = tuple(system.name for system in systems), hash_cases(request.cases)
    planner_id, planned_by, profile = None, None, None
    if planner is not None:
        planner_id, planned_by, profile = model_identity(planner), conductor.name, conductor.profile.name
    # No header of a worker is stored, as it may be a key; the identity of its model has a hash of them.
    workers = (conductor.pool.public(), [model_identity(worker) for worker in conductor.pool])
    return EvaluationSpec(
        source=request.source, hash=hashed, cases=len(request.cases), systems=names,
        workers=conductor.pool.names, seed=request.seed, repeat=request.repeat, planner_id=planner_id,
        conductor=planned_by,
        identity=dump((request.source, hashed, names, request.seed, workers, planner_id, planned_by, profile,
                       conductor.limits, conductor.timeouts, list(learned), request.repeat)),
        notes=notes, version=__version__, time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )  # fmt: skip


def _remaining_today(settings: Settings) -> Decimal | None:
    """The dollars that the limit of the day leaves; None if there is no such limit. Raises `ConfigError`."""
    limits = settings.day_limits
    if limits.cost is None:
        return None
    spending = DailySpend(settings.paths.spending, limits)
    spending.check()
    return max(limits.cost - spending.today().cost, Decimal(0))


# Stored evaluations


def evaluations_directory(settings: Settings) -> Path:
    """Where evaluations are stored."""
    return settings.paths.state / "evals"


def stored_evaluations(settings: Settings) -> Iterator[Evaluation]:
    """All stored evaluations that can be read, the newest first: names begin with the time."""
    place = evaluations_directory(settings)
    for path in sorted(place.iterdir(), reverse=True) if place.is_dir() else ():
        with suppress(ConductorError):
            yield Evaluation(path)


def find_evaluation(name: str, settings: Settings) -> Evaluation:
    """The stored evaluation with this id, or the `last` one. Raises `UsageError`."""
    for stored in stored_evaluations(settings):
        if name in (stored.id, "last"):
            return stored
    raise UsageError(f"there is no evaluation {name!r}", hint="conductor eval --list shows them")


# Cases


def load_cases(source: str, *, file: str | None, count: int | None, seed: int) -> tuple[str, tuple[Case, ...]]:
    """The set's name and its cases. `seed` makes those of `basics`, and chooses `count` from a file or the demo's set.

    With `file`, `source` is the published suite that the file contains. Raises `UsageError`, with the line if a file is
    wrong.
    """
    if file is not None:
        suite = find_suite(source)
        return suite.name, read_suite(suite, Path(file).expanduser(), count=count, seed=seed)
    if source == rehearsal.NAME:
        return source, rehearsal.held_out_cases(count or rehearsal.EVAL_CASES, seed)
    if source == NAME:
        return source, make_basics(count or COUNT, seed)
    path = Path(source).expanduser()
    if source in SUITES and not path.exists():
        suite = SUITES[source]
        raise UsageError(f"{source} needs its file: --from FILE", hint=f"{suite.source} on the Hugging Face hub")
    if not path.exists() and not path.suffix:
        known = f"the built-in sets: {rehearsal.NAME}, {NAME}; conductor eval --list shows the published ones"
        raise UsageError(f"{path} is neither a file nor a set", hint=known)
    # A file that is called like a set must not be taken for it when results are compared.
    name = str(path.absolute()) if path.name in (rehearsal.NAME, NAME, *SUITES) else path.name
    return name, sample_cases(read_cases(path), count, seed)


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """A sample of `count` cases in their own order, chosen by the seed; all of them without a count."""
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all")
    chosen = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - reproducible, no secret
    return tuple(cases[index] for index in sorted(chosen))
