"""Who may call which tool in one run: what the settings allow, and what the user says when asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from conductor_cli.core.toolbox import OfferedTool

ToolVerdict = Literal["once", "always", "no"]
"""What the user says of a call: yes, yes for every call of this tool in this run, no."""

REFUSED: Final = "not called: the user does not allow it. Do not ask for it again; answer without it."
NOBODY: Final = "not called: it may change something, and nobody can be asked to allow it. Answer without it."


class ToolApprovals:
    """One for each run that a user starts. `asks`: somebody can be asked."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._always: set[str] = set()
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[ToolVerdict] | None = None

    async def objection(self, tool: OfferedTool, ask: Callable[[], Awaitable[ToolVerdict]]) -> str:
        """Why a call must not be made, for the worker to read; empty where it may. `ask` asks the user."""
        key = _identity(tool)
        if tool.allowed or tool.read_only or key in self._always:
            return ""
        if not self._asks:
            return NOBODY
        async with self._turn:  # one question at a time
            verdict = "always" if key in self._always else await ask()
        if verdict == "always":
            self._always.add(key)
        return REFUSED if verdict == "no" else ""

    def verdict(self) -> asyncio.Future[ToolVerdict]:
        """What the user will say of the call that is offered next."""
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def decide(self, verdict: ToolVerdict) -> None:
        """The user has answered. Where nothing is asked, this does nothing."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(verdict)


def _identity(tool: OfferedTool) -> str:
    """What the user allows: a tool whose description or parameters change later is another one."""
    what = [tool.server, tool.own_name, tool.tool.description, tool.tool.parameters]
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
