"""Tools over HTTP, pages of the web, and the tools over a directory.

The faults of `wire` between the adapter for MCP servers and a double, at each of its requests, and
between the built-in tool that reads a page and its site. The tools over a directory get arguments
that a hostile or confused worker may write.

What holds: no exception comes out, a tool's text is whole or an error is said in a few lines,
nothing takes longer than its timeouts, and a fault that is over leaves the next run nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from itertools import chain, product, starmap
from typing import Any, Final, NamedTuple

from conductor_cli.app.web_tools import SearchProvider, WebToolBox
from conductor_cli.core.file_tools import OFFERED
from conductor_cli.core.question import File
from conductor_cli.core.web_access import WebRules
from conductor_cli.run.directory_tools import DirectoryToolBox
from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire_faults import FAULTS, Exchange, Fault, FaultServer
from tests.servers import SeenRequest, Wire

TEXT: Final = "The sum of 17 and 25 is 42, and that is all that there is to say about it."
SITE_REQUESTS: Final = {"robots.txt": 1, "page": 2}
"""The same for a page of the web."""

REQUESTS: Final = {"initialize": 1, "tools/list": 3, "tools/call": 4}
"""The requests that are struck, and the number of each; the second is a notification."""

WHOLE_BY_HTTP: Final = ("broken-json", "length-too-short")
"""Faults after which a page is short and nobody can notice: they change what the site says."""

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


class Words(NamedTuple):
    """A call of a tool over a directory, by a name."""

    name: str
    tool: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"directory/{self.tool}/{self.name}"


def run(tries: Tries) -> None:
    """Every fault at every request, and every call of the tools over a directory.

    Events that are lost or exchanged are left out: there is one in each answer.
    """
    faults = [fault for fault in FAULTS if fault.promise != "as sent"]
    site_faults = [fault for fault in faults if fault.name not in WHOLE_BY_HTTP]
    parts = chain(product(faults, REQUESTS, SPANS), product(site_faults, SITE_REQUESTS, SPANS))
    cases = [case for case in starmap(Case, parts) if tries.wants(str(case))]
    asyncio.run(tries.in_lanes(cases, LANES, _try))
    calls = [words for words in directory_calls() if tries.wants(str(words))]
    asyncio.run(tries.in_lanes(calls, 1, _try_directory))


async def _try(case: Case) -> Outcome:
    if case.request in SITE_REQUESTS:
        return await _try_site(case)
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


# Pages of the web


class SiteServer(FaultServer):
    """A site: each request is answered, and may be struck, although it has no body."""

    async def _reply(self, request: SeenRequest, wire: Wire) -> None:
        await self.answer(Exchange(request, wire, _page))


async def _page(_: SeenRequest) -> list[bytes]:
    """The page and the robots.txt, in the form that faults know: one event."""
    return [f"data: {json.dumps({'result': TEXT})}\n\n".encode()]


async def _try_site(case: Case) -> Outcome:
    server = SiteServer(_page)
    await server.open()
    try:
        first = SITE_REQUESTS[case.request]
        server.set(case.fault.strike, first=first, last=first + SPANS[case.span])
        problem = await _read_page(server, must_be_right=False)
        server.set(None)
        if not problem:
            problem = await _read_page(server, must_be_right=True)
    finally:
        server.close()
    return Outcome(problem=problem, weight=2)


async def _read_page(server: SiteServer, *, must_be_right: bool) -> str:
    """Read the page. Returns what was wrong about it.

    What a site says is what its page is, also where that is no sense; but it is never a part.
    """
    rules = WebRules(private_hosts=(f"127.0.0.1:{server.port}",))
    box = WebToolBox(SearchProvider(name="searxng", url=server.url), rules)
    _, fetch = await box.offered(["web"])
    try:
        async with asyncio.timeout(MAX_SECONDS):
            result = await box.call(fetch, {"url": f"{server.url}/page"})
    except TimeoutError:
        return f"it did not end within {MAX_SECONDS:g} s"
    is_right = TEXT in result.text and not result.error
    if must_be_right and not is_right:
        return f"afterwards: {result.text[:200]}"
    if result.error:
        lines = result.text.strip().splitlines()
        return "" if 1 <= len(lines) <= 3 else f"not explained: {result.text!r:.300}"
    is_part = TEXT[:10] in result.text and not is_right
    return f"a part of the page: {result.text!r:.200}" if is_part else ""


# The tools over a directory

DIRECTORY_SECONDS: Final = 15.0  # A search has 10 s
MAX_TEXT: Final = 100_000  # Characters of one answer


def directory_calls() -> list[Words]:
    """Return calls of each tool over a directory, as a hostile or confused worker makes them."""
    values: dict[str, Any] = {
        "nothing": None,
        "a number": 10**30,
        "a negative number": -1,
        "a list": [["a"]],
        "an object": {"a": {}},
        "a long text": "a" * 1_000_000,
        "above": "../../../etc/passwd",
        "absolute": "/etc/passwd",
        "unseen": "\x1b]0;x\x07\u202e\0",
        "surrogate": "\ud800",
        "stars": "**/" * 200 + "*a" * 200,
        "backtracking": "(a|a|aa)+$",
        "nested": "((((((a*)*)*)*)*)*)*b",
        "counted": "(?:a{1,1000}){1,1000}b",
        "deep": "(" * 5000 + ")" * 5000,
        "broken": "[a-",
        "everything": ".*",
    }
    calls = []
    for offered in OFFERED:
        properties = offered.tool.parameters["properties"]
        for name, value in values.items():
            arguments = dict.fromkeys(properties, value)
            calls.append(Words(f"{name} for all", offered.own_name, arguments))
            for key in properties:
                usual = {"pattern": "a", "path": "a.txt", "query": "a"}
                usual_arguments = {field: usual.get(field, 1) for field in properties}
                arguments = {**usual_arguments, key: value}
                calls.append(Words(f"{name} for {key}", offered.own_name, arguments))
    return calls


async def _try_directory(words: Words) -> Outcome:
    """Call a tool over a directory; its answer is bounded, and what is outside is in none."""
    texts = {"a.txt": "a" * 30_000 + "\nb\n" * 5000, "below/b.py": "x = 1\n", "c\u202e": "\x1b[2J"}
    files = [File(name=name, text=text, directory=".") for name, text in texts.items()]
    box = DirectoryToolBox(files, None)
    tools = {tool.own_name: tool for tool in await box.offered([])}
    began = time.monotonic()
    result = await box.call(tools[words.tool], words.arguments)
    took = time.monotonic() - began
    problems = [
        f"it took {took:.0f} s" if took > DIRECTORY_SECONDS else "",
        f"{len(result.text):,} characters" if len(result.text) > MAX_TEXT else "",
        "an empty answer" if not result.text.strip() else "",
        "a file outside was read" if "root:x" in result.text else "",
    ]
    return Outcome(problem=", ".join(filter(None, problems)))
