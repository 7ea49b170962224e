"""What became of one case under one system: the verdict, what it cost, and how long its longest chain of calls took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.evals.cases import Case, is_correct
from conductor_cli.evals.systems import System

Verdict = Literal["right", "wrong", "failed"]
"""Failed: a model could not be asked, so nothing is known of the system; counted apart, never as wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case put to one system, once.

    `usage` is what all models used, `planning` the conductor's share of it. `seconds` is the longest chain of calls
    that waited for each other, each with the seconds it took when it was made: it does not depend on how many cases
    ran beside it, nor on which replies were already known. `planned`: a model wrote the plan; `valid`: as first
    written it was one (meaningless unless planned). `trace` says where its run stands: the file, relative to the
    evaluation, and the byte.
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
    trace: str = ""
    error: str = ""


TRIES: Final = 2
"""How often a conductor that cannot be heard is asked before somebody else takes the question."""


def judged(system: System, case: Case, trace: Trace, events: Sequence[ev.Event]) -> Outcome:
    """What became of a case: `trace` is the fold of `events`, all of one run."""
    planned = system.plan is None
    error = lost(trace, events, planned=planned)
    answer = "" if error else system.answer(trace, case)
    verdict: Verdict = "failed" if error else "right" if answer and is_correct(answer, case) else "wrong"
    return Outcome(
        system=system.name, case=case.id, tags=case.tags, verdict=verdict, answer=answer, usage=trace.usage,
        planning=planning(trace), seconds=round(seconds(trace, together=system.together), 4), steps=len(trace.steps),
        planned=planned, valid=not any(_is_written(rejected) for rejected in trace.rejected), error=error,
    )  # fmt: skip


def lost(trace: Trace, events: Iterable[ev.Event], *, planned: bool) -> str:
    """Why nothing is known of the system on this case, empty where something is.

    A model could not be asked: a step failed for good or was handed to another worker, or the conductor was not heard.
    A model that said nothing, and a limit that was reached, are the system's own.
    """
    for event in flat(events):
        if isinstance(event, ev.StepFailed) and event.retry_in is None and event.error.reason != "empty_answer":
            return event.error.message
    failed = trace.error if trace.state == "failed" else None
    if failed is not None and not _is_own(failed):
        return failed.message
    unheard = [rejected for rejected in trace.rejected if not _is_written(rejected)]
    return unheard[-1].problem if planned and len(unheard) >= TRIES else ""


def flat(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The events, those of nested runs in their place."""
    for event in events:
        while isinstance(event, ev.NestedEvent):
            event = event.event  # noqa: PLW2901 - what it is about
        yield event


def _is_own(failure: Failure) -> bool:
    return failure.kind == "limit" or (failure.kind == "worker" and failure.reason == "empty_answer")


def _is_written(rejected: ev.PlanRejected) -> bool:
    """Whether the conductor wrote something that was no plan, or nothing; else it could not be heard."""
    return bool(rejected.text or rejected.usage.tokens_out or rejected.reason == "empty_answer")


def planning(trace: Trace) -> Usage:
    """What the conductor used, in nested runs too."""
    return sum((planning(record.nested) for record in trace.steps if record.nested is not None), trace.planning)


def seconds(trace: Trace, *, together: bool = False) -> float:
    """How long the run takes when each call takes what it took when it was made: its longest chain of calls.

    Planning comes first: steps that start while it goes on are not counted as earlier. With `together` the steps wait
    for nobody.
    """
    ends: dict[int, float] = {}
    for record in trace.steps:
        before = max((ends.get(number, 0.0) for number in record.step.access), default=0.0)
        ends[record.number] = (0.0 if together else before) + _taken(record)
    last = [ends[record.number] for record in trace.steps if record.last] if not together else []
    return trace.planning.seconds + (last[0] if last else max(ends.values(), default=0.0))


def _taken(record: StepRecord) -> float:
    return record.usage.seconds if record.nested is None else seconds(record.nested)
