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
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import USUAL_REPLY_TOKENS, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import tool_selector
from conductor_cli.views.run_text import describe_access, short_name
from conductor_cli.views.text_layout import BLANK, Line, Screen

MIN_STEPS_TO_COMPARE: Final = 2  # A plan of fewer steps is one call itself

NOTHING_TO_CHOOSE_BY: Final = (
    "choice of workers: by their names alone, because none has a card; to measure what each is"
    " good at: conductor workers calibrate"
)

INDENT: Final = "    "  # Stands before a subtask, under its worker's name


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
    gain: str = ""  # What plans of this planner were measured to gain; empty where nothing was
    by_planner: bool = False  # Whether the planner chose its workers
    remarks: tuple[str, ...] = ()  # Where the plan is not simply what the planner wrote


def plan_lines(offer: PlanOffer, screen: Screen) -> list[Line]:
    """Return the plan for the user to approve."""
    estimates = estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile)
    count = format_count(len(estimates), "step")
    lines: list[Line] = [(("PLAN", "question"), (f"  {count}", "quiet"))]
    for remark in offer.remarks:
        lines += screen.styled_rows(remark, "note")
    open_steps = ZERO
    uses_tools = False
    for number, (step, estimate) in enumerate(
        zip(offer.plan.steps, estimates, strict=True), start=1
    ):
        if number not in offer.done:
            open_steps += estimate
        uses_tools = uses_tools or bool(_tools_of(step, offer))
        lines += _step_lines(number, step, estimate, offer, screen)
    total = _describe_estimate(open_steps, _unmeasured_workers(offer), uses_tools=uses_tools)
    lines.append(BLANK)
    lines += screen.styled_rows(total, "plain")
    alone = _describe_single_call(offer, open_steps)
    if alone and not offer.done:
        lines += screen.styled_rows(alone, "plain")
        lines += screen.styled_rows(_describe_gain(offer.gain), "plain")
    if _nothing_tells_workers_apart(offer):
        lines += screen.styled_rows(NOTHING_TO_CHOOSE_BY, "plain")
    lines += screen.styled_rows(_describe_limits(offer.limits), "plain")
    return lines


def _step_lines(
    number: int, step: Step, estimate: PlanEstimate, offer: PlanOffer, screen: Screen
) -> list[Line]:
    """Return who does a step, who reads what for it, what it costs, and its subtask."""
    room = screen.width - len(INDENT)
    tools = _tools_of(step, offer)
    recipient = offer.recipients.get(step.worker, "")
    if step.worker == SELF:
        recipient = "plans again"
    cost = "done" if number in offer.done else _describe_cost(estimate)
    calls = ""
    if tools:
        calls = f"may call {', '.join(map(tool_selector, tools))}"
    facts = (recipient, _describe_reads(step, offer), cost, calls)
    name = screen.crop(short_name(step.worker), room)
    return [
        ((f"{number:>2}  ", "number"), (name, "worker")),
        *screen.styled_rows(", ".join(filter(None, facts)), "quiet", indent=INDENT),
        *screen.styled_rows(step.subtask, "plain", indent=INDENT),
    ]


def _tools_of(step: Step, offer: PlanOffer) -> tuple[str, ...]:
    if step.worker not in offer.pool:
        return ()
    return offer.pool[step.worker].tools


def _describe_reads(step: Step, offer: PlanOffer) -> str:
    is_kept_from_files = offer.has_files and not offer.question_for(step.worker).files
    if not is_kept_from_files:
        return describe_access(step.access)
    # The policy keeps the files from the worker.
    if step.access:
        return f"{describe_access(step.access)}, not the files"
    return "reads the question only, not the files"


def _unmeasured_workers(offer: PlanOffer) -> list[str]:
    """Return the workers of open steps whose usual replies are not known from earlier calls."""
    measured = offer.profile.usual_replies()
    names: list[str] = []
    for number, step in enumerate(offer.plan.steps, start=1):
        is_open = number not in offer.done and step.worker != SELF
        if is_open and step.worker not in measured:
            names.append(step.worker)
    return list(dict.fromkeys(names))


def _describe_estimate(
    expected: PlanEstimate, unmeasured: Sequence[str], *, uses_tools: bool
) -> str:
    calls = format_count(expected.calls, "call")
    text = f"estimate: {calls}, usually {expected.usual_tokens:,} tokens"
    most = expected.tokens[1]
    if most > expected.usual_tokens:
        text += f", at most {most:,}"
    text += f"; {_describe_cost(expected)}"
    if unmeasured:
        names = format_list([one_line(name) for name in unmeasured])
        text += f"; for {names} a usual reply of {USUAL_REPLY_TOKENS} tokens is assumed"
    if uses_tools:
        text += "; a step with tools calls its worker again after each use, which is not counted"
    return text


