"""Connections to servers that no proxy stands before.

They speak HTTP/1.1 over asyncio, with the parser of httptools.

httpx reads answers with a parser in Python, which took a server of a hundred streams a third of its
time. httpx over aiohttp takes 1.4 times the processor time of this module for a token at 200 a
second.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from itertools import chain, zip_longest
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import httptools

CONNECT_SECONDS: Final = 10.0
MAX_IDLE: Final = 100  # connections to one server that are kept open for the next request
IDLE_SECONDS: Final = 4.0
"""How long an unused connection is kept: uvicorn and Node close theirs after 5 s, and a request
that is sent at that moment has to be sent again.
"""
# After how long the next address of a host is tried beside the one before it
STAGGER_SECONDS: Final = 0.25
MAX_SILENT: Final = 100 * 1024
"""Bytes in a row that are no body: headers, or what surrounds a chunk. A server could send them
without end.
"""

# Bytes of a body that wait to be read; beyond that the server has to wait
MAX_UNREAD: Final = 64 * 1024
QUICK_READS = 8
QUICK_SECONDS = 0.01
"""After so many reads of a stream, each so soon after the one before, it is read at a pace."""

PACE_SECONDS: Final = 0.02
"""The time between two reads of a stream at a pace: what arrives meanwhile is read, decoded and
shown at once.
"""

_HEADER_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(
    rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?"
)
_SAFE: Final = "/%:@!$&'()*+,;=~?[]"

Origin = tuple[str, str, int]
"""Scheme, host, port."""

_Address = tuple[Any, ...]
"""Family, type, protocol, canonical name and socket address, as `getaddrinfo` has them."""

TakePiece = Callable[[bytes], bool]
"""Takes what has arrived of a body; False where whoever waits for `piece` is to have it."""


class ConnectionFailure(Exception):
    """A request that failed; `kind` is a key of `http.REASONS`."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """Status, headers, and a reader of raw bytes.

    `piece` returns what has arrived, nothing at the end. What arrives while somebody waits for it
    may be given at once to whom `give_at_once` names, which wakes no task; what that raises is
    raised where the piece is waited for. `is_read` says whether all has come and was read, as far
    as that is known. Close it.
    """

    status: int
    headers: Mapping[str, str]
    piece: Callable[[], Awaitable[bytes]]
    close: Callable[[], Awaitable[None]]
    give_at_once: Callable[[TakePiece], None] = lambda _: None
    is_read: Callable[[], bool] = lambda: False


class DirectClient:
    """Sends requests over connections that it keeps. Close it.

    With `addresses`, a host is not looked up: it is at these.
    """

    def __init__(self, tls: ssl.SSLContext, addresses: Sequence[str] = ()) -> None:
        tls.set_alpn_protocols(["http/1.1"])
        self._tls = tls
        self._addresses = addresses
        self._idle: dict[Origin, deque[_Connection]] = {}
        self._all: set[_Connection] = set()

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes],
        ends: float | None = None,
    ) -> OpenAnswer:
        """Return the answer.

        At `ends`, by the clock of the loop, reading the body raises `TimeoutError`.

        Raises `ConnectionFailure`, and `UnicodeError` for a header that is not ASCII.
        """
        scheme, hostname, port, host, target = _parts_of(url)
        lines = [b"%s %s HTTP/1.1" % (method.encode("ascii"), target)]
        for name, value in {"host": host, "accept": "*/*", **headers}.items():
            lines.append(_header_line(name, value))
        connection = await self._connected((scheme, hostname, port))
        try:
            await connection.ask(b"\r\n".join((*lines, b"", b"")), content, ends)
        except BaseException:
            connection.transport.abort()
            raise

        async def close() -> None:
            self._release(connection)

        return OpenAnswer(
            connection.status,
            connection.headers,
            connection.piece,
            close,
            connection.give_at_once,
            connection.is_read,
        )

    async def aclose(self) -> None:
        for connection in tuple(self._all):
            connection.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes the sockets

    def _release(self, connection: _Connection) -> None:
        if not connection.is_reusable:
            connection.transport.abort()
            return
        now = asyncio.get_running_loop().time()
        kept = self._idle.setdefault(connection.origin, deque())
        connection.mark_idle(now)
        kept.append(connection)
        while len(kept) > MAX_IDLE or (kept and now - kept[0].idle_since > IDLE_SECONDS):
            kept.popleft().transport.abort()

    async def _connected(self, origin: Origin) -> _Connection:
        now = asyncio.get_running_loop().time()
        kept = self._idle.get(origin, ())
        while kept:
            connection = kept.pop()
            if now - connection.idle_since <= IDLE_SECONDS and connection.is_alive:
                return connection
            connection.transport.abort()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._connect(origin)
        except TimeoutError as error:
            raise ConnectionFailure("TimeoutException", str(error)) from error
        except OSError as error:
            raise ConnectionFailure("ConnectError", str(error)) from error

    async def _connect(self, origin: Origin) -> _Connection:
        """Connect to the first address of a host that answers; the kinds of addresses take turns.

        Raises `OSError`.
        """
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        # On a thread of Python: where no thread can be started any more, that of uvloop would end
        # the process.
        entries = []
        for name in self._addresses or (host,):
            entries.append(
                await asyncio.to_thread(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
            )
        attempts = []
        for address in _by_turns([*chain.from_iterable(entries)]):
            attempt = partial(
                loop.create_connection,
                lambda: _Connection(origin, self._all),
                *address[4][:2],
                ssl=self._tls if scheme == "https" else None,
                server_hostname=host if scheme == "https" else None,
            )
            attempts.append(attempt)
        return await _first_connected(attempts)


def _by_turns(addresses: Sequence[_Address]) -> list[_Address]:
    """Return addresses so that the kind of the first one and the other kinds take turns."""
    first_family = addresses[0][0]
    of_first_family = [address for address in addresses if address[0] == first_family]
    of_others = [address for address in addresses if address[0] != first_family]
    turns = chain.from_iterable(zip_longest(of_first_family, of_others))
    return [address for address in turns if address is not None]


async def _first_connected(attempts: Sequence[_Attempt]) -> _Connection:
    """Return the connection of the first attempt that succeeds, as RFC 8305 has it.

    The next one begins when the one before it has failed, or takes longer than `STAGGER_SECONDS`.
    Raises the last error where all fail.
    """
    unbegun = deque(attempts)
    running: set[asyncio.Task[_Connected]] = set()
    problem: BaseException = OSError("no address")
    try:
        while unbegun or running:
            if unbegun:
                running.add(asyncio.create_task(unbegun.popleft()()))
            finished, _ = await asyncio.wait(
                running,
                timeout=STAGGER_SECONDS if unbegun else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in finished:
                running.discard(task)
                failure = task.exception()
                if failure is None:
                    return task.result()[1]
                problem = failure
        raise problem
    finally:
        await _give_up(running)


async def _give_up(attempts: set[asyncio.Task[_Connected]]) -> None:
    """End attempts that are not needed, and what some of them have connected meanwhile."""
    for attempt in attempts:
        attempt.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            outcome[0].abort()


class _Phase(Enum):
    """How much of an answer has come."""

    AWAITED = "the status and the headers have not come"
    BODY = "the body has not ended"
    KEPT = "all has come, and the server keeps the connection"
    ENDED = "all has come, and nothing may follow on the connection"


_COMPLETE: Final = (_Phase.KEPT, _Phase.ENDED)


class _Connection(asyncio.Protocol):
    """One connection, with at most one request under way.

    The methods named `on_…` are called by the parser.
    """

    transport: asyncio.Transport

    def __init__(self, origin: Origin, register: set[_Connection]) -> None:
        self.origin = origin
        self.status = 0
        self.headers: dict[str, str] = {}
        self.idle_since = 0.0
        self._register = register
        self._parser: Any = None
        """None while no request is under way."""
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: TakePiece | None = None
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._unread = 0
        self._silent = 0
        self._phase = _Phase.AWAITED
        self._is_sent = False
        self._ends_with_close = False
        self._is_paused = False
        self._is_lost = False
        self._is_stream = False
        self._last_read = 0.0
        self._quick_reads = 0
        self._pace: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def is_reusable(self) -> bool:
        """Whether the request and its answer are complete, and the server keeps the connection."""
        if self._phase is not _Phase.KEPT or not self._is_sent or self._error is not None:
            return False
        return not self._pieces and not self.transport.is_closing()

    @property
    def is_alive(self) -> bool:
        """Whether an idle connection is still open. What can be read from it is its end."""
        if self.transport.is_closing():
            return False
        file = self.transport.get_extra_info("socket").fileno()
        if file < 0:
            return False
        if not hasattr(select, "poll"):  # Windows
            return not select.select([file], [], [], 0)[0]
        watched = select.poll()
        watched.register(file, select.POLLIN)
        return not watched.poll(0)

    def mark_idle(self, now: float) -> None:
        """Let the next request have this connection: nothing is under way on it any more."""
        self.idle_since = now
        self._parser = None
        self._take = None
        if self._end is not None:
            self._end.cancel()

    async def ask(
        self, head: bytes, body: bytes | AsyncIterator[bytes], ends: float | None
    ) -> None:
        """Send a request, and wait for the status and the headers. At `ends` the answer fails.

        Raises `ConnectionFailure`. A server that closes early may still have answered: that alone
        raises nothing.
        """
        self._parser = httptools.HttpResponseParser(self)
        # What servers get wrong and all clients take. Only this request's answer is on the
        # connection.
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self.status = 0
        self.headers = {}
        self._silent = 0
        self._quick_reads = 0
        self._phase = _Phase.AWAITED
        self._is_sent = False
        self._is_stream = False
        if isinstance(body, bytes):
            self.transport.write(head + body)
            self._is_sent = True
        else:
            self.transport.write(head)
            async for piece in body:
                await self._may_write.wait()
                if self._is_lost:
                    break
                self.transport.write(piece)
            else:
                self._is_sent = True
        while self._phase is _Phase.AWAITED:
            await self._next_arrival()
        # One timer for all of the answer: one for each token costs too much.
        self._end = None if ends is None else self._loop.call_at(ends, self._fail, TimeoutError())

    async def piece(self) -> bytes:
        """Return what has arrived of the body; empty at its end. Raises `ConnectionFailure`."""
        while not self._pieces and self._phase not in _COMPLETE:
            await self._next_arrival()
        content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._resume_reading()
        return content

    def is_read(self) -> bool:
        """Return whether the whole body has come and was read."""
        return self._phase in _COMPLETE and not self._pieces

    def give_at_once(self, take: TakePiece) -> None:
        """Have `take` take what arrives of this body while somebody waits for it."""
        self._take = take

    def _is_taken_at_once(self) -> bool:
        """Return whether who takes pieces at once has taken what has arrived."""
        if self._take is None or self._waiter is None or self._waiter.done():
            return False
        if len(self._pieces) != 1 or self._error is not None or self._phase is not _Phase.BODY:
            return False
        try:
            is_taken = self._take(self._pieces[0])
        except Exception as error:  # noqa: BLE001 - it is raised where the piece is waited for
            self._fail(error)
            is_taken = True
        if is_taken:
            self._pieces.clear()
            self._unread = 0
        return is_taken

    def _resume_reading(self) -> None:
        if not (self._is_lost or self._is_paused or self._pace is not None):
            self.transport.resume_reading()

    def _read_at_pace(self) -> None:
        """Leave what a quick stream sends next in the socket for a moment.

        Reading each token by itself costs most.
        """
        now = self._loop.time()
        is_quick = now - self._last_read < QUICK_SECONDS
        self._quick_reads = self._quick_reads + 1 if is_quick else 0
        self._last_read = now
        if (
            self._quick_reads >= QUICK_READS
            and not self._is_paused
            and not self.transport.is_closing()
        ):
            self.transport.pause_reading()

            def end_pace() -> None:
                self._pace = None
                self._last_read = self._loop.time()
                self._resume_reading()

            self._pace = self._loop.call_later(PACE_SECONDS, end_pace)

    def _next_arrival(self) -> asyncio.Future[None]:
        """Return what ends when something has arrived. Raises what has failed."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self.transport.abort()
        self._wake()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is one, and does not inherit
        self.transport = cast("asyncio.Transport", transport)
        self._register.add(self)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._phase in _COMPLETE:
            self.transport.abort()  # nobody asked: it must not be taken for the next answer
            return
        self._silent += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            _raise_signal(error)
            self._fail(ConnectionFailure("ProtocolError", str(error)))
        if self._silent > MAX_SILENT:
            self._fail(ConnectionFailure("ProtocolError", "the headers are too long"))
        is_taken = self._is_taken_at_once()
        if self._unread > MAX_UNREAD and not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()
        elif self._is_stream and self._phase not in _COMPLETE:
            self._read_at_pace()
        if not is_taken:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._register.discard(self)
        self._is_lost = True
        for timer in (self._pace, self._end):
            if timer is not None:
                timer.cancel()
        self._may_write.set()
        if exc is not None:
            self._fail(ConnectionFailure("NetworkError", str(exc)))
        elif self._phase is _Phase.AWAITED:
            self._fail(ConnectionFailure("ProtocolError", "server disconnected: no answer"))
        elif self._ends_with_close:
            self._phase = _Phase.ENDED
            self._wake()
        elif self._phase is _Phase.BODY:
            self._fail(ConnectionFailure("ProtocolError", "server disconnected: incomplete answer"))

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._phase in _COMPLETE:
            self._phase = _Phase.ENDED  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _Phase.AWAITED:  # those that follow the body
            return
        title = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip()
        if title in self.headers:
            text = f"{self.headers[title]}, {text}"
        self.headers[title] = text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # the answer follows
            self.headers = {}
            return
        if self._phase is not _Phase.AWAITED:
            return
        self.status = status
        content_type = self.headers.get("content-type", "").lower()
        self._is_stream = content_type.startswith("text/event-stream")
        is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._ends_with_close = not is_chunked and "content-length" not in self.headers
        self._phase = _Phase.BODY
        self._silent = 0

    def on_body(self, body: bytes) -> None:
        if self._phase not in _COMPLETE:
            self._pieces.append(body)
            self._unread += len(body)
            self._silent = 0

    def on_message_complete(self) -> None:
        if self._phase is _Phase.BODY:
            keeps = self._parser.should_keep_alive()
            self._phase = _Phase.KEPT if keeps else _Phase.ENDED


