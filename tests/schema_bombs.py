"""JSON Schemas and values whose check would take for ever, and who is left of those that try."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import psutil

T = TypeVar("T")

BOMB: Final[dict[str, Any]] = {
    "type": "object",
    "allOf": [{"$ref": "#/$defs/a0"}],
    "$defs": {
        **{
            f"a{number}": {"allOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 2}
            for number in range(28)
        },
        "a28": {"type": "object"},
    },
}
"""Two kilobytes that ask for 2 ** 28 checks of any value."""


def checking(pid: int | None = None) -> list[psutil.Process]:
    """The processes that check something for this process, or for another one."""
    processes = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # it has just ended
            if any("schema_process" in word for word in child.cmdline()):
                processes.append(child)
    return processes


async def with_ticks(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The result of `work`, and how often another task ran while a process checked for it."""
    task = asyncio.ensure_future(work)
    ticks = 0
    while not task.done():
        ticks += bool(checking())
        # Each look reads all processes of the machine: after the first one that found something,
        # looks without a pause would only take the processor from the check.
        await asyncio.sleep(0.02 if ticks else 0)
    return task.result(), ticks
