"""Approval: a run that holds its plan until the user has decided about it.

The plan is planned, offered, and may be taken, replaced by an edited one, or asked for anew, as often as they like. To
drop it is to stop the run. Plans of nested runs are not offered: they come while workers are already at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan, RejectedPlan, Step
from conductor_cli.run.guarding import may_show_steps
from conductor_cli.run.planning import announce, problem, write
from conductor_cli.run.reading import REVIEW

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """The plan is to be run as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Another plan in place of the one offered. It is offered too."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The conductor is to plan again, and is told why."""

    feedback: str


Decision = Approve | Edit | Replan


async def have_approved(run: Workflow) -> Failure | None:
    """Offer the plan until it is taken, then start it. Returns what makes planning again impossible."""
    while run.held:
        run.emit(ev.PlanOffered(at=run.now()))
        decision = await run.decision()
        failure = await _do(run, decision)
        if failure is not None:
            return failure
    run.advance()
    return None


async def _do(run: Workflow, decision: Decision) -> Failure | None:
    match decision:
        case Approve():
            run.emit(ev.PlanDecided(at=run.now(), verdict="approved"))
            run.held = False
            return None
        case Edit(plan=plan):
            run.emit(ev.PlanDecided(at=run.now(), verdict="edited"))
            run.take_back()
            return announce(run, plan, reviewed=True)
        case Replan(feedback=feedback):
            run.refused = (*run.refused, RejectedPlan(plan=_written(run), feedback=feedback))
            run.emit(ev.PlanDecided(at=run.now(), verdict="replan", feedback=feedback))
            run.take_back()
            assert run.setting.model is not None
            return await write(run, run.setting.model)


def may_edit(run: Workflow) -> bool:
    """Whether the plan may be replaced: not where steps of it are done already, in the run that is resumed."""
    return not run.trace.done()


def may_plan_again(run: Workflow) -> bool:
    """Whether there is a model that can be told what is wrong: one that was trained on its own words cannot."""
    able = run.setting.model is not None and run.setting.profile.render is None
    return may_edit(run) and able and may_show_steps(run)


def problem_of(run: Workflow, plan: Plan) -> Failure | None:
    """Why a plan that the user edited cannot be run, if it cannot."""
    return problem(run, plan, reviewed=True)


def _written(run: Workflow) -> Plan:
    """The plan as it was offered, without the review that is put behind it."""
    assert isinstance(run.trace.plan, Plan)
    steps: tuple[Step, ...] = run.trace.plan.steps
    reviewed = run.appended > 0 and len(steps) > 1 and steps[-1].subtask == REVIEW
    return Plan(steps=steps[:-1] if reviewed else steps, reasoning=run.trace.plan.reasoning)
