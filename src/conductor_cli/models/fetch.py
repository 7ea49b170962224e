"""Reading one file from a URL that the user names: bounded, and never from a private network by a detour.

Every host is resolved here, its addresses are checked, and the connection goes to the address that was checked, so a
name cannot mean another one a moment later. A private address is read only where the user's own URL names it: as an
address, or as `localhost`. Behind a proxy the proxy resolves names, so only addresses that a URL names are checked.
"""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from conductor_cli.core.errors import ModelError, UsageError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.models.http import HttpClient

MAX_REDIRECTS: Final = 5
SECONDS: Final = 60.0  # how long one request may take, from connecting to the last byte
_REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a URL gave, the URL that gave it in the end, and a name for it as a file."""

    data: bytes
    url: str
    name: str


async def fetch(url: str, *, limit: int) -> Fetched:
    """Return the file at a URL of http or https, at most `limit` bytes. Raises `UsageError`."""
    first = place = _parse(url)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            found = await _get(place, first, limit)
        except ModelError as error:
            raise UsageError(f"{_shown(place)} cannot be fetched: {error.message}", hint="check the URL") from None
        if isinstance(found, bytes):
            name = unquote(place.path).rstrip("/").rpartition("/")[2]
            return Fetched(data=found, url=place.geturl(), name=one_line(name)[:100] or str(place.hostname))
        following = _parse(urljoin(place.geturl(), found))
        if place.scheme == "https" and following.scheme == "http":
            raise UsageError(f"{_shown(place)} redirects to {_shown(following)}, which is not encrypted")
        place = following
    raise UsageError(f"{_shown(first)} redirects more than {MAX_REDIRECTS} times")


def _parse(url: str) -> SplitResult:
    try:
        place = urlsplit(url)
        usable = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{one_line(url)[:80]} is not a URL of http or https")
    if "@" in place.netloc:
        raise UsageError("a URL with a user or password is not fetched", hint="download the file, then: -f FILE")
    return place


def _shown(place: SplitResult) -> str:
    """Return a URL for messages: without its query, which may hold a key."""
    return one_line(place._replace(query="", fragment="").geturl())[:120]


async def _get(place: SplitResult, first: SplitResult, limit: int) -> bytes | str:
    host = str(place.hostname)
    proxy = urllib.request.getproxies().get(place.scheme)
    direct = not proxy or bool(urllib.request.proxy_bypass(host))
    port = place.port or (443 if place.scheme == "https" else 80)
    addresses = [host] if _is_address(host) else []
    if direct and not addresses:
        try:
            found = await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ModelError("connect", f"there is no host {one_line(host)}") from None
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    named_by_user = host == first.hostname and (_is_address(host) or host == "localhost")
    for address in addresses:
        if not ip_address(address).is_global and not named_by_user:
            raise UsageError(
                f"{host} is at the private address {address}, from which nothing is fetched",
                hint="name the address itself, or download the file and use -f FILE",
            )
    client = HttpClient(f"{place.scheme}://{place.netloc}", address=addresses[0] if addresses else "")
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    try:
        async with client.open("GET", path, seconds=SECONDS, limit=limit, every=True) as answer:
            if answer.status in _REDIRECT_CODES and answer.headers.get("location"):
                return answer.headers["location"]
            if answer.status >= 300:
                raise ModelError("refused", f"the server answered {answer.status}")
            return await answer.body()
    finally:
        await client.close()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
