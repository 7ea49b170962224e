"""Several processes that train one model: what only the first of them does, and what all must agree on. Imports torch.

`accelerate launch` starts them. Workers are asked, and files written, by the first alone: so there is one book of
answers, one limit on what is spent, and one curve, and its figures are those of the whole step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from conductor_cli.train.dependencies import require

with require("torch"):
    from torch import distributed

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_first() -> bool:
    """Whether this process is the first, or the only one. Known before the processes have met."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def run_on_first(mine: Sequence[Item], work: Callable[[list[Item]], list[Result]]) -> list[Result]:
    """What `work` makes of the items of all processes, one result an item; each gets the results of its own.

    What `work` raises, all raise, so that none waits for the others for ever.
    """
    if not _have_met():
        return work(list(mine))
    every: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, list(mine))
    told: list[Any] = [None]
    if is_first():
        told = [_tried(work, [item for items in every for item in items])]
    distributed.broadcast_object_list(told, src=0)
    results, error = told[0]
    if error is not None:
        raise error
    begin = sum(len(items) for items in every[: distributed.get_rank()])
    found: list[Result] = results[begin : begin + len(mine)]
    return found


def _tried(
    work: Callable[[list[Item]], list[Result]], items: list[Item]
) -> tuple[list[Result] | None, BaseException | None]:
    try:
        return work(items), None
    except BaseException as error:  # noqa: BLE001 - it is raised again, here and by those who wait
        return None, error


def any_process(yes: bool) -> bool:  # noqa: FBT001 - the one thing that is asked
    """Whether any process says yes: all have to stop at the same step."""
    if not _have_met():
        return yes
    votes: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(votes, yes)
    return any(votes)


def _have_met() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)
