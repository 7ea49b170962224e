"""The one place that speaks HTTP.

httpx is imported here and nowhere else, inside functions, where a proxy is needed.

Every caller gets: the proxies and the certificates of the environment (see `system.network`), a CA
file of its own, no redirects (a key must not travel), bounded bodies, and each failure as a
`ModelError` whose text holds no key. There is no read timeout: a run limits the time to the first
token, between tokens and in total.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import json
import os
import sys
import threading
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from conductor_cli.core.errors import (
    ModelError,
    ModelErrorReason,
    without_numbers,
)
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.addresses import http_url, is_loopback, with_path
from conductor_cli.models.api_errors import clean_excerpt, error_in_body, error_of_response
from conductor_cli.models.chat_body import JsonBody
from conductor_cli.models.http_connections import (
    CONNECT_SECONDS,
    ConnectionFailure,
    DirectClient,
    OpenAnswer,
)
from conductor_cli.system.network import (
    async_transport,
    has_tls_context,
    proxy_for,
    tls_context,
    tls_context_for,
    transport,
)

if TYPE_CHECKING:
    import httpx

MAX_EVENT: Final = 4 * 1024 * 1024
"""The most bytes that one line, or the data of one event, may have: some servers repeat the whole
reply in the last one, with the thinking that is to be sent back.
"""


_DATA: Final = b"data: "
_WITH_DATA: Final = frozenset({b"data", b"error"})
"""The fields of an event whose values are read."""

_BETWEEN_EVENTS: Final = "\n\ndata: "


class SseParser:
    """Reads `text/event-stream` from pieces cut anywhere, with bounded memory.

    Lines end in LF, CRLF or CR, `data` lines are joined by LF, a comment begins with a colon, an
    event ends at an empty line, an event that the stream breaks off is dropped, and so is a byte
    order mark before the first line. The fields `id` and `retry` are ignored, and so is the name of
    an event, which no server says anything in that it does not say in the data, but for one: the
    data of an event named `error` are returned as an error object. So is what stands in a field
    `error`, where llama-server had its errors before October 2025, and GPUStack's servers have
    them.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        # A line that has begun; appending is cheap however small the pieces are
        self._pending = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._begun = False
        self._is_error = False
        # Whether the last piece ended with a CR, which the LF of the next one belongs to
        self._ended_with_cr = False

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that `piece` completes.

        A line or event beyond the limit is a `ModelError`.
        """
        if b"\r" in piece or self._ended_with_cr:
            piece = self._with_line_feeds(piece)
        one_line_events = self._one_line_events(piece)
        if one_line_events is not None:  # the usual case
            return one_line_events
        events: list[str] = []
        begin, end, rest = piece.rpartition(b"\n")
        if end:
            if self._pending:
                begin = bytes(self._pending) + begin
                self._pending.clear()
            for line in begin.split(b"\n"):
                if len(line) > self._limit:
                    raise self._too_long
                if not self._begun:
                    self._begun = True
                    line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
                name, _, value = line.partition(b":")
                if name in _WITH_DATA:
                    self._is_error = self._is_error or name == b"error"
                    value = value.removeprefix(b" ")
                    self._size += len(value) + 1
                    if self._size > self._limit:
                        raise self._too_long
                    self._data.append(value.decode("utf-8", "replace"))
                elif not line:  # an empty line ends an event
                    if self._data:
                        event_text = "\n".join(self._data)
                        events.append(
                            _as_error_object(event_text) if self._is_error else event_text
                        )
                        self._data = []
                        self._size = 0
                    self._is_error = False
                elif name == b"event":
                    self._is_error = value.strip() == b"error"
        if rest:
            self._pending += rest
            if len(self._pending) > self._limit:
                raise self._too_long
        return events

    def only_event(self, piece: bytes) -> str | None:
        """Return the data of the event of one line that `piece` is; None where it is anything else.

        The parser is left as it was: after such an event it reads on as before it.
        """
        if not piece.startswith(_DATA) or not piece.endswith(b"\n\n"):
            return None
        if not self._begun or self._pending or self._data or self._is_error or self._ended_with_cr:
            return None
        content = piece[len(_DATA) : -2]
        if b"\n" in content or b"\r" in content or len(piece) > self._limit:
            return None
        return content.decode("utf-8", "replace")

    def _one_line_events(self, piece: bytes) -> list[str] | None:
        """Return the data of the events that `piece` is; None unless each of them has one line.

        There is no CR in it.
        """
        if not piece.startswith(_DATA) or not piece.endswith(b"\n\n"):
            return None
        if len(piece) > self._limit:
            return None
        if not self._begun or self._pending or self._data or self._is_error or self._ended_with_cr:
            return None
        events = piece[len(_DATA) : -2].decode("utf-8", "replace").split(_BETWEEN_EVENTS)
        has_more_lines = piece.count(b"\n") != 2 * len(events)
        return None if has_more_lines else events

    def _with_line_feeds(self, piece: bytes) -> bytes:
        """Return a piece whose lines all end in LF."""
        if self._ended_with_cr:
            piece = piece.removeprefix(b"\n")
        self._ended_with_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    @property
    def _too_long(self) -> ModelError:
        return ModelError("broken", f"the server sent a line of more than {self._limit} bytes")


def _as_error_object(event_data: str) -> str:
    """Return the data of an event named `error` in the form that readers take for an error."""
    try:
        problem = json.loads(event_data)
    except (ValueError, RecursionError):
        problem = event_data
    if isinstance(problem, dict) and problem.get("error"):
        return event_data
    return json.dumps({"error": problem or "the server sent an error"})


MAX_BODY: Final = 256 * 1024 * 1024
"""The most bytes of one answer: a reply of 128,000 tokens, each in a frame of its own."""

MAX_FOREIGN_BODY: Final = 64 * 1024 * 1024
"""The most bytes of one answer where another library reads it, which does not say how many tokens
were asked for.
"""

MAX_ERROR_BODY: Final = 64 * 1024  # the most bytes that are read of an answer with an error status
# The most bytes of a list of models: the longest list of a provider has under 2 MB
MAX_LIST: Final = 4 * 1024 * 1024
DONE: Final = "[DONE]"  # the data of the last event of a stream

CLIENT_VARIABLE: Final = "CONDUCTOR_LLM_HTTP"
"""The variable that chooses httpx, for a server with which this package's connections fail."""