def _raise_signal(error: Exception) -> None:
    """Raise what a signal raised while the parser called us, which it makes an error of its own.

    Else Ctrl-C or SIGTERM would be taken for a broken answer, and the request sent again.
    """
    interruption = error.__context__
    if isinstance(interruption, KeyboardInterrupt | SystemExit):
        raise interruption


@lru_cache(maxsize=256)  # all but a few are the same in each request to a server
def _header_line(name: str, value: str) -> bytes:
    """Return a header without its line end. Raises as `DirectClient.send`."""
    field = name.encode("ascii")
    content = value.encode("ascii")
    if not _HEADER_NAME.fullmatch(field) or not _HEADER_VALUE.fullmatch(content):
        raise ConnectionFailure("LocalProtocolError", "Illegal header")
    return b"%s: %s" % (field, content)


@lru_cache(maxsize=256)  # a server asks for the same few
def _parts_of(url: str) -> tuple[str, str, int, str, bytes]:
    parts = urlsplit(url)
    usual_port = 443 if parts.scheme == "https" else 80
    name = parts.hostname or ""
    port = parts.port or usual_port
    host = f"[{name}]" if ":" in name else name
    if port != usual_port:
        host = f"{host}:{port}"
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target = f"{target}?{quote(parts.query, safe=_SAFE)}"
    return parts.scheme, name, port, host, target.encode("ascii")


_Connected = tuple[asyncio.Transport, _Connection]
_Attempt = Callable[[], Coroutine[Any, Any, _Connected]]
