"""A plan before it runs: who does what, who reads it, what each step sees, the cost.

And who was sent what. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.disclosures import Disclosure
from conductor_cli.core.estimate import ZERO, PlanEstimate, estimate_steps
from conductor_cli.core.formatting import format_count, format_duration, format_list, format_money
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import tool_party
from conductor_cli.views.run_text import describe_access, short_name
from conductor_cli.views.text_layout import BLANK, Line, Screen

PAD: Final = "    "  # Stands before a subtask, under its worker's name


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffer:
    """A plan and everything that a user decides by."""

    question_for: Callable[[str], Question]  # The question as each worker is shown it, by its name
    plan: Plan
    pool: Pool
    profile: WorkerProfile
    limits: Limits
    recipients: Mapping[str, str]  # Who reads what a worker is sent, by its name
    done: frozenset[int] = frozenset()  # Steps that an earlier run has finished, which cost nothing
    has_files: bool = False
    remarks: tuple[str, ...] = ()  # Where the plan is not simply what the planner wrote


def plan_lines(offer: PlanOffer, screen: Screen) -> list[Line]:
    """The plan for the user to approve."""
    expected = estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile)
    lines: list[Line] = [
        (("PLAN", "question"), (f"  {format_count(len(expected), 'step')}", "quiet"))
    ]
    for remark in offer.remarks:
        lines += [((text, "note"),) for text in screen.wrap(remark, screen.width)]
    room = screen.width - len(PAD)
    open_steps = ZERO
    uses_tools = False
    for number, (step, estimate) in enumerate(
        zip(offer.plan.steps, expected, strict=True), start=1
    ):
        done = number in offer.done
        open_steps = open_steps if done else open_steps + estimate
        recipient = "plans again" if step.worker == SELF else offer.recipients.get(step.worker, "")
        tools = offer.pool[step.worker].tools if step.worker in offer.pool else ()
        uses_tools = uses_tools or bool(tools)
        reads = describe_access(step.access)
        # The policy keeps them from the worker
        if offer.has_files and not offer.question_for(step.worker).files:
            reads = (
                f"{reads}, not the files"
                if step.access
                else "reads the question only, not the files"
            )
        facts = (
            recipient,
            reads,
            "done" if done else _describe_cost(estimate),
            f"may call {', '.join(map(tool_party, tools))}" if tools else "",
        )
        lines.append(
            ((f"{number:>2}  ", "number"), (screen.crop(short_name(step.worker), room), "worker"))
        )
        lines += [
            ((PAD + text, "quiet"),) for text in screen.wrap(", ".join(filter(None, facts)), room)
        ]
        lines += [((PAD + text, "plain"),) for text in screen.wrap(step.subtask, room)]
    low, high = open_steps.tokens
    tokens = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    estimate_text = (
        f"estimate: {format_count(open_steps.calls, 'call')}, {tokens} tokens, "
        f"{_describe_cost(open_steps)}"
    )
    lines.append(BLANK)
    if uses_tools:
        estimate_text += (
            "; a step with tools calls its worker again after each use, which is not counted"
        )
    limits = (
        format_money(offer.limits.cost) if offer.limits.cost is not None else "",
        format_count(offer.limits.tokens, "token") if offer.limits.tokens is not None else "",
        format_count(offer.limits.calls, "call") if offer.limits.calls is not None else "",
        format_duration(offer.limits.seconds) if offer.limits.seconds is not None else "",
    )
    held = (
        f"at most {', '.join(filter(None, limits))}"
        if any(limits)
        else "none on money, tokens, calls or time"
    )
    for text in (estimate_text, f"limits: {held}"):
        lines += [((line, "plain"),) for line in screen.wrap(text, screen.width)]
    return lines


def _describe_cost(expected: PlanEstimate) -> str:
    """`$0.0010 to $0.0200`. An unknown price never reads as $0."""
    if expected.calls == expected.unpriced:
        return "no price known" if expected.calls else "$0.00"
    low, high = expected.cost
    known = format_money(low) if low == high else f"{format_money(low)} to {format_money(high)}"
    unpriced = (
        f" and {format_count(expected.unpriced, 'call')} without a known price"
        if expected.unpriced
        else ""
    )
    return f"{known}{unpriced}"


def flow_lines(sent: Sequence[Disclosure], screen: Screen) -> list[Line]:
    """A heading for each recipient; under it the calls, and under each call its texts."""
    lines: list[Line] = []
    for recipient, calls in group_by_recipient(sent).items():
        lines += [BLANK] if lines else []
        lines.append(((screen.crop(recipient, screen.width), "worker"),))
        for call in calls:
            head = screen.crop(f"{call_name(call)}: {one_line(call.worker)}", screen.width - 2)
            lines.append((("  " + head, "plain"),))
            texts = ", ".join(map(one_line, call.texts)) or "only its subtask"
            lines += [(("    " + line, "quiet"),) for line in screen.wrap(texts, screen.width - 4)]
    return lines or [(("nothing was sent to anybody", "plain"),)]


def stand_in_lines(recipients: Iterable[str], screen: Screen) -> list[Line]:
    """Return who else may read a step's texts: the recipients of the workers that may take over."""
    named = format_list(list(dict.fromkeys(map(one_line, recipients))))
    text = (
        "If a worker fails, another worker that may see the same texts takes over. Possible "
        f"readers: {named}."
    )
    return [((line, "quiet"),) for line in screen.wrap(text, screen.width)]


def flow_json(sent: Sequence[Disclosure]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {
            "recipient": recipient,
            "calls": [
                {
                    "call": call_name(call),
                    "worker": call.worker if call.step[-1] else None,  # step 0 is the plan
                    "texts": list(call.texts),
                }
                for call in calls
            ],
        }
        for recipient, calls in group_by_recipient(sent).items()
    ]


def group_by_recipient(sent: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """The calls by recipient, in the order of each recipient's first call."""
    groups: dict[str, list[Disclosure]] = {}
    for call in sent:
        groups.setdefault(call.recipient, []).append(call)
    return groups


def call_name(call: Disclosure) -> str:
    """`plan`, `step 2`, `step 2.1` or `plan in 2` for a nested run.

    With the attempt if it was not the first.
    """
    *outer, step = call.step
    path = ".".join(map(str, outer))
    plan = f"plan in {path}" if path else "plan"
    name = f"step {'.'.join(map(str, call.step))}" if step else plan
    return f"{name}, attempt {call.attempt}" if call.attempt > 1 else name
