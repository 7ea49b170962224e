"""Servers of tools as a run has them: real programs and a real HTTP server, and how each of them can misbehave."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.tools import OfferedTool, ToolResult
from conductor_cli.programs import schema_check
from conductor_cli.tools import session as sessions
from conductor_cli.tools.offered_tools import MAX_OFFERED_NAME, MAX_TOOLS
from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox
from tests.schema_bombs import checking, with_ticks

HERE = Path(__file__).parent


def raw(mode: str = "", **more: Any) -> ToolServer:
    """The server without a library."""
    return ToolServer(name="t", command=(sys.executable, str(HERE / "raw_server.py"), mode), **more)


class Desk:
    """A box over some servers, asked by name."""

    def __init__(self, *servers: ToolServer) -> None:
        self.kept: list[bytes] = []
        self.names = [server.name for server in servers]
        self.box = McpToolBox(
            {server.name: server for server in servers}, lambda text: text.replace("secret", "***"), self.keep
        )

    def keep(self, data: bytes) -> str:
        self.kept.append(data)
        return f"{len(self.kept):064}"

    async def tools(self) -> dict[str, OfferedTool]:
        return {tool.tool.name: tool for tool in await self.box.offered(self.names)}

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await self.box.call((await self.tools())[name], arguments)


def with_box(*servers: ToolServer, then: Any) -> Any:
    """Run `then(desk)`, and close the box."""

    async def main() -> Any:
        desk = Desk(*servers)
        try:
            return await then(desk)
        finally:
            await desk.box.close()

    return asyncio.run(main())


async def tools_and_notices(desk: Desk) -> tuple[dict[str, OfferedTool], tuple[str, ...]]:
    return await desk.tools(), desk.box.take_notices()


async def in_turn(desk: Desk, *names: str) -> list[ToolResult]:
    return [await desk.call(name, **({"a": 1, "b": 2} if name == "add" else {})) for name in names]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for any more stays as a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_server_of_the_sdk_is_used_at_its_address() -> None:
    """Its tools are listed with their hints, and give text and images; a reply of 40 MB ends the connection only."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(HERE / "sdk_server.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_open(port)

            async def then(desk: Desk) -> tuple[Any, ...]:
                tools, large = await desk.tools(), await desk.call("flood", megabytes=40)
                return tools, large, *await in_turn(desk, "add", "picture"), await desk.call("fail", why="no")

            server = ToolServer(name="t", url=f"http://127.0.0.1:{port}/mcp")
            tools, large, added, picture, failed = with_box(server, then=then)
        finally:
            process.kill()
    assert (tools["add"].read_only, tools["hello"].read_only) == (True, False)
    assert tools["add"].tool.parameters["required"] == ["a", "b"]
    assert large.text == "the call failed: it sent a message of more than 16 MiB"
    assert added.text == "3"
    [image] = picture.attachments
    assert (picture.text, image.media_type, image.width) == ("[image picture-1.png]", "image/png", 1)
    assert failed.error


def until_open(port: int) -> None:
    """Wait until a server listens."""
    for _ in range(1000):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


def test_settings_win_over_what_the_server_says() -> None:
    server = raw(trust=False, read_only=("die",), allow=("add",), only=("add", "die", "write"))
    tools = with_box(server, then=lambda desk: desk.tools())
    assert {name: (tool.read_only, tool.allowed) for name, tool in tools.items()} == {
        "add": (False, True), "die": (True, False), "write": (False, False),
    }  # fmt: skip


def test_a_tool_that_hangs_takes_its_seconds_and_no_more() -> None:
    result = with_box(raw(seconds=0.3), then=lambda desk: desk.call("hang"))
    assert (result.error, result.text) == (True, "the call failed: no result within 0.3 s")


def test_a_server_that_dies_is_started_again_and_at_last_given_up() -> None:
    async def then(desk: Desk) -> tuple[Any, ...]:
        died, added = await in_turn(desk, "die", "add")
        notices = desk.box.take_notices()
        await in_turn(desk, "die", "die")
        return died, added, notices, await desk.tools(), await desk.tools(), desk.box.take_notices()

    died, added, notices, tools, again, more = with_box(raw(), then=then)
    assert died.text == "the call failed: it has ended: the disk is on fire"
    assert added.text == "3"
    assert notices == ("t has ended and is started again",)
    assert tools == again == {}
    assert more.count("the tools of t cannot be used: it ended 3 times") == 1


