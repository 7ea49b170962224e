"""The one door to HTTP. httpx is imported here and nowhere else, inside functions.

What every caller gets: HTTP/1.1, proxies and `SSL_CERT_FILE` from the environment (never a proxy to this machine), a CA
file of one's own, no redirects (a key must not travel), bounded bodies, each httpx exception and each HTTP status as a
`ModelError` whose text holds no key. There is no read timeout: a run bounds the first token, idle and total time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.models.api_errors import ApiError, clean_excerpt, error_of_response
from conductor_cli.models.presets import is_loopback

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_SECONDS: Final = 10.0
BODY_LIMIT: Final = 256 * 1024 * 1024
"""The most bytes that one answer may have: a reply of some 500,000 tokens, each in a frame of its own."""

REFUSAL_LIMIT: Final = 64 * 1024
"""The most bytes that are read of an answer with an error status."""

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

REASONS: Final[dict[str, tuple[ModelErrorReason, str]]] = {
    "ConnectTimeout": ("timeout", "did not answer in time"),
    "ReadTimeout": ("timeout", "did not answer in time"),
    "WriteTimeout": ("timeout", "did not take the question in time"),
    "PoolTimeout": ("timeout", "had no free connection in time"),
    "TimeoutException": ("timeout", "did not answer in time"),
    "ConnectError": ("connect", "cannot be reached"),
    "ProxyError": ("connect", "cannot be reached through the proxy"),
    "ReadError": ("broken", "broke the connection off"),
    "WriteError": ("broken", "broke the connection off"),
    "CloseError": ("broken", "broke the connection off"),
    "NetworkError": ("broken", "broke the connection off"),
    "RemoteProtocolError": ("broken", "broke the connection off or does not speak HTTP"),
    "LocalProtocolError": ("refused", "cannot be sent this: a header or the key has characters that HTTP forbids"),
    "ProtocolError": ("broken", "does not speak HTTP"),
    "DecodingError": ("broken", "sent a body that cannot be unpacked"),
    "UnsupportedProtocol": ("missing", "has an address that does not begin with http:// or https://"),
    "InvalidURL": ("missing", "has an address that is none"),
    "TooManyRedirects": ("missing", "redirects without end"),
    "TransportError": ("connect", "cannot be reached"),
    "RequestError": ("connect", "cannot be reached"),
    "HTTPStatusError": ("refused", "refused the question"),
    "HTTPError": ("internal", "failed in a way that is not known"),
    "CookieConflict": ("internal", "failed in a way that is not known"),
    "StreamError": ("internal", "was read in a wrong way"),
}
"""What each httpx exception means, by the name of the nearest class in its line that stands here."""

_HINTS: Final[dict[str, str]] = {
    "connect": "check the address, the network, HTTPS_PROXY and SSL_CERT_FILE",
    "missing": "check base_url",
}

_NOT_STARTED: Final = "start the server, or mend its address: nothing answers there on this machine"


class HttpResponse:
    """An answer whose body is still to be read. Its header names are in lower case."""

    def __init__(self, response: httpx.Response, ends: float | None, limit: int) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers)
        self.kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._pieces = response.aiter_bytes()
        self._ends = ends
        self._left = limit

    async def piece(self) -> bytes:
        """The next piece of the body as it comes from the wire; empty at its end."""
        async with asyncio.timeout_at(self._ends):
            piece = await anext(self._pieces, b"")
        self._left -= len(piece)
        if self._left < 0:
            raise ModelError("broken", "the server sent more than an answer may have")
        return piece

    async def drain(self, seconds: float) -> None:
        """Read what is left, so that the connection can be used again; let go of it after `seconds`."""
        with suppress(Exception):
            async with asyncio.timeout(seconds):
                while await self.piece():
                    pass

    async def body(self) -> bytes:
        """All that is left of the body."""
        body = bytearray()
        while piece := await self.piece():
            body += piece
        return bytes(body)


class HttpClient:
    """One server, with what each request to it carries. Connections are opened when first needed and kept."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        ca_file: str = "",
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.name = host_of(base_url)
        self._headers = {"accept-encoding": "identity", "user-agent": "conductor-llm"} | dict(headers or {})
        self._secrets = secrets
        self._ca_file = ca_file
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def open(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401 - any JSON value
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        limit: int = BODY_LIMIT,
        every: bool = False,
    ) -> AsyncIterator[HttpResponse]:
        """The answer to one request; leaving closes its connection unless it was read to its end.

        `headers` are this request's beside the server's. `seconds` bounds all of it, from connecting to the last piece.
        Everything that fails is a `ModelError`; so is a redirect or an error status, unless `every` answer is wanted.
        """
        try:
            client = await self._opened()
            ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
            async with asyncio.timeout_at(ends):
                response = await client.send(self._request(client, method, path, body, headers or {}), stream=True)
            try:
                if response.status_code >= 300 and not every:
                    raise await self._refusal(response, ends)
                yield HttpResponse(response, ends, limit)
            finally:
                await response.aclose()
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not leave as it is
            raise self._own(error) from (None if _shows_headers(error) else error)

    async def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            if "httpx" not in sys.modules:
                await asyncio.to_thread(preload)  # so that the screen does not stand still meanwhile
            self._client = self._client or _client(self._ca_file, self.base_url)
        return self._client

    def _request(
        self, client: httpx.AsyncClient, method: str, path: str, body: object, headers: Mapping[str, str]
    ) -> httpx.Request:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        kind = {} if content is None else {"content-type": "application/json"}
        more = kind | dict(headers)
        return client.build_request(method, self.base_url + path, content=content, headers=self._headers | more)

    async def _refusal(self, response: httpx.Response, ends: float | None) -> ApiError:
        answer = HttpResponse(response, ends, REFUSAL_LIMIT)
        body = bytearray()
        try:
            while piece := await answer.piece():
                body += piece
        except ModelError:  # longer than anybody reads
            pass
        return error_of_response(self.name, response.status_code, dict(response.headers), bytes(body), self._secrets)

    def _own(self, error: Exception) -> ModelError:
        if isinstance(error, TimeoutError):
            return ModelError("timeout", f"{self.name} took longer than the time left for this call")
        reason, what = reason_of(error)
        said = "" if _shows_headers(error) else clean_excerpt(str(error), self._secrets)
        silent = reason == "connect" and is_loopback(self.base_url) and "SSL" not in said
        hint = _NOT_STARTED if silent else _HINTS.get(reason, "")
        return ModelError(reason, f"{self.name} {what}{f': {said}' if said else ''}", hint=hint)


