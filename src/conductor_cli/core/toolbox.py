"""What a run needs to know of tools: which are offered to a worker, how one is called, and what it gives back.

`conductor_cli.tools` has the tools of MCP servers; tests and other callers can give a run another tool box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from conductor_cli.core.chat import Attachment, Tool
from conductor_cli.core.sanitize import one_line

LONGEST_ABOUT: Final = 120
"""Characters of what the planner reads of a server of tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as it is offered to a worker.

    `tool.name` is unique among all that are offered and fits every provider's rules; `own_name` is what `server` calls
    it. `read_only` says that a call changes nothing, `allowed` that it needs no approval.
    """

    tool: Tool
    server: str
    own_name: str
    read_only: bool = False
    allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call of a tool gave. `error` says that it failed; `text` then says why, for the worker to read."""

    text: str
    error: bool = False
    attachments: tuple[Attachment, ...] = ()


class ToolBox(Protocol):
    """The tools of one run. Its servers start when they are first needed, and the steps of the run share them."""

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        """The tools of these servers as they are now. A server that cannot be used has none, and a notice says so."""
        ...

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Whatever goes wrong is a result with `error`; only a cancellation is raised."""
        ...

    def take_notices(self) -> tuple[str, ...]:
        """What the user should know and has not been told yet."""
        ...

    async def close(self) -> None:
        """End every server, within about a second."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """The tools that runs may use. `open` makes the tool box of one run; nothing is started by it.

    `about` says what the tools of a server are for, by its name. `asks` says that somebody can be asked about a call
    that needs approval; otherwise such a call is refused.
    """

    open: Callable[[], ToolBox]
    about: Mapping[str, str] = field(default_factory=dict)
    asks: bool = False


def tool_party(server: str) -> str:
    """The name by which policies know a server of tools."""
    return f"tool:{server}"


def describe_tools(name: str, servers: Sequence[str], about: Mapping[str, str]) -> str:
    """What the planner reads of the tools of a worker, in one line; `name` is how it knows the worker."""
    told = "; ".join(one_line(about.get(server, "") or server)[:LONGEST_ABOUT] for server in servers)
    return f"{name} can use tools: {told}."