def _describe_single_call(offer: PlanOffer, planned: PlanEstimate) -> str:
    """Return what one call of the best worker would usually take, and what the plan adds to it.

    Empty for a plan of one step, and where no worker is left but the planner.
    """
    workers = offer.pool.without_self()
    if len(offer.plan.steps) < MIN_STEPS_TO_COMPARE or not workers:
        return ""
    best = workers.best()
    plan = Plan(steps=(Step(worker=best.name, subtask=""),))
    (alone,) = estimate_steps(offer.question_for, plan, offer.pool, offer.profile)
    text = f"one call of {one_line(best.name)} alone: usually {alone.usual_tokens:,} tokens"
    more_calls = format_count(planned.calls - alone.calls, "call")
    if alone.unpriced or planned.unpriced:
        more_tokens = planned.usual_tokens - alone.usual_tokens
        return f"{text}; the plan adds {more_calls} and {more_tokens:,} tokens"
    text += f", {format_money(alone.usual_cost)}"
    more_cost = planned.usual_cost - alone.usual_cost
    if more_cost < 0:
        return f"{text}; the plan adds {more_calls} and costs {format_money(-more_cost)} less"
    return f"{text}; the plan adds {more_calls} and {format_money(more_cost)}"


def _nothing_tells_workers_apart(offer: PlanOffer) -> bool:
    """Return whether the planner chose between workers of which it was told nothing but names."""
    workers = offer.pool.without_self()
    return (
        offer.by_planner
        and len(workers) > 1
        and not any(
            worker.about or worker.card.words or worker.card.strengths for worker in workers
        )
    )


def _describe_gain(gain: str) -> str:
    """Return what a plan is expected to add to the quality of the answer."""
    if gain:
        return f"quality: plans were measured at {gain}"
    return (
        "quality: whether such plans answer better was not measured; to measure it: conductor try"
    )


def _describe_limits(limits: Limits) -> str:
    amounts = list[str]()
    if limits.cost is not None:
        amounts.append(format_money(limits.cost))
    if limits.tokens is not None:
        amounts.append(format_count(limits.tokens, "token"))
    if limits.calls is not None:
        amounts.append(format_count(limits.calls, "call"))
    if limits.seconds is not None:
        amounts.append(format_duration(limits.seconds))
    if not amounts:
        return "limits: none on money, tokens, calls or time"
    return f"limits: at most {', '.join(amounts)}"


def _describe_cost(expected: PlanEstimate) -> str:
    """Return `usually $0.0031, at most $0.0200`. An unknown price never reads as $0."""
    if not expected.calls:
        return "$0.00"
    if expected.calls == expected.unpriced:
        return "no price known"
    usual = format_money(expected.usual_cost)
    most = format_money(expected.cost[1])
    cost = usual
    if usual != most:
        cost = f"usually {usual}, at most {most}"
    if expected.unpriced:
        cost += f" and {format_count(expected.unpriced, 'call')} without a known price"
    return cost


def flow_lines(sent: Sequence[Disclosure], screen: Screen) -> list[Line]:
    """Return a heading for each recipient; under it the calls, and under each call its texts."""
    lines: list[Line] = []
    for recipient, calls in group_by_recipient(sent).items():
        if lines:
            lines.append(BLANK)
        lines.append(((screen.crop(recipient, screen.width), "worker"),))
        for call in calls:
            head = screen.crop(f"{call_name(call)}: {one_line(call.worker)}", screen.width - 2)
            lines.append((("  " + head, "plain"),))
            texts = ", ".join(map(one_line, call.texts)) or "only its subtask"
            lines += screen.styled_rows(texts, "quiet", indent="    ")
    return lines or [(("nothing was sent to anybody", "plain"),)]


def planned_flow_lines(
    sent: Sequence[Disclosure], recipients: Mapping[str, str], screen: Screen
) -> list[Line]:
    """Return which model will read what when a plan is run, and who else may.

    `recipients` are who reads what each worker of the pool is sent, by its name.
    """
    lines = flow_lines(sent, screen)
    if len(recipients) == 1:
        return lines
    return [*lines, BLANK, *stand_in_lines(recipients.values(), screen)]


def stand_in_lines(recipients: Iterable[str], screen: Screen) -> list[Line]:
    """Return who else may read a step's texts: the recipients of the workers that may take over."""
    named = format_list(list(dict.fromkeys(map(one_line, recipients))))
    text = (
        "If a worker fails, another worker that may see the same texts takes over. Possible "
        f"readers: {named}."
    )
    return screen.styled_rows(text, "quiet")


def flow_json(sent: Sequence[Disclosure]) -> list[dict[str, Any]]:
    """Return the same as JSON values."""
    listed = []
    for recipient, calls in group_by_recipient(sent).items():
        rows = []
        for call in calls:
            is_plan = not call.step[-1]
            worker = None if is_plan else call.worker
            rows.append({"call": call_name(call), "worker": worker, "texts": list(call.texts)})
        listed.append({"recipient": recipient, "calls": rows})
    return listed


def group_by_recipient(sent: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """Return the calls by recipient, in the order of each recipient's first call."""
    groups: dict[str, list[Disclosure]] = {}
    for call in sent:
        groups.setdefault(call.recipient, []).append(call)
    return groups


def call_name(call: Disclosure) -> str:
    """Return `plan`, `step 2`, `step 2.1` or `plan in 2` for a nested run.

    With the attempt if it was not the first.
    """
    *outer, step = call.step
    path = ".".join(map(str, outer))
    name = "plan"
    if step:
        name = f"step {'.'.join(map(str, call.step))}"
    elif path:
        name = f"plan in {path}"
    if call.attempt > 1:
        name += f", attempt {call.attempt}"
    return name
