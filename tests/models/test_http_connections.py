"""Connections without a proxy.

What is kept of them, what a server may send, and the same over uvloop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import chain

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models import http_connections
from conductor_cli.models.chat_body import JsonBody
from conductor_cli.models.http import HttpClient
from conductor_cli.models.http_connections import MAX_SILENT, MAX_UNREAD
from tests.models.kit import answering
from tests.servers import SeenRequest, Wire, authority, loopback


@asynccontextmanager
async def raw_server(*answers: bytes, close: bool = False) -> AsyncIterator[str]:
    """A server whose first connection answers its first request with the first bytes, and so on.

    Its address.
    """
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        line
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    b":0",
                )
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(left.pop(0))
                if close:
                    break
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def body_of(client: HttpClient) -> bytes:
    async with client.open("POST", "", body=JsonBody({"a": 1})) as answer:
        return await answer.body()


def one_answer(answer: bytes) -> bytes:
    """The body of one answer, given as the bytes that a server sends before it closes."""

    async def go() -> bytes:
        async with raw_server(answer, close=True) as url:
            client = HttpClient(url)
            try:
                return await body_of(client)
            finally:
                await client.close()

    return asyncio.run(go())


WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n2 \r\n"
            b"ok\r\n"
            b"0\r\n\r\n"
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\n"
            b"after: "
            b"x\r\n\r\n"
        ),
        b"HTTP/1.0 200 OK\r\n\r\nok",
    ],
    ids=[
        "continue",
        "early hints",
        "bare line feeds",
        "two lengths",
        "extensions and trailers",
        "until it closes",
    ],
)
def test_everything_that_http_allows_is_understood(answer: bytes) -> None:
    assert one_answer(answer) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_SILENT + 1),
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * MAX_SILENT,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n0\r\n"
        + b"x: y\r\n" * MAX_SILENT,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 16\r\n\r\nthis is not gzip",
        b"\x00\x01 this is not HTTP\r\n\r\n",
    ],
    ids=[
        "an endless header",
        "endless headers",
        "endless trailers",
        "another protocol",
        "a part of the body",
        "not what its header says",
        "noise",
    ],
)
def test_what_is_no_whole_answer_is_broken(answer: bytes) -> None:
    with pytest.raises(ModelError) as error:
        one_answer(answer)
    assert error.value.reason == "broken"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_while_the_parser_works_is_no_broken_answer(
    monkeypatch: pytest.MonkeyPatch, interruption: BaseException
) -> None:
    """The parser makes an error of its own of what is raised while it calls us."""

    def interrupt(*_: object) -> None:
        raise interruption

    monkeypatch.setattr(http_connections._Connection, "on_body", interrupt)
    with pytest.raises(type(interruption)):
        one_answer(WHOLE)


@pytest.mark.parametrize(
    ("first", "close"),
    [(WHOLE + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", False), (WHOLE, True)],
    ids=["a second answer", "closed by the server"],
)
def test_a_connection_with_more_or_nothing_behind_its_answer_is_not_used_again(
    first: bytes, close: bool
) -> None:
    async def go() -> list[bytes]:
        async with raw_server(first, WHOLE, close=close) as url:
            client = HttpClient(url)
            bodies = [await body_of(client)]
            await asyncio.sleep(0.05)
            bodies.append(await body_of(client))
            await client.close()
            return bodies

    assert asyncio.run(go()) == [b"ok", b"ok"]


def test_what_nobody_reads_makes_the_server_wait() -> None:
    size = 160 * MAX_UNREAD
    sent = 0

    async def long(request: SeenRequest, wire: Wire) -> None:
        nonlocal sent
        await wire.head(200, "text/plain")
        while sent < size:
            await wire.send(b"x" * MAX_UNREAD)
            sent += MAX_UNREAD

    async def go(url: str) -> tuple[int, int]:
        client = HttpClient(url)
        async with client.open("GET", "") as answer:
            await asyncio.sleep(0.3)
            unread = sent
            whole = len(await answer.body())
        await client.close()
        return unread, whole

    with loopback(long) as server:
        unread, whole = asyncio.run(go(server.url))
    assert unread < size
    assert whole == size


def test_an_address_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> bytes:
        async with raw_server(WHOLE) as url:
            port = int(url.rpartition(":")[2])
            addresses = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", address_port))
                for address_port in (1, port)
            ]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
            client = HttpClient(f"http://localhost:{port}")
            try:
                return await body_of(client)
            finally:
                await client.close()

    assert asyncio.run(go()) == b"ok"


def test_an_address_that_is_silent_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It accepts the connection, and never begins TLS. The attempt at it is ended."""
    signed = authority(tmp_path_factory.mktemp("tls"))

    async def go(url: str, ports: list[int]) -> bytes:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        client = HttpClient(url, ca_file=str(signed.ca))
        try:
            return await body_of(client)
        finally:
            await client.close()

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        loopback(answering({"said": "yes"}), signed.tls) as server,
    ):
        ports = [silent.getsockname()[1], server.port]
        assert asyncio.run(go(server.url, ports)) == b'{"said": "yes"}'
        accepted, _ = silent.accept()
        with accepted:
            while accepted.recv(4096):  # the greeting, then the end
                pass


