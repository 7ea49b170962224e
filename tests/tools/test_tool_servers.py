"""Servers of tools as a run has them.

Real programs and a real HTTP server, and how each of them can misbehave.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from conductor_cli.core.chat import ToolCall
from conductor_cli.core.input_requests import InputReply, InputRequest
from conductor_cli.core.tools import AskPerson, OfferedTool, ToolResult, parse_arguments
from conductor_cli.programs import schema_check
from conductor_cli.programs.network_environment import CERTIFICATES
from conductor_cli.tools import session as sessions
from conductor_cli.tools.offered_tools import MAX_OFFERED_NAME, MAX_TOOLS
from conductor_cli.tools.servers import ToolServer
from conductor_cli.tools.session import McpToolBox
from tests.schema_bombs import checking, with_ticks
from tests.servers import SeenRequest, Wire, loopback

HERE = Path(__file__).parent
T = TypeVar("T")


def raw(mode: str = "", **options: Any) -> ToolServer:
    """The server without a library."""
    return ToolServer(
        name="t", command=(sys.executable, str(HERE / "raw_server.py"), mode), **options
    )


class Desk:
    """A box over some servers, asked by name; its loop runs while something is asked."""

    def __init__(self, *servers: ToolServer) -> None:
        self.kept: list[bytes] = []
        self.names = [server.name for server in servers]
        self.box = McpToolBox(
            {server.name: server for server in servers},
            lambda text: text.replace("secret", "***"),
            self.keep,
        )
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.box.close())
        self._runner.close()

    def keep(self, content: bytes) -> str:
        self.kept.append(content)
        return f"{len(self.kept):064}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def tools(self) -> dict[str, OfferedTool]:
        return {tool.tool.name: tool for tool in self.run(self.box.offered(self.names))}

    def call(self, name: str, **arguments: Any) -> ToolResult:
        return self.run(self.calling(name, **arguments))

    async def calling(
        self, name: str, ask: AskPerson | None = None, **arguments: Any
    ) -> ToolResult:
        tools = {tool.tool.name: tool for tool in await self.box.offered(self.names)}
        return await self.box.call(tools[name], arguments, ask)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for any more stays as a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@contextmanager
def sdk_server(*files: Path) -> Iterator[str]:
    """The server with the SDK, once it listens; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = (sys.executable, str(HERE / "sdk_server.py"), str(port), *map(str, files))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(1000):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def test_a_server_of_the_sdk_is_used_at_its_address() -> None:
    """Its tools are listed with their hints, and give text and images.

    A reply of 40 MB ends the connection only.
    """
    with sdk_server() as url, Desk(ToolServer(name="t", url=url)) as desk:
        tools = desk.tools()
        large = desk.call("flood", megabytes=40)
        added = desk.call("add", a=1, b=2)
        picture = desk.call("picture")
        failed = desk.call("fail", why="no")
    assert (tools["add"].read_only, tools["hello"].read_only) == (True, False)
    assert tools["add"].tool.parameters["required"] == ["a", "b"]
    assert large.text == "the call failed: it sent a message of more than 16 MiB"
    assert added.text == "3"
    [image] = picture.attachments
    assert (picture.text, image.media_type, image.width) == (
        "[image picture-1.png]",
        "image/png",
        1,
    )
    assert failed.error


def test_settings_win_over_what_the_server_says() -> None:
    with Desk(
        raw(trust=False, read_only=("die",), allow=("add",), only=("add", "die", "write"))
    ) as desk:
        tools = desk.tools()
    assert {name: (tool.read_only, tool.allowed) for name, tool in tools.items()} == {
        "add": (False, True),
        "die": (True, False),
        "write": (False, False),
    }


def test_a_tool_that_hangs_takes_its_seconds_and_no_more() -> None:
    with Desk(raw(seconds=0.3)) as desk:
        result = desk.call("hang")
    assert (result.error, result.text) == (True, "the call failed: no result within 0.3 s")


def test_a_server_that_dies_is_started_again_and_at_last_given_up() -> None:
    with Desk(raw()) as desk:
        assert desk.call("die").text == "the call failed: it has ended: the disk is on fire"
        assert desk.call("add", a=1, b=2).text == "3"
        assert desk.box.take_notices() == ("t has ended and is started again",)
        for _ in range(2):
            desk.call("die")
        assert desk.tools() == desk.tools() == {}
        assert desk.box.take_notices().count("the tools of t cannot be used: it ended 3 times") == 1


