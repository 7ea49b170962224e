"""How a run begins: what its first events say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.run.guarding import planner_inputs

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


def begin(run: Workflow) -> None:
    """Open the stream, and say who is left out from the start."""
    setting, earlier = run.setting, run.resumed
    run.emit(
        ev.RunStarted(
            at=run.now(),
            run=run.id,
            time=setting.wall().isoformat(timespec="milliseconds"),
            question=run.question,
            pool=setting.pool.public(),
            limits=setting.limits,
            mode=setting.mode,
            conductor=_planner(run),
            profile=setting.profile.name,
            recipient=setting.recipient,
            policy=setting.pool_policy.policy,
            resumed=earlier.run if earlier is not None else "",
            planner_inputs=planner_inputs(run),
        )
    )
    if not run.nested:
        for text in setting.remarks:
            run.notice(text)
        for worker, why in setting.absent.items():
            run.notice(f"{worker} is left out: {why.message}")


def _planner(run: Workflow) -> str:
    """Whose plan it is: where no model is at hand to plan, that of the run that is resumed, or of a file."""
    if run.setting.model is None and run.resumed is not None:
        return run.resumed.conductor
    return "plan file" if run.setting.model is None and run.given_plan is not None else run.setting.name
