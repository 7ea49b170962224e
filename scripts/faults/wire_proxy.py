"""A proxy between a worker's adapter and its double that does to an answer what networks and servers do."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from scripts.faults.wire_double import Request, read_request

NO_LINGER: Final = struct.pack("ii", 1, 0)
"""The socket option that makes closing a reset."""

EVENTS: Final = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


class Exchange:
    """One request that the proxy has read, and what can be done to its answer."""

    def __init__(self, port: int, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """`port` is the double's."""
        self.request = request
        self.is_kept = True
        """Whether the connection may be used for another request."""
        self._port = port
        self._reader = reader
        self._writer = writer

    async def reply(self) -> list[bytes]:
        """The events with which the double answers; the call is billed then."""
        return split_events(await self.body())

    async def body(self) -> bytes:
        """The body with which the double answers; the call is billed then."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        path, body = self.request.path, self.request.body
        head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nhost: double\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        data = await reader.read()
        writer.close()
        return data.partition(b"\r\n\r\n")[2]

    async def send(self, data: bytes | str) -> None:
        """Send bytes as they are."""
        self._writer.write(data.encode() if isinstance(data, str) else data)
        await self._writer.drain()

    async def chunks(self, *events: bytes) -> None:
        """Send events, one HTTP chunk each."""
        await self.send(b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events))

    async def stream(self, *events: bytes, end: bool = True) -> None:
        """Send a whole answer in HTTP chunks; without `end` it is not over then."""
        await self.send(f"{EVENTS}transfer-encoding: chunked\r\n\r\n")
        await self.chunks(*events)
        if end:
            await self.send(b"0\r\n\r\n")

    async def status(self, status: int, body: bytes | str, kind: str = "application/json", **headers: str) -> None:
        """Send an answer of another status."""
        data = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} Made Up", f"content-type: {kind}", f"content-length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + data)

    async def gone(self) -> None:
        """Wait until the other side closes."""
        with suppress(ConnectionError):
            await self._reader.read(1)
        self.is_kept = False

    def reset(self) -> None:
        """Break the connection off with a reset."""
        self.is_kept = False
        reset(self._writer)

    def close(self) -> None:
        """End the connection in an orderly way."""
        self.is_kept = False


Strike = Callable[[Exchange], Awaitable[None]]
"""What a fault does to an exchange."""


class Proxy:
    """Listens for one worker. `fault` is applied to its calls from the `first` to the `last` (both count from 1)."""

    def __init__(self, double: int) -> None:
        """`double` is the port of the double."""
        self.port = 0
        self.calls = 0
        self.fault: Strike | None = None
        self.first = self.last = 1
        self._double = double
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()

    def set(self, fault: Strike | None, *, first: int = 1, last: int = 1) -> None:
        """Have `fault` strike from now on; calls are counted anew."""
        self.fault, self.first, self.last, self.calls = fault, first, last, 0

    @contextmanager
    def _known(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open.add(writer)
        try:
            yield
        finally:
            self._open.discard(writer)
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._known(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            is_kept = True
            while is_kept:
                exchange = Exchange(self._double, await read_request(reader), reader, writer)
                await self._answer(exchange)
                is_kept = exchange.is_kept

    async def _answer(self, exchange: Exchange) -> None:
        is_call = bool(exchange.request.body)
        self.calls += is_call
        if not is_call:
            await exchange.status(200, await exchange.body())
        elif self.fault is not None and self.first <= self.calls <= self.last:
            await self.fault(exchange)
        else:
            await exchange.stream(*await exchange.reply())


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection off with a reset; what is not sent yet is lost."""
    raw: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


def split_events(body: bytes) -> list[bytes]:
    """The events of a stream, each with the empty line after it."""
    return [event + b"\n\n" for event in body.split(b"\n\n") if event]


def piece_at(events: list[bytes], number: int) -> int:
    """The index of the event that has the piece `number` of the text, from 0. Without a text the connection ends."""
    texts = [at for at, event in enumerate(events) if _has_text(event)]
    if not texts:
        raise ConnectionAbortedError  # as an answer to a notification of MCP
    return texts[min(number, len(texts) - 1)]


def _has_text(event: bytes) -> bool:
    data = event.partition(b"data: ")[2]
    if data.startswith(b"[DONE]"):
        return False
    frame = json.loads(data)
    choices, kind = frame.get("choices"), frame.get("type")
    has_delta = bool(choices and choices[0]["delta"].get("content"))
    is_text = kind in ("content_block_delta", "response.output_text.delta")
    return has_delta or is_text or any(name in frame for name in ("candidates", "result"))
