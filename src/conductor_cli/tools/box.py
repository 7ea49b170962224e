"""The servers of one run: each is started when its tools are first wanted, started again if it dies, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from conductor_cli.core.toolbox import OfferedTool, ToolResult
from conductor_cli.programs.schema_check import CheckStopped, find_fault
from conductor_cli.tools.offers import offer_tools
from conductor_cli.tools.results import Keep
from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import ServerError, ServerSession

STARTS: Final = 3
"""How often a server is started in one run."""


class McpToolBox:
    """A `core.toolbox.ToolBox` over MCP servers.

    `redact` removes secrets from what tools give back. `keep` keeps the bytes of images; without it there are none.
    """

    def __init__(
        self, servers: Mapping[str, ToolServer], redact: Callable[[str], str], keep: Keep | None = None
    ) -> None:
        self._servers = servers
        self._keep = keep
        self._redact = redact
        self._sessions: dict[str, ServerSession] = {}
        self._starts: dict[str, int] = {}
        self._unusable: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._notices: list[str] = []

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        """The tools of these servers, under names that every provider takes."""
        known = [self._servers[name] for name in servers if name in self._servers]
        lists = await asyncio.gather(*(self._tools(server.name) for server in known))
        return offer_tools(zip(known, lists, strict=True))

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool, if its server can be used and the arguments follow its schema."""
        try:
            fault = await find_fault(tool.tool.parameters, arguments)
        except CheckStopped as stopped:
            text = f"not called: the arguments cannot be checked against the tool's schema: {stopped}"
            return ToolResult(text=text, error=True)
        if fault:
            return ToolResult(text=f"not called: the arguments do not follow the schema: {fault}", error=True)
        try:
            session = await self._session(tool.server)
        except ServerError as error:
            return ToolResult(text=f"the call failed: {tool.server} cannot be used: {error}", error=True)
        result = await session.call(tool.own_name, arguments)
        return ToolResult(text=self._redact(result.text), error=result.error, attachments=result.attachments)

    def problem_with(self, server: str) -> str:
        """Why a server could not be used; empty where it could."""
        return self._unusable.get(server, "")

    def take_notices(self) -> tuple[str, ...]:
        """What the user has not been told yet."""
        told, self._notices = tuple(self._notices), []
        for session in self._sessions.values():
            told += tuple(session.notices)
            session.notices.clear()
        return told

    async def close(self) -> None:
        """End all servers at once."""
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)

    async def _tools(self, name: str) -> tuple[Any, ...]:
        try:
            return await (await self._session(name)).tools()
        except ServerError as error:
            if name not in self._unusable:
                self._notices.append(f"the tools of {name} cannot be used: {error}")
            self._unusable[name] = str(error)
            return ()

    async def _session(self, name: str) -> ServerSession:
        """The open session of a server. Raises `ServerError`."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            session = self._sessions.get(name)
            if session is not None and session.is_open:
                return session
            if name in self._unusable:
                raise ServerError(self._unusable[name])
            if session is not None:
                await session.close()
            self._starts[name] = self._starts.get(name, 0) + 1
            if self._starts[name] > STARTS:
                raise ServerError(f"it ended {STARTS} times")
            if session is not None:
                self._notices.append(f"{name} has ended and is started again")
            session = self._sessions[name] = ServerSession(self._servers[name], self._keep)
            await session.start()
            return session
