"""Runs every case under every system: in parallel, within a budget, and continued after a kill at any moment."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from conductor_cli.core.events import Event
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.evals.cases import Case
from conductor_cli.evals.cost import Budget
from conductor_cli.evals.outcomes import Evaluation, Outcome, ResultWriter, RunKey, infrastructure_error, judge_run
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.systems import System
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.programs.sandbox import stoppable
from conductor_cli.run import Conductor
from conductor_cli.run.config import model_semaphores

T = TypeVar("T")


async def evaluate(
    evaluation: Evaluation,
    systems: Sequence[System],
    conductor: Conductor,
    *,
    parallel: int = 8,
    budget: Budget | None = None,
) -> AsyncGenerator[Outcome, None]:
    """Run each case under each system that is not `missing`, at most `parallel` at once; yield each outcome.

    A case may be run several times. Each of these draws has another seed.

    Cases that were judged before are not run again; those that failed are. When `budget` is used up no more runs start,
    and those that have started are finished. A system that selects among answers is judged when all its cases have
    been answered; until then its replies are stored, but no outcome. Closing the generator stops the runs; finished
    ones stay stored. Raises `UsageError` if the directory cannot be written, `ConfigError` if the library of a scorer
    is missing.
    """
    budget = budget or Budget()
    # The lock is held while runs are in progress: a second process would repeat the same calls.
    with evaluation.writer() as writer:
        known, cases = evaluation.judged(), evaluation.cases()
        # A run has no time limit as a whole: it also waits for other runs on the same model.
        conductor = replace(conductor, limits=replace(conductor.limits, seconds=None))
        conductor = _with_response_cache(conductor, writer.replies, evaluation.spec.planner_id or "")
        seeds = [evaluation.spec.seed + draw for draw in range(evaluation.spec.repeat)]
        setups = [
            [(system, system.configure(replace(conductor, seed=seed))) for system in systems if not system.missing]
            for seed in seeds
        ]
        # Case by case, because the systems share calls on the same case.
        todo = (
            (_Run(system, case, draw), configured)
            for draw, configured_systems in enumerate(setups)
            for case in cases
            for system, configured in configured_systems
            if not _is_done(_Run(system, case, draw), cases, known)
        )
        running: set[asyncio.Task[Outcome | _Answered]] = set()
        held: list[_Answered] = []
        try:
            while True:
                while len(running) < max(parallel, 1) and budget.start() and (item := next(todo, None)) is not None:
                    running.add(asyncio.create_task(_run_case(*item, writer)))
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    ended = task.result()
                    running.remove(task)
                    budget.finish(ended.usage.cost)
                    if isinstance(ended, Outcome):
                        yield ended
                    else:
                        held.append(ended)
            for outcome in await _judge_selections(held, len(cases), writer):
                if outcome.key not in known:
                    yield outcome
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def _with_response_cache(conductor: Conductor, replies: ResponseCache, planner_id: str) -> Conductor:
    """The same conductor with a response cache around every model; workers that share a model still share it.

    The semaphores of the models are shared by all runs: time spent waiting there must not count as a late reply, which
    it would inside a call.
    """
    cached: dict[int, CachedModel] = {}
    for name, model in conductor.workers.items():
        cached.setdefault(id(model), CachedModel(model, replies, model_identity(conductor.pool[name])))
    workers = {name: cached[id(model)] for name, model in conductor.workers.items()}
    semaphores = model_semaphores(conductor.pool, workers)
    if conductor.model is None:
        return replace(conductor, workers=workers, shared_semaphores=semaphores)
    planner = cached.get(id(conductor.model)) or CachedModel(conductor.model, replies, planner_id)
    if conductor.constrained:
        # An in-process model can do only one thing at a time.
        semaphores.setdefault(id(planner), asyncio.Semaphore(1))
    return replace(conductor, workers=workers, model=planner, shared_semaphores=semaphores)


class _Run(NamedTuple):
    """One run: the `draw`-th of the case under the system."""

    system: System
    case: Case
    draw: int


def _is_done(run: _Run, cases: Sequence[Case], known: Collection[RunKey]) -> bool:
    """Whether a run is not needed. To select for one case, the answers to all are needed; the cache has them."""
    needed = cases if run.system.select is not None else (run.case,)
    return all((run.system.name, each.id, run.draw) in known for each in needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """A run of a system that selects among the answers once it has those to all cases."""

    of: _Run
    trace: Trace
    events: Sequence[Event]

    @property
    def usage(self) -> Usage:
        return self.trace.usage


async def _judge_selections(runs: Sequence[_Answered], cases: int, writer: ResultWriter) -> list[Outcome]:
    """Store and return the outcomes of each system that has answers to all cases."""
    by_system: dict[tuple[str, int], list[_Answered]] = defaultdict(list)
    for run in runs:
        by_system[run.of.system.name, run.of.draw].append(run)
    outcomes = [await _judge_selection(those) for those in by_system.values() if len(those) == cases]
    for outcome in chain.from_iterable(outcomes):
        writer.write(outcome)
    return list(chain.from_iterable(outcomes))


async def _judge_selection(runs: Sequence[_Answered]) -> list[Outcome]:
    """Select among the answers to each case, all of one draw of a system. A case that failed takes no part."""
    system = runs[0].of.system
    assert system.select is not None
    whole = [run for run in runs if not infrastructure_error(run.trace, run.events, planned=False)]
    answered = [(run.of.case, tuple(record.text for record in run.trace.steps)) for run in whole]
    chosen = await system.select(answered) if answered else ()
    selected = dict(zip([run.of.case.id for run in whole], chosen, strict=True))

    def judge() -> list[Outcome]:
        return [_judge(run.of, run.trace, run.events, selected.get(run.of.case.id)) for run in runs]

    return await _in_thread(judge)  # some scorers are slow


async def _in_thread(judge: Callable[[], T]) -> T:
    """What `judge` returns, from a thread. Cancelling also stops the programs that it runs."""
    with stoppable() as stop:
        try:
            return await asyncio.to_thread(judge)
        except asyncio.CancelledError:
            stop.set()
            raise


async def _run_case(of: _Run, conductor: Conductor, writer: ResultWriter) -> Outcome | _Answered:
    """Run one case under one system, and store its outcome."""
    plan = None if of.system.plan is None else of.system.plan(of.case)
    run = conductor.run(Question(text=of.case.question), plan=plan)
    events = [event async for event in run]
    if of.system.select is not None:
        return _Answered(of=of, trace=run.trace, events=events)
    if SCORERS[of.case.scorer].slow:
        outcome = await _in_thread(partial(_judge, of, run.trace, events))
    else:
        outcome = _judge(of, run.trace, events)
    writer.write(outcome)
    return outcome


def _judge(of: _Run, trace: Trace, events: Sequence[Event], selected: int | None = None) -> Outcome:
    return replace(judge_run(of.system, of.case, trace, events, selected), draw=of.draw)
