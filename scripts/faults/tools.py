"""Tools over HTTP: the faults of `wire` between the adapter for MCP servers and a double, at each of its requests.

What holds: no exception comes out, a tool's text is whole or an error is said in a few lines, nothing takes longer than
its timeouts, and a fault that is over leaves the next run nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any, Final

from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire_double import read_request
from scripts.faults.wire_faults import FAULTS, Fault
from scripts.faults.wire_proxy import Proxy

TEXT: Final = "The sum of 17 and 25 is 42, and that is all that there is to say about it."
REQUESTS: Final = {"initialize": 1, "tools/list": 3, "tools/call": 4}
"""The requests that are struck, and the number of each; the second is a notification."""

SPANS: Final = {"once": 0, "always": 1 << 30}
"""How many requests more a fault strikes."""

Case = tuple[Fault, str, str]
"""What strikes, which request, and how often."""

LANES: Final = 10
"""Cases at the same time: most of their time is timeouts."""

CALL_SECONDS: Final = 2.0
MOST_SECONDS: Final = 60.0
"""How long a run may take in all: three starts of a server, each with its timeout, and a call."""


def run(tries: Tries) -> None:
    """Every fault at every request. Events that are lost or exchanged are left out: there is one in each answer."""
    faults = [fault for fault in FAULTS if fault.promise != "as sent"]
    asyncio.run(
        _run_cases(tries, iter([case for case in product(faults, REQUESTS, SPANS) if tries.wants(_name(case))]))
    )


async def _run_cases(tries: Tries, queue: Iterator[Case]) -> None:
    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(_run_lane(tries, queue))


async def _run_lane(tries: Tries, queue: Iterator[Case]) -> None:
    for case in queue:
        if tries.is_over:
            return
        began = time.monotonic()
        try:
            outcome = await _try(*case)
        except Exception as error:  # noqa: BLE001 - a fault in what is tried or in the campaign: somebody has to look
            outcome = Outcome(problem=f"{type(error).__name__}: {error}")
        tries.add(_name(case), outcome, time.monotonic() - began)


def _name(case: Case) -> str:
    fault, request, span = case
    return f"{fault.name}/{request}/{span}"


async def _try(fault: Fault, request: str, span: str) -> Outcome:
    double = await asyncio.start_server(_answer, "127.0.0.1", 0)
    proxy = Proxy(double.sockets[0].getsockname()[1])
    await proxy.open()
    try:
        first = REQUESTS[request]
        proxy.set(fault.strike, first=first, last=first + SPANS[span])
        problems = await _use(proxy, must_be_right=fault.promise == "right")
        proxy.set(None)
        problems += [f"afterwards: {each}" for each in await _use(proxy, must_be_right=True)]
    finally:
        proxy.close()
        double.close()
    return Outcome(problem="; ".join(problems), weight=2)


async def _use(proxy: Proxy, *, must_be_right: bool) -> list[str]:
    """One run that calls the tool. Returns what was wrong about it."""
    url = f"http://127.0.0.1:{proxy.port}/mcp"
    box = McpToolBox({"t": ToolServer(name="t", url=url, seconds=CALL_SECONDS)}, redact=str)
    began, said, is_right = time.monotonic(), "", False
    try:
        async with asyncio.timeout(MOST_SECONDS):
            offered = await box.offered(["t"])
            for tool in offered:
                result = await box.call(tool, {"a": 17, "b": 25})
                is_right = not result.error and result.text == TEXT
                said += "" if is_right else result.text
                if not is_right and not result.error:
                    return [f"the tool said {result.text!r} instead of {TEXT!r}"]
    except TimeoutError:
        return [f"it did not end within {time.monotonic() - began:.0f} s"]
    finally:
        said += "\n".join(box.take_notices())
        await box.close()
    if must_be_right and not is_right:
        return [f"it should have answered: {said}"]
    return [] if is_right or 1 <= len(said.strip().splitlines()) <= 3 else [f"not explained: {said!r:.300}"]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The double: it answers one request in one event."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        request = await read_request(reader)
        asked: dict[str, Any] = json.loads(request.body) if request.body else {}
        reply = {"jsonrpc": "2.0", "id": asked.get("id"), "result": _result(asked)}
        event = f"event: message\ndata: {json.dumps(reply)}\n\n".encode() if "id" in asked else b""
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(event)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + event)
        await writer.drain()
    writer.close()


def _result(asked: dict[str, Any]) -> dict[str, Any]:
    """What a server of one tool says."""
    if asked.get("method") == "initialize":
        about = {"name": "double", "version": "1"}
        version = asked["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if asked.get("method") == "tools/list":
        numbers = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
        return {"tools": [{"name": "add", "description": "Adds.", "inputSchema": numbers}]}
    return {"content": [{"type": "text", "text": TEXT}], "isError": False}
