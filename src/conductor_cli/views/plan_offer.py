"""A plan before it runs, as lines: who does what, who reads it, what each step sees, the cost, the limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.estimate import ZERO, Estimate, Planner, estimate_steps
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import describe_access
from conductor_cli.views.text_layout import BLANK, Line, Screen, cells

PAD: Final = "    "
"""Stands before a subtask, under its worker's name."""

LABEL_WIDTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffer:
    """A plan and everything that a user decides by.

    `recipients` says by a worker's name who reads what it is sent. `spent` is what planning took. `done` are the steps
    that an earlier run has finished, which cost nothing. `planner` is the conductor, for steps that plan again.
    """

    question: Question
    plan: Plan
    pool: Pool
    profile: WorkerProfile
    limits: Limits
    recipients: Mapping[str, str]
    spent: Usage = Usage()
    done: frozenset[int] = frozenset()
    planner: Planner | None = None


def plan_lines(offer: PlanOffer, screen: Screen) -> list[Line]:
    """The plan for the user to approve."""
    steps = offer.plan.steps
    expected = estimate_steps(offer.question, offer.plan, offer.pool, offer.profile, offer.planner)
    lines: list[Line] = [(("PLAN", "question"), (f"  {format_count(len(steps), 'step')}", "quiet"))]
    for number, (step, estimate) in enumerate(zip(steps, expected, strict=True), start=1):
        some_unpriced = 0 < estimate.unpriced < estimate.calls
        cost = _cost_range(estimate) + (" + unpriced" if some_unpriced else "")
        recipient = "plans again" if step.worker == SELF else offer.recipients.get(step.worker, "")
        detail = screen.line(", ".join(filter(None, (recipient, describe_access(step.access)))))
        lines += _step_lines(number, step, detail, "done" if number in offer.done else cost, screen)
    lines.append(BLANK)
    remaining = [estimate for number, estimate in enumerate(expected, start=1) if number not in offer.done]
    for label, text in _totals(offer, sum(remaining, ZERO)):
        first, *rest = screen.wrap(text, screen.width - LABEL_WIDTH) or [""]
        lines.append(((f"{label:<{LABEL_WIDTH}}", "quiet"), (first, "plain")))
        lines += [((" " * LABEL_WIDTH + line, "plain"),) for line in rest]
    return lines


def _step_lines(number: int, step: Step, detail: str, cost: str, screen: Screen) -> Iterator[Line]:
    """Worker and detail with the cost at the right edge, or below each other when there is no room; the subtask."""
    room = screen.width - len(PAD)
    front: Line = ((f"{number:>2}  ", "number"), (screen.crop(step.worker, room), "worker"))
    line: Line = (*front, (f"  {detail}", "quiet"))
    free = screen.width - cells(line) - len(cost)
    if free >= 2:
        yield (*line, (" " * free + cost, "quiet"))
    else:
        yield front
        yield from (((PAD + text, "quiet"),) for part in (detail, cost) for text in screen.wrap(part, room))
    yield from (((PAD + text, "plain"),) for text in screen.wrap(step.subtask, room))


def _totals(offer: PlanOffer, expected: Estimate) -> Iterator[tuple[str, str]]:
    """Label and text of each line below the steps."""
    low, high = expected.tokens
    calls, tokens = format_count(expected.calls, "call"), f"{low:,} to {high:,}" if low < high else f"{low:,}"
    unpriced = ""
    if 0 < expected.unpriced < expected.calls:
        unpriced = f" and {format_count(expected.unpriced, 'call')} without a known price"
    yield "estimate", f"{calls}, {tokens} tokens, {_cost_range(expected)}{unpriced}"
    if offer.spent.calls:
        spent = (format_count(offer.spent.tokens, "token"), format_cost(offer.spent))
        yield "planning", f"took {', '.join(filter(None, spent))}"
    yield "limits", _describe_limits(offer.limits)
    used = {step.worker for step in offer.plan.steps}
    if unused := [name for name in offer.pool.names if name not in used]:
        yield "not used", ", ".join(unused)
    if len(offer.pool) > 1:
        yield "failures", "if a worker fails, another worker of the pool takes over its step"


def _cost_range(expected: Estimate) -> str:
    """`$0.0010 to $0.0200`. An unknown price never reads as $0."""
    if expected.calls == expected.unpriced:
        return "no price known" if expected.calls else "$0.00"
    low, high = expected.cost
    return format_money(low) if low == high else f"{format_money(low)} to {format_money(high)}"


def _describe_limits(limits: Limits) -> str:
    parts = (
        format_money(limits.cost) if limits.cost is not None else "",
        format_count(limits.tokens, "token") if limits.tokens is not None else "",
        format_count(limits.calls, "call") if limits.calls is not None else "",
        format_duration(limits.seconds) if limits.seconds is not None else "",
    )
    text = ", ".join(filter(None, parts))
    return f"at most {text}" if text else "none on money, tokens, calls or time"
