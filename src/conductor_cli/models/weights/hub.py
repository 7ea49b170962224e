"""The hub: its address, the user's token, what it says about a file, and what its errors mean.

The token is sent to the hub's own address and to no other, wherever a redirect leads. No message contains it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from conductor_cli.core.errors import ConductorUnusable, ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import clean_excerpt, retry_after
from conductor_cli.models.http import HttpClient, HttpResponse, host_of
from conductor_cli.models.weights.cache import hub_settings_directory, is_switched_on, parse_etag

OFFICIAL: Final = "https://huggingface.co"
REDIRECTS: Final = 10
ERROR_LIMIT: Final = 64 * 1024
"""Bytes that are read of an answer with an error status."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RESET: Final = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether the environment forbids asking a hub, as the hub's own library reads it."""
    return is_switched_on(environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE"))


class HubRefusal(Exception):
    """An answer with an error status. Callers turn it into a `ConductorUnusable` with `explain_error`."""

    def __init__(self, host: str, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(f"{host} answers {status}")
        self.host = host
        self.status = status
        self.code = headers.get("x-error-code", "")
        self.text = text
        # The official hub says in `ratelimit` how long its window lasts, other servers in `Retry-After`.
        reset = _RESET.search(headers.get("ratelimit", "")) if status == 429 else None
        self.wait = float(reset[1]) if reset else retry_after(headers, time.time())

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in {408, 425, 429} or self.status >= 500


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Hub:
    """A hub's address without a trailing slash, the user's token, and whether nothing may be asked."""

    endpoint: str = OFFICIAL
    token: str = ""
    offline: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Hub:
        """As the hub's own library reads the environment. Raises `ConductorUnusable` for an invalid address."""
        endpoint = environ.get("HF_ENDPOINT", "").strip().rstrip("/") or OFFICIAL
        try:
            scheme, host, _ = _origin(endpoint)
        except ValueError:
            scheme = host = ""
        if scheme not in {"http", "https"} or not host or not endpoint.isprintable() or " " in endpoint:
            raise ConductorUnusable(
                f"HF_ENDPOINT is not a valid URL: {endpoint.rpartition('@')[2]!r:.80}",
                hint="set it to https://HOST or http://HOST:PORT, or unset it",
            )
        return cls(endpoint=endpoint, token=_read_token(environ), offline=is_offline(environ))

    @property
    def host(self) -> str:
        return host_of(self.endpoint)

    @property
    def shown(self) -> str:
        """The address without a user and a password in it."""
        parts = urlsplit(self.endpoint)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def url(self, repo: str, revision: str, file: str) -> str:
        return f"{self.endpoint}/{repo}/resolve/{quote(revision, safe='')}/{quote(file)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """What the hub says about a file. `etag` is its SHA-256, or git's hash of a small file. `size` 0: not said."""

    commit: str
    etag: str
    size: int

    @property
    def sha256(self) -> str:
        """In hex, empty where the hub does not say it."""
        return self.etag if _SHA256.fullmatch(self.etag) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file that is to be downloaded, and `part`, the partial file that its bytes are appended to."""

    hub: Hub
    repo: str
    file: str
    remote: RemoteFile
    part: Path

    @property
    def url(self) -> str:
        """It names the commit, so that bytes of different days belong to the same content."""
        return self.hub.url(self.repo, self.remote.commit, self.file)

    @property
    def done(self) -> int:
        """Bytes that are there already."""
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0


def read_remote_file(hub: Hub, repo: str, revision: str, file: str, seconds: float) -> RemoteFile:
    """What the hub says about a file. Raises `HubRefusal`, or `ModelError` where no answer comes."""
    headers = asyncio.run(_collect_headers(hub, hub.url(repo, revision, file), seconds))
    commit = headers.get("x-repo-commit", "").lower()
    etag = parse_etag(headers.get("x-linked-etag") or headers.get("etag", ""))
    if not _COMMIT.fullmatch(commit) or not etag:
        # A proxy's login page answers every request with a good status.
        raise ModelError(
            "refused", f"{hub.host} does not answer like a model hub: it names no commit and hash of {file}",
            hint="check HF_ENDPOINT, the proxy, and whether the network requires a login",
        )  # fmt: skip
    size = headers.get("x-linked-size", "")
    return RemoteFile(commit=commit, etag=etag, size=int(size) if size.isdecimal() else 0)


async def _collect_headers(hub: Hub, url: str, seconds: float) -> dict[str, str]:
    """What the answers say together, up to the redirect that leads away from the hub."""
    known: dict[str, str] = {}
    for _ in range(REDIRECTS):
        async with open_answer(hub, "HEAD", url, seconds=seconds) as answer:
            status, headers = answer.status, answer.headers
        if status >= 400:
            raise HubRefusal(
                host_of(url), status, headers, clean_excerpt(headers.get("x-error-message", ""), Secrets(hub.token))
            )
        # For large files the `x-linked-…` headers describe the file, the plain ones only the redirect.
        keep = ("x-repo-commit", "x-linked-etag", "x-linked-size", "etag")
        known |= {name: headers[name] for name in keep if name in headers}
        if not (300 <= status < 400 and headers.get("location")):
            return {"x-linked-size": headers.get("content-length", "")} | known
        target = follow_redirect(url, headers["location"])
        complete = "x-repo-commit" in known and ("x-linked-etag" in known or "etag" in known)
        # The other host only has the bytes. Asking it now would use up a signed address that the download needs.
        if complete and _origin(target) != _origin(url):
            return known
        url = target
    raise ModelError("missing", f"{hub.host} redirects without end", hint="check HF_ENDPOINT")


def follow_redirect(url: str, location: str) -> str:
    """The address that a redirect leads to. Raises `ModelError` for one that is not followed."""
    try:
        target = urljoin(url, location)
        valid = _origin(target)[0] in {"http", "https"} and _origin(target)[1]
    except ValueError:
        valid = ""
    if not valid:
        raise ModelError("missing", f"{host_of(url)} redirects to an invalid URL", hint="check HF_ENDPOINT")
    return target


@asynccontextmanager
async def open_answer(  # noqa: PLR0913 - the parts of a request
    hub: Hub,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    seconds: float | None = None,
    limit: int = ERROR_LIMIT,
) -> AsyncIterator[HttpResponse]:
    """The answer of one address, whatever its status; redirects are for the caller. Raises `ModelError`."""
    parts = urlsplit(url)
    # A redirect to another host, such as a storage provider, must not receive the token.
    trusted = hub.token and _origin(url) == _origin(hub.endpoint)
    login = {"authorization": f"Bearer {hub.token}"} if trusted else {}
    server = HttpClient(f"{parts.scheme}://{parts.netloc}", headers=login, secrets=Secrets(hub.token))
    try:
        path = parts._replace(scheme="", netloc="", fragment="").geturl()
        async with server.open(method, path, headers=headers, seconds=seconds, limit=limit, every=True) as answer:
            yield answer
    finally:
        await server.close()


_NETWORK: Final = frozenset({"connect", "timeout", "broken"})

_CODES: Final = {
    "GatedRepo": ("{repo} is gated", "accept its licence at {at}/{repo}, then {login}"),
    # To strangers the hub says 401 with this code for private repositories and for missing ones alike.
    "RepoNotFound": (
        "{host} has no repository {repo}, or it is private",
        "check its name; if it is private, {login}",
    ),
    "RevisionNotFound": ("{host} has no revision {revision} of {repo}", "update conductor-llm, or the registry"),
    "EntryNotFound": ("{host} has no {what}", "update conductor-llm, or the registry"),
}
"""What the hub's error codes mean, and what to do next."""

_STATUSES: Final = {
    403: ("{host} denies access to {repo}", "see {at}/{repo}; {login}"),
    404: ("{host} has no {what}", "is {at} a model hub? check HF_ENDPOINT, or update conductor-llm"),
    407: ("the proxy for {host} requires a login", "put user and password into HTTPS_PROXY"),
}


def explain_error(error: HubRefusal | ModelError, hub: Hub, repo: str, revision: str, file: str) -> ConductorUnusable:
    """A refusal, or a server that does not answer, as the error that the user sees."""
    if isinstance(error, ModelError):
        hint = "check the network, HTTPS_PROXY and HF_ENDPOINT; the next pull continues where this one stopped"
        return ConductorUnusable(error.message, hint=hint if error.reason in _NETWORK else error.hint)
    login = "set HF_TOKEN, or: hf auth login" if not hub.token else "check what your token may read"
    what = f"{file} of {repo}"
    if error.host != hub.host:
        message = f"{hub.host} redirects to {error.host} for {what}, which refuses the download"
        hint = "try again later, or with another HF_ENDPOINT"
    elif error.code in _CODES:
        message, hint = _CODES[error.code]
    else:
        message, hint = _explain_status(error, hub)
    words = {"host": error.host, "repo": repo, "what": what, "revision": revision, "login": login, "at": hub.shown}
    message = f"{message.format_map(words)} ({error.status})"
    return ConductorUnusable(f"{message}{f': {error.text}' if error.text else ''}", hint=hint.format_map(words))


def _explain_status(error: HubRefusal, hub: Hub) -> tuple[str, str]:
    if error.status == 401:
        return "{host} " + ("rejects the token" if hub.token else "requires a token") + " for {repo}", "{login}"
    if error.status == 429:
        wait = f", wait {error.wait:.0f} s" if error.wait else ""
        higher = "" if hub.token else "; HF_TOKEN raises the limit"
        return "{host}: rate limit reached" + wait, f"try again later{higher}"
    if error.passing:
        return "{host}: server error", "try again later; the next pull continues where this one stopped"
    return _STATUSES.get(error.status, ("{host} refuses {what}", "check HF_ENDPOINT"))


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _read_token(environ: Mapping[str, str]) -> str:
    """From HF_TOKEN, or the file that `hf auth login` writes. Raises `ConductorUnusable` for what cannot be sent.

    The hub's library could do this, but its import takes longer than everything else before a download.
    """
    if is_switched_on(environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return ""
    where = next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if environ.get(name)), "")
    token = environ.get(where, "")
    if not where:
        path = Path(os.path.expandvars(environ.get("HF_TOKEN_PATH") or hub_settings_directory(environ) / "token"))
        where = str(path)
        try:
            token = path.expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""
    # Tokens are often pasted or read from a file with a line break at the end.
    token = "".join(token.split())
    if not (token.isascii() and token.isprintable()):
        raise ConductorUnusable(
            f"the token in {where} contains invalid characters", hint="set HF_TOKEN, unset it, or: hf auth login"
        )
    return token


def renew_login() -> None:
    """Have the hub's library renew a browser login, which lasts a few hours, in the file that it keeps."""
    from huggingface_hub import get_token

    with suppress(Exception):  # then the hub's refusal of the old token is what the user sees
        get_token()