def test_100_megabytes_end_the_server_and_not_us() -> None:
    async def then(desk: Desk) -> tuple[Any, ...]:
        small, large = await desk.call("flood", megabytes=2), await desk.call("flood", megabytes=100)
        return small, large, await desk.call("add", a=1, b=2)

    small, large, added = with_box(raw(), then=then)
    assert len(small.text) == 2 << 20
    assert large.text == "the call failed: it sent a message of more than 16 MiB"
    assert added.text == "3"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (raw("garbage"), "it wrote 1,001 lines that are no message"),
        (raw("hang"), "no answer within 0.5 s"),
        (ToolServer(name="t", command=("sh", "-c", "echo no such directory >&2; exit 2")), "it has ended: no such"),
        (ToolServer(name="t", command=("sh", "-c", "exit 3")), "it has ended with exit code 3"),
        (ToolServer(name="t", command=("sh", "-c", "kill -9 $$")), "it has ended by signal 9"),
        (ToolServer(name="t", command=("/nowhere/at/all",)), "/nowhere/at/all cannot be started: No such file"),
        (ToolServer(name="t", url="http://127.0.0.1:9/mcp"), "failed"),
    ],
)
def test_a_server_that_does_not_start_has_no_tools(
    server: ToolServer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(sessions, "START", 0.5 if server.command[-1:] == ("hang",) else 30)

    async def then(desk: Desk) -> tuple[Any, ...]:
        return await desk.tools(), desk.box.take_notices(), await desk.tools(), desk.box.take_notices()

    tools, (notice,), again, more = with_box(server, then=then)
    assert (tools, again, more) == ({}, {}, ())
    assert notice.startswith("the tools of t cannot be used: ")
    assert said in notice


def test_10_000_tools_are_100_and_a_notice() -> None:
    tools, notices = with_box(raw("many"), then=tools_and_notices)
    assert len(tools) == MAX_TOOLS
    assert notices == ("t lists 1,000 tools or more; the first 100 are used, or those in tools.t.only",)


def test_names_fit_every_provider() -> None:
    async def then(desk: Desk) -> tuple[Any, ...]:
        tools = await desk.tools()
        return tools, await desk.box.call(next(t for t in tools.values() if t.own_name == "a.b"), {})

    tools, result = with_box(raw("names"), then=then)
    assert all(len(name) <= MAX_OFFERED_NAME and name.replace("_", "").replace("-", "").isalnum() for name in tools)
    assert {tool.own_name for tool in tools.values()} >= {"a b", "a.b", "\x1b[31mred", "x" * 200}
    assert result.text == "a.b"


def test_two_servers_with_the_same_tool_are_kept_apart() -> None:
    other = ToolServer(name="other", command=raw().command, only=("add",))
    tools = with_box(raw(only=("add",)), other, then=lambda desk: desk.tools())
    assert {name: tool.server for name, tool in tools.items()} == {"add": "t", "other_add": "other"}


def test_a_list_that_changes_is_read_again() -> None:
    async def then(desk: Desk) -> tuple[Any, ...]:
        before = await desk.tools()
        await desk.call("grow")
        return before, await desk.call("grown")

    before, result = with_box(raw(), then=then)
    assert "grown" not in before
    assert result.text == "grown"


def test_what_a_server_asks_for_is_refused_politely() -> None:
    lines = with_box(raw(), then=lambda desk: desk.call("ask")).text.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["sampling/createMessage", "elicitation/create", "roots/list"]
    assert all("not supported" in line.lower() for line in lines), lines


def test_arguments_that_break_the_schema_call_nothing() -> None:
    async def then(desk: Desk) -> tuple[Any, ...]:
        return await desk.call("add", a=1), await desk.call("add", a=1, b="2")

    missing, wrong = with_box(raw(), then=then)
    assert "'b' is a required property" in missing.text
    assert "b: '2' is not of type 'integer'" in wrong.text


def test_the_schemas_of_a_server_cannot_hold_us_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "SECONDS", 1.0)

    async def then(desk: Desk) -> tuple[Any, ...]:
        asked = [await with_ticks(desk.call(name)) for name in ("bomb", "promise")]
        return *asked, await desk.call("add", a=1, b=2)

    (bomb, ticks), (promise, more), added = with_box(raw("bombs"), then=then)
    stopped = "the check takes too much time or memory"
    assert bomb.text == f"not called: the arguments cannot be checked against the tool's schema: {stopped}"
    assert promise.text == f"the call failed: its result cannot be checked against its schema: {stopped}"
    assert bomb.error
    assert promise.error
    assert ticks > 0
    assert more > 0
    assert added.text == "3"
    assert checking() == []


def test_a_stray_line_does_no_harm() -> None:
    assert with_box(raw(), then=lambda desk: desk.call("babble")).text == "said"


def test_secrets_do_not_leave_through_results() -> None:
    result = with_box(raw(variables={"secret_name": "1"}), then=lambda desk: desk.call("environment"))
    assert "***_name" in result.text
    assert "secret" not in result.text


def test_a_server_that_ignores_its_end_is_killed_with_its_children(tmp_path: Path) -> None:
    diary = tmp_path / "diary"

    async def then(desk: Desk) -> None:
        await desk.tools()

    with_box(raw("stubborn", variables={"DIARY": str(diary)}), then=then)
    pids = [int(line.split()[1]) for line in diary.read_text().splitlines()]
    assert len(pids) == 2
    assert all(map(gone, pids))


def test_nothing_is_left_when_conductor_is_killed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    script = (
        "import asyncio, sys\nfrom tests.tools.test_tool_servers import Desk, raw\n"
        "async def main():\n"
        "    desk = Desk(raw('stubborn', variables={'DIARY': sys.argv[1]}))\n"
        "    await desk.tools()\n    print('ready', flush=True)\n    await desk.call('hang')\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(diary)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    pids = [int(line.split()[1]) for line in diary.read_text().splitlines()]
    due = time.monotonic() + 5
    while not all(map(gone, pids)):
        assert time.monotonic() < due
        time.sleep(0.02)
    assert len(pids) == 2


def test_a_cancelled_call_leaves_the_server_usable() -> None:
    async def then(desk: Desk) -> ToolResult:
        await desk.tools()
        call = asyncio.create_task(desk.call("add", a=1, b=2))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await desk.call("add", a=2, b=2)

    assert with_box(raw(), then=then).text == "4"


def test_a_server_has_no_more_of_the_environment_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "x")

    seen = set(with_box(raw(variables={"MINE": "1"}), then=lambda desk: desk.call("environment")).text.split())
    assert seen <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "MINE"}
    assert "PATH" in seen
    assert os.environ["SOME_API_KEY"] == "x"
