"""Putting every case to every system: bounded, kept, and resumable after a kill at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import ParamSpec, TypeVar

from conductor_cli.core.errors import UsageError
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import Case, check_case, is_correct
from conductor_cli.evals.cost import Budget
from conductor_cli.evals.outcomes import Outcome, judged
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.storage import CALLS, Evaluation, ResultWriter
from conductor_cli.evals.systems import ANSWERS, System
from conductor_cli.models.base import Model
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run import Conductor
from conductor_cli.run.resources import turns_of

P = ParamSpec("P")
T = TypeVar("T")


async def evaluate(  # noqa: PLR0913 - what, by whom, and within which bounds
    evaluation: Evaluation,
    systems: Sequence[System],
    conductor: Conductor,
    *,
    parallel: int = 8,
    retry: bool = False,
    budget: Budget | None = None,
) -> AsyncGenerator[Outcome, None]:
    """Put each case to each system that is not `missing`, at most `parallel` runs at once; each outcome as it comes.

    No run begins that `budget` does not let begin; those under way are finished.

    What is known already is not done again (with `retry`, what failed is): `evaluation.outcomes()` has all there is, in
    order. Whoever stops reading stops the runs; what was finished is kept. `conductor` holds the models, which stay
    open. Raises `UsageError` where the directory cannot be written, also when a reply or a run cannot be kept there any
    more; `ConfigError` where a scorer's library is missing.
    """
    with evaluation.desk() as desk:
        cases = evaluation.cases()
        known = {(o.system, o.case) for o in evaluation.outcomes() if not (retry and o.verdict == "failed")}
        seats = tuple(_seats(evaluation, systems, conductor, desk.book))
        hall = _Hall(desk=desk, seats=seats, seed=evaluation.spec.seed, budget=budget or Budget())
        async with aclosing(_each(hall, hall.todo(cases, known), parallel)) as outcomes:
            async for outcome in outcomes:
                yield outcome
                if desk.book.error is not None:
                    raise _unkept(evaluation.directory / CALLS, desk.book.error)


def _unkept(path: Path, error: OSError) -> UsageError:
    """Replies can no longer be kept: to go on would ask, and pay for, the same again later."""
    return UsageError(f"{path} cannot be written: {error.strerror}", hint="make room, then resume the evaluation")


def rescore(evaluation: Evaluation, *, scorer: str = "") -> tuple[Outcome, ...]:
    """The outcomes again, from the stored runs and without a call: by each case's scorer, or all by `scorer`.

    What failed stays failed. Nothing is written. Raises `UsageError` where an answer does not suit the scorer.
    """
    cases = {case.id: replace(case, scorer=scorer) if scorer else case for case in evaluation.cases()}
    for case in cases.values():
        check_case(case)
    return tuple(_rescored(evaluation, outcome, cases[outcome.case]) for outcome in evaluation.outcomes())


def _rescored(evaluation: Evaluation, outcome: Outcome, case: Case) -> Outcome:
    if outcome.verdict == "failed":
        return outcome
    take = ANSWERS.get(outcome.system)
    answer = outcome.answer if take is None else take(evaluation.trace(outcome), case)
    return replace(outcome, answer=answer, verdict="right" if is_correct(answer, case) else "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """A system, and the setting that it runs in."""

    system: System
    conductor: Conductor


def _seats(
    evaluation: Evaluation, systems: Sequence[System], conductor: Conductor, book: ResponseCache
) -> Iterator[_Seat]:
    # No time limit for a run as a whole: it waits for the turns of others, which says nothing of its system.
    limits = replace(conductor.limits, seconds=None)
    kept = _kept(replace(conductor, seed=evaluation.spec.seed, limits=limits), book, evaluation.spec.planner)
    for system in systems:
        if not system.missing:
            yield _Seat(system=system, conductor=system.fit(kept))


def _kept(conductor: Conductor, book: ResponseCache, planner_is: str) -> Conductor:
    """The same conductor, with a memory around every model; workers on one model stay on one.

    `planner_is` says which model plans, as `who_is` does of workers.

    Turns on the models are for all runs together: what waits for a turn is not late, as it would be inside a call.
    """
    around: dict[int, CachedModel] = {}
    for name, model in conductor.workers.items():
        around.setdefault(id(model), CachedModel(model, book, model_identity(conductor.pool[name])))
    workers: Mapping[str, Model] = {name: around[id(model)] for name, model in conductor.workers.items()}
    turns = turns_of(conductor.pool, workers)
    planner = conductor.model
    if planner is None:
        return replace(conductor, workers=workers, turns=turns)
    model = around.get(id(planner)) or CachedModel(planner, book, planner_is)
    if conductor.exact:
        turns.setdefault(id(model), asyncio.Semaphore(1))  # it is in this process, and does one thing at a time
    return replace(conductor, workers=workers, model=model, turns=turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hall:
    """Where the runs take place."""

    desk: ResultWriter
    seats: tuple[_Seat, ...]
    seed: int
    budget: Budget

    def todo(self, cases: Sequence[Case], known: set[tuple[str, str]]) -> Iterator[tuple[_Seat, Case]]:
        """Case by case, since the systems of one case share calls."""
        return ((seat, case) for case in cases for seat in self.seats if (seat.system.name, case.id) not in known)

    def random(self, *names: str) -> Random:
        """A source that depends on nothing but the seed and these names."""
        return Random("/".join([str(self.seed), *names]))  # noqa: S311 - reproducible, no secret

    async def put(self, seat: _Seat, case: Case) -> Outcome | None:
        """Run one case under one system and keep what became of it; None where the case is not for the system."""
        system, conductor = seat.system, seat.conductor
        plan = system.plan(case, self.random(system.name, case.id)) if system.plan is not None else None
        if plan is None and system.plan is not None:
            return None
        run = conductor.run(Question(text=case.question), plan=plan)
        events = [event async for event in run]
        outcome = await _aside(case, judged, system, case, run.trace, events)
        outcome = replace(outcome, trace=self.desk.run(events))
        self.desk.outcome(outcome)
        return outcome


async def _aside(case: Case, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do `work` in a thread where the case's scorer may take seconds, so that nobody waits for it."""
    if SCORERS[case.scorer].slow:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


async def _each(hall: _Hall, todo: Iterator[tuple[_Seat, Case]], parallel: int) -> AsyncGenerator[Outcome, None]:
    """The outcomes as they come; an exception of one run ends all."""
    ready: asyncio.Queue[Outcome | None] = asyncio.Queue()

    async def work() -> None:
        while hall.budget.begins() and (next_one := next(todo, None)) is not None:
            outcome = await hall.put(*next_one)
            hall.budget.ends(outcome)
            if outcome is not None:
                ready.put_nowait(outcome)

    async def drive() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(max(parallel, 1)):
                    tasks.create_task(work())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # the others are the same, or follow from it
        finally:
            ready.put_nowait(None)

    driver = asyncio.create_task(drive())
    try:
        while (outcome := await ready.get()) is not None:
            yield outcome
        await driver
    finally:
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
