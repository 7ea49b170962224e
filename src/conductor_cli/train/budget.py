"""What a training spends on its workers, held to a limit, and what it will probably cost and take.

A forecast is one number with a plausible interval, and names what it assumes. The interval combines what is not known
(steps of a plan, which workers the model comes to prefer, how many plans need new answers, how well the workers were
measured) as independent factors: the squares of their logarithms are added.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import LimitReached, ModelError
from conductor_cli.core.estimate import estimated_usage, prompt_tokens
from conductor_cli.core.formatting import format_count, format_duration, format_list, format_money
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.usage import MILLION, NO_USAGE, Price, Usage, with_cost
from conductor_cli.models.base import Features, Model
from conductor_cli.models.disk import AppendLog, read_lines
from conductor_cli.models.response_cache import HEARTBEAT
from conductor_cli.train.recipe import Recipe


class TrainingBudget:
    """US dollars up to `limit` (None for no limit). A file remembers what earlier runs have spent.

    Before a call is made, the most that it can cost is reserved, so that parallel calls cannot exceed the limit
    together. `exhausted` is the error once the limit is reached, `write_error` the one if the file cannot be written.
    """

    def __init__(self, path: Path, limit: Decimal | None = None) -> None:
        """Read or create the file. A line that was cut off does not count. Raises `OSError`."""
        self.spent = sum(map(_read_cost, read_lines(path)), Decimal(0))
        self.limit = limit
        self.exhausted: LimitReached | None = None
        self.write_error: OSError | None = None
        self._ledger = Ledger(Limits(cost=None if limit is None else limit - self.spent))
        self._active = 0
        self._settled = asyncio.Event()
        self._log = AppendLog(path)

    def reserve(self, request: Request, worker: Worker) -> Reservation | None:
        """Reserve a whole call. None: not now, but active calls may leave room. Raises `LimitReached`."""
        if self.exhausted is not None:
            raise self.exhausted
        wanted = request.max_tokens or WorkerProfile().max_tokens
        try:
            reservation = self._ledger.reserve(prompt_tokens(request.messages), wanted, worker.price)
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
            f"the limit of {limit} leaves no room for another call: {format_money(self.spent)} are spent",
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
        """The model's reply. Raises `ModelError` if the budget has no room for it."""
        try:
            while (reservation := self._budget.reserve(request, self._worker)) is None:
                yield Chunk()  # waiting for the budget must not count as silence of the model
                await self._budget.wait()
        except LimitReached as error:
            raise ModelError("refused", error.message, hint=error.hint) from None
        reported: Usage | None = None
        text, billable = "", True
        try:
            async with aclosing(self._model.stream(request)) as chunks:
                async for chunk in chunks:
                    reported, text = chunk.usage or reported, text + chunk.text + chunk.thinking
                    yield chunk
        except ModelError as error:
            reported = error.usage or reported
            # A call that failed before its first word is assumed to cost nothing. One that was cancelled is not: its
            # request has been sent.
            billable = reported is not None or bool(text)
            raise
        finally:
            usage = (reported or estimated_usage(request.messages, text)) if billable else NO_USAGE
            self._budget.settle(reservation, with_cost(usage, self._worker.price))

    async def close(self) -> None:
        """Close the model. Whoever opened the budget closes it."""
        await self._model.close()


STEPS: Final = (1.5, 3.0, 4.0)
"""Steps of a plan: few, usual, many. The published mean is about 3 (arXiv 2512.04388, section 5)."""

ASKED: Final = (0.5, 0.8, 1.0)
"""The share of plans that ask workers anew: the others are not valid, or equal to another plan of their group."""

MEASURED: Final = 1.3  # How far a measured mean of tokens or seconds may be off, as a factor either way
ASSUMED: Final = 2.5  # The same for a worker that was never measured
MAX_NAMED: Final = 4  # The most workers with the same figures that are named one by one
WAIT_MATTERS: Final = 1.2  # Rollouts starve if more calls in flight would make a step faster by this factor


def format_roughly(seconds: float) -> str:
    """A time to about two digits: `23 h`, `4 h 10 min`, `12 min`."""
    unit = next((unit for least, unit in ((36_000, 3600), (3600, 600), (600, 60), (60, 10)) if seconds >= least), 1)
    text = format_duration(round(seconds / unit) * unit, tenths=False)
    return text.removesuffix(" 0 min").removesuffix(" 0 s")


