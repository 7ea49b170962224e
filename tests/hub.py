"""A model hub on loopback, as `huggingface_hub` 1.x finds it.

Metadata on one host, bytes on another, and faults.

The hub lists the files of a commit with SHA-256 and size in `GET
/api/models/REPO/revision/REVISION`. It answers `HEAD` and `GET /REPO/resolve/REVISION/FILE`: for
large files with commit, SHA-256 and size in headers and a signed redirect to the host that has the
bytes (`localhost` instead of `127.0.0.1`, so that it is another one to every client); for small
files with a relative redirect and git's hash. The other host knows ranges (206, 416).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers import SeenRequest, Wire, loopback

SMALL = 1024
"""Files below this many bytes are kept in git, as the hub does with what is not in large file
storage.
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error status instead of an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with the body of one answer once `after` bytes of it were sent.

    A drip makes pauses (seconds).
    """

    kind: Literal[
        "stall", "cut", "drip", "wrong", "more", "surplus", "no range", "changed", "mute", "hold"
    ]
    after: int = 0
    pause: float = 0.05


@dataclass
class Repo:
    """What each revision stands for, and the files of each commit."""

    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)


class Hub:
    """The hub while it runs.

    `refusals` answer the next requests to it, `cdn_refusals` and `faults` those for bytes.

    `gated` are repositories whose files are for those who accepted a licence.
    An answer that is held goes on with `go_on`. With a `token` set the hub refuses all others; one
    that has `expired` it refuses also where none is needed.
    `logins` has the new token for each that renews a login. `listing` replaces keys of the list of
    files, which has no SHA-256 without `hashes`.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.refusals: list[Refusal] = []
        self.cdn_refusals: list[Refusal] = []
        self.faults: list[Fault] = []
        self.go_on = threading.Event()
        self.location = ""
        self.logins: dict[str, str] = {}
        self.token = ""
        self.expired = ""
        self.gated: set[str] = set()
        self.size: int | None = None
        self.etag = ""
        self.hashes = True
        self.listing: dict[str, Any] = {}
        self.cdn_etag = True
        self.front = loopback(self._front)
        self.back = loopback(self._back)

    @property
    def url(self) -> str:
        return self.front.url

    @property
    def fetched(self) -> list[SeenRequest]:
        """The requests for bytes."""
        return [request for request in self.back.requests if request.method == "GET"]

    @property
    def ranges(self) -> list[str]:
        """The range that each request for bytes asked for, empty for all."""
        return [request.headers.get("range", "") for request in self.fetched]

    def commit(self, repo: str, files: dict[str, bytes], revision: str = "main") -> str:
        """A new commit with these files beside those before, and the revision set to it."""
        repository = self.repos.setdefault(repo, Repo())
        whole = repository.commits.get(repository.revisions.get(revision, ""), {}) | files
        name = hashlib.sha1(
            repr(sorted((k, sha256(v)) for k, v in whole.items())).encode()
        ).hexdigest()
        repository.commits[name] = whole
        repository.revisions[revision] = name
        return name

    async def _front(self, request: SeenRequest, wire: Wire) -> None:
        if self.refusals:
            refusal = self.refusals.pop(0)
            await self._say(
                wire,
                refusal.status,
                refusal.headers,
                refusal.body if request.method != "HEAD" else b"",
            )
            return
        path = unquote(urlsplit(request.path).path)
        if path == "/oauth/token":
            tokens = {
                "access_token": self.logins[parse_qs(request.body.decode())["refresh_token"][0]],
                "expires_in": 3600,
            }
            await self._say(
                wire, 200, {"Content-Type": "application/json"}, json.dumps(tokens).encode()
            )
            return
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if (self.token and shown != self.token) or (shown and shown == self.expired):
            await self._say(
                wire, 401, {"X-Error-Message": "Invalid credentials in Authorization header"}
            )
            return
        if match := re.fullmatch(r"/api/(?:models|datasets)/([^/]+/[^/]+)/revision/([^/]+)", path):
            await self._list(wire, *match.groups())
        elif match := re.fullmatch(
            r"/(?:api/resolve-cache/models/|datasets/)?([^/]+/[^/]+)/(?:resolve/)?([^/]+)/(.+)",
            path,
        ):
            await self._resolve(request, wire, *match.groups())
        else:
            await self._say(wire, 404)

    async def _list(self, wire: Wire, repo: str, revision: str) -> None:
        repository = self.repos.get(repo)
        # The real hub says 401 to strangers, so that nobody learns which private ones there are
        if repository is None:
            await self._say(
                wire,
                401,
                {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
            )
            return
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            await self._say(
                wire,
                404,
                {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "RevisionNotFound"},
            )
            return
        siblings = [
            self._sibling(file, content) for file, content in repository.commits[commit].items()
        ]
        answer = json.dumps({"id": repo, "sha": commit, "siblings": siblings} | self.listing)
        await self._say(wire, 200, {"Content-Type": "application/json"}, answer.encode())

    def _sibling(self, file: str, content: bytes) -> dict[str, Any]:
        size = len(content) if self.size is None else self.size
        fields = {"rfilename": file, "blobId": self.etag or git_hash(content), "size": size}
        if len(content) < SMALL or not self.hashes:
            return fields
        return fields | {
            "lfs": {"sha256": self.etag or sha256(content), "size": size, "pointerSize": 134}
        }

    async def _resolve(
        self, request: SeenRequest, wire: Wire, repo: str, revision: str, file: str
    ) -> None:
        repository = self.repos[repo]
        commit = repository.revisions.get(revision, revision)
        files = repository.commits.get(commit)
        if files is None or file not in files:
            code = "RevisionNotFound" if files is None else "EntryNotFound"
            await self._say(wire, 404, {"X-Error-Code": code, "X-Error-Message": code})
        elif repo in self.gated:
            await self._say(wire, gated().status, gated().headers)
        elif len(files[file]) < SMALL:
            await self._small(request, wire, repo, commit, file)
        else:
            await self._large(wire, repo, commit, file)

    async def _small(
        self, request: SeenRequest, wire: Wire, repo: str, commit: str, file: str
    ) -> None:
        content = self.repos[repo].commits[commit][file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{self.etag or git_hash(content)}"'}
        if "/resolve/" in request.path:
            headers["Location"] = f"/api/resolve-cache/models/{repo}/{commit}/{file}"
            await self._say(wire, 307, headers)
        else:
            head = request.method == "HEAD"
            await self._say(
                wire, 200, headers | {"Content-Length": str(len(content))}, b"" if head else content
            )

    async def _large(self, wire: Wire, repo: str, commit: str, file: str) -> None:
        content = self.repos[repo].commits[commit][file]
        etag = self.etag or sha256(content)
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-ETag": f'"{etag}"',
            "X-Linked-Size": str(len(content) if self.size is None else self.size),
            "Location": self.location
            or f"http://localhost:{self.back.port}/{sha256(content)}?signature=s3cret",
        }
        await self._say(wire, 302, headers)

    async def _back(self, request: SeenRequest, wire: Wire) -> None:
        if self.cdn_refusals:
            refusal = self.cdn_refusals.pop(0)
            await self._say(wire, refusal.status, refusal.headers, refusal.body)
            return
        key = urlsplit(request.path).path[1:]
        fault = self.faults.pop(0) if self.faults else None
        await self._body(request, wire, self._content(key), fault)

    def _content(self, key: str) -> bytes:
        commits = chain.from_iterable(repo.commits.values() for repo in self.repos.values())
        contents = chain.from_iterable(files.values() for files in commits)
        return next(content for content in contents if sha256(content) == key)

    async def _body(
        self, request: SeenRequest, wire: Wire, content: bytes, fault: Fault | None
    ) -> None:
        kind = fault.kind if fault else ""
        if kind == "mute":
            await wire.stall()
        range_match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        start = int(range_match[1]) if range_match and kind != "no range" else 0
        headers = {"Accept-Ranges": "bytes"}
        if self.cdn_etag:
            headers["ETag"] = f'"{hashlib.md5(content).hexdigest()}"'
        if "if-range" in request.headers and (
            kind == "changed" or request.headers["if-range"] != headers.get("ETag")
        ):
            start = 0
        if start >= len(content) and range_match:
            await self._say(wire, 416, headers | {"Content-Range": f"bytes */{len(content)}"})
            return
        end = (
            min(int(range_match[2]) + 1, len(content))
            if range_match and range_match[2] and kind != "no range"
            else len(content)
        )
        body = content[start:end]
        if kind == "wrong":
            body = bytes(byte ^ 1 for byte in body)
        if kind == "more":
            body += b"more"
        if kind == "surplus":  # in chunks, so that no length is said, and more than there is
            head = "HTTP/1.1 200 Made Up\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            surplus = body + bytes(fault.after if fault else 0)
            await wire.raw(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(surplus), surplus))
            return
        headers["Content-Length"] = str(len(body))
        partial = (start, end) != (0, len(content))
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        await self._head(wire, 206 if partial else 200, headers)
        await self._send(wire, body, fault)

    async def _send(self, wire: Wire, body: bytes, fault: Fault | None) -> None:
        if fault is None or fault.kind not in {"stall", "cut", "drip", "hold"}:
            await wire.raw(body)
            return
        await wire.raw(body[: fault.after])
        if fault.kind == "stall":
            await wire.stall()
        if fault.kind == "hold":
            await asyncio.to_thread(self.go_on.wait)
            await wire.raw(body[fault.after :])
        if fault.kind == "drip":  # slow, but it comes
            for start in range(fault.after, len(body), 64 * 1024):
                await asyncio.sleep(fault.pause)
                await wire.raw(body[start : start + 64 * 1024])

    async def _say(
        self, wire: Wire, status: int, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        await self._head(wire, status, {"Content-Length": str(len(body))} | (headers or {}))
        await wire.raw(body)

    async def _head(self, wire: Wire, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Made Up", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await wire.raw("\r\n".join([*lines, "", ""]).encode())


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub without repositories."""
    server = Hub()
    with server.front, server.back:
        try:
            yield server
        finally:
            server.go_on.set()


def read_environment() -> None:
    """Have the hub's library read the environment again, which it does only when it is imported."""
    if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
        importlib.reload(constants)
        if (http := sys.modules.get("huggingface_hub.utils._http")) is not None:
            http.close_session()  # its connections go through the old proxies


def gated(**headers: Any) -> Refusal:
    """What the hub says of a repository whose licence was not accepted."""
    return Refusal(
        status=403,
        headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"} | headers,
    )
