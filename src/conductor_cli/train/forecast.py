"""How long the workers of a training take, and how many bytes it writes: arithmetic.

Nothing of a GPU is in it: what was never measured is not guessed. A call takes what the calls of
its worker took before, else an assumption that is told.

All workers are supposed to get the same share of the calls. Then a training is as fast as the limit
at which calls wait longest: that of a worker, of a provider, or of the runs that are active.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.core.formatting import format_duration, format_list, format_size
from conductor_cli.train.recipe import Recipe

STEPS_OF_A_PLAN: Final = 3
"""About as many steps have the published plans (arXiv 2512.04388, section 5)."""

DRAWS_OF_A_GROUP: Final = 1.3
"""How often a group is drawn until its rewards differ, in the mean: docs/research/rewards.md."""

ASSUMED_SECONDS: Final = 10.0
"""Of a call of which nothing was measured: an answer of 600 tokens, 60 of them in a second."""

BYTES_OF_STATE: Final = 12
"""Of a trained weight in a checkpoint: itself and Adam's two moments, each in 32 bits."""

BYTES_OF_WEIGHT: Final = 4
"""Of a trained weight alone, as in the best checkpoint, an adapter for vLLM, and an export."""

ADAPTERS_AT_ONCE: Final = 3  # Those that vLLM may still read, and the one that is written
CHECKPOINTS_AT_ONCE: Final = 3  # Two are kept, and another one is written before one goes
ANSWER_BYTES: Final = 600
"""Of a stored answer without its text: its request's hash, and what it took."""

RECENT_STEPS: Final = 20
"""The last steps of a training, by which the time of the others is told."""

Source = Literal["calibration", "runs", "assumed"]


class CallSeconds(NamedTuple):
    """How long a call of a worker takes, and where that is from; `calls` of the user's runs."""

    seconds: float
    source: Source
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimit:
    """At most `at_once` calls of these workers are under way together.

    `owner` is what has the limit: a `worker` or several with one model, the `provider` of this
    name, or the `runs` that are active. A `fixed` one cannot be raised, as that of a model in this
    process.
    """

    owner: Literal["worker", "provider", "runs"]
    workers: tuple[str, ...]
    at_once: int
    provider: str = ""
    fixed: bool = False

    @property
    def is_own(self) -> bool:
        """Whether a worker's or a provider's setting raises it."""
        return self.owner != "runs" and not self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """So many `rounds` of so many `runs` each, one round after the other."""

    rounds: int
    runs: float

    @property
    def all_runs(self) -> float:
        return self.rounds * self.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForecast:
    """What the workers of a training have to do: `calls_of_run` for each run of the workloads."""

    workloads: tuple[Workload, ...]
    limits: tuple[CallLimit, ...]
    call_seconds: Mapping[str, CallSeconds]
    calls_of_run: int

    @property
    def calls(self) -> int:
        return round(self.calls_of_run * sum(workload.all_runs for workload in self.workloads))

    @property
    def seconds(self) -> float:
        """How long all calls take, if each worker gets the same share of them."""
        return sum(work.rounds * self._round_seconds(work.runs) for work in self.workloads)

    @property
    def slowest(self) -> CallLimit:
        """The limit at which calls wait longest."""
        return max(self.limits, key=self._seconds_of_run)

    def with_wider_workers(self) -> CallForecast:
        """Return the same where workers and providers do as much at once as the runs can ask for.

        Limits that cannot be raised decide, too.
        """
        decisive = [limit for limit in self.limits if not limit.is_own]
        target = max(map(self._seconds_of_run, decisive))
        limits = []
        for limit in self.limits:
            at_once = limit.at_once
            if limit.is_own:
                at_once = max(at_once, self._needed_at_once(limit, target))
            limits.append(replace(limit, at_once=at_once))
        return replace(self, limits=tuple(limits))

    def with_more_runs(self) -> CallForecast:
        """Return the same with so many active runs that another limit decides.

        There are no more than a round has.
        """
        most = math.ceil(max(work.runs for work in self.workloads))
        others = [limit for limit in self.limits if limit.owner != "runs"]
        target = max(map(self._seconds_of_run, others))
        limits = []
        for limit in self.limits:
            at_once = limit.at_once
            if limit.owner == "runs":
                at_once = max(at_once, min(most, self._needed_at_once(limit, target)))
            limits.append(replace(limit, at_once=at_once))
        return replace(self, limits=tuple(limits))

    def _needed_at_once(self, limit: CallLimit, target: float) -> int:
        """Return how many calls at once a limit needs to be occupied for `target` seconds a run."""
        # A little less, so that no rounding asks for one more.
        return math.ceil(limit.at_once * self._seconds_of_run(limit) / target - 1e-9)

    def active_runs(self) -> int:
        """Return how many runs are active at once."""
        return min(limit.at_once for limit in self.limits if limit.owner == "runs")

    def with_runs(self, factor: float) -> CallForecast:
        """Return the same with so many times the runs in each round."""
        workloads = [replace(work, runs=work.runs * factor) for work in self.workloads]
        return replace(self, workloads=tuple(workloads))

    def _round_seconds(self, runs: float) -> float:
        """Return how long a round takes: at least as long as one plan, whose calls wait in turn."""
        seconds = [call.seconds for call in self.call_seconds.values()]
        one_plan = self.calls_of_run * sum(seconds) / len(seconds)
        return max(one_plan, runs * self._seconds_of_run(self.slowest))

    def _seconds_of_run(self, limit: CallLimit) -> float:
        """Return for how long the calls of one run occupy a limit, on average."""
        share = self.calls_of_run / len(self.call_seconds)
        busy = sum(self.call_seconds[name].seconds for name in limit.workers)
        return share * busy / limit.at_once


