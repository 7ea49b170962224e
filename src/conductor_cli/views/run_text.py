"""What the views say, in words: times, tokens, money, reasons, and how a run ended. Pure; no colours, no glyphs."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from conductor_cli.core.errors import Failure
from conductor_cli.core.events import Event, NestedEvent, PlanDecided, PlanDelta, StepDelta, StepFailed, StopReason
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_list, format_money
from conductor_cli.core.plan import GIVEN
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import ENDED, StepRecord, Trace, apply_event
from conductor_cli.views.limit_hints import raising_flag, with_limit_hint

_HASH: Final = re.compile(r" \(?sha256.*")

LONGEST: Final = 400
"""Characters of an error's message or hint that are shown."""

REASONS: Final[dict[StopReason, str]] = {
    "cancelled": "cancelled",
    "limit": "a limit was reached",
    "not_needed": "not needed any more",
    "run_failed": "not run: the run failed before",
}

STOPPED: Final = frozenset({"cancelled", "terminated", "limit"})
"""What a run says of itself that somebody stopped from outside: nothing against trying the same again."""

FINISHES: Final[dict[str, str]] = {
    "length": "cut short by a length limit",
    "refusal": "refused",
    "tool": "asked for a tool",
    "other": "ended for an unknown reason",
}
"""How a step ended, where it did not end by itself."""


def apply_without_deltas(trace: Trace, event: Event) -> Trace:
    """`apply` for a view that shows no text before it is whole: deltas are passed over."""
    return trace if isinstance(innermost_event(event), (PlanDelta, StepDelta)) else apply_event(trace, event)


def innermost_event(event: Event) -> Event:
    """What happened, in whatever nested run it did."""
    while isinstance(event, NestedEvent):
        event = event.event
    return event


def compare_single_workers(trace: Trace) -> str:
    """What single workers would have cost for the same question. Empty where that says nothing."""
    from conductor_cli.core.single_worker_cost import (
        compare_with_single_worker,  # the prompts are with it, which no other view needs
    )

    found = compare_with_single_worker(trace)
    if found is None:
        return ""
    single = [(found.dearest, "dearest"), *([(found.best, "best card")] if found.best else [])]
    if found.best and found.best.worker == found.dearest.worker:
        single = [(found.dearest, "dearest and best card")]
    said = (f"{one_line(one.worker)} ({why}) {_about(one.cost)}" for one, why in single)
    return f"one call alone, estimated: {', '.join(said)}"


def _about(cost: Decimal | None) -> str:
    return "no price known" if cost is None else format_money(cost)


def describe_access(access: tuple[int, ...]) -> str:
    """`sees 1 and 3`, `sees question and files only`; item 0 of a nested run is the given answer."""
    names = ["the given answer" if item == GIVEN else str(item) for item in access]
    return f"sees {format_list(names) or 'question and files only'}"


def describe_waiting(record: StepRecord, trace: Trace) -> str:
    """What a step sees, and which of it is still to come: `sees 1 and 2, waits for 2`. Empty where there is nothing."""
    access = record.step.access
    ended = {step.number for step in trace.steps if step.state in ENDED}
    missing = tuple(item for item in access if item != GIVEN and item not in ended)
    if record.state != "waiting" or not missing:
        return describe_access(access) if access else ""
    waits = f"waits for {format_list([str(item) for item in missing])}"
    return waits if missing == access else f"{describe_access(access)}, {waits}"


def quote_text(text: str, length: int = 100) -> str:
    """The head of `text` as one line, in quotation marks."""
    line = one_line(text)
    return f'"{line}"' if len(line) <= length else f'"{line[: length - 4].rstrip()} ..."'


def tokens_so_far(record: StepRecord) -> int:
    """About how many tokens a running step has written. Only its end tells; until then four characters count as one."""
    return (len(record.text) + len(record.thinking) + 3) // 4


def question_line(trace: Trace) -> str:
    """The first line of the question that says something."""
    return next((line for text in trace.question.text.splitlines() if (line := one_line(text))), "")


