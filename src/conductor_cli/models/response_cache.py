"""A model that remembers what it was asked: the same request again is answered from a book, and costs nothing.

`Book` is the memory, an append-only JSON Lines file; `Kept` a model around a model. Only whole replies with a text are
kept, however they ended (whoever is told nothing asks again, and wants another reply), with the tokens, money and
seconds that they took when they were made, so that a run from the book reads like the first one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from conductor_cli.core.chat import Chunk, Finish, Request
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import Model
from conductor_cli.models.disk import AppendLog, read_lines

ASKED: Final = ("messages", "max_tokens", "temperature", "seed", "stop", "grammar", "choices", "schema")
"""The fields of a request that a reply depends on."""
HEARTBEAT: Final = 0.1
"""Seconds between two signs of life to whoever waits for the reply to an equal request: far less than any timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """One whole reply as the book holds it."""

    key: str
    text: str
    thinking: str
    finish: Finish
    usage: Usage
    odds: Mapping[str, float] = field(default_factory=dict)

    def chunks(self) -> tuple[Chunk, Chunk]:
        """The reply as a model gives it: all of its text, then what it took."""
        return (
            Chunk(text=self.text, thinking=self.thinking, odds=self.odds or None),
            Chunk(usage=self.usage, finish=self.finish, kept=True),
        )


class ResponseCache:
    """Replies by what was asked.

    Several processes may write the same file; each knows what stood in it when it was opened, and what it added.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, or create it. Lines that are no reply (cut off, not ours) do not count. Raises `OSError`."""
        self.error: OSError | None = None
        """Why a reply could not be written: it is known for as long as this book is open, and not longer."""
        self._replies: dict[str, _Reply] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        for line in read_lines(path):
            with suppress(ValueError, RecursionError, DecodeError):
                reply = load(_Reply, json.loads(line))
                if reply.text.strip():
                    self._replies[reply.key] = reply
        self._journal = AppendLog(path)

    def find(self, key: str) -> _Reply | None:
        """The reply, where there is one."""
        return self._replies.get(key)

    def keep(self, reply: _Reply) -> None:
        """Remember a reply that has a text. A disk that refuses it shows in `error`: the reply is good all the same."""
        if not reply.text.strip():
            return
        self._replies[reply.key] = reply
        try:
            self._journal.append(json.dumps(dump(reply), ensure_ascii=False, separators=(",", ":")))
        except OSError as error:
            self.error = error

    def turn(self, key: str) -> asyncio.Lock:
        """Whoever asks the same at the same time waits for the first, and then finds the reply."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def close(self) -> None:
        self._journal.close()


class CachedModel:
    """`model` with a memory. Two with the same `who` answer for each other: see `who_is`."""

    def __init__(self, model: Model, book: ResponseCache, who: str) -> None:
        self.model = model
        self.book = book
        self.who = who

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        key = request_key(self.who, request)
        if key is None:
            async with aclosing(_timed(self.model, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        turn = self.book.turn(key)
        while not await _taken(turn):
            yield Chunk()  # to wait for an equal request is no silence of the model
        try:
            async with aclosing(self._told(key, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            turn.release()

    async def _told(self, key: str, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply from the book, else from the model."""
        reply = self.book.find(key)
        if reply is not None:
            for chunk in reply.chunks():
                yield chunk
            return
        heard = _Heard(key)
        async with aclosing(_timed(self.model, request)) as chunks:
            async for chunk in chunks:
                whole = heard.add(chunk)
                if whole is not None:
                    self.book.keep(whole)
                yield chunk

    async def close(self) -> None:
        """Close the model; the book is closed by whoever opened it."""
        await self.model.close()


async def _taken(turn: asyncio.Lock) -> bool:
    """Whether the lock was free, or became so, within a `PULSE`; it is then held."""
    try:
        async with asyncio.timeout(HEARTBEAT):
            return await turn.acquire()
    except TimeoutError:
        return False


class _Heard:
    """What a model has said so far in one reply."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._odds: Mapping[str, float] = {}

    def add(self, chunk: Chunk) -> _Reply | None:
        """Take a chunk; the whole reply with the last one."""
        self._text.append(chunk.text)
        self._thinking.append(chunk.thinking)
        self._odds = chunk.odds or self._odds
        if chunk.finish is None or chunk.usage is None:
            return None
        return _Reply(
            key=self._key, text="".join(self._text), thinking="".join(self._thinking),
            finish=chunk.finish, usage=chunk.usage, odds=self._odds,
        )  # fmt: skip


async def _timed(model: Model, request: Request) -> AsyncGenerator[Chunk, None]:
    """The reply of `model`, with the seconds that it took where the model does not say."""
    began = time.monotonic()
    async with aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if chunk.usage is None or chunk.usage.seconds:
                yield chunk
            else:
                yield replace(chunk, usage=replace(chunk.usage, seconds=round(time.monotonic() - began, 6)))


def request_key(who: str, request: Request) -> str | None:
    """The name of a request in the book; None for one whose reply is drawn anew each time: sampled, without a seed."""
    if request.temperature and request.seed is None:
        return None
    asked = {name: dump(getattr(request, name)) for name in ASKED}
    return _digest({"who": who, **asked})


def model_identity(worker: Worker) -> str:
    """Which model a worker is, as far as its replies depend on it; own headers count by the hash of their values.

    A file is known by size and time too, since one that is trained again keeps its name.
    """
    headers, worker = worker.options.get("headers"), worker.public()
    said: dict[str, Any] = {"kind": worker.kind, "model": worker.model, "options": dump(worker.options)}
    if isinstance(headers, Mapping) and headers:
        said["headers"] = _digest({str(name): str(value) for name, value in headers.items()})
    if worker.kind == "llama":
        files = {"file": worker.model, "adapter": worker.options.get("adapter")}
        said |= {name: made for name, path in files.items() if path and (made := _made(str(path)))}
    return _digest(said)


def _made(path: str) -> list[int]:
    """A file's size and time; nothing where it is not there."""
    with suppress(OSError):
        found = Path(path).expanduser().stat()
        return [found.st_size, found.st_mtime_ns]
    return []


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
