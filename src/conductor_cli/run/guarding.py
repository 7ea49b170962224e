"""The policy at work in a run: what may stand in a plan, and once more before each call, who may be sent what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.core.data_flow import EARLIER, NO_PROVENANCE, Provenance, provenance_of
from conductor_cli.core.errors import Failure, PolicyError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.policy import POLICY_HINT

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


def check(run: Workflow, *, plans: bool) -> None:
    """Raise `PolicyError` where the run or the plan it was given cannot keep the policy. `plans`: a model will."""
    run.taint.check(plans=plans)
    failure = None if run.given_plan is None else fault_in(run, run.given_plan)
    if failure is not None:
        raise PolicyError(failure.message, hint=failure.hint)


def fault_in(run: Workflow, plan: Plan) -> Failure | None:
    """Why the policy does not let a whole plan be run, if it does not."""
    for index, step in enumerate(plan.steps):
        why = run.taint.fault(plan.steps[:index], step)
        if why:
            return Failure(kind="policy", message=why, hint=POLICY_HINT)
    return None


def fault(run: Workflow, step: Step, behind: Sequence[Step] = ()) -> str:
    """Why `step` may not be planned behind the steps that stand, and those `behind` them; empty where it may."""
    steps, asked = _before(run, len(run.trace.steps) + 1)
    return run.taint.fault((*steps, *behind), step, asked)


def may_not(run: Workflow, number: int, worker: str) -> str:
    """Why step `number` may not be sent to `worker`, whoever it was planned for; empty where it may."""
    if run.taint.idle:
        return ""
    step = run.record(number).step
    why = run.taint.hidden_in(worker, _told(run, step))
    if why:
        return f"step {number} shows {worker} its subtask, which {why} {worker}"
    steps, asked = _before(run, number)
    return run.taint.fault(steps, replace(step, worker=worker), asked)


def may_show_steps(run: Workflow) -> bool:
    """Whether the conductor may be shown the steps that stand: they may tell of what it is not shown itself."""
    withheld = run.taint.withheld_from_conductor()
    told = [_told(run, record.step) for record in run.trace.steps] if withheld else []
    return not any(getattr(each, part) for each in told for part in withheld)


def planner_inputs(run: Workflow) -> tuple[str, ...]:
    """Which of `ev.EXTRA` the subtasks may tell of: what the conductor is shown, and that of the run resumed was."""
    there = tuple(part for part in ev.EXTRA if getattr(run.question, part))
    if not there:
        return ()
    before = run.resumed.planner_inputs if run.resumed is not None else ()
    plans = run.setting.model is not None and run.given_plan is None
    withheld = run.taint.withheld_from_conductor() if plans else there
    return tuple(part for part in there if part in before or part not in withheld)


def _told(run: Workflow, step: Step) -> Provenance:
    """What a subtask taken over may hold of what its conductor was shown. Earlier turns may hold files."""
    earlier, question = run.resumed, run.question
    if run.taint.idle or earlier is None or all(record.step != step for record in earlier.steps):
        return NO_PROVENANCE
    history = bool(question.history) and "history" in earlier.planner_inputs
    files = bool(question.files) and (history or "files" in earlier.planner_inputs)
    return Provenance(history=history, files=files, writers=frozenset({EARLIER} if history else ()))


def carried(run: Workflow, number: int) -> Provenance:
    """What step `number` may hold: its subtask, and the answers that it sees."""
    step = run.record(number).step
    steps, asked = _before(run, number)
    seen = provenance_of(step.access, run.taint.inputs_of_steps(steps, asked), run.taint.given)
    return seen | _told(run, step)


def visible(run: Workflow, step: Step) -> Step:
    """The next step, with as much of its access list as its worker may see."""
    steps, asked = _before(run, len(run.trace.steps) + 1)
    return run.taint.visible(steps, step, asked)


def _before(run: Workflow, number: int) -> tuple[tuple[Step, ...], dict[int, tuple[str, ...]]]:
    """The steps before `number`, and who did those that somebody else did than planned.

    What was done when other rules held may hold all that could be seen: it counts as done by somebody unknown, too. So
    does what was planned by a conductor that was shown more: who sees a step is shown its subtask.
    """
    records = [record for record in run.trace.steps if record.number < number]
    earlier = run.resumed
    other_rules = earlier is not None and earlier.policy != run.setting.pool_policy.policy
    old = {*earlier.done()} if earlier is not None and other_rules else set()
    old |= {record.number for record in records if _told(run, record.step) != NO_PROVENANCE}
    asked: dict[int, tuple[str, ...]] = {
        record.number: (record.worker, EARLIER) if record.number in old else (record.worker,)
        for record in records
        if record.number in old or record.worker != record.step.worker
    }
    return tuple(record.step for record in records), asked
