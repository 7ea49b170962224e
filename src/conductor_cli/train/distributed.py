"""Several processes that train one model, started by `accelerate launch`.

Only the first process asks workers and writes files. So there is one response cache, one budget and one metrics file,
and the figures are those of the whole step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_first() -> bool:
    """Whether this process is the first or the only one. Known before the processes have connected."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def run_on_first(mine: Sequence[Item], work: Callable[[list[Item]], list[Result]]) -> list[Result]:
    """Have the first process do `work` on the items of all processes; each gets the results for its own items.

    `work` returns one result for each item. An exception in it is raised in every process: none may be left waiting.
    """
    from torch import distributed

    if not _is_connected():
        return work(list(mine))
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, list(mine))
    outcome: list[Any] = [None]
    if is_first():
        try:
            outcome = [(work([item for items in gathered for item in items]), None)]
        except BaseException as raised:  # noqa: BLE001 - it is raised again below, in every process
            outcome = [(None, raised)]
    distributed.broadcast_object_list(outcome, src=0)
    results, error = outcome[0]
    if error is not None:
        raise error
    begin = sum(len(items) for items in gathered[: distributed.get_rank()])
    found: list[Result] = results[begin : begin + len(mine)]
    return found


def any_process(yes: bool) -> bool:  # noqa: FBT001 - the vote itself
    """Whether any process votes yes. All of them have to stop at the same step."""
    if not _is_connected():
        return yes
    from torch import distributed

    votes: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(votes, yes)
    return any(votes)


def _is_connected() -> bool:
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)
