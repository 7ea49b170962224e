"""Sampled plans, run by the ordinary `Orchestra` over real workers.

The planner that runs later is quantized as a rule and writes under a grammar; the one that is
sampled here is neither. What a plan earns stands in `reward.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Protocol

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish, Request, ThinkingSplitter
from conductor_cli.core.errors import ConfigError, LimitReached, ModelError
from conductor_cli.core.estimate import billed_usage, prompt_tokens
from conductor_cli.core.formatting import format_money
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.plan import Plan
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.evals.sandbox import run_off_loop
from conductor_cli.evals.score import Score
from conductor_cli.models.base import Features, Model, Script, ScriptedModel
from conductor_cli.models.response_cache import HEARTBEAT, ResponseCache
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from conductor_cli.run.orchestra import model_turns
from conductor_cli.run.runner import Run
from conductor_cli.system.disk import AppendLog, read_lines
from conductor_cli.train.reward import (
    INVALID,
    VALID,
    RewardFunction,
    ScoredRun,
    builtin_reward,
    count_unused_steps,
    is_valid,
    says_something,
)


class TrainingBudget:
    """US dollars up to `limit` (None for no limit). A file remembers what earlier runs have spent.

    Before a call is made, the most that it can cost is reserved, so that parallel calls cannot
    exceed the limit together. `exhausted` is the error once the limit is reached, `write_error` the
    one if the file cannot be written.
    """

    def __init__(self, path: Path, limit: Decimal | None = None) -> None:
        """Read or create the file. A line that was cut off does not count. Raises `OSError`."""
        self.limit = limit
        self.exhausted: LimitReached | None = None
        self.write_error: OSError | None = None
        self._active = 0
        self._settled = asyncio.Event()
        self._log = AppendLog(path)
        self._path = path
        self.share(1)

    def share(self, processes: int) -> None:
        """Divide what the file says is left over the processes that write it.

        Call it while no call is active.
        """
        self.spent = sum(map(_read_cost, read_lines(self._path)), Decimal(0))
        left = None
        if self.limit is not None:
            left = (self.limit - self.spent) / processes
        self._ledger = Ledger(Limits(cost=left))

    def reserve(self, request: Request, worker: Worker) -> Reservation | None:
        """Reserve a whole call. None: not now, but active calls may leave room.

        Raises `LimitReached`.
        """
        if self.exhausted is not None:
            raise self.exhausted
        wanted = request.max_tokens or WorkerProfile().max_tokens
        try:
            reservation = self._ledger.reserve(
                prompt_tokens(request.messages), wanted, worker.price
            )
        except LimitReached:
            raise self._exhaust() from None
        if reservation is not None and reservation.answer < wanted:
            # A shorter answer would be cached as the answer to the whole request.
            self._ledger.release(reservation)
            if not self._active:
                raise self._exhaust()
            reservation = None
        self._active += reservation is not None
        return reservation

    async def wait(self) -> None:
        """Wait until a call has ended, but no longer than a `HEARTBEAT`."""
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await self._settled.wait()

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Record that a call has ended and what it used."""
        self._ledger.settle(reservation, usage)
        self._active -= 1
        self._settled.set()
        if usage.cost:
            self.spent += usage.cost
            try:
                self._log.append(json.dumps({"cost": str(usage.cost)}))
            except OSError as error:
                self.write_error = error

    def close(self) -> None:
        self._log.close()

    def _exhaust(self) -> LimitReached:
        limit = format_money(self.limit or Decimal(0))
        self.exhausted = LimitReached(
            (
                f"the limit of {limit} leaves no room for another call: {format_money(self.spent)} "
                "are "
                "spent"
            ),
            hint="to continue, run the same command with a larger --max-cost",
        )
        return self.exhausted


def _read_cost(line: str) -> Decimal:
    with suppress(ValueError, TypeError, KeyError, InvalidOperation):
        return Decimal(json.loads(line)["cost"])
    return Decimal(0)