def validations_left(recipe: Recipe, done: int) -> int:
    """Return how often the held-out cases run after so many steps.

    Before the first step, at checkpoints, and after the last step. A training that was stopped
    between two checkpoints still has the next one before it.
    """
    before = 0 if done else 1
    at_checkpoints = math.ceil(recipe.steps / recipe.checkpoint_every)
    return before + at_checkpoints - done // recipe.checkpoint_every


def calls_at_once(limits: Iterable[CallLimit]) -> int:
    """Return how many calls all limits together let through at once."""
    workers: dict[tuple[str, ...], int] = {}
    for limit in limits:
        if limit.owner == "worker":
            workers[limit.workers] = limit.at_once
    total = sum(workers.values())
    most = total
    for limit in limits:
        if limit.owner == "provider":
            inside = sum(workers[names] for names in workers if names[0] in limit.workers)
            total -= max(0, inside - limit.at_once)
        if limit.owner == "runs":
            most = limit.at_once
    return min(total, most)


def describe_call_seconds(call_seconds: Mapping[str, CallSeconds]) -> str:
    """Return how long a call takes, by worker, and where that is from."""
    by_source: dict[Source, list[str]] = {}
    for name, call in call_seconds.items():
        text = f"{name} {format_duration(call.seconds)}"
        if call.source == "runs":
            text += f" ({call.calls} calls)"
        if call.source == "assumed":
            text = name
        by_source.setdefault(call.source, []).append(text)
    parts = []
    if texts := by_source.get("calibration"):
        parts.append(f"{format_list(texts)} for a call, by calibration")
    if texts := by_source.get("runs"):
        parts.append(f"{format_list(texts)} for a call in your own runs")
    if names := by_source.get("assumed"):
        parts.append(
            f"{format_duration(ASSUMED_SECONDS)} for a call of {format_list(names)} is assumed "
            "(600 tokens at 60 a second; conductor workers calibrate measures it)"
        )
    return "; ".join(parts)


class Shorter(NamedTuple):
    """What makes a training shorter: what the user changes, and the seconds of the calls then."""

    change: str
    seconds: float


def shorter_ways(forecast: CallForecast, draws: int) -> list[Shorter]:
    """Return what would shorten the calls of a training, each way and all of them together.

    `draws` is how often each plan is run, 1 where that cannot be changed any more.
    """
    ways = []
    all_together = forecast
    wider = forecast.with_wider_workers()
    busier = forecast.with_more_runs()
    if wider.seconds < forecast.seconds:
        raised = _describe_raised(forecast.limits, wider.limits)
        change = f"{raised}, at the same cost, where the providers allow it"
        ways.append(Shorter(change, wider.seconds))
        all_together = wider
    elif busier.seconds < forecast.seconds:
        ways.append(Shorter(f"--set concurrency={busier.active_runs()}", busier.seconds))
        all_together = busier
    if draws > 1:
        once = forecast.with_runs(1 / draws)
        change = f"--set draws=1, at 1/{draws} of the cost; rewards then owe more to luck"
        ways.append(Shorter(change, once.seconds))
        all_together = all_together.with_runs(1 / draws)
    ways = [way for way in ways if way.seconds < forecast.seconds]
    if len(ways) > 1 and all_together.seconds < min(way.seconds for way in ways):
        ways.append(Shorter("both", all_together.seconds))
    return ways


