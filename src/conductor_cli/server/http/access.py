"""Who may use the server, from where, and how much one request may bring.

An ASGI middleware that knows no framework.

Without keys the server is open to programs of this machine. A page in a browser is a program of
this machine too, so the host that it asked for must be a loopback name (a foreign name that leads
here is DNS rebinding), and the origin that it comes from must be allowed.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import re
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.events import RunStarted
from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.programs.turns import CURRENT_CLIENT, SHARE_OF_FREE
from conductor_cli.server.api.errors import error_body, path_of_api
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.client_keys import ClientKey, ClientKeys, find_key

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeader = tuple[bytes, bytes]

CLIENT_KEY: Final = "conductor.client_key"
"""Where the scope of a request has its `ClientKey`; None where no key is needed."""

REQUEST_ID: Final = "conductor.request_id"
"""Where the scope of a request has its id; an answer that a run gives has the run's id instead."""

# Where the scope of a request has the tokens of its run, once that has ended
TOKENS: Final = "conductor.tokens"

# What needs no key: it says nothing about runs, and load balancers and browsers cannot send one
OPEN_PATHS: Final = frozenset({"/", "/health", "/livez", "/readyz", "/favicon.ico"})

# Where files are sent, the largest bodies by far. They go to the disk as they arrive
UPLOADS: Final = "/v1/files"
MAX_UPLOAD: Final = 200_000_000  # Bytes of a file
UPLOAD_FORM_BYTES: Final = 100_000  # What the form around a file may take

UPLOAD_SECONDS: Final = 20.0
"""After so long a file must arrive by `UPLOAD_BYTES_PER_SECOND` on average: who sends less would
keep a place that others wait for.
"""

UPLOAD_BYTES_PER_SECOND: Final = 50_000

# Headers that may be sent only once: two programs that read different ones would disagree about
# the request.
UNIQUE_HEADERS: Final = frozenset(
    {"host", "origin", "authorization", "x-api-key", "content-length", "content-type"}
)

# What browsers send in Sec-Fetch-Site where a page of another origin asks
FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})

NO_PAGE: Final = "none"
"""In `serve.origins`: no page may ask, not even the server's own, which shows runs all the same."""

