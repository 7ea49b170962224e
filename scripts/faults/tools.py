"""Tools over HTTP.

The faults of `wire` between the adapter for MCP servers and a double, at each of its requests.

What holds: no exception comes out, a tool's text is whole or an error is said in a few lines,
nothing takes longer than its timeouts, and a fault that is over leaves the next run nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from itertools import product
from typing import Any, Final, NamedTuple

from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire_faults import FAULTS, Fault, FaultServer
from tests.servers import SeenRequest

TEXT: Final = "The sum of 17 and 25 is 42, and that is all that there is to say about it."
REQUESTS: Final = {"initialize": 1, "tools/list": 3, "tools/call": 4}
"""The requests that are struck, and the number of each; the second is a notification."""

SPANS: Final = {"once": 0, "always": 1 << 30}  # how many requests more a fault strikes
LANES: Final = 10  # cases at the same time: most of their time is timeouts
CALL_SECONDS: Final = 2.0
# How long a run may take in all: three starts of a server, each with its timeout, and a call
MAX_SECONDS: Final = 60.0


class Case(NamedTuple):
    """What strikes, which request, and how often."""

    fault: Fault
    request: str
    span: str

    def __str__(self) -> str:
        return f"{self.fault.name}/{self.request}/{self.span}"


def run(tries: Tries) -> None:
    """Every fault at every request.

    Events that are lost or exchanged are left out: there is one in each answer.
    """
    faults = [fault for fault in FAULTS if fault.promise != "as sent"]
    cases = [
        case for parts in product(faults, REQUESTS, SPANS) if tries.wants(str(case := Case(*parts)))
    ]
    asyncio.run(tries.in_lanes(cases, LANES, _try))


async def _try(case: Case) -> Outcome:
    server = FaultServer(_answer, {})
    await server.open()
    try:
        first = REQUESTS[case.request]
        server.set(case.fault.strike, first=first, last=first + SPANS[case.span])
        problems = await _use(server, must_be_right=case.fault.promise == "right")
        server.set(None)
        problems += [f"afterwards: {problem}" for problem in await _use(server, must_be_right=True)]
    finally:
        server.close()
    return Outcome(problem="; ".join(problems), weight=2)


async def _use(server: FaultServer, *, must_be_right: bool) -> list[str]:
    """One run that calls the tool. Returns what was wrong about it."""
    tool_server = ToolServer(name="t", url=f"{server.url}/mcp", seconds=CALL_SECONDS)
    box = McpToolBox({"t": tool_server}, redact=str)
    began = time.monotonic()
    text = ""
    is_right = False
    try:
        async with asyncio.timeout(MAX_SECONDS):
            offered = await box.offered(["t"])
            for tool in offered:
                result = await box.call(tool, {"a": 17, "b": 25})
                is_right = not result.error and result.text == TEXT
                text += "" if is_right else result.text
                if not is_right and not result.error:
                    return [f"the tool said {result.text!r} instead of {TEXT!r}"]
    except TimeoutError:
        return [f"it did not end within {time.monotonic() - began:.0f} s"]
    finally:
        text += "\n".join(box.take_notices())
        await box.close()
    if must_be_right and not is_right:
        return [f"it should have answered: {text}"]
    return (
        []
        if is_right or 1 <= len(text.strip().splitlines()) <= 3
        else [f"not explained: {text!r:.300}"]
    )


async def _answer(request: SeenRequest) -> list[bytes]:
    """The double: it answers one request in one event, and a notification in none."""
    message = request.json
    reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": _result(message)}
    return [f"event: message\ndata: {json.dumps(reply)}\n\n".encode()] if "id" in message else []


def _result(message: dict[str, Any]) -> dict[str, Any]:
    """What a server of one tool says."""
    if message.get("method") == "initialize":
        about = {"name": "double", "version": "1"}
        version = message["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if message.get("method") == "tools/list":
        numbers = {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        }
        return {"tools": [{"name": "add", "description": "Adds.", "inputSchema": numbers}]}
    return {"content": [{"type": "text", "text": TEXT}], "isError": False}