class Forecast(NamedTuple):
    """A number with its plausible interval."""

    low: float
    expected: float
    high: float

    def money(self) -> str:
        # More digits than two would look like knowledge.
        low, expected, high = (format_money(float(f"{amount:.2g}")) for amount in self)
        return expected if not self.expected else f"about {expected} (plausible: {low} to {high})"

    def time(self) -> str:
        low, expected, high = map(format_roughly, self)
        return f"about {expected} (plausible: {low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """One call of a worker on average: tokens in and out, seconds. `source` says where that is from.

    `measured` is false for an assumption. `parallel` calls may be made at once, and only those of a worker that is
    `remote` can become more.
    """

    name: str
    tokens_in: float
    tokens_out: float
    seconds: float
    source: str
    measured: bool
    parallel: int
    price: Price | None
    remote: bool = True

    def cost(self, seen: float) -> float | None:
        """US dollars of a call that also reads `seen` tokens of other answers; None without a price."""
        if self.price is None:
            return None
        tokens_in = round(self.tokens_in + seen)
        rate = self.price.at(tokens_in)
        return float((tokens_in * rate.input + Decimal(round(self.tokens_out)) * rate.output) / MILLION)

    def describe(self) -> str:
        """The figures in words, without the name."""
        price = "no price" if self.price is None else f"{format_money(self.cost(0) or 0)} a call"
        tokens = f"{self.tokens_in:,.0f} tokens in, {self.tokens_out:,.0f} out"
        return f"{tokens}, {self.seconds:.1f} s, {price} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingForecast:
    """A training over `workers`, of which `steps` steps remain, and `validation_runs` runs of held-out cases."""

    recipe: Recipe
    workers: Sequence[WorkerFigures]
    steps: int
    validation_runs: int = 0

    @property
    def runs(self) -> int:
        """Plans that are still to be sampled."""
        return self.steps * self.recipe.samples + self.validation_runs

    def cost(self) -> Forecast | None:
        """US dollars for all answers of workers with a price; None if none has one."""
        steps = STEPS[1]
        seen = (steps - 1) / 2 * _mean([worker.tokens_out for worker in self.workers])
        costs = [cost for worker in self.workers if (cost := worker.cost(seen)) is not None]
        if not costs:
            return None
        usual = _mean(costs)
        expected = self.runs * ASKED[1] * steps * usual
        if not expected:
            return Forecast(0.0, 0.0, 0.0)
        # The model may come to prefer the cheap workers, or the expensive ones.
        mix = ((min(costs) + usual) / 2 / usual, (max(costs) + usual) / 2 / usual)
        return _interval(expected, [*self._plan_factors(), mix, self._measured_factor()])

    def seconds(self, parallel: int | None = None) -> Forecast:
        """Seconds of the workers' answers, over all steps. `parallel`: with so many calls at once for each remote one.

        The model's own time comes on top.
        """
        asked, steps, workers = ASKED[1], STEPS[1], self.workers
        runs = self.recipe.samples * asked
        calls = runs * steps / len(workers)
        widths = [parallel if parallel and worker.remote else worker.parallel for worker in workers]
        mean_seconds = _mean([worker.seconds for worker in workers])
        step = max(
            steps * mean_seconds,
            runs * steps * mean_seconds / self.at_once,
            *(calls * worker.seconds / width for worker, width in zip(workers, widths, strict=True)),
        )
        expected = step * self.runs / self.recipe.samples
        return _interval(expected, [*self._plan_factors(), self._measured_factor()])

    @property
    def at_once(self) -> int:
        """Runs that are active at the same time; each waits for one answer at a time, if its plan is a chain."""
        return min(self.recipe.concurrency, self.recipe.samples)

    def starvation(self) -> tuple[str, str] | None:
        """A warning that workers allow too few calls at once, and what to do; None where that costs little time."""
        in_flight = sum(worker.parallel for worker in self.workers)
        remote = [worker for worker in self.workers if worker.remote]
        wanted = math.ceil(self.at_once / len(self.workers))
        narrow = [worker.name for worker in remote if worker.parallel < wanted]
        if not narrow or not self.steps:
            return None
        now, then = self.seconds().expected, self.seconds(wanted).expected
        if now < WAIT_MATTERS * then:
            return None
        before, after = format_roughly(now), format_roughly(then)
        flight = f"{format_count(in_flight, 'call')} in flight of {self.at_once}"
        raised = f"with parallel = {wanted} for {format_list(narrow)} about {after}"
        table = f"the table of each, such as [workers.{narrow[0]}]"
        return (
            f"{flight}, so rollouts wait for workers: about {before} in all; {raised}",
            f"write parallel = {wanted} into {table}, if its provider allows it",
        )

    def assumptions(self) -> Iterator[str]:
        """What the numbers rest on, in words."""
        yield f"{STEPS[1]:g} steps a plan ({STEPS[0]:g} to {STEPS[2]:g})"
        yield f"{ASKED[1]:.0%} of the plans ask workers anew ({ASKED[0]:.0%} to {ASKED[2]:.0%})"
        yield f"{format_count(self.at_once, 'run')} at once"
        alike: dict[str, list[str]] = {}
        for worker in self.workers:
            alike.setdefault(worker.describe(), []).append(worker.name)
        for figures, names in alike.items():
            shown = ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} and {len(names) - 1} others"
            yield f"{shown}: {figures}"

    def _plan_factors(self) -> list[tuple[float, float]]:
        return [(STEPS[0] / STEPS[1], STEPS[2] / STEPS[1]), (ASKED[0] / ASKED[1], ASKED[2] / ASKED[1])]

    def _measured_factor(self) -> tuple[float, float]:
        off = _mean([MEASURED if worker.measured else ASSUMED for worker in self.workers])
        return (1 / off, off)


def _interval(expected: float, factors: Sequence[tuple[float, float]]) -> Forecast:
    """`expected` with the interval that independent factors, from the least to the most, leave around it."""
    low = math.sqrt(sum(math.log(least) ** 2 for least, _ in factors))
    high = math.sqrt(sum(math.log(most) ** 2 for _, most in factors))
    return Forecast(expected * math.exp(-low), expected, expected * math.exp(high))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