_UNREACHABLE: Final[tuple[ModelErrorReason, str]] = ("connect", "cannot be reached")
_INVALID_URL: Final[tuple[ModelErrorReason, str]] = ("missing", "invalid URL")

REASONS: Final[Mapping[str, tuple[ModelErrorReason, str]]] = {
    "TimeoutException": ("timeout", "no answer in time"),
    "ConnectError": _UNREACHABLE,
    "ProxyError": ("connect", "cannot be reached through the proxy"),
    "NetworkError": ("broken", "the connection was dropped"),
    "LocalProtocolError": (
        "refused",
        "cannot be sent: a header or the key has characters that HTTP forbids",
    ),
    "ProtocolError": ("broken", "the connection was dropped, or the server does not speak HTTP"),
    "DecodingError": ("broken", "the body cannot be decompressed"),
    "UnsupportedProtocol": _INVALID_URL,
    "InvalidURL": _INVALID_URL,
    "RequestError": _UNREACHABLE,
}
"""What each httpx exception means, by the name of its nearest base class in this table."""

_HINTS: Final[dict[str, str]] = {
    "connect": "check the URL, the network, HTTPS_PROXY and SSL_CERT_FILE",
    "missing": "check base_url",
    "descriptors": "raise the limit on open files (ulimit -n 4096), or lower --parallel",
    "silent": "start the server, or fix its URL: nothing on this machine answers there",
}


def parse_frames(text: str, name: str, secrets: Secrets) -> list[Mapping[str, Any]]:
    """Return the JSON objects that a server sent as one text: one, or a list of several.

    Anything else, and an error inside of one, is a `ModelError`.
    """
    value = _json_of(text)
    frames = value if isinstance(value, list) and value else [value]
    for frame in frames:
        if not isinstance(frame, dict):
            shown = clean_excerpt(text, secrets)
            raise ModelError("broken", f"{name}: the answer is not a JSON object: {shown}")
        if frame.get("error") or frame.get("object") == "error":
            raise error_in_body(name, frame, secrets)
    return frames


def parse_list(text: str, name: str, secrets: Secrets) -> Mapping[str, Any]:
    """Return the JSON object with a list that a server sent; a bare list is made its `data`.

    Anything else, and an error inside of it, is a `ModelError`.
    """
    value = _json_of(text)
    if value == []:
        return {"data": []}
    frames = parse_frames(text, name, secrets)
    return {"data": frames} if isinstance(value, list) else frames[0]


