"""What is said to a conductor after its first reply: what was wrong with it, or what the user wants otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conductor_cli.core.chat import Message
from conductor_cli.core.plan import SELF, Plan, RejectedPlan, Step
from conductor_cli.core.plan_formats import PlanFormat, PlanFormatContext


def repair(
    standing: Sequence[Step], fault: str, form: str, spelling: PlanFormat, context: PlanFormatContext
) -> list[Message]:
    """The turn that shows what stands and asks for the rest. `form` says what is to be written."""
    plan = Plan(steps=tuple(standing))
    written = spelling.spell(plan, context) if standing else "(nothing that can be read)"
    left = context.rules.steps - len(standing)
    asked = f"Steps 1 to {len(standing)} stand. Write only what follows, at most {left} more." if standing else ""
    told = f"That is not a valid plan: {fault}." if fault else ""
    text = " ".join(part for part in (told, asked, form) if part)
    return [Message(role="assistant", content=written), Message(role="user", content=text)]


def again(
    refused: Sequence[RejectedPlan], form: str, spelling: PlanFormat, context: PlanFormatContext
) -> list[Message]:
    """A turn for each plan that the user did not take: the plan, what they said of it, and the wish for another."""
    # A plan that was edited by hand may name the conductor itself where it has no label.
    if SELF not in context.labels.values():
        context = replace(context, labels={**context.labels, SELF: SELF})
    messages = []
    for refusal in refused:
        said = f"The user does not take this plan and says:\n{refusal.feedback}\nWrite another plan. {form}"
        messages += [
            Message(role="assistant", content=spelling.spell(refusal.plan, context)),
            Message(role="user", content=said),
        ]
    return messages