def test_100_megabytes_end_the_server_and_not_us() -> None:
    with Desk(raw()) as desk:
        assert len(desk.call("flood", megabytes=2).text) == 2 << 20
        assert (
            desk.call("flood", megabytes=100).text
            == "the call failed: it sent a message of more than 16 MiB"
        )
        assert desk.call("add", a=1, b=2).text == "3"


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (raw("garbage"), "it wrote 1,001 lines that are no message"),
        (raw("hang"), "no answer within 0.5 s"),
        (raw("old"), "Unsupported protocol version from the server: 1999-01-01"),
        (raw("bare"), "its answer does not follow the protocol: tools.12.inputSchema: Field"),
        (
            ToolServer(name="t", command=("sh", "-c", "echo no such directory >&2; exit 2")),
            "it has ended: no such",
        ),
        (ToolServer(name="t", command=("sh", "-c", "exit 3")), "it has ended with exit code 3"),
        (ToolServer(name="t", command=("sh", "-c", "kill -9 $$")), "it has ended by signal 9"),
        (
            ToolServer(name="t", command=("/nowhere/at/all",)),
            "/nowhere/at/all cannot be started: No such file",
        ),
        (ToolServer(name="t", url="http://127.0.0.1:9/mcp"), "failed"),
    ],
)
def test_a_server_that_fails_has_no_tools(
    server: ToolServer, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "START", 0.5 if server.command[-1:] == ("hang",) else 30)
    with Desk(server) as desk:
        tools = desk.tools()
        (notice,) = desk.box.take_notices()
        assert (tools, desk.tools(), desk.box.take_notices()) == ({}, {}, ())
    assert notice.startswith("the tools of t cannot be used: ")
    assert message in notice


def test_10_000_tools_are_100_and_a_notice() -> None:
    with Desk(raw("many")) as desk:
        assert len(desk.tools()) == MAX_TOOLS
        notices = desk.box.take_notices()
    assert notices == (
        "t lists 1,000 tools or more; the first 100 are used, or those in tools.t.only",
    )


@pytest.mark.parametrize(
    ("mode", "tools", "notice"),
    [
        ("pages", 3, "t lists 3 tools on the first 100 pages, and the rest is not read"),
        ("none", 0, "t lists no tool that may be used: conductor tools test t"),
    ],
)
def test_a_list_without_an_end_and_one_without_a_tool_are_told(
    mode: str, tools: int, notice: str
) -> None:
    with Desk(raw(mode)) as desk:
        assert len(desk.tools()) == tools
        assert desk.box.take_notices() == (notice,)


def test_a_page_that_only_leads_to_itself_is_the_last() -> None:
    """Servers write an empty cursor for none, or always the same one."""
    with Desk(raw("again")) as desk:
        assert list(desk.tools()) == ["only"]
        assert desk.box.take_notices() == ()


def test_half_a_letter_in_an_answer_loses_nothing_else() -> None:
    with Desk(raw("answers")) as desk:
        assert desk.call("half").text == "half \ufffd, whole \U0001f600"


