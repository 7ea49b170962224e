"""A batch that several machines work on.

Each asks shards of it that no other has, and each gets all answers.

What is shared is in the database of the state. A machine writes each answer to its own file at
once, as in any batch, and sends a shard when all of it is done. So a machine that is gone costs the
questions of the shards that it had, and one that comes back asks none of those whose answers are in
its files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.app.batch import (
    Batch,
    BatchItem,
    BatchProgress,
    BatchResult,
    LinePlaces,
    cost_of,
    id_of,
    json_line,
    read_items,
    read_json,
)
from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.run.budget import Budget

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedBatch

SHARD: Final = 100  # Questions that one machine has at once
# Seconds between two looks at the others, where nothing else is left to do
LOOK_SECONDS: Final = 2.0
# A quarter of the time that a shard is this machine's without a sign of life
RENEW_SECONDS: Final = 15.0


def batch_hash(source: Path, answers: Path, models: str) -> str:
    """Return what is equal on all machines of a batch.

    Its input, the name of its answers, and who is asked.
    """
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(b"\0".join((os.fsencode(answers.name), models.encode())))
    return digest.hexdigest()


@dataclass
class _Shard:
    """Questions that this machine has.

    The ids of all, those without a line yet, and the lines of the others.
    """

    ids: list[str]
    open: set[str] = field(default_factory=set)
    answers: bytearray = field(default_factory=bytearray)
    failures: bytearray = field(default_factory=bytearray)


class SharedItems:
    """Hands out the questions of a batch, shard by shard, and takes what other machines have done."""

    def __init__(
        self,
        batch: Batch,
        shards: SharedBatch,
        budget: Budget,
        tell: Callable[[BatchProgress], None],
    ) -> None:
        self.stopped: Failure | None = None
        self.holding = False
        self._batch = batch
        self._shards = shards
        self._budget = budget
        self._tell = tell
        self._lock = asyncio.Lock()
        self._queue = deque[tuple[int, BatchItem]]()
        self._mine = dict[int, _Shard]()
        self._shard_of = dict[str, int]()  # The shard of each question that is queued or under way
        self._ours = set[str]()  # Questions of lost shards that were asked here all the same
        self._items = read_items(batch.source)
        self._at = 0
        self._places = dict[Path, LinePlaces]()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[SharedItems]:
        """Keep the shards of this machine while the block goes on.

        At the end others may have them.
        """
        keeping = asyncio.create_task(self._keep())
        try:
            await self._collect_all()
            yield self
        finally:
            keeping.cancel()
            with suppress(ConductorError):  # else they are free when their time is over
                await self.settle()
                await asyncio.to_thread(self._shards.release)

    async def next(self) -> BatchItem | None:
        """Return a question that nobody else is asked.

        None when all are done, for no budget, or for `stopped`.

        Also None where this machine has none left and is `holding` some, which must be written
        first. Else it waits while others have the last shards, because one of them may be gone.
        """
        async with self._lock:
            while not self._queue and self.stopped is None:
                is_whole = await self._collect_all()
                if is_whole or self._budget.exhausted:
                    return None
                try:
                    shard = await asyncio.to_thread(self._shards.claim)
                    items = [] if shard is None else await asyncio.to_thread(self._read, shard)
                    # A shard that this process sends, since a moment ago or less, may look free: it
                    # is not asked again.
                    if self.holding and shard is None:
                        return None
                    if shard is None or self._shards.knows(shard):
                        await asyncio.sleep(LOOK_SECONDS)
                        continue
                    self._begin(shard, items)
                except ConductorError as error:
                    self.stopped = error.failure
                await self.settle()  # all of it may be in the files already
            return (
                None
                if self.stopped is not None or self._budget.exhausted
                else self._queue.popleft()[1]
            )

    def wrote(self, asked: BatchResult) -> None:
        """Add the line of a question to its shard, for the other machines."""
        name = id_of(asked.line)
        if (shard := self._mine.get(self._shard_of.pop(name))) is not None:
            shard.open.discard(name)
            lines = shard.answers if asked.failure is None else shard.failures
            lines += json_line(asked.line)

    async def settle(self) -> None:
        """Send the shards of which every question is done."""
        for number in [number for number, shard in self._mine.items() if not shard.open]:
            # Another task has sent it meanwhile
            if (shard := self._mine.pop(number, None)) is None:
                continue
            try:
                await asyncio.to_thread(
                    self._shards.finish(number, bytes(shard.answers), bytes(shard.failures))
                )
            except ConductorError:
                self._mine[number] = shard  # it is tried again
                return

    async def _collect_all(self) -> bool:
        """Write what others have sent since.

        Returns whether every question of the batch is done.
        """
        try:
            while True:
                found, is_whole = await asyncio.to_thread(self._shards.collect)
                if not found:
                    return is_whole
                for number, answers, failures in found:
                    # This machine may have been asleep for longer than it had the shard
                    self._lose(number)
                    self._take(answers, failures)
        except ConductorError as error:
            self.stopped = error.failure
            return False

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            had = set(self._mine)
            with suppress(ConductorError):  # the next time may be soon enough
                for lost in had.difference(await asyncio.to_thread(self._shards.renew, had)):
                    self._lose(lost)

    def _lose(self, number: int) -> None:
        """Ask no more of a shard, which another machine has by now.

        What is under way ends, and counts here.
        """
        if (shard := self._mine.pop(number, None)) is None:
            return
        queued = [item.id for of, item in self._queue if of == number]
        self._queue = deque(each for each in self._queue if each[0] != number)
        for name in queued:
            del self._shard_of[name]
        self._ours |= set(shard.ids).difference(queued)
        self._places.clear()

    def _read(self, number: int) -> list[BatchItem]:
        """Return the questions of a shard.

        Raises `UsageError` where the input cannot be read any more.
        """
        start = number * SHARD
        if start < self._at:
            self._items = read_items(self._batch.source, start)
            self._at = start
        items = [*islice(self._items, start - self._at, start - self._at + SHARD)]
        self._at = start + len(items)
        return items

    def _begin(self, number: int, items: Sequence[BatchItem]) -> None:
        self._lose(number)  # it may be one of this machine, which had it for too long
        shard = _Shard([item.id for item in items])
        self._mine[number] = shard
        for item in items:
            if item.id not in self._shard_of:
                if self._batch.done(item.id) or item.id in self._ours:
                    self._copy(item.id, shard)
                    continue
                self._queue.append((number, item))
            shard.open.add(item.id)
            self._shard_of[item.id] = number

    def _copy(self, name: str, shard: _Shard) -> None:
        """Copy the line that is written here already."""
        files = (
            (self._batch.answers.path, shard.answers),
            (self._batch.failures.path, shard.failures),
        )
        for is_new in (False, True):  # what is known of the files may be older than the line
            for path, lines in files:
                if is_new or path not in self._places:
                    self._places[path] = LinePlaces(path)
                if (place := self._places[path].find(name)) is not None:
                    with path.open("rb") as file:
                        file.seek(self._places[path].starts[place])
                        lines.extend(file.readline())
                    return

    def _take(self, answers: bytes, failures: bytes) -> None:
        """Write what another machine has done, as far as it is not written here."""
        for lines, failed in ((answers, False), (failures, True)):
            for line in lines.splitlines():
                data = read_json(line)
                name = id_of(data)
                if self._batch.done(name) or name in self._ours:
                    continue
                cost = cost_of(data)
                failure = (
                    Failure(kind="worker", message="asked by another machine") if failed else None
                )
                self._budget.add(cost)
                self._batch.write(BatchResult(line=data, cost=cost, failure=failure))
        self._tell(self._batch.progress)
