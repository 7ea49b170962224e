"""What a run needs to know of tools.

Which are offered to a worker, how they are called and bounded, what they give.

`conductor_cli.tools` has the tools of MCP servers; tests and other callers can give a run another
tool box.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from conductor_cli.core.chat import Attachment, Tool, ToolCall, ToolCallDelta
from conductor_cli.core.errors import ModelError
from conductor_cli.core.input_requests import InputReply, InputRequest
from conductor_cli.core.json_rpc import without_half_letters

MAX_ABOUT: Final = 120  # Characters of what the planner reads of a server of tools


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as it is offered to a worker.

    `tool.name` is unique among all that are offered and fits every provider's rules; `own_name` is
    what `server` calls it. `read_only` says that a call changes nothing, `allowed` that it needs no
    approval.
    """

    tool: Tool
    server: str
    own_name: str
    read_only: bool = False
    allowed: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.server}.{self.own_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call of a tool gave.

    `error` says that it failed; `text` then says why, for the worker to read.
    """

    text: str
    error: bool = False
    attachments: tuple[Attachment, ...] = ()


AskPerson = Callable[[InputRequest], Awaitable[InputReply]]
"""Asks a person what a server wants to know, and waits for the reply."""


class ToolBox(Protocol):
    """The tools of one run.

    Its servers start when they are first needed, and the steps of the run share them.
    """

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        """Return the tools of these servers as they are now.

        A server that cannot be used has none, and a notice says so.
        """
        ...

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        """Call a tool. `ask` is for what its server wants to know of a person meanwhile.

        Whatever goes wrong is a result with `error`; only a cancellation is raised.
        """
        ...

    def take_notices(self) -> tuple[str, ...]: ...

    async def close(self) -> None:
        """End every server, within about a second."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """The tools that runs may use. `open` makes the tool box of one run; nothing is started by it.

    `about` says what the tools of a server are for, by its name.
    """

    open: Callable[[], ToolBox]
    about: Mapping[str, str] = field(default_factory=dict)


def tool_selector(server: str) -> str:
    """Return the name by which policies know a server of tools."""
    return f"tool:{server}"


# Characters of the arguments of one reply; a model that writes more is broken
MAX_ARGUMENT_BYTES: Final = 1 << 20
CALLS_PER_REPLY: Final = 64
MAX_SAME_CALLS: Final = 3
"""Calls of one tool with the same arguments in one step: the next one gives nothing new."""
# So many calls of a step may be wrong: unknown tools, arguments that are no JSON, repetitions
FAULTS: Final = 5
CALLS_PER_STEP: Final = 50
CALLS_PER_RUN: Final = 100  # Calls of a run without a limit of its own (`limits.tool_calls`)


class CallCollector:
    """Joins the pieces of the calls of one reply.

    Raises `ModelError` where they exceed every bound.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, list[ToolCallDelta]] = {}
        self._length = 0

    def add(self, delta: ToolCallDelta) -> None:
        self._length += len(delta.arguments)
        self._pieces.setdefault(delta.index, []).append(delta)
        if self._length > MAX_ARGUMENT_BYTES or len(self._pieces) > CALLS_PER_REPLY:
            raise ModelError(
                "broken",
                "the reply asks for more tool calls, or for larger ones, than any reply may",
            )

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls in order, each with an id that no other call of this reply has."""
        calls: dict[str, ToolCall] = {}
        for index, pieces in sorted(self._pieces.items()):
            name = ""
            call_id = ""
            for piece in pieces:
                name = name or piece.name
                call_id = call_id or piece.id
            arguments = "".join(piece.arguments for piece in pieces)
            if not call_id or call_id in calls:
                call_id = f"call_{index}"
            calls[call_id] = ToolCall(id=call_id, name=name, arguments=arguments)
        return tuple(calls.values())


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; without any, an empty object.

    Half a letter, which no program could be sent, is the mark of one that cannot be read. Raises
    `ValueError` that says what is wrong.
    """
    if not call.arguments.strip():
        return {}
    written = call.arguments.encode("utf-8", "replace")
    try:
        value = json.loads(without_half_letters(written))
        json.dumps(value, allow_nan=False)  # `NaN` and 1e999 can be read but not sent
    except ValueError as error:
        raise ValueError(f"the arguments are not JSON: {error}") from None
    except RecursionError:
        raise ValueError("the arguments are nested too deep") from None
    if not isinstance(value, dict):
        # A wrong value, not a wrong type
        raise ValueError("the arguments are not a JSON object")  # noqa: TRY004
    return value


class CallBounds:
    """Counts the calls of one step, and says when it has had enough of them."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        self._calls = 0
        self._faults = 0

    @property
    def exhausted(self) -> bool:
        return self._faults >= FAULTS or self._calls >= CALLS_PER_STEP

    def add_fault(self) -> None:
        self._faults += 1

    def admit(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Count a call that is about to be made.

        Returns why it must not be made, empty where it may.
        """
        if self._calls >= CALLS_PER_STEP:
            return (
                f"not called: a step may call tools {CALLS_PER_STEP} times. Answer with what "
                "you have."
            )
        key = name + json.dumps(arguments, sort_keys=True)
        made = self._made.get(key, 0) + 1
        self._made[key] = made
        if made > MAX_SAME_CALLS:
            self.add_fault()
            return (
                f"not called: it was called {MAX_SAME_CALLS} times with the same "
                "arguments. Use the results that you have."
            )
        self._calls += 1
        return ""
