"""The hub: where it is, who we are to it, what it says of a file, and what its refusals mean.

The token goes to the hub's own address and to no other, wherever a redirect leads. It stands in no message.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.models.api_errors import clean_excerpt, retry_after
from conductor_cli.models.http import HttpClient, HttpResponse, host_of
from conductor_cli.models.weights.cache import is_on, key_of, settings_directory

OFFICIAL: Final = "https://huggingface.co"
REDIRECTS: Final = 10
WORDS_LIMIT: Final = 64 * 1024
"""Bytes that are read of an answer with an error status."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RESET: Final = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether the environment says that no hub may be asked, as the hub's own library reads it."""
    return is_on(environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE"))


class Refused(Exception):
    """An answer with an error status. It never leaves the room: `unusable` says what it means."""

    def __init__(self, host: str, status: int, headers: Mapping[str, str], words: str) -> None:
        super().__init__(f"{host} answers {status}")
        self.host = host
        self.status = status
        self.code = headers.get("x-error-code", "")
        self.words = words
        reset = _RESET.search(headers.get("ratelimit", "")) if status == 429 else None
        self.wait = float(reset[1]) if reset else retry_after(headers, time.time())

    @property
    def passing(self) -> bool:
        """Whether the same question may be answered a moment later."""
        return self.status in {408, 425, 429} or self.status >= 500


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Hub:
    """A hub's address without a slash at its end, the user's token, and whether nothing may be asked."""

    endpoint: str = OFFICIAL
    token: str = ""
    offline: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Hub:
        """As the hub's own library reads the environment. Raises `ConductorUnusable` for an address that is none."""
        endpoint = environ.get("HF_ENDPOINT", "").strip().rstrip("/") or OFFICIAL
        if not _is_address(endpoint):
            raise ConductorUnusable(
                f"HF_ENDPOINT is no address: {endpoint.rpartition('@')[2]!r:.80}",
                hint="set it to https://HOST or http://HOST:PORT, or unset it",
            )
        return cls(endpoint=endpoint, token=_token(environ), offline=is_offline(environ))

    @property
    def host(self) -> str:
        return host_of(self.endpoint)

    @property
    def shown(self) -> str:
        """The address without a user and a password in it."""
        parts = urlsplit(self.endpoint)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def official(self) -> bool:
        return self.endpoint == OFFICIAL

    def url(self, repo: str, revision: str, file: str) -> str:
        return f"{self.endpoint}/{repo}/resolve/{quote(revision, safe='')}/{quote(file)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the hub says of a file. `etag` is its SHA-256, or for small files git's hash. `size` 0: it does not say.

    `xet`: the hub offers the file in pieces of its own kind, too.
    """

    commit: str
    etag: str
    size: int
    xet: bool = False

    @property
    def sha256(self) -> str:
        """In hex, empty where the hub does not say it."""
        return self.etag if _SHA256.fullmatch(self.etag) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file that is to be fetched: what it is, and the file `part` that its bytes go to and that may be begun."""

    hub: Hub
    repo: str
    file: str
    found: Found
    part: Path

    @property
    def url(self) -> str:
        """Names the commit, so that what is fetched later belongs to what was fetched before."""
        return self.hub.url(self.repo, self.found.commit, self.file)

    @property
    def begun(self) -> int:
        """Bytes that are there already."""
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0


def ask(hub: Hub, repo: str, revision: str, file: str, seconds: float) -> Found:
    """What the hub says of a file. Raises `Refused`, or `ModelError` where no answer comes."""
    headers = asyncio.run(_headers(hub, hub.url(repo, revision, file), seconds))
    commit = headers.get("x-repo-commit", "").lower()
    etag = key_of(headers.get("x-linked-etag") or headers.get("etag", ""))
    if not _COMMIT.fullmatch(commit) or not etag:
        raise ModelError(
            "refused", f"{hub.host} answers, but not as a hub does: it names no commit and hash of {file}",
            hint="check HF_ENDPOINT, the proxy, and whether the network wants a login",
        )  # fmt: skip
    size = headers.get("x-linked-size", "")
    size_known = int(size) if size.isdecimal() else 0
    return Found(commit=commit, etag=etag, size=size_known, xet="x-xet-hash" in headers)


async def _headers(hub: Hub, url: str, seconds: float) -> dict[str, str]:
    """What the answers on the way say together, up to the one that leads away from the hub."""
    known: dict[str, str] = {}
    for _ in range(REDIRECTS):
        async with reached(hub, "HEAD", url, seconds=seconds) as answer:
            status, headers = answer.status, answer.headers
        if status >= 400:
            raise Refused(
                host_of(url), status, headers, clean_excerpt(headers.get("x-error-message", ""), (hub.token,))
            )
        keep = ("x-repo-commit", "x-linked-etag", "x-linked-size", "x-xet-hash", "etag")
        known |= {name: headers[name] for name in keep if name in headers}
        if not (300 <= status < 400 and headers.get("location")):
            return {"x-linked-size": headers.get("content-length", "")} | known
        target = follow(url, headers["location"])
        told = "x-repo-commit" in known and ("x-linked-etag" in known or "etag" in known)
        if told and _origin(target) != _origin(url):
            return known
        url = target
    raise ModelError("missing", f"{hub.host} redirects without end", hint="check HF_ENDPOINT")


def follow(url: str, location: str) -> str:
    """The address that a redirect leads to. Raises `ModelError` for one that is not followed."""
    try:
        target = urljoin(url, location)
        known = _origin(target)[0] in {"http", "https"} and _origin(target)[1]
    except ValueError:
        known = ""
    if not known:
        raise ModelError("missing", f"{host_of(url)} leads to an address that is none", hint="check HF_ENDPOINT")
    return target


@asynccontextmanager
async def reached(  # noqa: PLR0913 - the parts of a request
    hub: Hub,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    seconds: float | None = None,
    limit: int = WORDS_LIMIT,
) -> AsyncIterator[HttpResponse]:
    """The answer of one address, whatever its status; redirects are for the caller. Raises `ModelError`."""
    parts = urlsplit(url)
    own = hub.token and _origin(url) == _origin(hub.endpoint)
    who = {"authorization": f"Bearer {hub.token}"} if own else {}
    server = HttpClient(f"{parts.scheme}://{parts.netloc}", headers=who, secrets=(hub.token,))
    try:
        path = parts._replace(scheme="", netloc="", fragment="").geturl()
        async with server.open(method, path, headers=headers, seconds=seconds, limit=limit, every=True) as answer:
            yield answer
    finally:
        await server.close()


def unusable(error: Refused | ModelError, hub: Hub, repo: str, revision: str, file: str) -> ConductorUnusable:
    """A refusal, or a server that does not answer, as the error that the user sees."""
    if isinstance(error, ModelError):
        hint = "check the network, HTTPS_PROXY and HF_ENDPOINT; a pull goes on where it stopped"
        return ConductorUnusable(error.message, hint=hint if error.reason in _LINE else error.hint)
    login = "set HF_TOKEN, or: hf auth login" if not hub.token else "see what the token that was sent may read"
    what = f"{file} of {repo}"
    if error.host != hub.host:
        message = f"{hub.host} leads to {error.host} for the bytes of {what}, which refuses them"
        hint = "try again later, or with another HF_ENDPOINT"
    elif error.code in _CODES:
        message, hint = _CODES[error.code]
    else:
        message, hint = _by_status(error, hub)
    words = {"host": error.host, "repo": repo, "what": what, "revision": revision, "login": login, "at": hub.shown}
    message = f"{message.format_map(words)} ({error.status})"
    return ConductorUnusable(f"{message}{f': {error.words}' if error.words else ''}", hint=hint.format_map(words))


_LINE: Final = frozenset({"connect", "timeout", "broken"})

_CODES: Final = {
    "GatedRepo": ("{repo} is gated", "accept its licence at {at}/{repo}, then {login}"),
    "RepoNotFound": (
        "{host} knows no repository {repo}, or it is private",
        "check its name; if it is private, {login}",
    ),
    "RevisionNotFound": ("{host} has no revision {revision} of {repo}", "update conductor-llm, or the registry"),
    "EntryNotFound": ("{host} has no {what}", "update conductor-llm, or the registry"),
}
"""What the hub's error codes mean, and what to do next."""

_STATUS: Final = {
    403: ("{host} does not let us have {repo}", "see {at}/{repo}; {login}"),
    404: ("{host} has no {what}", "is {at} a hub of models? check HF_ENDPOINT, or update conductor-llm"),
    407: ("the proxy before {host} wants a login", "put user and password into HTTPS_PROXY"),
}


def _by_status(error: Refused, hub: Hub) -> tuple[str, str]:
    if error.status == 401:
        return "{host} " + ("refuses the token" if hub.token else "wants a token") + " for {repo}", "{login}"
    if error.status == 429:
        wait = f", and asks to wait {error.wait:.0f} s" if error.wait else ""
        return "{host} is asked too often" + wait, "try again later" + (
            "" if hub.token else "; HF_TOKEN raises the limit"
        )
    if error.passing:
        return "{host} is not able to answer now", "try again later: a pull goes on where it stopped"
    return _STATUS.get(error.status, ("{host} refuses {what}", "check HF_ENDPOINT"))


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _is_address(url: str) -> bool:
    """Whether an address can be asked: its kind, a host, and a port that is one."""
    try:
        scheme, host, _ = _origin(url)
    except ValueError:
        return False
    return scheme in {"http", "https"} and bool(host) and url.isprintable() and " " not in url


def _token(environ: Mapping[str, str]) -> str:
    """From HF_TOKEN, or the file that `hf auth login` writes. Raises `ConductorUnusable` for what cannot be sent."""
    if is_on(environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return ""
    where = next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if environ.get(name)), "")
    token = environ.get(where, "")
    if not where:
        path = Path(os.path.expandvars(environ.get("HF_TOKEN_PATH") or settings_directory(environ) / "token"))
        where = str(path)
        try:
            token = path.expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""
    token = "".join(token.split())
    if not (token.isascii() and token.isprintable()):
        raise ConductorUnusable(
            f"the token in {where} has characters that no token has", hint="set HF_TOKEN, unset it, or: hf auth login"
        )
    return token
