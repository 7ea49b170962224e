"""The last way to a file's bytes: ranged GETs of our own, each going on where the one before stopped."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, TypeVar

from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import clean_excerpt
from conductor_cli.models.http import HttpResponse, host_of
from conductor_cli.models.weights.hub import REDIRECTS, Download, Refused, follow, reached
from conductor_cli.models.weights.progress import Meter, RetryPolicy

PASSING: Final = frozenset({"broken", "timeout", "overloaded", "rate"})
"""Reasons of a `ModelError` for which the same question may be answered a moment later."""

NO_LIMIT: Final = 1 << 62

_RANGE: Final = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")

T = TypeVar("T")


def patiently(
    action: Callable[[], T],
    pace: RetryPolicy,
    note: Callable[[str], None],
    passing: frozenset[str] = PASSING,
    done: Callable[[], int] = lambda: 0,
) -> T:
    """The outcome of `action`, tried again after what may pass.

    Tries are counted anew whenever `done` is more than it ever was: what grows, is dropped and grows again is no gain.
    """
    tries, most = 0, done()
    while True:
        try:
            return action()
        except (Refused, ModelError) as error:
            now = done()
            tries, most = (1, now) if now > most else (tries + 1, most)
            may = error.passing if isinstance(error, Refused) else error.reason in passing
            if not may or tries > len(pace.waits):
                raise
            asked = error.wait if isinstance(error, Refused) else None
            seconds = pace.waits[tries - 1] if asked is None else asked
            if seconds > pace.longest:
                raise
            note(f"{error}: trying again in {seconds:.0f} s")
        time.sleep(seconds)


def fetch(download: Download, pace: RetryPolicy, meter: Meter) -> None:
    """Bring the bytes that are missing. Raises `Refused`, `ModelError`, or `OSError` where they cannot be written."""
    getter, size = _Getter(download, pace, meter), download.found.size or NO_LIMIT
    patiently(getter.get, pace, meter.note, PASSING | {"connect"}, lambda: min(size, download.begun))


class _Getter:
    def __init__(self, download: Download, pace: RetryPolicy, meter: Meter) -> None:
        self._download = download
        self._pace = pace
        self._meter = meter
        self._etag = ""  # of the host that has the bytes, in this transfer

    def get(self) -> None:
        problem = asyncio.run(self._get())
        if problem is not None:
            raise problem

    async def _get(self) -> Exception | None:
        """Problems are returned: an exception inside an open answer is taken for one of the connection."""
        download, url = self._download, self._download.url
        if download.found.size and download.begun == download.found.size:
            return None
        for _ in range(REDIRECTS):
            begun = download.begun
            headers = {"range": f"bytes={begun}-"} if begun else {}
            if begun and self._etag:
                headers["if-range"] = self._etag
            async with AsyncExitStack() as open_answer:
                try:
                    async with asyncio.timeout(self._pace.stall):
                        answer = await open_answer.enter_async_context(
                            reached(download.hub, "GET", url, headers=headers, limit=NO_LIMIT)
                        )
                except TimeoutError:
                    return self._silent(host_of(url))
                target = answer.headers.get("location", "") if 300 <= answer.status < 400 else ""
                if not target:
                    return await self._take(answer, begun, host_of(url))
            url = follow(url, target)
        return ModelError("missing", f"{download.hub.host} redirects without end", hint="check HF_ENDPOINT")

    async def _take(self, answer: HttpResponse, begun: int, host: str) -> Exception | None:
        if answer.status == 416:
            return self._beyond(answer, begun, host)
        if answer.status not in {200, 206}:
            body = await self._words(answer)
            return Refused(host, answer.status, answer.headers, clean_excerpt(body, (self._download.hub.token,)))
        start, size = _range(answer)
        wanted = self._download.found.size or size
        if size and size != wanted:
            return self._other_size(size, host)
        if start not in {0, begun}:
            return ModelError("broken", f"{host} sent another part of {self._download.file} than was asked for")
        etag = answer.headers.get("etag", "")
        self._etag = "" if etag.startswith("W/") else etag
        return await self._write(answer, start, wanted, host)

    def _beyond(self, answer: HttpResponse, begun: int, host: str) -> Exception | None:
        """There is nothing after what we have: then it is whole, or it is none of this file's."""
        whole = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if whole and whole[3] == str(begun):
            return None if begun == (self._download.found.size or begun) else self._other_size(begun, host)
        self._download.part.unlink(missing_ok=True)
        return ModelError("broken", f"{host} does not have so many bytes of {self._download.file} as are here")

    def _other_size(self, size: int, host: str) -> ModelError:
        download = self._download
        return ModelError(
            "refused", f"{host} has {size:,} bytes of {download.file}, and {download.hub.host} says "
            f"that it has {download.found.size:,}", hint="try another HF_ENDPOINT",
        )  # fmt: skip

    async def _words(self, answer: HttpResponse) -> bytes:
        try:
            async with asyncio.timeout(self._pace.stall):
                return (await answer.piece())[:4096]
        except (TimeoutError, ModelError):
            return b""

    async def _write(self, answer: HttpResponse, start: int, size: int, host: str) -> Exception | None:
        part = self._download.part
        done = start
        try:
            with part.open("rb+" if part.exists() else "xb") as file:
                file.seek(start)
                file.truncate()
                while piece := await self._piece(answer):
                    file.write(piece)
                    done += len(piece)
                    self._meter.at(done)
                    if size and done > size:
                        break
        except TimeoutError:
            return self._silent(host)
        except OSError as error:
            return error
        if size and done != size:
            return ModelError("broken", f"{host} sent {done:,} bytes of {size:,}")
        return None

    def _silent(self, host: str) -> ModelError:
        return ModelError("timeout", f"no byte for {self._pace.stall:.0f} s from {host}")

    async def _piece(self, answer: HttpResponse) -> bytes:
        async with asyncio.timeout(self._pace.stall):
            return await answer.piece()


def _range(answer: HttpResponse) -> tuple[int, int]:
    """Where the answer's bytes begin, and how many the whole file has, 0 if that is not said."""
    if answer.status == 200:
        length = answer.headers.get("content-length", "")
        return 0, int(length) if length.isdecimal() else 0
    found = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    if found is None or found[1] is None:
        return -1, 0
    return int(found[1]), int(found[3]) if found[3] != "*" else 0
