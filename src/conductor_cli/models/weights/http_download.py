"""Ranged HTTP requests for the bytes of a file, each continuing where the one before stopped.

The hub's own library is not used for this: it discards a partial file after every failure (huggingface_hub#4196), which
on a slow line means that a large file never arrives.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.http import HttpResponse, host_of
from conductor_cli.models.weights.hub import REDIRECTS, Download, HubRefusal, follow_redirect, open_answer
from conductor_cli.models.weights.progress import ProgressMeter

PASSING: Final = frozenset({"broken", "timeout", "overloaded", "rate"})
"""Reasons of a `ModelError` for which the same request may succeed a moment later."""

NO_LIMIT: Final = 1 << 62

_RANGE: Final = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait, in seconds.

    `stall`: for a new byte before the connection is given up. `waits`: before each further try. `longest`: what a
    server may ask for at most.
    """

    stall: float = 30.0
    waits: tuple[float, ...] = (1.0, 4.0, 15.0)
    longest: float = 120.0


def retry(
    action: Callable[[], T],
    policy: RetryPolicy,
    note: Callable[[str], None],
    passing: frozenset[str] = PASSING,
    done: Callable[[], int] = lambda: 0,
) -> T:
    """The result of `action`, tried again after errors that may pass.

    The count of tries starts over whenever `done` exceeds its maximum so far, so that a line that breaks often is no
    reason to give up. Bytes that are dropped and downloaded again are no progress.
    """
    tries, most = 0, done()
    while True:
        try:
            return action()
        except (HubRefusal, ModelError) as error:
            now = done()
            tries, most = (1, now) if now > most else (tries + 1, most)
            may_pass = error.passing if isinstance(error, HubRefusal) else error.reason in passing
            if not may_pass or tries > len(policy.waits):
                raise
            asked = error.wait if isinstance(error, HubRefusal) else None
            # A server's Retry-After counts more than our own schedule.
            seconds = policy.waits[tries - 1] if asked is None else asked
            if seconds > policy.longest:
                raise
            note(f"{error}: trying again in {seconds:.0f} s")
        time.sleep(seconds)


def download_bytes(download: Download, policy: RetryPolicy, meter: ProgressMeter) -> bool:
    """Append the missing bytes to the partial file; whether the whole file came by one request.

    Raises `HubRefusal`, `ModelError`, or `OSError` where they cannot be written. Only the size is checked here.
    """
    transfer, size = _Transfer(download, policy, meter), download.remote.size or NO_LIMIT
    from_start = download.done == 0
    retry(transfer.run, policy, meter.note, PASSING | {"connect"}, lambda: min(size, download.done))
    return from_start and transfer.requests == 1


class _Transfer:
    """One download over several requests. The ETag of the host that has the bytes is kept between them."""

    def __init__(self, download: Download, policy: RetryPolicy, meter: ProgressMeter) -> None:
        self._download = download
        self._policy = policy
        self._meter = meter
        self._etag = ""
        self.requests = 0

    def run(self) -> None:
        self.requests += 1
        problem = asyncio.run(self._request())
        if problem is not None:
            raise problem

    async def _request(self) -> Exception | None:
        """Problems are returned: an exception inside an open answer would be taken for one of the connection."""
        download, url = self._download, self._download.url
        if download.remote.size and download.done == download.remote.size:
            return None
        for _ in range(REDIRECTS):
            start = download.done
            headers = {"range": f"bytes={start}-"} if start else {}
            if start and self._etag:
                # A host whose content has changed then answers with the whole file instead of joining two contents.
                headers["if-range"] = self._etag
            async with AsyncExitStack() as opened:
                try:
                    async with asyncio.timeout(self._policy.stall):
                        answer = await opened.enter_async_context(
                            open_answer(download.hub, "GET", url, headers=headers, limit=NO_LIMIT)
                        )
                except TimeoutError:
                    return self._stalled(host_of(url))
                target = answer.headers.get("location", "") if 300 <= answer.status < 400 else ""
                if not target:
                    return await self._read_answer(answer, start, host_of(url))
            url = follow_redirect(url, target)
        return ModelError("missing", f"{download.hub.host} redirects without end", hint="check HF_ENDPOINT")

    async def _read_answer(self, answer: HttpResponse, start: int, host: str) -> Exception | None:
        remote, file = self._download.remote, self._download.file
        if answer.status == 416:
            # There is nothing after the bytes that we have: the file is complete, or they are not of this file.
            whole = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            if whole and whole[3] == str(start):
                return None if start == (remote.size or start) else self._wrong_size(start, host)
            self._download.part.unlink(missing_ok=True)
            return ModelError("broken", f"{host} has fewer bytes of {file} than were downloaded")
        if answer.status not in {200, 206}:
            body = b""
            with suppress(TimeoutError, ModelError):  # the status says enough
                async with asyncio.timeout(self._policy.stall):
                    body = (await answer.piece())[:4096]
            words = clean_excerpt(body, Secrets(self._download.hub.token))
            return HubRefusal(host, answer.status, answer.headers, words)
        first, size = _content_range(answer)
        expected = remote.size or size
        if size and size != expected:
            return self._wrong_size(size, host)
        if first not in {0, start}:
            return ModelError("broken", f"{host} sent another part of {file} than was requested")
        # A weak ETag does not promise equal bytes, so it cannot guard a range.
        etag = answer.headers.get("etag", "")
        self._etag = "" if etag.startswith("W/") else etag
        return await self._write(answer, first, expected, host)

    async def _write(self, answer: HttpResponse, start: int, size: int, host: str) -> Exception | None:
        part, done = self._download.part, start
        try:
            with part.open("rb+" if part.exists() else "xb") as file:
                file.seek(start)
                file.truncate()
                # Each piece is written at once, so that a killed process loses almost nothing.
                while True:
                    async with asyncio.timeout(self._policy.stall):
                        piece = await answer.piece()
                    if not piece:
                        break
                    file.write(piece)
                    done += len(piece)
                    self._meter.update(done)
                    if size and done > size:
                        break
        except TimeoutError:
            return self._stalled(host)
        except OSError as error:
            return error
        if size and done != size:
            return ModelError("broken", f"{host} sent {done:,} of {size:,} bytes")
        return None

    def _stalled(self, host: str) -> ModelError:
        return ModelError("timeout", f"no data from {host} for {self._policy.stall:.0f} s")

    def _wrong_size(self, size: int, host: str) -> ModelError:
        download = self._download
        return ModelError(
            "refused", f"{host} has {size:,} bytes of {download.file}, but {download.hub.host} says "
            f"{download.remote.size:,}", hint="try another HF_ENDPOINT",
        )  # fmt: skip


def _content_range(answer: HttpResponse) -> tuple[int, int]:
    """Where the bytes of the answer begin, and how many the whole file has, 0 if that is not said."""
    if answer.status == 200:
        length = answer.headers.get("content-length", "")
        return 0, int(length) if length.isdecimal() else 0
    found = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    if found is None or found[1] is None:
        return -1, 0
    return int(found[1]), int(found[3]) if found[3] != "*" else 0
