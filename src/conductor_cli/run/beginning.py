"""How a run begins: what its first events say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conductor_cli.core import events as ev

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


def begin(run: Workflow) -> None:
    """Open the stream, and say who is left out from the start."""
    setting = run.setting
    name = "plan file" if run.given_plan is not None and setting.model is None else setting.name
    run.emit(
        ev.RunStarted(
            at=run.now(),
            run=run.id,
            time=setting.wall().isoformat(timespec="milliseconds"),
            question=run.question,
            pool=setting.pool.public(),
            limits=setting.limits,
            mode=setting.mode,
            conductor=name,
            profile=setting.profile.name,
            reader=setting.reader,
            policy=setting.guard.policy,
        )
    )
    if not run.nested:
        for text in setting.remarks:
            run.notice(text)
        for worker, why in setting.absent.items():
            run.notice(f"{worker} is left out: {why.message}")