# Of all headers together. The largest that clients send have 6 KB
MAX_HEADER_BYTES: Final = 64 * 1024

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What holds for each request.

    `keys` gives the keys as they are now. `needs_key` asks for one even where there is none, which
    is so on addresses that other machines reach. `origins` are allowed beside the server's own
    pages. `most_body` is in bytes, as is `most_bodies`, for all requests that are being read
    together; `body_seconds` is the time for one to arrive. A file has longer, as long as it arrives
    by `UPLOAD_BYTES_PER_SECOND`.
    """

    keys: Callable[[], Sequence[ClientKey]] = tuple
    needs_key: bool = False
    origins: tuple[str, ...] = ()
    most_body: int = 34_000_000
    most_bodies: int = 272_000_000
    body_seconds: float = 120.0
    most_requests: int = 2_000


class Access:
    """Lets a request through to `app`, or answers it with an error in the form of its API."""

    def __init__(self, app: App, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._locked = rules.needs_key
        self._requests = Counter[str]()  # By client
        # Bytes of the bodies that were read and are not answered yet, by client
        self._bodies = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return
        # A redirect to the address without the slash would lead past a proxy with TLS in front
        scope["path"] = scope["path"].rstrip("/") or "/"
        if scope["type"] == "websocket":
            await self._answer_socket(scope, receive, send)
            return
        scope[REQUEST_ID] = new_request_id()
        exchange = _Exchange(self, self._rules, scope[REQUEST_ID], receive, send)
        begun = time.monotonic()
        try:
            await self._answer(scope, exchange)
        finally:
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s", _request_line(scope, exchange.status, time.monotonic() - begun))

    async def _answer(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            headers = _read_headers(scope["headers"])
            self._check_host(headers)
            self._check_origin(headers)
            self._check_embedding(scope, headers)
            exchange.page_headers = _headers_for_page(headers)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _answer_preflight(headers, exchange.send)
                return
            scope[CLIENT_KEY] = self._find_client_key(scope, headers)
            exchange.client = self._client_of(scope)
            CURRENT_CLIENT.set(exchange.client)  # of this request's own task
            self._check_load(exchange.client)
            exchange.is_upload = scope["path"] == UPLOADS
            if _content_length(headers) > exchange.max_body_bytes:
                raise exchange.too_large
        except RequestError as error:
            await exchange.refuse(scope, error)
            return
        await self._pass_on(scope, exchange)

    async def _answer_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket through by the same rules, or refuse its handshake with an error."""
        scope[REQUEST_ID] = new_request_id()
        client = ""
        try:
            headers = _read_headers(scope["headers"])
            self._check_host(headers)
            self._check_origin(headers)
            scope[CLIENT_KEY] = self._find_client_key({**scope, "method": "GET"}, headers)
            client = self._client_of(scope)
            CURRENT_CLIENT.set(client)  # of this connection's own task
            self._check_load(client)
        except RequestError as error:
            await receive()
            body = json.dumps(error_body(error, scope["path"], scope[REQUEST_ID])).encode()
            kind = [(b"content-type", b"application/json")]
            start = {"type": "websocket.http.response.start", "status": error.status}
            await send({**start, "headers": kind})
            await send({"type": "websocket.http.response.body", "body": body})
            return
        self._requests[client] += 1
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001
            # As above: nothing of the requests may get into a log
            _log.error("connection %s failed: %s", scope[REQUEST_ID], describe_error(error))
        finally:
            self._leave(client)

    def _client_of(self, scope: Scope) -> str:
        """Return who shares the server with others by turns; empty where there is one client."""
        if scope[CLIENT_KEY] is None or len(self._rules.keys()) <= 1:
            return ""
        return principal_of(scope).client

    def _leave(self, client: str) -> None:
        """Count one request of a client less, and forget clients that have none."""
        self._requests[client] -= 1
        if not self._requests[client]:
            del self._requests[client]

    async def _pass_on(self, scope: Scope, exchange: _Exchange) -> None:
        """Let the application answer a request; where it does not, answer with an error."""
        self._requests[exchange.client] += 1
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001
            # The server lives on; nothing of the request may get into a log
            _log.error("request %s failed: %s", scope[REQUEST_ID], describe_error(error))
        finally:
            self._leave(exchange.client)
            exchange.release()
        if exchange.refused is not None:
            await exchange.refuse(scope, exchange.refused)
        elif not exchange.started and not exchange.gone:
            await exchange.refuse(
                scope, RequestError(500, "internal_error", "the server failed; its log says where")
            )

    def hold(self, client: str, size: int) -> bool:
        """Add `size` to the bytes of a client's bodies; a negative one frees them.

        Return whether they are within bounds.
        """
        self._bodies[client] += size
        if not self._bodies[client]:
            del self._bodies[client]
        return size < 0 or _has_room(self._bodies, client, self._rules.most_bodies)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """Raise `RequestError` for a foreign name that leads here, which is DNS rebinding."""
        host = headers.get("host", "")
        if not host:
            return  # a program that sends no host is no browser
        if self._needs_key():
            return  # a foreign page has no key, and so it gets nothing, whatever its host
        if not is_loopback_host(host):
            message = (
                "without keys this server answers only to loopback names such as localhost, not "
                f"to {host[:100]!r}; add a key for other names: conductor serve keys add NAME"
            )
            raise RequestError(403, "host_not_allowed", message)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise `RequestError` for a web page that may not ask."""
        origin = headers.get("origin", "")
        if not origin:
            return  # not a page
        if NO_PAGE in self._rules.origins:
            message = f"serve.origins is {NO_PAGE}: no web page may ask this server"
            raise RequestError(403, "origin_not_allowed", message)
        is_listed = origin in self._rules.origins or "*" in self._rules.origins
        if not (_is_own_page(headers) or is_listed):
            message = (
                f"the origin {origin[:100]!r} is not allowed: conductor config set "
                "serve.origins ORIGIN"
            )
            raise RequestError(403, "origin_not_allowed", message)

    def _check_embedding(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Raise `RequestError` for what a foreign page embeds, as an image or a script.

        A browser names no origin for it. That page cannot read the answer, but it can have stored
        runs searched, and measure how long that takes.
        """
        is_foreign = headers.get("sec-fetch-site", "") in FOREIGN_SITES
        if not is_foreign or headers.get("origin") or "*" in self._rules.origins:
            return
        if scope["path"] not in OPEN_PATHS:
            message = "a page of another origin may not embed this"
            raise RequestError(403, "origin_not_allowed", message)

    def _check_load(self, client: str) -> None:
        if not _has_room(self._requests, client, self._rules.most_requests, added=1):
            message = "the server has too many requests at once"
            raise RequestError(503, "overloaded", message, retry_after=2)

    def _needs_key(self) -> bool:
        """Return whether a key is needed.

        Once there was one, the server stays closed when the last is removed.
        """
        try:
            self._locked = self._locked or bool(self._rules.keys())
        except ConfigError:
            self._locked = True  # nobody knows who was to be kept out
        return self._locked

    def _find_client_key(self, scope: Scope, headers: Mapping[str, str]) -> ClientKey | None:
        """Return the key of a request; None where it needs none. Raises `RequestError`."""
        if not self._needs_key():
            return None
        try:
            keys = self._rules.keys()
        except ConfigError as error:
            message = "the server cannot read its list of keys"
            raise RequestError(503, "keys_unreadable", message) from error
        sent_keys = _sent_keys(headers)
        for text in sent_keys:
            key = find_key(keys, text)
            if key is not None:
                return key
        if scope["path"] in OPEN_PATHS and scope["method"] in {"GET", "HEAD"}:
            return None
        problem = "the server needs a key"
        if sent_keys:
            problem = "this key is not known to the server"
        message = f"{problem}: send one as Authorization: Bearer KEY or x-api-key: KEY"
        raise RequestError(401, "invalid_api_key", message)


