"""A plan before it runs, as lines: who does what, who reads it, whom they see, the price, the limits. Pure."""

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
"""What stands before a subtask, under its worker's name."""
LABEL: Final = 10
"""Columns of the words before the totals."""
LEAST: Final = 2
"""Spaces between what a step is and its price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffer:
    """A plan and all that a user decides by.

    `recipients` says by a worker's name who reads what it is sent. `spent` is what planning took; `done` are the steps
    that an earlier run has finished, which cost nothing any more. `planner` is the conductor, for steps on itself.
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
    """The plan as a user is to judge it."""
    return [_title(offer), *_steps(offer, screen), *_totals(offer, screen)]


def plain_text(lines: list[Line]) -> str:
    """Lines without their styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _title(offer: PlanOffer) -> Line:
    return (("PLAN", "question"), (f"  {format_count(len(offer.plan.steps), 'step')}", "quiet"))


def _steps(offer: PlanOffer, screen: Screen) -> Iterator[Line]:
    for number, (step, expected) in enumerate(zip(offer.plan.steps, _estimates(offer), strict=True), start=1):
        more = " + unpriced" if 0 < expected.unpriced < expected.calls else ""
        cost = "done" if number in offer.done else _money(expected) + more
        yield from _head(number, step, screen.line(_detail(offer, step)), cost, screen)
        for line in screen.wrap(step.subtask, screen.width - len(PAD)):
            yield ((PAD + line, "plain"),)


def _head(number: int, step: Step, detail: str, cost: str, screen: Screen) -> Iterator[Line]:
    """Number, worker, who reads it and whom it sees, the price at the right edge; on a narrow screen below that."""
    front: Line = ((f"{number:>2}  ", "number"), (screen.crop(step.worker, screen.width - len(PAD)), "worker"))
    line: Line = (*front, (f"  {detail}", "quiet"))
    free = screen.width - cells(line) - len(cost)
    if free >= LEAST:
        yield (*line, (" " * free + cost, "quiet"))
        return
    yield front
    for text in (detail, cost):
        yield from (((PAD + line, "quiet"),) for line in screen.wrap(text, screen.width - len(PAD)))


def _detail(offer: PlanOffer, step: Step) -> str:
    recipient = "plans again" if step.worker == SELF else offer.recipients.get(step.worker, "")
    return ", ".join(part for part in (recipient, describe_access(step.access)) if part)


def _totals(offer: PlanOffer, screen: Screen) -> Iterator[Line]:
    ahead = [one for number, one in enumerate(_estimates(offer), start=1) if number not in offer.done]
    expected = sum(ahead, ZERO)
    yield BLANK
    low, high = expected.tokens
    calls, tokens = format_count(expected.calls, "call"), f"{low:,} to {high:,}" if low < high else f"{low:,}"
    yield from _total("estimate", f"{calls}, {tokens} tokens, {_money(expected)}{_unpriced(expected)}", screen)
    if offer.spent.calls:
        spent = [format_count(offer.spent.tokens, "token"), format_cost(offer.spent)]
        yield from _total("planning", f"took {', '.join(part for part in spent if part)}", screen)
    limits = _limits(offer.limits)
    yield from _total("limits", limits or "none on money, tokens, calls or time", screen)
    unused = [name for name in offer.pool.names if name not in {step.worker for step in offer.plan.steps}]
    if unused:
        yield from _total("not used", ", ".join(unused), screen)
    if len(offer.pool) > 1:
        yield from _total("failures", "another worker of the pool takes over a step whose worker fails", screen)


def _total(label: str, text: str, screen: Screen) -> Iterator[Line]:
    first, *rest = screen.wrap(text, screen.width - LABEL) or [""]
    yield ((f"{label:<{LABEL}}", "quiet"), (first, "plain"))
    for line in rest:
        yield ((" " * LABEL + line, "plain"),)


def _estimates(offer: PlanOffer) -> tuple[Estimate, ...]:
    return estimate_steps(offer.question, offer.plan, offer.pool, offer.profile, offer.planner)


def _money(expected: Estimate) -> str:
    """`$0.0010 to $0.0200`; a price that nobody knows is no price of 0."""
    if expected.calls == expected.unpriced:
        return "no price known" if expected.calls else "$0.00"
    low, high = expected.cost
    return format_money(low) if low == high else f"{format_money(low)} to {format_money(high)}"


def _unpriced(expected: Estimate) -> str:
    known = 0 < expected.unpriced < expected.calls
    return f" and {format_count(expected.unpriced, 'call')} without a known price" if known else ""


def _limits(limits: Limits) -> str:
    parts = [
        format_money(limits.cost) if limits.cost is not None else "",
        format_count(limits.tokens, "token") if limits.tokens is not None else "",
        format_count(limits.calls, "call") if limits.calls is not None else "",
        format_duration(limits.seconds) if limits.seconds is not None else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f"{said} at most" if said else ""