_DECODE: Final = json.JSONDecoder().raw_decode  # As `json.loads`, without what is around it

_JSON_SPACE: Final = " \t\n\r"


def _json_of(text: str) -> Any:  # noqa: ANN401 - any JSON value
    text = text.strip(_JSON_SPACE)
    try:
        value, end = _DECODE(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) else None


class HttpResponse:
    """An answer whose body is read in bounds, decompressed and parsed.

    Its header names are in lower case.
    """

    def __init__(self, name: str, answer: OpenAnswer, limit: int) -> None:
        self.name = name
        self.status = answer.status
        self.headers = answer.headers
        self._read = answer.piece
        self._give_at_once = answer.give_at_once
        self._is_read = answer.is_read
        self._unpack = unpacker(answer.headers.get("content-encoding", ""), name)
        self._unpacked: Iterator[bytes] = iter(())
        self._left = limit
        self._limit = limit
        self._parser: SseParser | None = None

    async def piece(self) -> bytes:
        """Return the next piece of the body as it arrives; empty at the end."""
        if self._unpack is None:
            piece = await self._read()
        else:
            while not (piece := next(self._unpacked, b"")) and (packed := await self._read()):
                self._unpacked = self._unpack.unpack(packed)
        self._left -= len(piece)
        if self._left < 0:
            # To ask again would bring as much again.
            message = (
                f"{self.name}: the server sent more than the limit for one answer, "
                f"{self._limit:,} bytes"
            )
            raise ModelError("broken", message, retryable=False)
        return piece

    async def drain(self, seconds: float) -> None:
        """Read what is left, so that the connection can be used again; give up after `seconds`."""
        if self._is_read():
            return
        with suppress(Exception):
            async with asyncio.timeout(seconds):
                while await self.piece():
                    pass

    async def body(self) -> bytes:
        """Return all that is left of the body. Raises `ModelError` where its end is missing."""
        body = bytearray()
        while piece := await self.piece():
            body += piece
        if self._unpack is not None and not self._unpack.is_at_end:
            message = f"{self.name}: the compressed body ends too early"
            raise ModelError("broken", message)
        return bytes(body)

    async def events(self, whole: int) -> list[str] | None:
        """Return the data of the events of a stream that arrived together, `[DONE]` among them.

        None at its end.

        Content types are often wrong, so the first character decides: no event stream begins with {
        or [. Such a body is one event, of at most `whole` bytes, because it is kept and read as
        one.
        """
        piece = await self.piece()
        if self._parser is None:
            # Some servers send white space for as long as their model thinks.
            while piece and not piece.removeprefix(codecs.BOM_UTF8).strip():
                piece = await self.piece()
            self._parser = SseParser()
            piece = piece.removeprefix(codecs.BOM_UTF8)
            first = piece.lstrip()[:1]
            if first in (b"{", b"["):
                self._limit = whole
                self._left = min(self._left, whole - len(piece))
                return [(piece + await self.body()).decode("utf-8", "replace"), DONE]
            if first == b"<":
                message = f"{self.name}: the answer is a web page"
                raise ModelError("missing", message, hint="check base_url; it often ends in /v1")
        return self._parser.feed(piece) if piece else None

    def give_events_at_once(self, take: Callable[[str], bool]) -> None:
        """Have `take` take the data of each event that arrives alone while `events` waits for it.

        An event for which it returns False comes by `events`, as all others do; what it raises is
        raised there.
        """

        def take_piece(piece: bytes) -> bool:
            parser = self._parser
            if parser is None or len(piece) > self._left:
                return False
            event = parser.only_event(piece)
            if event is None or not take(event):
                return False
            self._left -= len(piece)
            return True

        if self._unpack is None:
            self._give_at_once(take_piece)