class _Exchange:
    """One request and its answer: counts what is read, and adds headers to what is sent."""

    def __init__(
        self, access: Access, rules: AccessRules, request_id: str, receive: Receive, send: Send
    ) -> None:
        self._access = access
        self._rules = rules
        self._receive = receive
        self._send = send
        self._id = request_id.encode()
        self._size = 0
        self._whole = False
        self._begin = asyncio.get_running_loop().time()
        self.page_headers: Sequence[RawHeader] = ()
        self.started = False
        self.gone = False
        self.status = 0
        self.is_upload = False
        self.client = ""
        # Why the request is refused although the application has it already
        self.refused: RequestError | None = None

    async def receive(self) -> Message:
        """Return the next piece of the body.

        To the application, a body that is refused looks like a client that left.
        """
        if self.refused is not None:
            self.gone = True
            return {"type": "http.disconnect"}
        if self._whole:
            message = await self._receive()
            self.gone = self.gone or message["type"] == "http.disconnect"
            return message
        if self.is_upload and not self._size:
            self._begin = asyncio.get_running_loop().time()  # before, it waited for a place
        try:
            async with asyncio.timeout_at(self._begin + self._body_seconds):
                message = await self._receive()
        except TimeoutError:
            problem = f"the body did not arrive in {self._body_seconds:.3g} s"
            if self.is_upload:
                kilobytes = UPLOAD_BYTES_PER_SECOND // 1000
                problem = f"the file arrived more slowly than {kilobytes} kB a second"
            return self._stop(RequestError(408, "request_timeout", problem))
        if message["type"] == "http.disconnect":
            self.gone = True
            return message
        size = len(message.get("body", b""))
        self._size += size
        self._whole = not message.get("more_body", False)
        if not self.is_upload and not self._access.hold(self.client, size):
            problem = "the server is reading too many large requests at once"
            return self._stop(RequestError(503, "overloaded", problem, retry_after=5))
        if self._size > self.max_body_bytes:
            return self._stop(self.too_large)
        return message

    @property
    def _body_seconds(self) -> float:
        if self.is_upload:
            return UPLOAD_SECONDS + self._size / UPLOAD_BYTES_PER_SECOND
        return self._rules.body_seconds

    @property
    def max_body_bytes(self) -> int:
        if self.is_upload:
            return MAX_UPLOAD + UPLOAD_FORM_BYTES
        return self._rules.most_body

    @property
    def too_large(self) -> RequestError:
        megabytes = self.max_body_bytes // 1_000_000
        return RequestError(413, "request_too_large", f"the body has more than {megabytes} MB")

    def _stop(self, error: RequestError) -> Message:
        self.refused = error
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer, unless the request is refused in mid-body.

        That answer comes from us.
        """
        if self.refused is not None and not self.started:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            self.release()  # what was read is parsed by now
            headers = self._with_ids(message.get("headers", ()))
            message = {**message, "headers": [*headers, *self.page_headers]}
        try:
            await self._send(message)
        except RuntimeError as error:
            # What uvloop says a moment before uvicorn is told
            if "the handler is closed" not in str(error):
                raise
            self.gone = True
            await asyncio.sleep(0)  # now uvicorn learns it too

    def _with_ids(self, headers: Sequence[RawHeader]) -> list[RawHeader]:
        """Return the headers with the id of the answer: that of its run, else of the request."""
        # OpenAI's SDK reads x-request-id, Anthropic's request-id.
        for name, run in headers:
            if name == b"x-request-id":
                return [*headers, (b"request-id", run)]
        return [*headers, (b"x-request-id", self._id), (b"request-id", self._id)]

    def release(self) -> None:
        """Free the room of the body, which is not held any more."""
        if not self.is_upload:
            self._access.hold(self.client, -self._size)
        self._size = 0

    async def refuse(self, scope: Scope, error: RequestError) -> None:
        """Answer with an error.

        A connection whose client has begun to read an answer can only be broken off.
        """
        if self.started:
            return
        self.refused = None
        sent = {name.decode("latin-1").lower() for name, _ in scope["headers"]}
        path = path_of_api(scope["path"], sent)
        body = json.dumps(error_body(error, path, scope[REQUEST_ID])).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if "expect" in sent:
            # The body is not sent, and the next request must not be taken for it.
            headers.append((b"connection", b"close"))
        if error.status == 401:
            # The SDKs read the second
            headers += [(b"www-authenticate", b"Bearer"), (b"x-should-retry", b"false")]
        if error.retry_after is not None:
            headers.append((b"retry-after", f"{error.retry_after:.0f}".encode()))
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _has_room(held: Counter[str], client: str, most: int, *, added: int = 0) -> bool:
    """Return whether what clients hold is within `most`, and one client leaves room for others.

    It is asked before so much is `added` to what the client holds.
    """
    free = most - held.total() - added
    if not client:
        return free >= 0
    return held[client] + added <= SHARE_OF_FREE * free


def new_request_id() -> str:
    """Return an id for a request that may have no run."""
    return f"req_{secrets.token_hex(12)}"


def _request_line(scope: Scope, status: int, seconds: float) -> str:
    """Return `16:20:05 POST /v1/responses 200, 1.2 s, key laptop 12ab, 240 tokens`.

    It has no text of a request, nor its query.
    """
    path = "an unknown path"
    if "endpoint" in scope:
        path = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        if value:  # a client may have put a text there
            path = path.replace(str(value), f"{{{name}}}")
    request = f"{time.strftime('%H:%M:%S')} {scope['method']} {path} {status or 'no answer'}"
    parts = [request, format_duration(seconds), one_line(principal_of(scope).owner)]
    if TOKENS in scope:
        parts.append(format_count(scope[TOKENS], "token"))
    return ", ".join(parts)


def describe_error(error: BaseException) -> str:
    """Return `ValueError at conversation.py:12, http.py:80`.

    It says where an error arose, and what the system has refused, such as a full disk. It has no
    other text, which may quote a prompt.
    """
    lines = list[str]()
    for frame in reversed(traceback.extract_tb(error.__traceback__)[-6:]):
        path = frame.filename.replace("\\", "/")
        lines.append(f"{path.rpartition('/')[2]}:{frame.lineno}")
    refusal = ""
    for cause in (error, error.__cause__, error.__context__):
        # Names that cannot be resolved have numbers of their own.
        if isinstance(cause, OSError) and cause.errno and cause.errno in errno.errorcode:
            refusal = f", {os.strerror(cause.errno)}"
    return f"{type(error).__name__} at {', '.join(lines) or 'an unknown place'}{refusal}"


@lru_cache(maxsize=64)  # clients say the same few
def is_loopback_host(host: str) -> bool:
    """Return whether a Host header, with or without a port, names this machine itself."""
    with suppress(ValueError):
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        is_local = (
            name == "localhost"
            or name.endswith(".localhost")
            or ipaddress.ip_address(name).is_loopback
        )
        return is_local and "@" not in host
    return False


def _read_headers(raw: Sequence[RawHeader]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in raw) > MAX_HEADER_BYTES:
        message = f"the headers have more than {MAX_HEADER_BYTES} bytes"
        raise RequestError(431, "headers_too_large", message)
    headers: dict[str, str] = {}
    for raw_name, value in raw:
        name = raw_name.decode("latin-1").lower()
        if name in UNIQUE_HEADERS and name in headers:
            message = f"the header {name} is there more than once"
            raise RequestError(400, "duplicate_header", message)
        headers[name] = value.decode("latin-1")
    return headers


def _is_own_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from a page of this server itself."""
    host = headers.get("host", "")
    origin = headers.get("origin", "")
    return bool(host) and origin.partition("://")[2] == host


