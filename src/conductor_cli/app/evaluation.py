"""Evaluations: load cases, find stored evaluations, open the models, estimate the cost, and run what is left to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

from conductor_cli import __version__
from conductor_cli.app import rehearsal
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError, ConductorUnusable, KeyMissing, UsageError
from conductor_cli.core.serialization import dump
from conductor_cli.evals.builtin import COUNT, NAME, make_basics
from conductor_cli.evals.cases import Case, hash_cases, read_cases
from conductor_cli.evals.converters import convert
from conductor_cli.evals.cost import Budget, CostEstimate, check_prices_known, estimate_cost, is_free
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.runner import evaluate
from conductor_cli.evals.storage import Evaluation, EvaluationSpec
from conductor_cli.evals.systems import System, ranking_notes, select_systems, split_names
from conductor_cli.models.daily_spend import DailySpend
from conductor_cli.models.response_cache import model_identity
from conductor_cli.run import Conductor
from conductor_cli.run.conductor import new_run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What to evaluate: `source` names the set of cases, `systems` is as on the command line.

    `resume` is a stored evaluation to continue. `max_cost` is in US dollars, for all parts of it together. With
    `rehearsal` the demo models run.
    """

    source: str
    cases: tuple[Case, ...]
    systems: str | Sequence[str] = "all"
    workers: tuple[str, ...] = ()
    seed: int = 0
    parallel: int = 8
    resume: Evaluation | None = None
    max_cost: Decimal | None = None
    rehearsal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation whose models are open.

    `stored` is the one that is continued, of which `done` runs are finished. `estimate` is None if nothing will cost
    anything. The budget is that of the day, not of the request, if `daily_limit`.
    """

    request: EvaluationRequest
    conductor: Conductor
    systems: tuple[System, ...]
    spec: EvaluationSpec
    stored: Evaluation | None
    done: int
    budget: Budget
    daily_limit: bool
    estimate: CostEstimate | None

    def create(self, settings: Settings) -> Evaluation:
        """The stored evaluation, created now if it is a new one."""
        directory = evaluations_directory(settings) / new_run_id(datetime.now(UTC))
        return self.stored or Evaluation.create(directory, self.spec, self.request.cases)

    def run(self, evaluation: Evaluation) -> AsyncGenerator[Outcome, None]:
        """Run what is left, and yield each outcome."""
        return evaluate(
            evaluation, self.systems, self.conductor, parallel=self.request.parallel, budget=self.budget,
            retry=self.request.resume is not None,
        )  # fmt: skip


@asynccontextmanager
async def open_evaluation(request: EvaluationRequest, settings: Settings) -> AsyncIterator[PreparedEvaluation]:
    """Open the models and find out what is left to do; nothing is called yet. The models are closed at the end.

    An evaluation of the same cases and systems that was interrupted is continued. Raises `UsageError` if no system can
    run, or if `request.resume` was started with something else; `PolicyError` if a cost limit cannot be enforced.
    """
    opened, planner_error = await _open_models(request, settings)
    conductor = opened.conductor
    try:
        keywords = rehearsal.skill_keywords() if request.rehearsal else None
        found = select_systems(request.systems, conductor, cases=request.cases, keywords=keywords)
        systems = tuple(system for system in found if not system.missing)
        if not systems:
            if planner_error is not None and all(system.plan is None for system in found):
                raise planner_error
            raise UsageError(f"none of these systems can run: {found[0].name}: {found[0].missing}")
        notes = [*_left_out(found, planner_error), *ranking_notes(conductor)]
        if settings.cards.problem and not request.rehearsal:
            notes.append(settings.cards.problem)
        spec = _make_spec(request, opened, systems, tuple(notes))
        stored = _find_interrupted(request, spec, settings)

        outcomes = stored.outcomes() if stored is not None else ()
        # An automatic continuation leaves failed cases as they are; only `--resume` retries them.
        done = {(o.system, o.case) for o in outcomes if o.verdict != "failed" or request.resume is None}
        estimate = None
        if len(done) < spec.runs and not is_free(conductor, systems):
            estimate = estimate_cost(systems, request.cases, conductor, done)

        spent = stored.spent() if stored is not None else Decimal(0)
        limit, daily_limit = request.max_cost, False
        # The limit of the day may be tighter than the one of the request. The demo models cost nothing.
        left = None if request.rehearsal else _remaining_today(settings)
        if left is not None and (limit is None or spent + left < limit):
            limit, daily_limit = spent + left, True
        # A limit that ignores some of the calls would only seem to protect.
        if limit is not None:
            check_prices_known(conductor, systems)
        expected = max([outcome.usage.cost or Decimal(0) for outcome in outcomes], default=Decimal(0))
        if estimate is not None and not outcomes:
            expected = estimate.low.cost[0] / estimate.runs
        yield PreparedEvaluation(
            request=request, conductor=conductor, systems=systems, spec=spec, stored=stored, done=len(done),
            budget=Budget(limit, spent=spent, expected=expected), daily_limit=daily_limit, estimate=estimate,
        )  # fmt: skip
    finally:
        await opened.close()


async def _open_models(request: EvaluationRequest, settings: Settings) -> tuple[OpenedConductor, ConductorError | None]:
    """The models, and why the conductor model is missing if a system wants it: the others can run without."""
    planning = any(name == "all" or name.startswith("conductor") for name in split_names(request.systems))

    async def open_models(*, planning: bool) -> OpenedConductor:
        # The limit of the day is part of the evaluation's budget, so single runs are not held to it.
        return await open_conductor(
            settings, only=request.workers, planning=planning, seed=request.seed, rehearsal=request.rehearsal,
            day_limits=False,
        )  # fmt: skip

    try:
        return await open_models(planning=planning), None
    except (ConductorUnusable, KeyMissing) as error:
        if not planning:
            raise
        return await open_models(planning=False), error


def _left_out(systems: Sequence[System], planner_error: ConductorError | None) -> list[str]:
    """A line for each reason why systems are left out."""
    reasons: dict[str, list[str]] = {}
    for system in systems:
        if system.missing:
            reason = system.missing
            if planner_error is not None and system.plan is None:
                reason = "; ".join(filter(None, (planner_error.message, planner_error.hint)))
            reasons.setdefault(reason, []).append(system.name)
    return [f"left out: {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _make_spec(
    request: EvaluationRequest, opened: OpenedConductor, systems: Sequence[System], notes: tuple[str, ...]
) -> EvaluationSpec:
    conductor, planner = opened.conductor, opened.planner
    names, hashed = tuple(system.name for system in systems), hash_cases(request.cases)
    planner_id = model_identity(planner) if planner is not None else ""
    identity = {
        "cases": (request.source, hashed), "systems": names, "seed": request.seed,
        # No header of a worker is stored, as it may be a key; the identity of its model has a hash of them.
        "workers or cards": (conductor.pool.public(), [model_identity(worker) for worker in conductor.pool]),
        "conductor": (planner_id, conductor.name) if planner is not None else None,
        "profile": conductor.profile.name if planner is not None else None,
        "limits": conductor.limits, "timeouts": conductor.timeouts,
    }  # fmt: skip
    return EvaluationSpec(
        source=request.source, hash=hashed, case_count=len(request.cases), systems=names,
        workers=conductor.pool.names, seed=request.seed, planner_id=planner_id,
        conductor=conductor.name if planner is not None else "", identity=dump(identity), rehearsal=request.rehearsal,
        notes=notes, version=__version__, time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )  # fmt: skip


def _find_interrupted(request: EvaluationRequest, spec: EvaluationSpec, settings: Settings) -> Evaluation | None:
    """The evaluation to continue: the one that the user named, else the newest equal one that is unfinished."""
    if request.resume is not None:
        differences = request.resume.spec.differences(spec)
        if differences:
            message = f"{request.resume.id} was started with other {', '.join(differences)}"
            raise UsageError(message, hint="start a new evaluation, or restore what has changed")
        return request.resume
    newest = next((found for found in stored_evaluations(settings) if not found.spec.differences(spec)), None)
    return newest if newest is not None and len(newest.outcomes()) < spec.runs else None


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
    """The stored evaluation called `name`, which is an id, the beginning of one, or `last`. Raises `UsageError`."""
    stored = list(stored_evaluations(settings))
    if name in ("", "last"):
        matching = stored[:1]
    else:
        matching = [evaluation for evaluation in stored if evaluation.id.startswith(name)]
        matching = [evaluation for evaluation in matching if evaluation.id == name] or matching
    if len(matching) == 1:
        return matching[0]
    message = f"{len(matching)} evaluations match {name!r}" if matching else f"no evaluation matches {name!r}"
    raise UsageError(message, hint="conductor eval --list shows them")


def resume_request(evaluation: Evaluation) -> EvaluationRequest:
    """The request that continues a stored evaluation."""
    spec = evaluation.spec
    return EvaluationRequest(
        source=spec.source, cases=evaluation.cases(), systems=spec.systems, seed=spec.seed, workers=spec.workers,
        resume=evaluation, rehearsal=spec.rehearsal,
    )  # fmt: skip


# Cases


def load_cases(source: str, *, form: str | None, count: int | None, seed: int) -> tuple[str, tuple[Case, ...]]:
    """The set's name and its cases. `seed` makes those of `basics`, and chooses `count` from a file or the demo's set.

    `form` is the published set that a file contains. Raises `UsageError`, with the line if a file is wrong.
    """
    if source == rehearsal.NAME and form is None:
        return source, rehearsal.held_out_cases(count or rehearsal.EVAL_CASES, seed)
    if source == NAME and form is None:
        return source, make_basics(count or COUNT, seed)
    path = Path(source).expanduser()
    if form is not None:
        cases = convert(form, path, seed)
    elif not path.exists() and not path.suffix:
        raise UsageError(
            f"{path} is neither a file nor a built-in set", hint=f"the built-in sets: {rehearsal.NAME}, {NAME}"
        )
    else:
        cases = read_cases(path)
    # A file that is called like a built-in set must not be taken for it when results are compared.
    name = str(path.absolute()) if path.name in (rehearsal.NAME, NAME) else path.name
    return name, sample_cases(cases, count, seed)


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """A sample of `count` cases in their own order, chosen by the seed; all of them without a count."""
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all")
    chosen = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - reproducible, no secret
    return tuple(cases[index] for index in sorted(chosen))
