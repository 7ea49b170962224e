"""Runs every case under every system: in parallel, within a budget, and resumable after a kill at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random

from conductor_cli.core.question import Question
from conductor_cli.evals.cases import Case, check_case, is_correct
from conductor_cli.evals.cost import Budget
from conductor_cli.evals.outcomes import Outcome, judge_run
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.storage import Evaluation, ResultWriter
from conductor_cli.evals.systems import ANSWERS, System
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run import Conductor
from conductor_cli.run.resources import model_semaphores


async def evaluate(  # noqa: PLR0913 - each argument is independent of the others
    evaluation: Evaluation,
    systems: Sequence[System],
    conductor: Conductor,
    *,
    parallel: int = 8,
    retry: bool = False,
    budget: Budget | None = None,
) -> AsyncGenerator[Outcome, None]:
    """Run each case under each system that is not `missing`, at most `parallel` at once; yield each outcome.

    Known outcomes are not repeated (with `retry`, failed ones are). When `budget` is used up no more runs start, and
    those that have started are finished. Closing the generator stops the runs; finished ones stay stored. The models of
    `conductor` stay open. Raises `UsageError` if the directory cannot be written, `ConfigError` if the library of a
    scorer is missing.
    """
    # The lock is held while runs are in progress: a second process would repeat the same calls.
    with evaluation.writer() as writer:
        known = {(o.system, o.case) for o in evaluation.outcomes() if not (retry and o.verdict == "failed")}
        # A run has no time limit as a whole: it also waits for other runs on the same model.
        conductor = replace(conductor, seed=evaluation.spec.seed, limits=replace(conductor.limits, seconds=None))
        conductor = _with_response_cache(conductor, writer.replies, evaluation.spec.planner_id)
        setups = [(system, system.configure(conductor)) for system in systems if not system.missing]
        # Case by case, because the systems share calls on the same case.
        todo = (
            (system, configured, case)
            for case in evaluation.cases()
            for system, configured in setups
            if (system.name, case.id) not in known
        )
        runner = EvalRunner(writer=writer, seed=evaluation.spec.seed, budget=budget or Budget(), todo=todo)
        async with aclosing(runner.run(parallel)) as outcomes:
            async for outcome in outcomes:
                yield outcome
                writer.check_replies()


def rescore(evaluation: Evaluation, *, scorer: str = "") -> tuple[Outcome, ...]:
    """Score the stored answers again, by each case's scorer or all by `scorer`, without any call.

    Failed outcomes stay failed. Nothing is written. Raises `UsageError` if an expected answer does not fit the scorer.
    """
    cases = {case.id: replace(case, scorer=scorer) if scorer else case for case in evaluation.cases()}
    for case in cases.values():
        check_case(case)

    def rescored(outcome: Outcome) -> Outcome:
        if outcome.verdict == "failed":
            return outcome
        case, extract = cases[outcome.case], ANSWERS.get(outcome.system)
        answer = outcome.answer if extract is None else extract(evaluation.trace(outcome), case)
        return replace(outcome, answer=answer, verdict="right" if is_correct(answer, case) else "wrong")

    return tuple(map(rescored, evaluation.outcomes()))


def _with_response_cache(conductor: Conductor, replies: ResponseCache, planner_id: str) -> Conductor:
    """The same conductor with a response cache around every model; workers that share a model still share it.

    The semaphores of the models are shared by all runs: time spent waiting there must not count as a late reply, which
    it would inside a call.
    """
    cached: dict[int, CachedModel] = {}
    for name, model in conductor.workers.items():
        cached.setdefault(id(model), CachedModel(model, replies, model_identity(conductor.pool[name])))
    workers = {name: cached[id(model)] for name, model in conductor.workers.items()}
    turns = model_semaphores(conductor.pool, workers)
    if conductor.model is None:
        return replace(conductor, workers=workers, turns=turns)
    planner = cached.get(id(conductor.model)) or CachedModel(conductor.model, replies, planner_id)
    if conductor.exact:
        # An in-process model can do only one thing at a time.
        turns.setdefault(id(planner), asyncio.Semaphore(1))
    return replace(conductor, workers=workers, model=planner, turns=turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRunner:
    """Takes runs from `todo` until that or the budget is used up."""

    writer: ResultWriter
    seed: int
    budget: Budget
    todo: Iterator[tuple[System, Conductor, Case]]

    async def run(self, parallel: int) -> AsyncGenerator[Outcome, None]:
        """Each outcome as it comes. An exception in one run ends all of them."""
        ready: asyncio.Queue[Outcome | None] = asyncio.Queue()

        async def work() -> None:
            while self.budget.start() and (item := next(self.todo, None)) is not None:
                outcome = await self._run_case(*item)
                self.budget.finish(outcome)
                # None: the system skips this case.
                if outcome is not None:
                    ready.put_nowait(outcome)

        async def work_in_parallel() -> None:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(max(parallel, 1)):
                        tasks.create_task(work())
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None  # the others are the same, or follow from it
            finally:
                ready.put_nowait(None)

        workers = asyncio.create_task(work_in_parallel())
        try:
            while (outcome := await ready.get()) is not None:
                yield outcome
            await workers
        finally:
            workers.cancel()
            await asyncio.gather(workers, return_exceptions=True)

    async def _run_case(self, system: System, conductor: Conductor, case: Case) -> Outcome | None:
        """Run one case under one system and store the outcome; None if the system skips the case."""
        plan = None
        if system.plan is not None:
            # The random source depends on nothing but the seed and these names, so a resumed run draws the same.
            plan = system.plan(case, Random(f"{self.seed}/{system.name}/{case.id}"))  # noqa: S311 - reproducible
            if plan is None:
                return None
        run = conductor.run(Question(text=case.question), plan=plan)
        events = [event async for event in run]
        if SCORERS[case.scorer].slow:
            outcome = await asyncio.to_thread(judge_run, system, case, run.trace, events)
        else:
            outcome = judge_run(system, case, run.trace, events)
        outcome = replace(outcome, trace=self.writer.write_run(events))
        self.writer.write_outcome(outcome)
        return outcome
