"""A cache of replies: the same request to the same model is answered from it, and costs nothing.

`ResponseCache` is an append-only JSON Lines file; `CachedModel` wraps a model. Only whole replies
with a text or with tool calls are stored, with the tokens, money and seconds that they took when
they were made, so that a run from the cache reads like the first one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from conductor_cli.core.chat import Chunk, Finish, Request, ToolCall, ToolCallDelta, join_tool_calls
from conductor_cli.core.mappings import without_empty
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import DecodeError, dump, encode_line, load
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import Features, Model
from conductor_cli.system.disk import AppendLog, read_lines

REQUEST_FIELDS: Final = (
    "messages",
    "max_tokens",
    "temperature",
    "seed",
    "rank",
    "stop",
    "grammar",
    "choices",
    "schema",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
"""The fields of a request that a reply depends on. Attachments are in the messages, each with the
hash of its bytes.
"""

HEARTBEAT: Final = 0.1
"""Seconds between two empty chunks to whoever waits for the reply to an equal request: far below
any timeout.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedReply:
    key: str
    text: str
    thinking: str
    finish: Finish
    usage: Usage
    choice_shares: Mapping[str, float] = field(default_factory=dict)
    tool_calls: tuple[ToolCall, ...] = ()
    stop_sequence: str = ""
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    # The key of the request without its `max_tokens`; empty in a file of an earlier version
    length_free_key: str = ""

    def fits(self, max_tokens: int | None) -> bool:
        """Return whether a request with so many tokens for its reply would have got this one."""
        is_long = max_tokens is not None and (self.usage.tokens_out or 0) > max_tokens
        return self.finish != "length" and not is_long

    @property
    def is_useful(self) -> bool:
        """Whether it says or asks for anything."""
        return bool(self.text.strip() or self.tool_calls)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the reply as a model gives it: all of its text, then what it took."""
        yield Chunk(
            text=self.text, thinking=self.thinking, choice_shares=self.choice_shares or None
        )
        for index, call in enumerate(self.tool_calls):
            yield Chunk(
                tool_call=ToolCallDelta(
                    index=index, id=call.id, name=call.name, arguments=call.arguments
                )
            )
        yield Chunk(
            usage=self.usage,
            finish=self.finish,
            from_cache=True,
            stop_sequence=self.stop_sequence,
            provider_data=self.provider_data,
        )


class ResponseCache:
    """Replies by request.

    Several processes may write the same file; each knows what was in it when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, or create it. Damaged lines are skipped. Raises `OSError`."""
        self.error: OSError | None = None
        """Why a reply could not be stored: it is known for as long as this cache is open, and not
        longer.
        """
        self.replies: dict[str, _CachedReply] = {}
        self._by_length_free_key: dict[str, _CachedReply] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        for line in read_lines(path):
            with suppress(ValueError, RecursionError, DecodeError):
                reply = load(_CachedReply, json.loads(line))
                if reply.is_useful:
                    self._remember(reply)
        self._log = AppendLog(path)

    def add(self, reply: _CachedReply) -> None:
        """Store a reply that is useful.

        A disk error is kept in `error`: the reply itself is good.
        """
        if not reply.is_useful:
            return
        self._remember(reply)
        try:
            self._log.append(encode_line(dump(reply)))
        except OSError as error:
            self.error = error

    def find(self, key: str, length_free_key: str, max_tokens: int | None) -> _CachedReply | None:
        """Return the reply to a request, also one to the same with other `max_tokens`.

        A limit on money gives each call another number of them: a reply that ended by itself within
        that number is the same.
        """
        reply = self.replies.get(key)
        if reply is None:
            other = self._by_length_free_key.get(length_free_key)
            if other is not None and other.fits(max_tokens):
                reply = other
        return reply

    def _remember(self, reply: _CachedReply) -> None:
        self.replies[reply.key] = reply
        if reply.length_free_key and reply.fits(None):
            self._by_length_free_key[reply.length_free_key] = reply

    def lock(self, key: str) -> asyncio.Lock:
        """Of several equal requests at the same time, one asks the model.

        The others wait and find its reply.
        """
        # The table holds no lock alive: it is forgotten with the last request that waits for it.
        return self._locks.setdefault(key, asyncio.Lock())

    def close(self) -> None:
        self._log.close()


class CachedModel:
    """`model` with a cache.

    Two models with the same `identity` share replies: see `model_identity`.
    """

    def __init__(self, model: Model, cache: ResponseCache, identity: str) -> None:
        self.model = model
        self.cache = cache
        self.identity = identity

    @property
    def features(self) -> Features:
        return self.model.features

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the reply from the cache.

        Else that of the model, which is stored once it is whole.
        """
        key = reply_key(self.identity, request)
        length_free_key = reply_key(self.identity, replace(request, max_tokens=None)) or ""
        lock = None
        reply = None
        if key is not None:
            lock = self.cache.lock(length_free_key)
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT):
                        await lock.acquire()
                        break
                # A sign of life: waiting for an equal request must not look like a silent model
                yield Chunk()
            reply = self.cache.find(key, length_free_key, request.max_tokens)
        try:
            if reply is not None:
                for chunk in reply.chunks():
                    yield chunk
                return
            text = ""
            thinking = ""
            began = time.monotonic()
            shares: Mapping[str, float] = {}
            calls: list[ToolCallDelta] = []
            async with aclosing(self.model.stream(request)) as chunks:
                async for chunk in chunks:
                    text += chunk.text
                    thinking += chunk.thinking
                    shares = chunk.choice_shares or shares
                    calls += [chunk.tool_call] if chunk.tool_call else []
                    if (usage := chunk.usage) is None:
                        yield chunk
                        continue
                    if not usage.seconds:
                        usage = replace(usage, seconds=round(time.monotonic() - began, 6))
                    # A reply that may have broken off is not kept.
                    if key is not None and chunk.finish not in (None, "other"):
                        whole = _CachedReply(
                            key=key,
                            length_free_key=length_free_key,
                            text=text,
                            thinking=thinking,
                            finish=chunk.finish,
                            usage=usage,
                            choice_shares=shares,
                            tool_calls=join_tool_calls(calls),
                            stop_sequence=chunk.stop_sequence,
                            provider_data=chunk.provider_data,
                        )
                        self.cache.add(whole)
                    yield replace(chunk, usage=usage)
        finally:
            if lock is not None:
                lock.release()

    async def close(self) -> None:
        """Close the model; the cache is closed by whoever opened it."""
        await self.model.close()


