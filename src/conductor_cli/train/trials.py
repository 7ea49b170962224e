"""Plans for cases, run by the `Conductor` over one's own workers: what is trained is what runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConfigError, LimitReached
from conductor_cli.core.plan import Plan
from conductor_cli.core.pool import Limits, Patience, Pool
from conductor_cli.core.profile import PROFILES
from conductor_cli.core.question import Question
from conductor_cli.core.taint import Guard
from conductor_cli.core.thinking import ThinkingSplitter
from conductor_cli.core.trace import Trace
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.models.daybook import DayBook
from conductor_cli.models.kept import Book
from conductor_cli.models.port import Model
from conductor_cli.run.conductor import Conductor
from conductor_cli.run.shared import turns_of
from conductor_cli.train.presets import Recipe
from conductor_cli.train.purse import Purse
from conductor_cli.train.rewards import is_valid, reward
from conductor_cli.train.rollouts import Outcome, Spoken, Written, outcome_of
from conductor_cli.train.tasks import Task

_Key = tuple[str, tuple[str, ...], str, bool]


@dataclass(slots=True, kw_only=True)
class Trials:
    """Runs what was written for tasks.

    `pool` has the workers with their cards, `models` one model for each of them, which pay from `purse` and remember in
    `book`; where that cannot be written any more, training stops: it would pay for the same again. What is asked is
    held to `guard` and to the limits of a day in `daybook`, as with any run.
    """

    recipe: Recipe
    pool: Pool
    models: Mapping[str, Model]
    purse: Purse
    book: Book
    limits: Limits = Limits()
    patience: Patience = Patience()
    guard: Guard = Guard()
    daybook: DayBook | None = None
    troubles: Counter[str] = field(default_factory=Counter)
    day_is_over: LimitReached | None = None

    def prompt(self, task: Task) -> list[dict[str, str]]:
        """What the conductor reads: see `prompt_of`."""
        return prompt_of(task, self._conductor(task, None))

    async def outcomes(self, written: Sequence[Written]) -> list[Outcome]:
        """What came of each, in order; the same text for the same task is run once.

        Raises `LimitReached` where the money or the day is used up, `ConfigError` where a scorer fails, where the
        answers cannot be kept, and where workers failed in most of the runs.
        """
        self.troubles.clear()
        places, turns = asyncio.Semaphore(self.recipe.at_once), turns_of(self.pool, self.models)

        async def run(item: Written) -> Outcome:
            async with places:
                return await self._outcome(item, turns)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(run(item)) for key, item in {_key(it): it for it in written}.items()}
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the others are the same, or follow from it
        found = [tasks[_key(item)].result() for item in written]
        self._check(found)
        return found

    def figures(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """US dollars of a run, whether paid now or for the reply in the book, and what was spent in all."""
        costs = [float(outcome.cost or 0) for outcome in outcomes]
        return {"cost": sum(costs) / len(costs) if costs else 0.0, "spent": float(self.purse.spent)}

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        if reached := self.purse.reached or self.day_is_over:
            raise reached
        if error := self.book.error or self.purse.error:
            said = f"the workers' answers can no longer be kept: {error.strerror}"
            raise ConfigError(said, hint="make room, then run the same command again")
        failed = sum(outcome.reward is None for outcome in outcomes)
        if 2 * failed > len(outcomes):
            why = self.troubles.most_common(1)[0][0] if self.troubles else "no reason was given"
            said = f"workers failed in {failed} of {len(outcomes)} runs of a step, mostly so: {why}"
            raise ConfigError(said, hint="mend that, then run the same command again")

    async def _outcome(self, item: Written, turns: Mapping[int, asyncio.Semaphore]) -> Outcome:
        """First the plan is read, which asks nobody: one that is no plan costs nothing. Then it is run."""
        task: Task = item.exercise
        trace = await self._trace(self._conductor(task, Spoken(_plan_in(item.text), whole=item.whole)), task, None)
        if is_valid(trace) and isinstance(trace.plan, Plan):
            conductor = replace(self._conductor(task, None), turns=turns, guard=self.guard, daybook=self.daybook)
            trace = await self._trace(conductor, task, trace.plan)
        return outcome_of(trace, await self._worth(trace, task), str)

    async def _worth(self, trace: Trace, task: Task) -> float | None:
        """The reward, in a thread where the scorer may take seconds, so that nobody waits for it."""
        judge = partial(reward, trace, task.is_right, valid=self.recipe.format_bonus)
        return await asyncio.to_thread(judge) if SCORERS[task.case.scorer].slow else judge()

    async def _trace(self, conductor: Conductor, task: Task, plan: Plan | None) -> Trace:
        run = conductor.run(Question(text=task.case.question), plan=plan, only_plan=plan is None)
        async for event in run:
            if isinstance(event, ev.StepFailed) and event.retry_in is None:
                self.troubles[event.error.message] += 1
                run.stop("cancelled")  # what else it would buy teaches nothing
        if (error := run.trace.error) is not None and error.kind == "limit":
            self.day_is_over = LimitReached(error.message, hint=error.hint)
        return run.trace

    def _conductor(self, task: Task, model: Model | None) -> Conductor:
        conductor = bare(self.recipe, task.pool(self.pool), self.limits)
        return replace(conductor, model=model, workers=self.models, patience=self.patience, seed=self.recipe.seed)


def bare(recipe: Recipe, pool: Pool, limits: Limits) -> Conductor:
    """The conductor that is trained, without models: it writes without a grammar, and plans, but reviews nothing.

    Of the limits of a run it has those that a plan knows of; what is spent is held by the purse and the day.
    """
    limits = replace(limits, recursion=0, cost=None, seconds=None, tokens=None, calls=None)
    return Conductor(model=None, pool=pool, workers={}, profile=PROFILES[recipe.profile], limits=limits, exact=False)


def prompt_of(task: Task, conductor: Conductor) -> list[dict[str, str]]:
    """What a conductor reads for a task, as the program itself would write it, for the base model's chat template."""
    asked = conductor.asks(Question(text=task.case.question))
    return [{"role": message.role, "content": message.content} for message in asked.messages]


def _key(item: Written) -> _Key:
    return item.exercise.case.id, item.exercise.names, item.text, item.whole


def _plan_in(text: str) -> str:
    """What an adapter would give as the text: without the thinking in front of it."""
    splitter = ThinkingSplitter()
    return splitter.feed(text)[0] + splitter.end()[0]