class HttpClient:
    """One server, with the headers of every request to it.

    Connections are opened when needed and kept.

    `secrets` are the texts that no error may hold: a server may echo the headers.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Secrets | None = None,
        ca_file: str = "",
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.name = host_of(base_url)
        self._headers = {"accept-encoding": "identity", "user-agent": "conductor-llm"} | dict(
            headers or {}
        )
        self._secrets = secrets or Secrets()
        self._ca_file = ca_file
        self._client: httpx.AsyncClient | DirectClient | None = None

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        body: JsonBody | None = None,
        seconds: float | None = None,
        limit: int = MAX_BODY,
    ) -> AsyncIterator[HttpResponse]:
        """Open the answer to one request.

        Leaving closes its connection unless it was read to the end.

        `seconds` limits all of it, from connecting to the last piece. Every failure is a
        `ModelError`; so is a redirect or an error status.
        """
        try:
            if self._client is None and not has_tls_context():
                await asyncio.to_thread(preload_http)  # so that the screen keeps moving
            client = self._client or _open_client(self._ca_file, self.base_url)
            self._client = client
            ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
            content, kind = (body.content, body.headers) if body else (b"", {})
            url = with_path(self.base_url, path)
            sent = {**self._headers, **kind}
            async with asyncio.timeout_at(ends):
                if isinstance(client, DirectClient):
                    answer = await client.send(method, url, sent, content, ends)
                else:
                    answer = await _send_by_httpx(client, method, url, sent, content, ends)
            try:
                if answer.status >= 300:
                    raise await self._refusal(answer)
                yield HttpResponse(self.name, answer, limit)
            finally:
                await answer.close()
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - callers handle only `ModelError`
            raise self._model_error(error) from (None if _may_show_headers(error) else error)

    async def list_json(self, path: str, *, seconds: float | None) -> Mapping[str, Any]:
        """Return the JSON object at a path, such as a list of models.

        A bare list, as some servers of models send, is in `data`, where others have it.
        """
        async with self.open("GET", path, seconds=seconds, limit=MAX_LIST) as answer:
            text = (await answer.body()).decode("utf-8-sig", "replace")
        return parse_list(text, self.name, self._secrets)

    async def close(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            await client.aclose()

    async def _refusal(self, answer: OpenAnswer) -> ModelError:
        """Return the error for an answer with an error status."""
        response = HttpResponse(self.name, answer, MAX_ERROR_BODY)
        page = bytearray()
        with suppress(ModelError):  # the rest of a very long error page is not needed
            while piece := await response.piece():
                page += piece
        return error_of_response(
            self.name, answer.status, answer.headers, bytes(page), self._secrets
        )

    def _model_error(self, error: Exception) -> ModelError:
        if isinstance(error, TimeoutError):
            return ModelError("timeout", f"{self.name}: no answer in the time left for this call")
        if _lacks_descriptors(error):
            message = f"{self.name} cannot be reached: the system allows no further open file"
            return ModelError("connect", message, hint=_HINTS["descriptors"])
        reason, problem = reason_of(error)
        excerpt = ""
        if not _may_show_headers(error):
            excerpt = clean_excerpt(str(error), self._secrets)
        silent = reason == "connect" and is_loopback(self.base_url) and "SSL" not in excerpt
        words = without_numbers(excerpt)
        hint = _HINTS.get("silent" if silent else reason, "")
        name = self.name if problem.startswith("cannot") else f"{self.name}:"
        return ModelError(reason, f"{name} {problem}{f': {words}' if words else ''}", hint=hint)


@asynccontextmanager
async def send_to_addresses(
    url: str, addresses: Sequence[str], headers: Mapping[str, str], limit: int
) -> AsyncIterator[HttpResponse]:
    """Get what is at a URL, of whatever status, from one of these addresses of its host.

    Through a proxy the address is named as well, so that the proxy does not look the host up.
    Without `addresses` the host is looked up as usual. Raises `ModelError`.
    """
    name = host_of(url)
    client: httpx.AsyncClient | DirectClient | None = None
    try:
        client = _open_client("", url, addresses)
        if isinstance(client, DirectClient):
            answer = await client.send("GET", url, headers, b"")
        else:
            answer = await _send_to_address(client, url, addresses, headers)
        try:
            yield HttpResponse(name, answer, limit)
        finally:
            await answer.close()
    except (ModelError, TimeoutError):
        raise
    except Exception as error:
        reason, problem = reason_of(error)
        words = without_numbers(clean_excerpt(str(error), Secrets()))
        if words:
            problem += f": {words}"
        raise ModelError(reason, f"{name} {problem}", hint=_HINTS.get(reason, "")) from error
    finally:
        if client is not None:
            await client.aclose()


async def _send_to_address(
    client: httpx.AsyncClient, url: str, addresses: Sequence[str], headers: Mapping[str, str]
) -> OpenAnswer:
    """Ask by httpx at the first of these addresses, under the name of the URL's host."""
    if not addresses:
        return await _send_by_httpx(client, "GET", url, headers, b"", None)
    parts = urlsplit(url)
    # Every proxy reaches IPv4, and not every one IPv6.
    first = min(addresses, key=lambda address: ":" in address)
    address = f"[{first}]" if ":" in first else first
    port = f":{parts.port}" if parts.port else ""
    request = client.build_request(
        "GET",
        parts._replace(netloc=address + port).geturl(),
        headers={**headers, "host": parts.netloc},
    )
    response = await client.send(request, stream=True)
    return _answer_of(response, None)