def reply_key(identity: str, request: Request) -> str | None:
    """Return the key of a request in the cache; None for one that is not answered from it.

    Its reply is different each time (sampled, without a seed), or leads to calls of tools, which
    give news.
    """
    if request.tools or (request.temperature and request.seed is None):
        return None
    # Only planners of one kind have a prefill, so it is no part of the other keys.
    # Nor how a client has tokens drawn, which few of them say.
    facts = {"prefill": request.prefill, "sampling": dict(request.sampling)}
    fields = {name: dump(getattr(request, name)) for name in REQUEST_FIELDS}
    for message in fields["messages"]:
        for attachment in message["attachments"]:
            # Nor the detail of images, so that what was kept before there was one is found.
            if not attachment["detail"]:
                del attachment["detail"]
    return _digest({"who": identity, **fields, **without_empty(facts)})


def model_identity(worker: Worker) -> str:
    """Return which model a worker is, as far as its replies depend on it.

    Own headers count by the hash of their values. A file counts with its size and time too, because
    a model that is trained again keeps its name.
    """
    headers = worker.options.get("headers")
    worker = worker.public()
    facts: dict[str, Any] = {
        "kind": worker.kind,
        "model": worker.model,
        "options": dump(worker.options),
    }
    if isinstance(headers, Mapping) and headers:
        facts["headers"] = _digest({str(name): str(value) for name, value in headers.items()})
    if worker.kind == "llama":
        for name, path in (("file", worker.model), ("adapter", worker.options.get("adapter"))):
            if path:
                with suppress(OSError):
                    status = Path(str(path)).expanduser().stat()
                    facts[name] = [status.st_size, status.st_mtime_ns]
    return _digest(facts)


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
