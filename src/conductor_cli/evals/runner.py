"""Runs every case under every system.

In parallel, within a budget, and continued after a kill at any moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from conductor_cli.core.errors import LIMITS_OF_SEVERAL, ConfigError, Failure, LimitReached
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import AnswerScorer, Case, score_answer
from conductor_cli.evals.judge import Judge
from conductor_cli.evals.outcomes import (
    SPENT,
    CaseOutcome,
    Evaluation,
    EvaluationSpec,
    check_limit_of_all,
    judge_run,
    write_error,
)
from conductor_cli.evals.sandbox import run_off_loop
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.evals.systems import RunSetup, System
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from conductor_cli.run.budget import Budget, CallBudget
from conductor_cli.run.orchestra import model_turns

Row = tuple[str, Case, int]
"""A run that is to be made: the name of its system, its case, and which draw of the two it is."""
NO_NODE: Final = frozenset({"config", "key", "policy"})
"""Kinds of failures that say that a process cannot make any run."""
Elsewhere = Callable[[Iterable[Row]], AsyncGenerator[tuple[Row, CaseOutcome | Failure], None]]
"""Makes runs in other processes, in any order. A `Failure` stands for a run that could not be
made.
"""


async def run_cases(  # noqa: PLR0913 - each is a way to run them
    evaluation: Evaluation,
    systems: Sequence[System],
    orchestra: Orchestra,
    *,
    cases: Sequence[Case] | None = None,
    parallel: int = 8,
    budget: Budget | None = None,
    judge: Judge | None = None,
    scorer: AnswerScorer | None = None,
    elsewhere: Elsewhere | None = None,
) -> AsyncGenerator[CaseOutcome, None]:
    """Run each case under each system that is not `missing`, at most `parallel` at once.

    Yield each outcome.

    Without `cases` those of the evaluation are run. A case may be run several times. Each of these
    draws has another seed. `judge` judges each answer. `scorer` scores all answers in place of the
    scorers of the cases. With `elsewhere` that makes the runs, and
    holds the budget.

    Cases that were judged before are not run again; those that failed are. When `budget` is used up
    no more runs start, and those that have started are finished as far as it has room for their
    calls. Closing the generator stops the runs; finished ones stay stored.
    Raises `UsageError` if the directory cannot be written, `ConfigError` if the library of a scorer
    is missing.
    """
    budget = budget or Budget()
    spec = evaluation.spec
    # The lock is held while runs are in progress: a second process would repeat the same calls.
    with evaluation.writer() as writer, _recorded(budget, evaluation):
        if cases is None:
            cases = evaluation.cases()
        todo = _missing_runs(spec, cases, systems, evaluation.judged())
        if elsewhere is not None:
            async with aclosing(_outcomes_from_elsewhere(elsewhere(todo), budget)) as outcomes:
                async for outcome in outcomes:
                    writer.write(outcome)
                    yield outcome
            return
        run_case = case_runner(
            spec, systems, orchestra, judge, writer.replies, budget=budget, scorer=scorer
        )

        async def run_and_store(row: Row) -> CaseOutcome:
            outcome = await run_case(row)
            writer.write(outcome)
            return outcome

        async with aclosing(_run_in_parallel(todo, run_and_store, budget, parallel)) as outcomes:
            async for outcome in outcomes:
                yield outcome


def _missing_runs(
    spec: EvaluationSpec,
    cases: Sequence[Case],
    systems: Sequence[System],
    judged: Container[tuple[str, str, int]],
) -> Iterator[Row]:
    """Yield the runs that were not judged yet.

    Case by case, because the systems share calls on the same case.
    """
    for draw in range(spec.repeat):
        for case in cases:
            for system in systems:
                if not system.missing and (system.name, case.id, draw) not in judged:
                    yield system.name, case, draw


async def _outcomes_from_elsewhere(
    results: AsyncGenerator[tuple[Row, CaseOutcome | Failure], None], budget: Budget
) -> AsyncGenerator[CaseOutcome, None]:
    """Yield what the runs of other processes came to.

    Raises `ConfigError` where a process cannot make any run.
    """
    async with aclosing(results):
        async for (system, case, draw), result in results:
            if isinstance(result, CaseOutcome):
                yield result
            elif result.reason in LIMITS_OF_SEVERAL:
                budget.reached = result
            elif result.kind in NO_NODE:
                raise ConfigError(result.message, hint=result.hint)
            else:
                yield CaseOutcome(
                    system=system,
                    case=case.id,
                    tags=case.tags,
                    verdict="failed",
                    error=result.message,
                    draw=draw,
                )


async def _run_in_parallel(
    todo: Iterator[Row],
    run_case: Callable[[Row], Coroutine[Any, Any, CaseOutcome]],
    budget: Budget,
    parallel: int,
) -> AsyncGenerator[CaseOutcome, None]:
    """Make the runs while the budget lasts, so many at once, and yield each outcome."""
    running: set[asyncio.Task[CaseOutcome]] = set()
    try:
        while True:
            while budget.reached is None and len(running) < max(parallel, 1) and budget.start():
                if (row := next(todo, None)) is None:
                    budget.finish(None)
                    break
                running.add(asyncio.create_task(run_case(row)))
            if not running:
                break
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                running.remove(task)
                try:
                    outcome = task.result()
                except LimitReached as error:  # what it has paid for is in the response cache
                    budget.reached = error.failure
                    budget.finish(None)
                    continue
                budget.finish(outcome.cost)
                yield outcome
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextmanager
def _recorded(budget: Budget, evaluation: Evaluation) -> Iterator[None]:
    """Have the evaluation remember what is spent.

    Raises `UsageError` where it cannot be written.
    """
    try:
        budget.remember(evaluation.directory / SPENT)
    except OSError as error:
        raise write_error(evaluation.directory, error) from None
    try:
        yield
    finally:
        budget.close()


def case_runner(  # noqa: PLR0913 - all of it decides how a run is made
    spec: EvaluationSpec,
    systems: Sequence[System],
    orchestra: Orchestra,
    judge: Judge | None,
    replies: ResponseCache,
    *,
    budget: CallBudget | None = None,
    scorer: AnswerScorer | None = None,
) -> Callable[[Row], Awaitable[CaseOutcome]]:
    """Return what makes one run of a case and judges it.

    Equal calls are made once, as `replies` has them, and paid from `budget`. `scorer` scores all
    answers in place of the scorers of the cases.
    """
    # A run has no time limit as a whole: it also waits for other runs on the same model.
    limits = replace(orchestra.limits, seconds=None)
    team = _with_response_cache(orchestra.team, replies, spec.planner_id or "")
    if judge is not None:
        judging = _with_response_cache(judge.setup.team, replies, "")
        unhurried = replace(judge.setup.limits, seconds=None)
        setup = replace(judge.setup, team=judging, limits=unhurried)
        judge = replace(judge, setup=setup, budget=budget)
    configured: dict[tuple[str, int], tuple[System, RunSetup]] = {}
    for draw in range(spec.repeat):
        setup = RunSetup(team=team, limits=limits, seed=spec.seed + draw)
        for system in systems:
            if not system.missing:
                configured[system.name, draw] = system, system.configure(setup)

    async def run_case(row: Row) -> CaseOutcome:
        name, case, draw = row
        system, setup = configured[name, draw]
        plan = None
        if system.plan is not None:
            plan = system.plan(case)
        run_spec = RunSpec(
            question=Question(text=case.question),
            plan=plan,
            team=setup.team,
            limits=setup.limits,
            seed=setup.seed,
            budget=budget,
        )
        run = start_run(orchestra, run_spec)
        events = [event async for event, _ in run]
        check_limit_of_all(run.trace)
        score = partial(judge_run, system, case, run.trace, events, scorer or score_answer)
        if scorer is not None or SCORERS[case.scorer].slow:
            outcome = await run_off_loop(score)
        else:
            outcome = score()
        if judge is not None:
            outcome = await judge.judge(outcome, case)
        return replace(outcome, draw=draw)

    return run_case


def _with_response_cache(team: Team, replies: ResponseCache, planner_id: str) -> Team:
    """Return the same team with a response cache around every model.

    Workers that share a model still share it.

    All runs take turns on the models: time spent waiting for that must not count as a late reply,
    which it would inside a call.
    """
    cached: dict[int, CachedModel] = {}
    for name, model in team.workers.items():
        cached.setdefault(id(model), CachedModel(model, replies, model_identity(team.pool[name])))
    workers = {name: cached[id(model)] for name, model in team.workers.items()}
    planner = None
    if team.model is not None:
        planner = cached.get(id(team.model)) or CachedModel(team.model, replies, planner_id)
    turns = model_turns(team.pool, workers, planner if team.constrained else None)
    return replace(team, workers=workers, model=planner, turns=turns)