async def get_json(url: str, *, headers: Mapping[str, str] | None = None, seconds: float, ca_file: str = "") -> Any:  # noqa: ANN401
    """The JSON value at `url`, within `seconds`. Everything that fails is a `ModelError`."""
    # A server may echo a key with or without the word before it.
    secrets = tuple(part for value in (headers or {}).values() for part in (value, value.removeprefix("Bearer ")))
    server = HttpClient(url, headers=headers, secrets=secrets, ca_file=ca_file)
    try:
        async with server.open("GET", "", seconds=seconds, limit=16 * 1024 * 1024) as answer:
            body = await answer.body()
    finally:
        await server.close()
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ModelError("broken", f"{server.name} did not answer with JSON: {clean_excerpt(body, secrets)}") from None


def reason_of(error: BaseException) -> tuple[ModelErrorReason, str]:
    """What an exception of httpx means; what is not in the table is told apart by the exceptions of Python."""
    for kind in type(error).__mro__:
        if kind.__name__ in REASONS and kind.__module__.startswith("httpx"):
            return REASONS[kind.__name__]
    if isinstance(error, UnicodeError):
        return REASONS["LocalProtocolError"]
    if isinstance(error, OSError):
        return "connect", "cannot be reached"
    return "internal", "failed in a way that is not known"


def _shows_headers(error: Exception) -> bool:
    """Whether the text of an exception may hold a header, and so the key."""
    return isinstance(error, ValueError) or type(error).__name__ == "LocalProtocolError"


def host_of(url: str) -> str:
    """The host and port of an address, without user, password, path and query."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url[:60]
    except ValueError:
        return "the server"


def preload() -> None:
    """Import httpx and read the certificates now: together some 0.15 s, which the first request would wait for."""
    with suppress(ModelError):
        _tls("", os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


def _client(ca_file: str, base_url: str) -> httpx.AsyncClient:
    import httpx

    direct = (*LOOPBACK, *([httpx.URL(base_url).netloc.decode()] if is_loopback(base_url) else []))
    return httpx.AsyncClient(
        verify=_tls(ca_file, os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")),
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
        mounts={f"all://{host}": None for host in direct},
        follow_redirects=False,
    )


@cache
def _tls(ca_file: str, cert_file: str, cert_dir: str) -> ssl.SSLContext:
    """One context for all servers: reading the certificates takes about 20 ms. The last two only key the cache."""
    import httpx

    try:
        context = httpx.create_ssl_context()
        if ca_file:
            context.load_verify_locations(cafile=ca_file)  # beside the usual ones, not instead of them
    except OSError as error:
        where = ca_file or cert_file or cert_dir or "the usual ones"
        raise ModelError("refused", f"the CA certificates cannot be read ({where}): {error}") from error
    return context
