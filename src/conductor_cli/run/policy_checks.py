"""The policy in a run: what a plan may hold, and once more before each call, who may be sent what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conductor_cli.core import events as ev
from conductor_cli.core.data_flow import EARLIER, NO_PROVENANCE, Provenance, provenance_of
from conductor_cli.core.errors import Failure, PolicyError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.run.state import RunState


def check_run(state: RunState, *, planning: bool) -> None:
    """Raise `PolicyError` where the policy forbids the run or its given plan. `planning`: the conductor is asked."""
    state.policy.check(plans=planning)
    failure = None if state.given_plan is None else plan_violation(state, state.given_plan)
    if failure is not None:
        raise PolicyError(failure.message, hint=failure.hint)


def plan_violation(state: RunState, plan: Plan) -> Failure | None:
    """Why the policy forbids a whole plan; None where it allows it."""
    for index, step in enumerate(plan.steps):
        why = state.policy.violation(plan.steps[:index], step)
        if why:
            return Failure(kind="policy", message=why, hint=POLICY_HINT)
    return None


def step_violation(state: RunState, step: Step, before: Sequence[Step] = ()) -> str:
    """Why `step` may not follow the steps announced so far and those in `before`; empty where it may."""
    announced, asked = _steps_before(state, len(state.trace.steps) + 1)
    return state.policy.violation((*announced, *before), step, asked)


def call_violation(state: RunState, number: int, worker: str) -> str:
    """Why step `number` may not be sent to `worker`, whoever it was planned for; empty where it may."""
    if state.policy.is_empty:
        return ""
    step = state.record(number).step
    why = state.policy.hidden_reason(worker, _subtask_provenance(state, step))
    if why:
        return f"step {number} shows {worker} its subtask, which {why} {worker}"
    steps, asked = _steps_before(state, number)
    return state.policy.violation(steps, replace(step, worker=worker), asked)


def may_show_steps(state: RunState) -> bool:
    """Whether the conductor may see the steps announced so far: they may reveal inputs that are hidden from it."""
    withheld = state.policy.withheld_from_conductor()
    if not withheld:
        return True
    revealed = [_subtask_provenance(state, record.step) for record in state.trace.steps]
    return not any(getattr(provenance, part) for provenance in revealed for part in withheld)


def planner_inputs(state: RunState) -> tuple[str, ...]:
    """Which of `ev.EXTRA` the subtasks may reveal: what the conductor is shown, and what that of a resumed run was."""
    present = tuple(part for part in ev.EXTRA if getattr(state.question, part))
    if not present:
        return ()
    before = state.resumed.planner_inputs if state.resumed is not None else ()
    plans = state.config.model is not None and state.given_plan is None
    withheld = state.policy.withheld_from_conductor() if plans else present
    return tuple(part for part in present if part in before or part not in withheld)


def step_provenance(state: RunState, number: int) -> Provenance:
    """What step `number` may hold: its subtask, and the answers that it sees."""
    step = state.record(number).step
    steps, asked = _steps_before(state, number)
    seen = provenance_of(step.access, state.policy.inputs_of_steps(steps, asked), state.policy.given)
    return seen | _subtask_provenance(state, step)


def visible_step(state: RunState, step: Step) -> Step:
    """The next step, with as much of its access list as its worker may see."""
    steps, asked = _steps_before(state, len(state.trace.steps) + 1)
    return state.policy.without_hidden(steps, step, asked)


def _subtask_provenance(state: RunState, step: Step) -> Provenance:
    """What a subtask reused from an earlier run may hold of what its planner was shown.

    A subtask planned now holds nothing that a worker may not see: the planner was not shown it.
    """
    earlier, question = state.resumed, state.question
    if state.policy.is_empty or earlier is None or all(record.step != step for record in earlier.steps):
        return NO_PROVENANCE
    history = bool(question.history) and "history" in earlier.planner_inputs
    # Earlier turns may quote the files.
    files = bool(question.files) and (history or "files" in earlier.planner_inputs)
    return Provenance(history=history, files=files, writers=frozenset({EARLIER} if history else ()))


def _steps_before(state: RunState, number: int) -> tuple[tuple[Step, ...], dict[int, tuple[str, ...]]]:
    """The steps before `number`, and who was asked at those that somebody else did than planned.

    A step that was done under other rules may hold all that could be seen then, so it counts as done by somebody
    unknown as well. The same holds for a step planned by a conductor that was shown more: whoever sees the step is
    shown its subtask.
    """
    records = [record for record in state.trace.steps if record.number < number]
    earlier = state.resumed
    other_rules = earlier is not None and earlier.policy != state.config.pool_policy.policy
    suspect = {*earlier.done()} if earlier is not None and other_rules else set()
    suspect |= {record.number for record in records if _subtask_provenance(state, record.step) != NO_PROVENANCE}
    asked: dict[int, tuple[str, ...]] = {
        record.number: (record.worker, EARLIER) if record.number in suspect else (record.worker,)
        for record in records
        if record.number in suspect or record.worker != record.step.worker
    }
    return tuple(record.step for record in records), asked