async def _send_by_httpx(  # noqa: PLR0913, PLR0917 - as `DirectClient.send`
    client: httpx.AsyncClient,
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | AsyncIterator[bytes],
    ends: float | None,
) -> OpenAnswer:
    request = client.build_request(method, url, content=content or None, headers=headers)
    return _answer_of(await client.send(request, stream=True), ends)


def _answer_of(response: httpx.Response, ends: float | None) -> OpenAnswer:
    """Return the answer of httpx in the form of `DirectClient`."""
    pieces = response.aiter_raw()

    async def piece() -> bytes:
        async with asyncio.timeout_at(ends):
            return await anext(pieces, b"")

    return OpenAnswer(response.status_code, dict(response.headers), piece, response.aclose)


_NO_COMPRESSIONS: Final = frozenset(
    {"", "identity", "none", "utf-8", "utf8", "us-ascii", "iso-8859-1", "binary", "7bit", "8bit"}
)
"""What servers write into `Content-Encoding` of a body that is not compressed."""


def unpacker(how: str, name: str) -> _Unpacker | None:
    """Return what decompresses the pieces of a body.

    The server `name` compressed it although nobody asked for that. `how` is its
    `Content-Encoding`; None for a body that is not compressed. What is returned gives pieces of
    bounded size: a library that decompresses a piece at once makes a thousand times its size of it.
    Raises `ModelError`, and so does what is returned.
    """
    codings = [coding.strip().lower() for coding in how.split(",")]
    compressions = [coding for coding in codings if coding not in _NO_COMPRESSIONS]
    if not compressions:
        return None
    if len(compressions) > 1 or compressions[0] not in ("gzip", "x-gzip", "deflate"):
        raise ModelError(
            "broken",
            f"{name}: the body is compressed ({one_line(how):.40}), which was not asked for",
        )
    return _Unpacker(name)


class _Unpacker:
    """Decompresses one body, gzip or zlib, which are told apart by their heads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = _decompressor()
        self._is_empty = True

    @property
    def is_at_end(self) -> bool:
        """Whether the compressed data is whole; nothing at all is whole, too."""
        return self._is_empty or self._stream.eof

    def unpack(self, rest: bytes) -> Iterator[bytes]:
        while rest:
            self._is_empty = False
            # A body of gzip may have several members, one after the other.
            if self._stream.eof:
                self._stream = _decompressor()
            try:
                piece = self._stream.decompress(rest, 64 * 1024)
            except zlib.error:
                message = f"{self._name}: the body cannot be decompressed"
                raise ModelError("broken", message) from None
            rest = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                yield piece


def _decompressor() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)


def stream_limit(tokens: int) -> int:
    """Return the most bytes of a stream that has so many tokens at most.

    The frame of one has some 300 bytes.

    Besides, there may be thinking that a server does not count, comments, and a reply that is
    repeated at its end.
    """
    return min(MAX_BODY, 16 * 1024 * 1024 + tokens * 2048)


async def bound_response(response: httpx.Response) -> None:
    """Bound the body of an answer, as a hook of a client that another library has made.

    It is decompressed in small pieces, and to read a long one is an error.
    """
    from httpx import AsyncByteStream, ReadError

    stream: Any = response.stream  # an asynchronous one, since the client is
    unpack = unpacker(response.headers.pop("content-encoding", ""), host_of(str(response.url)))

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            left = MAX_FOREIGN_BODY
            mark = codecs.BOM_UTF8
            # Nothing else may hold this generator: a reader that goes away closes it by letting go.
            async for packed in stream:
                for piece in (packed,) if unpack is None else unpack.unpack(packed):
                    left -= len(piece)
                    if left < 0:
                        raise ReadError("the server sent more than the limit for one answer")
                    yield piece.removeprefix(mark)  # with it the first event would be lost
                    mark = b""

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


def reason_of(error: BaseException) -> tuple[ModelErrorReason, str]:
    """Return what an exception of httpx or of `DirectClient` means.

    It may be one of Python's that they let through.
    """
    if isinstance(error, ConnectionFailure):
        return REASONS[error.kind]
    for kind in type(error).__mro__:
        if kind.__name__ in REASONS and kind.__module__.startswith("httpx"):
            return REASONS[kind.__name__]
    if isinstance(error, UnicodeError):
        return REASONS["LocalProtocolError"]
    if isinstance(error, OSError):
        return _UNREACHABLE
    return ("internal", "failed for an unknown reason")


def _lacks_descriptors(error: Exception) -> bool:
    """Return whether a connection failed because this process has too many files open."""
    causes = (error, error.__cause__, error.__context__)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return True
    return False


def connection_errors() -> tuple[type[Exception], ...]:
    """Return what httpx raises where no answer comes, for the caller of a library built on it.

    There are two of them, httpx and httpx2; that library has imported its own.
    """
    errors: list[type[Exception]] = []
    for name in ("httpx", "httpx2"):
        library = sys.modules.get(name)
        if library is not None:
            errors += [library.HTTPError, library.InvalidURL]
    return tuple(errors)


def _may_show_headers(error: Exception) -> bool:
    """Return whether the text of an exception may hold a header, and so the key."""
    return (
        isinstance(error, ValueError)
        or getattr(error, "kind", type(error).__name__) == "LocalProtocolError"
    )


def host_of(url: str) -> str:
    """Return the host and port of an address, without user, password, path and query."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url[:60]
    except ValueError:
        return "the server"


