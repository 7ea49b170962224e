"""The policy at work in a run: what may stand in a plan, and once more before each call, who may be sent what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import Failure, PolicyError
from conductor_cli.core.flow import EARLIER, Carried, carried_by
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.policy import WHERE

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow

FROM_FILES: Final = Carried(files=True)
"""Of a text that may tell of the attached files."""


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
            return Failure(kind="policy", message=why, hint=WHERE)
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
    if _may_tell_of_files(run, step) and run.taint.hidden_in(worker, FROM_FILES):
        return f"step {number} was planned when other rules held for files, so its subtask may tell of them"
    steps, asked = _before(run, number)
    return run.taint.fault(steps, replace(step, worker=worker), asked)


def may_show_steps(run: Workflow) -> bool:
    """Whether the conductor may be shown the steps that stand: one that is not shown files must not read of them."""
    told = any(_may_tell_of_files(run, record.step) for record in run.trace.steps)
    return not told or "files" not in run.taint.withheld_from_conductor()


def _may_tell_of_files(run: Workflow, step: Step) -> bool:
    """Whether the subtask was written when other rules held for files: in the run that is resumed."""
    earlier = run.resumed
    if earlier is None or not run.question.files:
        return False
    if earlier.policy.files_only == run.setting.guard.policy.files_only:
        return False
    return any(record.step == step for record in earlier.steps)


def carried(run: Workflow, number: int) -> Carried:
    """What step `number` may hold: its subtask, and the answers that it sees."""
    step = run.record(number).step
    steps, asked = _before(run, number)
    seen = carried_by(step.access, run.taint.reaches(steps, asked), run.taint.given)
    return seen | FROM_FILES if _may_tell_of_files(run, step) else seen


def visible(run: Workflow, step: Step) -> Step:
    """The next step, with as much of its access list as its worker may see."""
    steps, asked = _before(run, len(run.trace.steps) + 1)
    return run.taint.visible(steps, step, asked)


def _before(run: Workflow, number: int) -> tuple[tuple[Step, ...], dict[int, tuple[str, ...]]]:
    """The steps before `number`, and who did those that somebody else did than planned.

    What was done when other rules held may hold all that could be seen: it counts as done by somebody unknown, too. So
    does what was planned when other rules held for files: who sees a step is shown its subtask.
    """
    records = [record for record in run.trace.steps if record.number < number]
    earlier = run.resumed
    other_rules = earlier is not None and earlier.policy != run.setting.guard.policy
    old = {*earlier.done()} if earlier is not None and other_rules else set()
    old |= {record.number for record in records if _may_tell_of_files(run, record.step)}
    asked: dict[int, tuple[str, ...]] = {
        record.number: (record.worker, EARLIER) if record.number in old else (record.worker,)
        for record in records
        if record.number in old or record.worker != record.step.worker
    }
    return tuple(record.step for record in records), asked
