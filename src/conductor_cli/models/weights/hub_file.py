"""Reads a file of a model hub: one request for a range of bytes, and its redirects.

`HttpClient` follows no redirect, since a key must not travel. A hub keeps large files on another
host, so they are followed here, and the token is sent to the hub alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.addresses import http_url
from conductor_cli.models.api_errors import ApiError
from conductor_cli.models.http import HttpClient, HttpResponse, host_of
from conductor_cli.system.event_loop import run_async

MAX_REDIRECTS: Final = 5
REDIRECT_STATUSES: Final = (301, 302, 303, 307, 308)
SPARE_BYTES: Final = 1024 * 1024
"""So many bytes more than a file has may come before the connection ends the answer by itself."""

TakePiece = Callable[[int, bytes], bool]
"""Takes a piece of the file that begins at an offset. Returns whether more is wanted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """Where a file is, and how it is asked for.

    `size` is in bytes. After `silence` seconds without a byte the request fails. `token` is empty
    for none.
    """

    url: str
    size: int
    silence: float
    token: str = ""


class FileNotReceived(Exception):
    """A request for a file failed with `error`; `host` is who was asked last."""

    def __init__(self, host: str, error: ModelError) -> None:
        super().__init__(error.message)
        self.host = host
        self.error = error


def receive_file(file: HubFile, take: TakePiece, *, start: int = 0, end: int | None = None) -> str:
    """Hand the bytes of a file from `start` to before `end` to `take`; return the host of them.

    A host that knows no ranges sends the file from its first byte: the offset says so. Raises
    `FileNotReceived`, and whatever `take` raises.
    """
    return run_async(_receive(file, take, start, end))


async def _receive(file: HubFile, take: TakePiece, start: int, end: int | None) -> str:
    url = file.url
    for _ in range(MAX_REDIRECTS + 1):
        try:
            async with _opened(file, url, start, end) as answer:
                offset = start if answer.status == 206 else 0
                problem = await _copy(answer, take, offset, file.silence)
        except ApiError as error:
            location = error.headers.get("location", "")
            if error.status not in REDIRECT_STATUSES or not location:
                raise FileNotReceived(host_of(url), error) from None
            url = _redirected(url, location)
        except ModelError as error:
            raise FileNotReceived(host_of(url), error) from None
        else:
            if problem is not None:
                raise problem
            return host_of(url)
    message = f"{host_of(url)} redirects more than {MAX_REDIRECTS} times"
    raise FileNotReceived(host_of(url), ModelError("missing", message))


@asynccontextmanager
async def _opened(
    file: HubFile, url: str, start: int, end: int | None
) -> AsyncIterator[HttpResponse]:
    """Open the answer to one request, which may be a redirect."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    headers = {}
    if start or end is not None:
        last = "" if end is None else str(end - 1)
        headers["range"] = f"bytes={start}-{last}"
    if file.token and _may_have_token(urlsplit(file.url), parts):
        headers["authorization"] = f"Bearer {file.token}"
    client = HttpClient(origin, headers=headers, secrets=Secrets(file.token))
    path = url.removeprefix(origin).partition("#")[0]
    opening = client.open("GET", path, limit=file.size + SPARE_BYTES)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        yield await _in_time(stack.enter_async_context(opening), file.silence, client.name)


def _may_have_token(hub: SplitResult, target: SplitResult) -> bool:
    """Return whether an address is the hub's own, perhaps by TLS where the hub is asked without."""
    if hub.hostname != target.hostname:
        return False
    is_same_server = (hub.scheme, hub.port) == (target.scheme, target.port)
    is_upgrade = hub.scheme == "http" and target.scheme == "https"
    has_usual_ports = hub.port in (None, 80) and target.port in (None, 443)
    return is_same_server or (is_upgrade and has_usual_ports)


def _redirected(url: str, location: str) -> str:
    """Return where a redirect leads. Raises `FileNotReceived` where HTTP cannot go there."""
    target = ""
    with suppress(ValueError):
        target = urljoin(url, location)
    if http_url(target) is None:
        message = f"{host_of(url)} redirects to an address that HTTP cannot reach"
        raise FileNotReceived(host_of(url), ModelError("missing", message))
    return target


async def _copy(
    answer: HttpResponse, take: TakePiece, offset: int, silence: float
) -> Exception | None:
    """Hand what arrives to `take`, and return what that raised.

    Inside of an answer every exception is taken for one of the connection.
    """
    is_wanted = True
    while is_wanted and (piece := await _in_time(answer.piece(), silence, answer.name)):
        try:
            is_wanted = take(offset, piece)
        except Exception as error:  # noqa: BLE001 - raised again outside of the answer
            return error
        offset += len(piece)
    return None


async def _in_time(awaitable: Awaitable[T], seconds: float, host: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise ModelError("timeout", f"{host}: no answer in time") from None