def preload_http() -> None:
    """Read the certificates, about 0.02 s that the first request would wait for otherwise."""
    with suppress(ModelError):
        tls_context()


def hub_client(name: str) -> Any:  # noqa: ANN401 - of httpx or of httpx2
    """Return a client for the library of the model hub, which sets a time for each request.

    `name` is what that library is built on, httpx or httpx2: it knows the errors of that alone.
    """
    library: Any = import_module(name)
    return library.Client(transport=transport(library), follow_redirects=True, timeout=None)


def routed(create: Callable[[], httpx.AsyncClient]) -> httpx.AsyncClient:
    """Return the client that another library makes, with the proxies and certificates of all.

    The library has no way to be told them. What it would read of the environment itself is away
    while it makes the client: a range in NO_PROXY would be an error to it.
    """
    import httpx

    with _environment_lock:
        hidden = {name: text for name, text in os.environ.items() if _is_proxy_variable(name)}
        for name in hidden:
            del os.environ[name]
        try:
            client = create()
        finally:
            os.environ.update(hidden)
    client._transport = async_transport(httpx)  # noqa: SLF001 - there is no other way
    client._mounts = {}  # noqa: SLF001
    return client


_environment_lock: Final = threading.Lock()


def _is_proxy_variable(name: str) -> bool:
    return name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def _open_client(
    ca_file: str, base_url: str, addresses: Sequence[str] = ()
) -> httpx.AsyncClient | DirectClient:
    parts = http_url(base_url)
    is_plain = parts is not None and "@" not in parts.netloc and parts.netloc.isascii()
    proxy = proxy_for(base_url)
    # httpx knows what to do where a proxy is set, or what is wrong with any other address.
    if is_plain and not proxy and not _is_httpx_chosen():
        return DirectClient(tls_context(ca_file), addresses)
    import httpx

    tls = tls_context(ca_file)
    if addresses and parts is not None:
        tls = tls_context_for(parts.hostname or "")

    return httpx.AsyncClient(
        verify=tls,
        proxy=proxy or None,
        trust_env=False,  # `proxy_for` and `tls_context` have read the environment
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
        follow_redirects=False,
    )


def _is_httpx_chosen() -> bool:
    """Return whether the user wants httpx for every server. Raises `ModelError`."""
    choice = os.environ.get(CLIENT_VARIABLE, "")
    if choice not in ("", "httpx"):
        message = f"{CLIENT_VARIABLE} is {one_line(choice):.40}, which is no HTTP client"
        raise ModelError("refused", message, hint=f"unset it, or set {CLIENT_VARIABLE}=httpx")
    return choice == "httpx"
