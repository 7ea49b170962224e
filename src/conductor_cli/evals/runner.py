"""Runs every case under every system: in parallel, within a budget, and continued after a kill at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from conductor_cli.core.question import Question
from conductor_cli.evals.cases import Case
from conductor_cli.evals.cost import Budget
from conductor_cli.evals.outcomes import Outcome, judge_run
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.storage import Evaluation, ResultWriter
from conductor_cli.evals.systems import System
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run import Conductor
from conductor_cli.run.config import model_semaphores


async def evaluate(
    evaluation: Evaluation,
    systems: Sequence[System],
    conductor: Conductor,
    *,
    parallel: int = 8,
    budget: Budget | None = None,
) -> AsyncGenerator[Outcome, None]:
    """Run each case under each system that is not `missing`, at most `parallel` at once; yield each outcome.

    Cases that were judged before are not run again; those that failed are. When `budget` is used up no more runs start,
    and those that have started are finished. Closing the generator stops the runs; finished ones stay stored. Raises
    `UsageError` if the directory cannot be written, `ConfigError` if the library of a scorer is missing.
    """
    budget = budget or Budget()
    # The lock is held while runs are in progress: a second process would repeat the same calls.
    with evaluation.writer() as writer:
        known = evaluation.judged()
        # A run has no time limit as a whole: it also waits for other runs on the same model.
        conductor = replace(conductor, seed=evaluation.spec.seed, limits=replace(conductor.limits, seconds=None))
        conductor = _with_response_cache(conductor, writer.replies, evaluation.spec.planner_id or "")
        setups = [(system, system.configure(conductor)) for system in systems if not system.missing]
        # Case by case, because the systems share calls on the same case.
        todo = (
            (system, configured, case)
            for case in evaluation.cases()
            for system, configured in setups
            if (system.name, case.id) not in known
        )
        running: set[asyncio.Task[Outcome]] = set()
        try:
            while True:
                while len(running) < max(parallel, 1) and budget.start() and (item := next(todo, None)) is not None:
                    running.add(asyncio.create_task(_run_case(*item, writer)))
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    outcome = task.result()
                    running.remove(task)
                    budget.finish(outcome.usage.cost)
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


async def _run_case(system: System, conductor: Conductor, case: Case, writer: ResultWriter) -> Outcome:
    """Run one case under one system, and store its outcome."""
    plan = None if system.plan is None else system.plan(case)
    run = conductor.run(Question(text=case.question), plan=plan)
    events = [event async for event in run]
    if SCORERS[case.scorer].slow:
        outcome = await asyncio.to_thread(judge_run, system, case, run.trace, events)
    else:
        outcome = judge_run(system, case, run.trace, events)
    writer.write(outcome)
    return outcome
