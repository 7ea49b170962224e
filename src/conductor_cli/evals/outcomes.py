"""What became of one case under one system: the verdict, what it cost, and how long its longest chain of calls took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.evals.baselines import majority_answer
from conductor_cli.evals.cases import Case, is_correct
from conductor_cli.evals.systems import System

Verdict = Literal["right", "wrong", "failed"]
"""Failed: a model could not be reached, which says nothing about the system. Never counted as wrong."""

RunKey = tuple[str, str, int]
"""What a run is of: the name of a system, the id of a case, and the draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run of a case under a system.

    `usage` is what all models used, `planning` the conductor's share of it. `seconds` is the longest chain of calls
    that waited for each other, with the time that each call took when it was made; it depends neither on how many cases
    ran in parallel nor on which replies were cached. `planned`: a model wrote the plan; `valid`: its first version was
    valid (meaningless unless planned). `draw` counts the runs of the case under the system, from 0.
    """

    system: str
    case: str
    tags: tuple[str, ...] = ()
    verdict: Verdict
    answer: str = ""
    usage: Usage = NO_USAGE
    planning: Usage = NO_USAGE
    seconds: float = 0.0
    steps: int = 0
    planned: bool = False
    valid: bool = True
    error: str = ""
    draw: int = 0

    @property
    def key(self) -> RunKey:
        """The run that it is of."""
        return self.system, self.case, self.draw

    @property
    def right(self) -> bool:
        return self.verdict == "right"


MAX_PLAN_REQUESTS: Final = 2
"""How often the conductor model is called before a worker gets the question without a plan."""


OWN_MISTAKES: Final = frozenset({"empty_answer", "declined"})
"""Reasons of a failed run that the system itself gave."""


def judge_run(
    system: System, case: Case, trace: Trace, events: Sequence[ev.Event], selected: int | None = None
) -> Outcome:
    """The outcome of a case; `trace` is the fold of `events`, which are all of one run.

    `selected` is the index of the step whose answer counts, where the system selects one.
    """
    planned = system.plan is None
    error = infrastructure_error(trace, events, planned=planned)
    answer = "" if error else _counted_answer(system, case, trace, selected)
    verdict: Verdict = "failed" if error else "right" if answer and is_correct(answer, case) else "wrong"
    return Outcome(
        system=system.name, case=case.id, tags=case.tags, verdict=verdict, answer=answer, usage=trace.usage,
        planning=planning_usage(trace), steps=len(trace.steps), planned=planned,
        seconds=round(critical_path_seconds(trace, independent=system.samples), 4),
        valid=not any(_has_reply(rejected) for rejected in trace.rejected), error=error,
    )  # fmt: skip


def _counted_answer(system: System, case: Case, trace: Trace, selected: int | None) -> str:
    if system.votes:
        return majority_answer(trace, case)
    return trace.answer if selected is None else trace.steps[selected].text


def infrastructure_error(trace: Trace, events: Iterable[ev.Event], *, planned: bool) -> str:
    """Why this run says nothing about the system: a model could not be reached. Empty if it does say something.

    That is so when a step failed for good or was given to another worker, or when the conductor model did not answer.
    An empty reply, a refusal and an exhausted limit count as the system's own mistakes.
    """
    for event in map(ev.innermost_event, events):
        if isinstance(event, ev.StepFailed) and event.retry_in is None and event.error.reason != "empty_answer":
            return event.error.message
    failure = trace.error if trace.state == "failed" else None
    if failure is not None:
        own_mistake = failure.kind == "limit" or failure.reason in OWN_MISTAKES
        if not own_mistake:
            return failure.message
    # One unanswered request is repeated by the engine; only when all were, a worker answered without a plan.
    unanswered = [rejected for rejected in trace.rejected if not _has_reply(rejected)]
    return unanswered[-1].problem if planned and len(unanswered) >= MAX_PLAN_REQUESTS else ""


def _has_reply(rejected: ev.PlanRejected) -> bool:
    """Whether the conductor model answered at all, if only with an invalid plan or with nothing."""
    return bool(rejected.text or rejected.usage.tokens_out or rejected.reason == "empty_answer")


def planning_usage(trace: Trace) -> Usage:
    """What the conductor model used, including nested runs."""
    return sum((planning_usage(record.nested) for record in trace.steps if record.nested is not None), trace.planning)


def critical_path_seconds(trace: Trace, *, independent: bool = False) -> float:
    """The duration of the run's longest chain of calls, each call with the time it took when it was made.

    Planning comes first, although steps may in fact start before it has ended. With `independent` no step waits for
    another.
    """
    ends: dict[int, float] = {}
    for record in trace.steps:
        before = max((ends.get(number, 0.0) for number in record.step.access), default=0.0)
        taken = record.usage.seconds if record.nested is None else critical_path_seconds(record.nested)
        ends[record.number] = (0.0 if independent else before) + taken
    # The run ends with the step that gives the answer, even if another one would take longer.
    last = [ends[record.number] for record in trace.steps if record.last] if not independent else []
    return trace.planning.seconds + (last[0] if last else max(ends.values(), default=0.0))
