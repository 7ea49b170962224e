"""Drives a `conductor serve` step by step, so that it does the same work each time.

The upstream, which plans and works, and the client are in this process: an upstream writes the
next token when every client has the one before. How much the server reads at once then depends on
nothing but its own code, however slow it is under valgrind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from loopback import Asked, choice, ending, serve, spelled

STREAMS: Final = 8  # at once
ROUND_SECONDS: Final = 0.016  # between two tokens of a stream at least, as from a real provider
ANSWER: Final = "It is Paris.\n"
MARKER: Final = b'"content":"<'


class Upstream:
    """A planner that answers at once, and a worker whose tokens are let go one by one."""

    def __init__(self) -> None:
        self.url = ""
        self._round = asyncio.Condition()
        self._released = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Upstream]:
        """Listen on 127.0.0.1, at `url`."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            listener.close()

    async def release(self, rounds: int) -> None:
        """Let every stream write its tokens up to this number."""
        async with self._round:
            self._released = rounds
            self._round.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The server keeps its connections, so they are open when this process has had enough.
        with suppress(asyncio.CancelledError):
            await serve(self._reply, reader, writer)

    async def _reply(self, request: Asked) -> AsyncIterator[bytes]:
        count = tokens_asked_for(request)
        if request["model"] == "planner":
            yield spelled("m", choices=[choice({"content": "A"}, None)])
        elif count == 0:
            yield spelled("m", choices=[choice({"content": ANSWER}, None)])
        for number in range(count):
            async with self._round:
                await self._round.wait_for(partial(self._is_released, number))
            yield spelled("m", choices=[choice({"content": f"<{number}> "}, None)])
        for event in ending("m", max(count, 1)):
            yield event

    def _is_released(self, number: int) -> bool:
        return number < self._released


def tokens_asked_for(request: Asked) -> int:
    """How many tokens the last message asks a worker for: 0 for a whole answer at once."""
    if request["model"] == "planner":
        return 0
    after = str(request["messages"]).rpartition("Say ")[2]
    number = after.partition(" ")[0]
    return int(number) if number.isdigit() else 0


async def ask(address: str, first: int, count: int) -> None:
    """Ask so many questions in mode mini, one after the other, over one connection."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for number in range(first, first + count):
        _send(writer, address, f"Question {number}: what is the capital of France?")
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise SystemExit(f"the server refused a question: {head.decode()}")
        await _read_body(reader, head.lower())
    writer.close()


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    if b"transfer-encoding: chunked" in head:  # the answer took long, as under valgrind
        await reader.readuntil(b"\r\n0\r\n\r\n")
        return
    (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(length.partition(b":")[2]))


async def stream(
    address: str, upstream: Upstream, rounds: int, marks: dict[int, Callable[[], None]]
) -> None:
    """Read `STREAMS` streams at once, all of them token by token.

    After so many rounds the function in `marks` is called.
    """
    await upstream.release(0)
    clients = [await Client.begun(address, number, rounds) for number in range(STREAMS)]
    loop = asyncio.get_running_loop()
    for number in range(rounds):
        began = loop.time()
        await upstream.release(number + 1)
        for client in clients:
            await client.read_token(number)
        if number + 1 in marks:
            marks[number + 1]()
        await asyncio.sleep(max(0.0, began + ROUND_SECONDS - loop.time()))
    for client in clients:
        await client.read_end()


class Client:
    """One stream that is read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unread = b""

    @classmethod
    async def begun(cls, address: str, number: int, tokens: int) -> Client:
        """Open a connection and ask for so many tokens."""
        host, port = address.split(":")
        client = cls(*await asyncio.open_connection(host, int(port)))
        _send(client._writer, address, f"Say {tokens} words about {number}.", streams=True)
        return client

    async def read_token(self, number: int) -> None:
        """Read until the token of this number has come."""
        wanted = MARKER + b"%d>" % number
        while wanted not in self._unread:
            received = await self._reader.read(1 << 16)
            if not received:
                raise SystemExit(f"a stream ended before token {number}: {self._unread!r}")
            self._unread += received
        self._unread = self._unread.partition(wanted)[2]

    async def read_end(self) -> None:
        """Read until the stream says that it is done."""
        while b"[DONE]" not in self._unread:
            received = await self._reader.read(1 << 16)
            if not received:
                raise SystemExit("a stream ended without its last event")
            self._unread += received
        self._writer.close()


def _send(
    writer: asyncio.StreamWriter, address: str, question: str, *, streams: bool = False
) -> None:
    message = {"role": "user", "content": question}
    fields = {"model": "conductor-mini", "stream": streams, "messages": [message]}
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