class BudgetedModel:
    """A worker's model whose calls are paid from a budget."""

    def __init__(self, model: Model, worker: Worker, budget: TrainingBudget) -> None:
        self._model = model
        self._worker = worker
        self._budget = budget

    @property
    def features(self) -> Features:
        return self._model.features

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the model's reply. Raises `ModelError` if the budget has no room for it."""
        try:
            while (reservation := self._budget.reserve(request, self._worker)) is None:
                yield Chunk()  # waiting for the budget must not count as silence of the model
                await self._budget.wait()
        except LimitReached as error:
            raise ModelError("refused", error.message, hint=error.hint) from None
        reported: Usage | None = None
        text = ""
        billable = True
        try:
            async with aclosing(self._model.stream(request)) as chunks:
                async for chunk in chunks:
                    reported = chunk.usage or reported
                    text = text + chunk.text + chunk.thinking
                    yield chunk
        except ModelError as error:
            reported = error.usage or reported
            # A call that failed before its first word is assumed to cost nothing. One that was
            # cancelled is not: its request has been sent.
            billable = reported is not None or bool(text)
            raise
        finally:
            price = self._worker.price
            usage = with_cost(NO_USAGE, price)
            if billable:
                usage = billed_usage(reported, request.messages, text, price, request.tools)
            self._budget.settle(reservation, usage)

    async def close(self) -> None:
        """Close the model. Whoever opened the budget closes it."""
        await self._model.close()