@pytest.mark.parametrize("as_events", [False, True])
def test_half_a_letter_from_an_address_loses_nothing_else(as_events: bool) -> None:
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "half", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "half \ud83d, whole \U0001f600"}]},
    }

    async def script(request: SeenRequest, wire: Wire) -> None:
        asked = json.loads(request.body or b"{}")
        result = results.get(asked.get("method"))
        if "id" not in asked:
            await wire.json({}, status=202)
        elif result is None:
            error = {"code": -32601, "message": "no such method"}
            await wire.json({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        elif as_events:
            await wire.head()
            await wire.frames({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        else:
            await wire.json({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    with loopback(script) as server, Desk(ToolServer(name="t", url=server.url)) as desk:
        assert desk.call("half").text == "half \ufffd, whole \U0001f600"


@pytest.mark.parametrize("is_explained", [False, True])
@pytest.mark.parametrize("lost_before", ["call", "list"])
def test_a_server_that_has_forgotten_the_session_gets_a_new_one(
    lost_before: str, is_explained: bool
) -> None:
    """As one that was started again; the protocol wants that, and nothing is lost by it."""
    sessions_known: list[str] = []
    calls: list[str] = []

    async def script(request: SeenRequest, wire: Wire) -> None:
        asked = json.loads(request.body or b"{}")
        session = request.headers.get("mcp-session-id", "")
        method = asked.get("method", "")
        if method == "initialize":
            sessions_known.append(f"s{len(sessions_known)}")
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "x", "version": "1"},
            }
            said = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            headers = {"mcp-session-id": sessions_known[-1]}
            await wire.json(said, 200, **headers)
        elif session and session != sessions_known[-1]:
            error = {"code": -32001, "message": "Session not found"}
            body = {"jsonrpc": "2.0", "id": None, "error": error} if is_explained else {}
            await wire.json(body, status=404)
        elif "id" not in asked:
            await wire.json({}, status=202)
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("go", "no")]
            result = {"tools": tools}
            await wire.json({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        elif method == "tools/call":
            calls.append(asked["params"]["name"])
            is_error = calls[-1] == "no"
            result = {"content": [{"type": "text", "text": "gone"}], "isError": is_error}
            await wire.json({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        else:
            error = {"code": -32601, "message": "no such method"}
            await wire.json({"jsonrpc": "2.0", "id": asked.get("id"), "error": error}, status=404)

    with loopback(script) as server, Desk(ToolServer(name="t", url=server.url)) as desk:
        assert desk.call("go").text == "gone"
        if lost_before == "list":
            assert desk.call("no").error  # so the list is read again
        sessions_known.append("another")
        assert desk.call("go").text == "gone"
        assert desk.call("go").text == "gone"
        assert desk.box.take_notices() == ("t has ended and is started again",)
    assert calls.count("go") == 3


@pytest.mark.parametrize("name", ["deep", "parts"])
def test_an_answer_that_cannot_be_read_fails_at_once(name: str) -> None:
    """Not when its time is over, which is a minute: the server has answered."""
    with Desk(raw("answers")) as desk:
        result = desk.call(name)
    assert result.error
    assert "its answer is no JSON-RPC message, or has more than 250,000 values" in result.text


def test_names_of_tools_fit_every_provider() -> None:
    with Desk(raw("names")) as desk:
        tools = desk.tools()
        result = desk.run(desk.box.call(next(t for t in tools.values() if t.own_name == "a.b"), {}))
    assert all(
        len(name) <= MAX_OFFERED_NAME and name.replace("_", "").replace("-", "").isalnum()
        for name in tools
    )
    assert {tool.own_name for tool in tools.values()} >= {"a b", "a.b", "\x1b[31mred", "x" * 200}
    assert result.text == "a.b"


def test_two_servers_with_the_same_tool_are_kept_apart() -> None:
    other = ToolServer(name="other", command=raw().command, only=("add",))
    with Desk(raw(only=("add",)), other) as desk:
        tools = desk.tools()
    assert {name: tool.server for name, tool in tools.items()} == {"add": "t", "other_add": "other"}


def test_a_list_that_changes_is_read_again() -> None:
    with Desk(raw()) as desk:
        assert "grown" not in desk.tools()
        desk.call("grow")
        assert desk.call("grown").text == "grown"


def test_what_a_server_asks_for_is_refused_politely() -> None:
    with Desk(raw()) as desk:
        sampling, _, roots = desk.call("ask").text.splitlines()
        notices = desk.box.take_notices()
    assert sampling.startswith("sampling/createMessage:")
    assert "not supported" in sampling.lower()
    assert roots.startswith("roots/list:")
    assert "not supported" in roots.lower()
    [notice] = notices
    assert notice.startswith(
        "t asked for input, which was declined because nobody is at a terminal"
    )
    assert notice.endswith("it wrote: ?")


def test_a_person_is_asked_what_a_server_wants_to_know_and_takes_their_time() -> None:
    requests: list[InputRequest] = []

    async def ask(request: InputRequest) -> InputReply:
        requests.append(request)
        await asyncio.sleep(0.6)  # longer than the call may take
        return InputReply(action="accept", values={"email": "ann@example.com", "guests": 3})

    with Desk(raw(seconds=0.5)) as desk:
        form = desk.run(desk.calling("form", ask=ask))
        visit = desk.run(desk.calling("visit", ask=ask))
        late = desk.call("hang")
    assert json.loads(form.text) == {
        "action": "accept",
        "content": {"email": "ann@example.com", "guests": 3},
    }
    assert json.loads(visit.text) == {"action": "accept"}
    assert [field.type for field in requests[0].fields] == ["text", "integer", "choice", "boolean"]
    assert (requests[1].message, requests[1].url) == ("Pay", "https://pay.example/room?id=7")
    assert late.text == "the call failed: no result within 0.5 s"


def test_arguments_that_break_the_schema_call_nothing() -> None:
    with Desk(raw()) as desk:
        assert '"b" is a required property' in desk.call("add", a=1).text
        assert 'b: "2" is not of type "integer"' in desk.call("add", a=1, b="2").text


def test_half_a_letter_in_arguments_leaves_the_server_running() -> None:
    call = ToolCall(id="1", name="write", arguments=r'{"text": "half \ud83d, whole \ud83d\ude00"}')
    arguments = parse_arguments(call)
    assert arguments == {"text": "half \ufffd, whole \U0001f600"}
    with Desk(raw()) as desk:
        assert desk.call("write", **arguments).text == "written"
        assert desk.box.take_notices() == ()


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_cannot_write_is_told_to_the_worker(number: str) -> None:
    """It would have been sent as null."""
    with pytest.raises(ValueError, match="the arguments are not JSON"):
        parse_arguments(ToolCall(id="1", name="add", arguments=f'{{"a": 1, "b": {number}}}'))


def test_the_schemas_of_a_server_cannot_hold_us_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 1.0)
    with Desk(raw("bombs")) as desk:
        (bomb, ticks), (promise, promise_ticks) = (
            desk.run(with_ticks(desk.calling(name))) for name in ("bomb", "promise")
        )
        added = desk.call("add", a=1, b=2)
    stopped = "the check takes too much time or memory"
    assert (
        bomb.text
        == f"not called: the arguments cannot be checked against the tool's schema: {stopped}"
    )
    assert (
        promise.text
        == f"the call failed: its result cannot be checked against its schema: {stopped}"
    )
    assert bomb.error
    assert promise.error
    assert ticks > 0
    assert promise_ticks > 0
    assert added.text == "3"
    assert checking() == []


def test_a_stray_line_does_no_harm() -> None:
    with Desk(raw()) as desk:
        assert desk.call("babble").text == "said"


def test_secrets_do_not_leave_through_results() -> None:
    with Desk(raw(variables={"secret_name": "1"})) as desk:
        result = desk.call("environment")
    assert "***_name" in result.text
    assert "secret" not in result.text


def test_keys_in_a_long_result_are_looked_for_on_a_thread() -> None:
    """A result may have 16 MiB, for which every stream of a server would stand still."""
    threads: list[threading.Thread] = []

    def redact(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    with Desk(raw()) as desk:
        desk.box = McpToolBox({"t": raw()}, redact)
        assert desk.call("flood", megabytes=1).text == "x" * (1 << 20)
        assert desk.call("add", a=1, b=2).text == "3"
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


def test_a_server_that_ignores_its_end_is_killed_with_its_children(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with Desk(raw("stubborn", variables={"DIARY": str(diary)})) as desk:
        desk.tools()
    pids = [int(line.split()[1]) for line in diary.read_text().splitlines()]
    assert len(pids) == 2
    assert all(map(gone, pids))


def test_nothing_is_left_when_conductor_is_killed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    script = (
        "import sys\nfrom tests.tools.test_tool_servers import Desk, raw\n"
        "desk = Desk(raw('stubborn', variables={'DIARY': sys.argv[1]}))\n"
        "desk.tools()\nprint('ready', flush=True)\ndesk.call('hang')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(diary)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    pids = [int(line.split()[1]) for line in diary.read_text().splitlines()]
    due = time.monotonic() + 60
    while not all(map(gone, pids)):
        assert time.monotonic() < due
        time.sleep(0.02)
    assert len(pids) == 2


def test_a_cancelled_call_leaves_the_server_usable() -> None:
    async def cancel(desk: Desk) -> None:
        call = asyncio.create_task(desk.calling("add", a=1, b=2))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    with Desk(raw()) as desk:
        desk.tools()
        desk.run(cancel(desk))
        assert desk.call("add", a=2, b=2).text == "4"


def test_a_proxy_that_a_server_was_not_given_is_named_where_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cr3t@proxy.example:3128")
    command = ("sh", "-c", "echo no network >&2; exit 1")
    message = (
        "no network; it was not given HTTPS_PROXY, for the password in it: --set env=HTTPS_PROXY"
    )
    for variables, is_told in (({}, True), ({"HTTPS_PROXY": "http://a:b@c"}, False)):
        with Desk(ToolServer(name="t", command=command, variables=variables)) as desk:
            desk.tools()
            notices = " ".join(desk.box.take_notices())
        assert "no network" in notices
        assert (message in notices) == is_told
        assert "s3cr3t" not in notices


def test_a_server_has_no_more_of_the_environment_than_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "x")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/own.pem")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cr3t@proxy.example:3128")
    with Desk(raw(variables={"MINE": "1"})) as desk:
        names = set(desk.call("environment").text.split())
    usual = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "MINE"}
    assert names <= {*usual, *CERTIFICATES, "http_proxy"}
    assert {"PATH", "SSL_CERT_FILE", "http_proxy"} <= names
    assert os.environ["SOME_API_KEY"] == "x"