@pytest.mark.parametrize(("choice", "header"), [("", None), ("httpx", "keep-alive")])
def test_a_variable_chooses_httpx_for_every_server(
    choice: str, header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only httpx says that it keeps connections."""
    monkeypatch.setenv("CONDUCTOR_LLM_HTTP", choice)

    async def go(url: str) -> bytes:
        client = HttpClient(url)
        try:
            return await body_of(client)
        finally:
            await client.close()

    with loopback(answering({"said": "yes"})) as server:
        assert asyncio.run(go(server.url)) == b'{"said": "yes"}'
        assert server.requests[0].headers.get("connection") == header


def test_a_choice_that_is_no_client_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_HTTP", "curl")
    with pytest.raises(ModelError, match="CONDUCTOR_LLM_HTTP is curl") as error:
        one_answer(WHOLE)
    assert error.value.hint == "unset it, or set CONDUCTOR_LLM_HTTP=httpx"


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run on Windows")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_the_loop_of_the_server_is_spoken_to_as_well(
    secure: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import uvloop

    signed = authority(tmp_path_factory.mktemp("tls")) if secure else None
    tls: ssl.SSLContext | None = signed.tls if signed else None

    answer = answering({"said": "yes"})

    async def go(url: str) -> list[bytes]:
        client = HttpClient(url, ca_file=str(signed.ca) if signed else "")
        bodies = [await body_of(client) for _ in range(3)]
        async with client.open("GET", "") as left:
            assert left.status == 200
        await client.close()
        return bodies

    with (
        loopback(answer, tls) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        assert runner.run(go(server.url)) == [b'{"said": "yes"}'] * 3
        assert server.connections == 1


@pytest.mark.parametrize("ends_together", [True, False])
def test_a_connection_is_used_again_once_its_answer_was_read(*, ends_together: bool) -> None:
    """Also where the end of the body comes a moment after all of its content."""
    connections = 0
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
                if not ends_together:
                    await writer.drain()
                    await asyncio.sleep(0.01)
                writer.write(b"0\r\n\r\n")
        writer.close()
        ended.set()

    async def go() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            async with client.open("GET", "/") as answer:
                assert await answer.piece() == b"ab"
                await answer.drain(5)
        await client.close()
        await ended.wait()
        server.close()

    asyncio.run(go())
    assert connections == 1


def test_a_quick_stream_is_read_at_a_pace_and_whole() -> None:
    count = 400

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(count):
            writer.write(b"data: %d\n\n" % number)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async def go() -> list[list[str]]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with client.open("GET", "/") as answer:
            batches = []
            while (batch := await answer.events(count)) is not None:
                batches.append(batch)
        await client.close()
        server.close()
        return batches

    batches = asyncio.run(go())
    assert [*chain.from_iterable(batches)] == [str(number) for number in range(count)]
    assert len(batches) < count