def _describe_raised(before: Sequence[CallLimit], after: Sequence[CallLimit]) -> str:
    """Return the commands that raise limits from `before` to `after`."""
    names: dict[int, list[str]] = {}
    changes = []
    for limit, raised in zip(before, after, strict=True):
        if raised.at_once == limit.at_once:
            continue
        if raised.owner == "provider":
            changes.append(f"parallel = {raised.at_once} in [providers.{raised.provider}]")
        else:
            names.setdefault(raised.at_once, []).extend(raised.workers)
    commands = []
    for at_once, workers in names.items():
        commands += [f"conductor workers set {name} parallel={at_once}" for name in workers]
    return ", ".join([*commands, *changes])


class MeasuredSteps(NamedTuple):
    """How long steps of a training took, with their validations; `runs` are the workers' part."""

    steps: int
    seconds: float
    runs: float

    def seconds_with(self, share: float) -> float:
        """Return how long a step would take if its runs took this share of their time."""
        return self.seconds - self.runs + share * self.runs


def measure_steps(lines: Sequence[Mapping[str, Any]]) -> MeasuredSteps | None:
    """Return what the last steps of a training took in the mean; None where none was timed.

    `lines` are those of `curve.jsonl`, each with the seconds since its session began and the step
    from which that `resumed`. The first step of a session counts only where there is no other: the
    model was loaded in it.
    """
    steps = [line for line in lines if line.get("step") and line.get("seconds")]
    seconds = []
    runs = []
    for before, line in pairwise(steps):
        is_same_session = before.get("resumed") == line.get("resumed")
        if is_same_session and line["seconds"] > before["seconds"]:
            seconds.append(line["seconds"] - before["seconds"])
            runs.append(line.get("run_seconds", 0.0))
    if not seconds and steps:
        seconds = [steps[-1]["seconds"]]
        runs = [steps[-1].get("run_seconds", 0.0)]
    if not seconds:
        return None
    seconds = seconds[-RECENT_STEPS:]
    runs = runs[-RECENT_STEPS:]
    count = len(seconds)
    return MeasuredSteps(count, sum(seconds) / count, sum(runs) / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNeeds:
    """Bytes that a training has on disk at once: all of it is in its own directory."""

    checkpoints: int
    best: int
    adapters: int  # Those that are handed to vLLM
    export: int
    answers: int  # About as many

    @property
    def total(self) -> int:
        return self.checkpoints + self.best + self.adapters + self.export + self.answers


def disk_needs(  # noqa: PLR0913 - all of it decides what is written
    recipe: Recipe,
    *,
    trained_weights: int,
    answers: int,
    processes: int = 1,
    validates: bool = True,
    export: bool = False,
) -> DiskNeeds:
    """Return what a training needs that trains so many weights; `answers` in bytes."""
    weights = BYTES_OF_WEIGHT * trained_weights
    handed = 0
    if recipe.vllm and recipe.lora is not None:
        handed = ADAPTERS_AT_ONCE * processes * weights
    return DiskNeeds(
        checkpoints=CHECKPOINTS_AT_ONCE * BYTES_OF_STATE * trained_weights,
        # Its files are links until the checkpoint that they belong to is removed.
        best=weights if validates else 0,
        adapters=handed,
        export=weights if export else 0,
        answers=answers,
    )


def describe_disk(needs: DiskNeeds, present: int) -> str:
    """Return what the bytes are for; `present` are those of checkpoints that are there already."""
    parts = [f"{format_size(needs.checkpoints + needs.best - present)} for checkpoints"]
    if present:
        parts[0] = f"{parts[0]} beside the {format_size(present)} that are there"
    if needs.adapters:
        parts.append(f"{format_size(needs.adapters)} for adapters that vLLM reads")
    if needs.export:
        parts.append(f"{format_size(needs.export)} for the export")
    parts.append(f"about {format_size(needs.answers)} for answers of workers")
    return format_list(parts)