class Exercise(Protocol):
    """A question to train on, with the names of the workers on offer for it.

    The names are in the order of the pool.
    """

    @property
    def question(self) -> str: ...
    @property
    def workers(self) -> tuple[str, ...]: ...
    @property
    def slow(self) -> bool: ...  # Whether `score` may take seconds

    def score(self, text: str) -> Score:
        """Return whether `text` answers the question.

        Raises `ConfigError` if that can be told of no text.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan:
    """What the model wrote for an exercise. `complete`: it ended by itself, not at the token limit.

    Workers are asked with another seed for another `draw`: the plans of one draw share the answer
    to an equal request, and the next time that the same case comes up, its answers are drawn
    afresh, as in the published training.
    """

    exercise: Exercise
    text: str
    complete: bool = True
    draw: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """The result of a sampled plan."""

    reward: float | None  # None: a worker failed, or the answer could not be scored
    valid: bool
    steps: int = 0
    calls: int = 0  # Of workers
    tokens: int = 0  # Of all models, in and out
    cost: Decimal | None = None  # In US dollars; None if nothing that was used has a price
    routes: tuple[str, ...] = ()  # The worker, or kind of worker, of each step
    told: bool = False  # A subtask holds the answer, so that the planner has answered itself
    right: float = 0.0  # The share of the draws in which the answer is right


@dataclass(slots=True, kw_only=True)
class Rollouts:
    """Runs sampled plans.

    Answers are stored in `cache` and paid from `budget`; if either cannot be written, training
    stops, because it would pay for the same answers again.
    """

    orchestra: Orchestra  # The one that is trained, without its model, over all workers
    cache: ResponseCache | None = None
    budget: TrainingBudget | None = None
    draws: int = 1  # How often a plan is run, each time with other seeds of the workers
    # What a plan with a wrong answer earns, and one that `tells` the answer in a subtask
    format_bonus: float = VALID
    unused_step: float = 0.0  # What each step costs that the answer does not depend on
    reward: RewardFunction | None = None  # The user's own, in place of the built-in one
    concurrency: int = 64  # Runs that are active at once
    # The name of a worker in the metrics
    name_route: Callable[[Worker], str] = lambda worker: worker.name
    tells: Callable[[Exercise, str], bool] = lambda _exercise, _subtask: False
    _failures: Counter[str] = field(default_factory=Counter)
    _day_limit: LimitReached | None = None

    def prompt(self, exercise: Exercise) -> list[dict[str, str]]:
        """Return the prompt that the program itself would send, as messages for a chat template.

        A last message of the assistant is the beginning of the reply, which the model continues.
        """
        team = self.team_for(exercise)
        request = team.planning_request(self.question(exercise), self.orchestra.limits)
        messages = []
        for message in request.messages:
            messages.append({"role": message.role, "content": message.content})
        if request.prefill:
            messages.append({"role": "assistant", "content": request.prefill})
        return messages

    def question(self, exercise: Exercise) -> Question:
        return Question(text=exercise.question)

    def team_for(self, exercise: Exercise) -> Team:
        """Return the workers of an exercise, and how the planner is asked for a plan over them."""
        pool = self.orchestra.team.pool
        workers = tuple(pool[name] for name in exercise.workers)
        team = self.orchestra.team
        return replace(
            team,
            pool=Pool(workers=workers),
            # The order of the workers is drawn, so that cards say who is good and labels do not.
            profile=replace(team.profile, untrained=False),
            joins_unread_steps=False,
            # Each call is held back whole: replies as long as models write would end a limit early.
            worker_profile=replace(team.worker_profile, writes_long=False),
        )

    async def outcomes(self, plans: Sequence[SampledPlan]) -> list[PlanOutcome]:
        """Return the outcome of each plan, in order. Equal plans of an exercise are run together.

        Raises `LimitReached` if the budget or a limit of the day is used up; `ConfigError` if a
        scorer fails, if answers cannot be stored, or if workers failed in most of the runs.
        """
        self._failures.clear()
        slots = asyncio.Semaphore(self.concurrency)
        turns = model_turns(self.orchestra.team.pool, self.orchestra.team.workers)

        async def run(plan: SampledPlan, turn: int) -> PlanOutcome:
            async with slots:
                return await self._run(plan, turn, turns)

        distinct = {_key(plan): plan for plan in plans}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {}
                for key, plan in distinct.items():
                    tasks[key] = [group.create_task(run(plan, turn)) for turn in range(self.draws)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the others are the same, or follow from it
        outcomes = []
        for plan in plans:
            draws = [task.result() for task in tasks[_key(plan)]]
            outcomes.append(average_draws(draws))
        self._check(outcomes)
        return outcomes

    async def trace(self, run: Run) -> Trace:
        """Return the trace of a run, up to its end or to the first worker that failed."""
        async for event, _ in run:
            if isinstance(event, ev.StepFailed) and event.retry_in is None:
                self._failures[event.error.message] += 1
                # The plan gets no reward now, so further answers would be paid for nothing
                run.stop("cancelled")
        if (error := run.trace.error) is not None and error.kind == "limit":
            self._day_limit = LimitReached(error.message, hint=error.hint)
        return run.trace

    async def outcome(self, trace: Trace, exercise: Exercise) -> PlanOutcome:
        """Return the outcome of a run, from its trace."""
        outcome = PlanOutcome(
            reward=INVALID,
            valid=is_valid(trace),
            tokens=trace.usage.tokens,
            cost=trace.usage.cost,
        )
        if not outcome.valid:
            return outcome
        tells_answer = any(self.tells(exercise, record.step.subtask) for record in trace.steps)
        reward: float | None = None
        right = 0.0
        if says_something(trace):
            grade = partial(self._grade, trace, exercise, told=tells_answer)
            if exercise.slow or self.reward is not None:
                reward, right = await run_off_loop(grade)
            else:
                reward, right = grade()
        pool = self.team_for(exercise).pool
        # A review by the conductor itself is no route.
        workers = [record.step.worker for record in trace.steps if record.step.worker in pool]
        routes = tuple(self.name_route(pool[name]) for name in workers)
        calls = sum(record.state == "done" for record in trace.steps)
        return replace(
            outcome,
            steps=len(routes),
            calls=calls,
            routes=routes,
            told=tells_answer,
            reward=reward,
            right=right,
        )

    def _grade(self, trace: Trace, exercise: Exercise, *, told: bool) -> tuple[float | None, float]:
        """Return what the plan earns, and 1.0 if its answer is right, else 0.0.

        It earns None if the answer cannot be scored. Raises `ConfigError` as a reward does.
        """
        score = exercise.score(trace.answer)
        if score.right is None:
            self._failures[score.why] += 1
            return None, 0.0
        unused_steps = count_unused_steps(trace)
        earned = builtin_reward(
            is_right=score.right,
            told=told,
            unused_steps=unused_steps,
            format_bonus=self.format_bonus,
            step_cost=self.unused_step,
        )
        if self.reward is not None:
            assert trace.plan is not None
            run = ScoredRun(
                question=exercise.question,
                plan=trace.plan,
                trace=trace,
                score=score,
                unused_steps=unused_steps,
                told=told,
                builtin_reward=earned,
            )
            earned = self.reward(run)
        return earned, float(score.right)

    async def _run(
        self, plan: SampledPlan, turn: int, turns: Mapping[int, FairPlaces]
    ) -> PlanOutcome:
        # The plan is read first, in a run that asks no worker. So an invalid one costs nothing.
        team = replace(self.team_for(plan.exercise), turns=turns)
        question = self.question(plan.exercise)
        seed = self.orchestra.seed
        if seed is not None:
            seed += self.draws * plan.draw + turn
        splitter = ThinkingSplitter()
        text = splitter.feed(plan.text)[0] + splitter.end()[0]
        finish: Finish = "length"
        if plan.complete:
            finish = "stop"
        written: list[Script] = [[text, Chunk(usage=Usage(calls=1), finish=finish)]]
        model = ScriptedModel([*written, [ModelError("refused", "a sampled plan is read once")]])
        reader = Orchestra(
            team=replace(team, model=model, pool_policy=PoolPolicy()),
            limits=self.orchestra.limits,
            timeouts=self.orchestra.timeouts,
        )
        spec = RunSpec(question=question, plan_only=True, seed=seed)
        trace = await self.trace(start_run(reader, spec))
        if is_valid(trace) and isinstance(trace.plan, Plan):
            spec = RunSpec(question=question, plan=trace.plan, team=team, seed=seed)
            trace = await self.trace(start_run(self.orchestra, spec))
        return await self.outcome(trace, plan.exercise)

    def _check(self, outcomes: Sequence[PlanOutcome]) -> None:
        """Raise what ends the training."""
        if limit := (self.budget and self.budget.exhausted) or self._day_limit:
            raise limit
        if error := (self.cache and self.cache.error) or (self.budget and self.budget.write_error):
            hint = "free some disk space, then run the same command again"
            raise ConfigError(
                f"the workers' answers can no longer be stored: {error.strerror}", hint=hint
            )
        # An invalid plan was never run, so no worker can have failed at it.
        ran = sum(outcome.valid for outcome in outcomes)
        failed = sum(outcome.reward is None for outcome in outcomes)
        if 2 * failed > ran:
            why = "no reason was given"
            if self._failures:
                why = self._failures.most_common(1)[0][0]
            raise ConfigError(
                f"workers or the scorer failed in {failed} of the {ran} plans of a step that were "
                "run. Most frequent "
                f"error: {why}",
                hint="fix that, then run the same command again",
            )


def _key(plan: SampledPlan) -> tuple[int, str, bool, int]:
    return id(plan.exercise), plan.text, plan.complete, plan.draw


def average_draws(outcomes: Sequence[PlanOutcome]) -> PlanOutcome:
    """Return the outcome of a plan over its draws.

    The mean of those in which no worker failed, for the cost of all.
    """
    earned = [outcome.reward for outcome in outcomes if outcome.reward is not None]
    reward = None
    if earned:
        reward = sum(earned) / len(earned)
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    cost = None
    if costs:
        cost = sum(costs, Decimal(0))
    return replace(
        outcomes[0],
        reward=reward,
        right=sum(outcome.right for outcome in outcomes) / (len(earned) or 1),
        tokens=sum(outcome.tokens for outcome in outcomes),
        cost=cost,
    )