def _headers_for_page(headers: Mapping[str, str]) -> Sequence[RawHeader]:
    """Return the headers by which a browser lets an allowed foreign page read the answer."""
    origin = headers.get("origin", "")
    if not origin or _is_own_page(headers):
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (
            b"access-control-expose-headers",
            b"x-request-id, request-id, retry-after, x-should-retry",
        ),
        (b"vary", b"Origin"),
    )


def _content_length(headers: Mapping[str, str]) -> int:
    """Return the bytes of the body as its sender says them, else 0. Raises `RequestError`."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise RequestError(400, "invalid_header", "Content-Length is not a number")
    return int(length[:20])


def _sent_keys(headers: Mapping[str, str]) -> list[str]:
    """Return the keys that a client sent, in the forms of OpenAI and of Anthropic.

    Clients that know both headers send a provider's key in one of them, so either may be ours.
    """
    sent_keys = list[str]()
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        sent_keys.append(bearer.strip())
    sent_keys.append(headers.get("x-api-key", "").strip())
    return list(filter(None, sent_keys))


async def _answer_preflight(headers: Mapping[str, str], send: Send) -> None:
    """Say what an allowed page may send. A browser asks this without the key."""
    wanted = headers.get("access-control-request-headers", "").split(",")
    names = [name.strip() for name in wanted[:100]]
    echoed = ", ".join(name for name in names if _HEADER_NAME.fullmatch(name))
    allowed = [
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", echoed.encode("latin-1")),
        (b"access-control-max-age", b"600"),
        (b"content-length", b"0"),
    ]
    if headers.get("access-control-request-private-network") == "true":
        allowed.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who sent a request.

    The key, None where the server needs none, and the address that it came from.
    """

    key: ClientKey | None = None
    address: str = ""

    @property
    def origin(self) -> str:
        """Who asked, as a trace says it.

        A name may be given to another key later, so the key's id stands beside it.
        """
        return "serve" if self.key is None else f"key {self.key.name} {self.key.id}"

    @property
    def origins(self) -> tuple[str, ...]:
        """All that traces may say of this client.

        Those written before November 2026 have only the key's name.
        """
        return (self.origin,) if self.key is None else (self.origin, f"key {self.key.name}")

    def asked_for(self, run: RunStarted | Trace) -> bool:
        """Return whether this client asked for a run.

        A run of a mere name is older than a key of that name.
        """
        if self.key is not None and run.origin == self.origins[1]:
            return run.time >= self.key.since
        return run.origin == self.origin

    @property
    def client(self) -> str:
        """Who shares the server with others by turns; empty where no key tells clients apart."""
        return "" if self.key is None else self.origin

    @property
    def owner(self) -> str:
        """Whose requests wait behind each other."""
        return self.address if self.key is None else self.origin


def principal_of(scope: Mapping[str, Any]) -> Principal:
    """Return who sent the request of an ASGI scope."""
    host, _ = scope.get("client") or ("", 0)
    return Principal(key=scope.get(CLIENT_KEY), address=host)


def principal_from(origin: str, directory: Path) -> Principal:
    """Whom a batch or a run is of, with the key as the configuration `directory` has it now.

    Raises `RequestError`.
    """
    if origin == Principal().origin:
        return Principal(address="stored")
    for key in ClientKeys(directory).all():
        if (client := Principal(key=key)).origin == origin:
            return client
    raise RequestError(401, "invalid_api_key", "the key that asked was removed")