def conductor_name(conductor: str) -> str:
    """A conductor's name without the hash of its file, which is for comparing, not for reading."""
    return _HASH.sub("", one_line(conductor))


def describe_setup(trace: Trace) -> str:
    """Who plans and how many workers there are."""
    return f"{trace.mode} mode, conductor {one_line(trace.conductor)}, {format_count(len(trace.pool), 'worker')}"


def describe_failure(error: Failure) -> str:
    """What happened, in one line."""
    return one_line(error.message)[:LONGEST] or error.kind


def describe_decision(event: PlanDecided) -> str:
    """What the user said of the plan that was offered to them."""
    said = {"approved": "approved", "edited": "edited", "replan": "rejected"}[event.verdict]
    return f"the user {said} the plan" + (f": {quote_text(event.feedback)}" if event.feedback else "")


def describe_next_attempt(event: StepFailed) -> str:
    """What happens after a failed attempt."""
    if event.retry_in is not None:
        return f"again in {format_duration(event.retry_in)}"
    if event.substitute is not None:
        return f"now on {one_line(event.substitute)}"
    return "no attempt is left"


def tokens_so_far_text(trace: Trace) -> str:
    """`1,050 tokens`, or `~1,071 tokens` while a part of them is a guess."""
    guess = sum(map(tokens_so_far, running(trace)))
    return f"{'~' if guess else ''}{format_count(trace.usage.tokens + guess, 'token')}"


def running(trace: Trace) -> list[StepRecord]:
    """The steps that run, those of nested runs included; a nested run's step stands for itself alone."""
    found: list[StepRecord] = []
    for record in trace.steps:
        if record.state == "running":
            found += running(record.nested) if record.nested is not None else [record]
    return found


def describe_totals(trace: Trace, *, stored: bool) -> str:
    """Steps, tokens, money, seconds and the trace's id, in one line."""
    parts = [
        format_count(len(trace.steps), "step"),
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
        format_duration(trace.at),
    ]
    if stored:
        parts.append(f"trace {one_line(trace.run)}")
    return ", ".join(part for part in parts if part)


def describe_outcome(trace: Trace, *, live: bool = False) -> str:
    """How the run ended, in one line: `finished`, `partial answer: why`, `failed: why`, and where there is no end."""
    if not trace.ended:
        return "the run goes on" if live else "the run was interrupted"
    what = "partial answer" if trace.partial else "finished" if trace.state == "finished" else "failed"
    return what if trace.error is None else f"{what}: {describe_failure(trace.error)}"


def problem_lines(trace: Trace, *, stored: bool) -> list[str]:
    """At most three lines for standard error when a run gave no answer or only a part of one; else none."""
    if not trace.run or (trace.state == "finished" and not trace.partial and trace.error is None):
        return []
    what = "partial answer: " if trace.state == "finished" and trace.partial else ""
    said = "not every step could finish" if trace.ended else "the run was interrupted: it has no end"
    if trace.error:
        said = describe_failure(trace.error)
    lines = [f"conductor: {what}{said}"]
    again = _again(trace) if stored else ""
    flag = raising_flag(trace.error) if trace.error else ""
    if again and flag:  # the flag belongs into the command that resumes the run, so that it can be copied
        return [*lines, f"{again} {flag}"]
    hint = one_line(with_limit_hint(trace.error).hint)[:LONGEST] if trace.error else ""
    return [line for line in (*lines, hint and f"  {hint}", again) if line]


def _again(trace: Trace) -> str:
    """The line that says how a run is gone on with; empty where there is nothing to go on with."""
    command = f"conductor ask --resume {one_line(trace.run)}"
    if trace.steps and (trace.plan is None or len(trace.done()) < len(trace.steps)):
        return f"  resume: {command}"
    stopped = (
        not trace.ended
        if trace.error is None
        else trace.error.kind in STOPPED and trace.error.reason != "output_closed"
    )
    return f"  ask it again: {command}" if stopped and not trace.steps else ""
