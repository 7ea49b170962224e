"""Reads from addresses that a stranger may have chosen: pages for a question, results of a search.

This is the only way to such an address. A host is looked up once, each address is checked, and the
connection goes to the address that was checked, through a proxy too: a name that means another
address a moment later changes nothing. A redirect is checked like the first address. Time, size
and the number of redirects are bounded, and no key, cookie or password is ever sent.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urldefrag, urljoin, urlsplit

from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.web_access import (
    DOMAINS_SETTING,
    HOSTS_SETTING,
    WebRules,
    first_private,
    robots_allow,
)
from conductor_cli.core.web_encodings import encoding_of_page
from conductor_cli.models.addresses import http_url
from conductor_cli.models.http import HttpResponse, send_to_addresses

AGENT: Final = "conductor-llm"
FETCH_SECONDS: Final = 30.0  # For one page with its redirects and the robots.txt of its hosts
MAX_REDIRECTS: Final = 5
MAX_ROBOTS_BYTES: Final = 500 << 10  # As RFC 9309 asks for; what stands behind is not read
MAX_URL_CHARS: Final = 2000

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_USUAL_PORTS: Final = {"http": 80, "https": 443}


class WebRefused(ModelError):
    """An address that may not be read, by a rule of the user or by the wish of its server."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("refused", message, hint=hint, retryable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What an address gave: its bytes, what the server calls them, and where they were at last."""

    url: str
    content: bytes
    content_type: str = ""

    @property
    def is_html(self) -> bool:
        """Whether it is a web page, by its server's word or, where that is missing, its text."""
        if self.content_type:
            return self.content_type.partition(";")[0].strip().lower() in _HTML_TYPES
        start = self.content[:1024].lstrip().lower()
        return start.startswith((b"<!doctype html", b"<html"))

    @property
    def text_content(self) -> bytes:
        """The bytes, as UTF-8 with its mark where the server names another encoding of a text.

        What does not fit the encoding that is named stays as it came.
        """
        charset = _CHARSET.search(self.content_type)
        is_text = self.is_html or self.content_type.startswith("text/")
        if not is_text or charset is None or self.content.startswith(_BYTE_ORDER_MARKS):
            return self.content
        try:
            encoding = encoding_of_page(charset[1])
            if not _TEXT_ENCODING.fullmatch(encoding):
                return self.content
            return codecs.BOM_UTF8 + self.content.decode(encoding).encode()
        except (LookupError, ValueError):
            return self.content


_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)

_BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_TEXT_ENCODING: Final = re.compile(
    r"utf-(?:8|16|32)(?:-[bl]e)?|iso8859-\d+|cp125\d|cp866|cp874|koi8-[ru]|mac-(?:roman|cyrillic)"
    r"|shift_jis|cp932|euc_(?:jp|kr)|cp949|iso2022_jp|gb2312|gbk|gb18030|big5(?:hkscs)?"
)
"""The encodings of pages, as Python calls them. Others it has are no texts, or slow to decode."""

_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


