"""Plans that were sampled, run by the `Conductor` itself over real workers: what is trained is what runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Protocol

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.data_policy import PoolPolicy
from conductor_cli.core.errors import ConfigError, LimitReached, ModelError
from conductor_cli.core.plan import Plan
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.thinking import ThinkingSplitter
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.response_cache import ResponseCache
from conductor_cli.run.conductor import Conductor
from conductor_cli.run.resources import model_semaphores
from conductor_cli.run.stream import Run
from conductor_cli.train.budget import TrainingBudget
from conductor_cli.train.rewards import VALID, is_valid, reward


class Exercise(Protocol):
    """A question to practise on, with the workers on offer for it, by name and in the order of the pool.

    `skills` are those that its parts want, one after the other, empty where nobody knows. `slow`: to tell whether an
    answer `is_right` may take seconds.
    """

    @property
    def question(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def skills(self) -> tuple[str, ...]: ...
    @property
    def slow(self) -> bool: ...

    def is_right(self, text: str) -> bool:
        """Whether `text` answers it. Raises `ConfigError` where that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan:
    """What a conductor wrote for an exercise; `whole`: it ended by itself, and not by a limit."""

    exercise: Exercise
    text: str
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. `reward` None: a worker failed.

    `calls` are those of workers; `tokens` those of all models, in and out; `cost` is in US dollars, None where nothing
    that was used has a price. `routes` say, step by step, to whom or what kind of worker it went. `fitting` says of
    each skill that is wanted whether the step in its place went to a worker that is good at it, or at nothing in
    particular where nobody is; it is empty where the plan has another number of steps.
    """

    reward: float | None
    valid: bool
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    routes: tuple[str, ...] = ()
    fitting: tuple[tuple[str, bool], ...] = ()

    @property
    def right(self) -> bool:
        return self.reward == 1.0


class FixedReplyModel:
    """A conductor model that says one text, once: a plan that was sampled is not repaired."""

    def __init__(self, text: str, *, whole: bool) -> None:
        self._text = text
        self._whole = whole
        self._said = False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The text, whatever is asked."""
        del request
        if self._said:
            raise ModelError("refused", "a sampled plan is read once")
        self._said = True
        yield Chunk(text=self._text)
        yield Chunk(usage=Usage(calls=1), finish="stop" if self._whole else "length")

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True, kw_only=True)
class Rollouts:
    """Runs what was written for exercises.

    `conductor` is the one that is trained, without its model, over all workers; `at_once` runs of it go on at the same
    time. A valid plan with a wrong answer is worth `format_bonus`. `route` names the way that a worker stands for.
    Answers are kept in `book` and paid from `purse`, where there are such: when either can no longer be written,
    training stops, since it would pay for the same again.
    """

    conductor: Conductor
    book: ResponseCache | None = None
    purse: TrainingBudget | None = None
    format_bonus: float = VALID
    at_once: int = 64
    route: Callable[[Worker], str] = lambda worker: worker.name
    _troubles: Counter[str] = field(default_factory=Counter)
    _day_is_over: LimitReached | None = None

    def prompt(self, exercise: Exercise) -> list[dict[str, str]]:
        """What the conductor reads, as the program itself would write it: messages for a chat template."""
        asked = self.of(exercise).asks(Question(text=exercise.question))
        return [{"role": message.role, "content": message.content} for message in asked.messages]

    def of(self, exercise: Exercise) -> Conductor:
        """The conductor with the workers that are on offer."""
        pool = self.conductor.pool
        return replace(self.conductor, pool=Pool(workers=tuple(pool[name] for name in exercise.names)))

    async def outcomes(self, written: Sequence[SampledPlan]) -> list[Outcome]:
        """What came of each, in order; the same text for the same exercise is run once.

        Raises `LimitReached` where the money or the day is used up, `ConfigError` where a scorer fails, where the
        answers cannot be kept, and where workers failed in most of the runs.
        """
        self._troubles.clear()
        places, turns = asyncio.Semaphore(self.at_once), model_semaphores(self.conductor.pool, self.conductor.workers)

        async def run(item: SampledPlan) -> Outcome:
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

    async def trace(self, run: Run) -> Trace:
        """The trace of a run to its end, or to where a worker failed."""
        async for event in run:
            if isinstance(event, ev.StepFailed) and event.retry_in is None:
                self._troubles[event.error.message] += 1
                run.stop("cancelled")  # what else it would buy teaches nothing
        if (error := run.trace.error) is not None and error.kind == "limit":
            self._day_is_over = LimitReached(error.message, hint=error.hint)
        return run.trace

    async def outcome(self, trace: Trace, exercise: Exercise) -> Outcome:
        """What came of a run for an exercise, by its trace."""
        judge = partial(reward, trace, exercise.is_right, valid=self.format_bonus)
        # In a thread where it may take seconds, so that nobody waits for it.
        worth = await asyncio.to_thread(judge) if exercise.slow else judge()
        spent = Outcome(reward=worth, valid=is_valid(trace), tokens=trace.usage.tokens, cost=trace.usage.cost)
        if not spent.valid:
            return spent
        pool = self.conductor.pool
        routes = tuple(self.route(pool[record.step.worker]) for record in trace.steps)
        offered = {self.route(pool[name]) for name in exercise.names}
        pairs = zip(exercise.skills, routes, strict=True) if len(exercise.skills) == len(routes) else ()
        return replace(
            spent, steps=len(routes), calls=sum(record.state == "done" for record in trace.steps), routes=routes,
            fitting=tuple((skill, route == (skill if skill in offered else "any")) for skill, route in pairs),
        )  # fmt: skip

    def bill(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """US dollars of a run, whether paid now or for the reply in the book, and what was spent in all."""
        if self.purse is None:
            return {}
        costs = [float(outcome.cost or 0) for outcome in outcomes]
        return {"cost": sum(costs) / len(costs) if costs else 0.0, "spent": float(self.purse.spent)}

    async def _outcome(self, item: SampledPlan, turns: Mapping[int, asyncio.Semaphore]) -> Outcome:
        """First the plan is read, which asks nobody: one that is no plan costs nothing. Then it is run."""
        conductor, question = self.of(item.exercise), Question(text=item.exercise.question)
        spoken = FixedReplyModel(_plan_in(item.text), whole=item.whole)
        reader = replace(conductor, model=spoken, pool_policy=PoolPolicy(), daily_spend=None)
        trace = await self.trace(reader.run(question, only_plan=True))
        if is_valid(trace) and isinstance(trace.plan, Plan):
            trace = await self.trace(replace(conductor, turns=turns).run(question, plan=trace.plan))
        return await self.outcome(trace, item.exercise)

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        """Raise what ends the training. A text that is no plan was never run, so no worker failed at it."""
        if reached := (self.purse and self.purse.reached) or self._day_is_over:
            raise reached
        if error := (self.book and self.book.error) or (self.purse and self.purse.error):
            said = f"the workers' answers can no longer be kept: {error.strerror}"
            raise ConfigError(said, hint="make room, then run the same command again")
        ran, failed = sum(it.valid for it in outcomes), sum(it.reward is None for it in outcomes)
        if 2 * failed > ran:
            why = self._troubles.most_common(1)[0][0] if self._troubles else "no reason was given"
            said = f"workers failed in {failed} of the {ran} plans of a step that were run, mostly so: {why}"
            raise ConfigError(said, hint="mend that, then run the same command again")


def _key(item: SampledPlan) -> tuple[int, str, bool]:
    return id(item.exercise), item.text, item.whole


def _plan_in(text: str) -> str:
    """What an adapter would give as the text: without the thinking in front of it."""
    splitter = ThinkingSplitter()
    return splitter.feed(text)[0] + splitter.end()[0]