async def fetch_page(
    url: str, rules: WebRules, *, limit: int, seconds: float = FETCH_SECONDS
) -> Page:
    """Return what an address gives, in at most `limit` bytes and `seconds`.

    Raises `WebRefused` for an address that may not be read, and `ModelError` for one that cannot.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _follow(url, rules, limit)
    except TimeoutError:
        name = one_line(url)[:200]
        raise ModelError("timeout", f"{name} did not answer within {seconds:g} s") from None


async def _follow(url: str, rules: WebRules, limit: int) -> Page:
    """Return the page at an address, or where its redirects lead."""
    here = url
    robots: dict[str, str] = {}
    for _ in range(MAX_REDIRECTS + 1):
        target = await _checked_target(here, rules)
        await _check_robots(target, robots)
        async with _opened(target, limit) as answer:
            if answer.status in _REDIRECTS and "location" in answer.headers:
                here = _redirected(here, answer.headers["location"])
                continue
            if answer.status != 200:
                message = f"{shown_url(here)} cannot be read: its server answered {answer.status}"
                raise ModelError("missing", message, hint="open it in a browser to see why")
            content_type = answer.headers.get("content-type", "")
            return Page(url=here, content=await answer.body(), content_type=content_type)
    message = f"{shown_url(url)} leads on more than {MAX_REDIRECTS} times"
    raise ModelError("broken", message, hint="give the address that it leads to")


def _redirected(url: str, location: str) -> str:
    """Return where a redirect leads; a location that is no address as it is, to be refused."""
    try:
        return urljoin(url, location)
    except ValueError:
        return location


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """An address that may be read. `addresses` is empty where the host may be anywhere."""

    url: str
    parts: SplitResult
    port: int
    addresses: tuple[str, ...]

    @property
    def path(self) -> str:
        path = self.parts.path or "/"
        if self.parts.query:
            return f"{path}?{self.parts.query}"
        return path

    @property
    def origin(self) -> str:
        return f"{self.parts.scheme}://{self.parts.netloc}"


async def _checked_target(url: str, rules: WebRules) -> _Target:
    """Return the target of an address, or raise `WebRefused`."""
    shown = shown_url(url)
    plain_url = urldefrag(_ascii_url(url)).url
    parts = http_url(plain_url)
    if parts is None or len(plain_url) > MAX_URL_CHARS or not plain_url.isprintable():
        raise WebRefused(f"{shown} is no address of the web", hint="it begins with https://")
    if "@" in parts.netloc:
        message = f"{shown} has a user name or a password in it, which is not sent"
        raise WebRefused(message, hint="leave out what stands before the @")
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _USUAL_PORTS[parts.scheme]
    if not rules.is_in_domains(host):
        message = f"{shown}: the policy does not let {host} be read"
        raise WebRefused(message, hint=f"conductor config show {DOMAINS_SETTING}")
    addresses: tuple[str, ...] = ()
    if not rules.is_named(host, port):
        addresses = await _look_up(host, port)
        private = first_private(addresses)
        if private:
            address = host
            if host != private:
                address = f"{host} is at {private}, which"
            message = f"{shown} is not read: {address} is no public address"
            hint = f"if you trust that host: conductor config set {HOSTS_SETTING} {host}"
            raise WebRefused(message, hint=hint)
    return _Target(url=plain_url, parts=parts, port=port, addresses=addresses)


def _ascii_url(url: str) -> str:
    """Return an address whose host is written as DNS has it; any other text as it is."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host.isascii():
            return url
        encoded = host.encode("idna").decode("ascii")
        port = f":{parts.port}" if parts.port else ""
    except (ValueError, UnicodeError):
        return ""
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{encoded}{port}").geturl()


async def _look_up(host: str, port: int) -> tuple[str, ...]:
    """Return every address of a host. Raises `ModelError`."""
    try:
        entries = await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        message = f"{one_line(host)[:200]} has no address"
        hint = (
            "check its name; where only a proxy knows names, name the host: "
            f"conductor config set {HOSTS_SETTING} {one_line(host)[:200]}"
        )
        raise ModelError("connect", message, hint=hint) from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def _check_robots(target: _Target, robots: dict[str, str]) -> None:
    """Raise `WebRefused` where the robots.txt of a host asks programs not to read the target."""
    if target.origin not in robots:
        robots[target.origin] = await _read_robots(target)
    if not robots_allow(robots[target.origin], AGENT, target.path):
        message = f"{shown_url(target.url)} is not read: the robots.txt of its host asks for that"
        raise WebRefused(message, hint="save the page in a browser, and attach the file")


async def _read_robots(target: _Target) -> str:
    """Return the robots.txt of a host; a host that has none allows all, one that fails nothing."""
    url = f"{target.origin}/robots.txt"
    file = _Target(url=url, parts=urlsplit(url), port=target.port, addresses=target.addresses)
    async with _opened(file, 2 * MAX_ROBOTS_BYTES) as answer:
        if answer.status >= 500:
            return "User-agent: *\nDisallow: /"
        if answer.status != 200:
            return ""
        content = bytearray()
        while len(content) < MAX_ROBOTS_BYTES and (piece := await answer.piece()):
            content += piece
    return content[:MAX_ROBOTS_BYTES].decode("utf-8-sig", "replace")


@asynccontextmanager
async def _opened(target: _Target, limit: int) -> AsyncIterator[HttpResponse]:
    headers = {"user-agent": AGENT, "accept-encoding": "identity"}
    async with send_to_addresses(target.url, target.addresses, headers, limit) as answer:
        yield answer


def shown_url(url: str) -> str:
    """Return an address as a message may show it: in one line, without what may be a secret."""
    try:
        parts = urlsplit(url)
        netloc = parts.netloc.rpartition("@")[2]
        bare = parts._replace(netloc=netloc, query="", fragment="").geturl()
    except ValueError:
        bare = url.partition("?")[0]
    return one_line(bare)[:200]
