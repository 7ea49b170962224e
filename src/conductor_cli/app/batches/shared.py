"""A batch that several machines work on: each asks shards of it that no other has.

What is shared is in the database of the state. A machine writes each answer to its own file at
once, as in any batch, and sends a shard when all of it is done. In the end each has all answers. A
machine that is gone costs the questions of the shards that it had, and one that comes back asks
none of those whose answers are in its files.
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

from conductor_cli.app.batches.answer_lines import cost_of, id_of, json_line, unpriced_of
from conductor_cli.app.batches.batch_files import Batch
from conductor_cli.app.batches.id_index import LineOffsets
from conductor_cli.app.batches.input_forms import BatchItem, read_json
from conductor_cli.app.batches.results import BatchProgress, BatchResult
from conductor_cli.app.batches.shared_budget import SharedBudget
from conductor_cli.core.errors import ConductorError, Failure

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedBatch

SHARD_QUESTIONS: Final = 100  # What one machine has at once
# Between two looks at the others, where nothing else is left to do
LOOK_SECONDS: Final = 2.0
# A quarter of the time that a shard is this machine's without a sign of life
RENEW_SECONDS: Final = 15.0


def batch_hash(source: Path, answers: Path, models: str) -> str:
    """Return what is equal on all machines of a batch, as a hash.

    These are its input, the name of its answers, and who is asked.
    """
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(b"\0".join((os.fsencode(answers.name), models.encode())))
    return digest.hexdigest()


def shard_count(questions: int) -> int:
    """Return into how many shards so many questions are divided."""
    return -(-questions // SHARD_QUESTIONS)


@dataclass
class _Shard:
    """Questions that this machine has.

    They are the ids of all, the ids of those without a line yet, and the lines of the others.
    """

    ids: list[str]
    open: set[str] = field(default_factory=set)
    answers: bytearray = field(default_factory=bytearray)
    failures: bytearray = field(default_factory=bytearray)


class SharedQuestions:
    """A `QuestionSource` that takes shards from the database, and sends them there when done.

    It writes what other machines have done to the files of the batch.
    """

    def __init__(
        self,
        batch: Batch,
        shards: SharedBatch,
        budget: SharedBudget,
        tell: Callable[[BatchProgress], None],
    ) -> None:
        self._batch = batch
        self._shards = shards
        self._budget = budget
        self._tell = tell
        self._is_stopped = False
        self._lock = asyncio.Lock()
        self._queue = deque[tuple[int, BatchItem]]()  # Each with the number of its shard
        self._held = dict[int, _Shard]()  # The shards that this machine has
        self._shard_of = dict[str, int]()  # The shard of each question that is queued or under way
        self._asked_late = set[str]()  # Questions of lost shards that were asked here all the same
        self._items = batch.source.read()
        self._position = 0  # How many questions of the input `_items` has passed
        self._offsets = dict[Path, LineOffsets]()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[SharedQuestions]:
        """Keep the shards of this machine while the block goes on; then others may have them."""
        renewing = asyncio.create_task(self._renew_often())
        try:
            with suppress(ConductorError):  # the first question that is asked for tells it
                await self._collect_all()
            async with self._budget.kept(self._batch.progress.cost):
                yield self
        finally:
            renewing.cancel()
            with suppress(ConductorError):  # else they are free when their time is over
                await self._send_done()
                await asyncio.to_thread(self._shards.release)

    # What the driver calls

    async def next_question(self, *, is_holding: bool) -> BatchItem | None:
        """Return a question that nobody else is asked; None where all are done or nothing is paid.

        Where others have the last shards it waits, because one of them may be gone.
        """
        await self._send_done()
        async with self._lock:
            while not self._queue and not self._is_stopped:
                is_whole = await self._collect_all()
                if is_whole or self._budget.exhausted:
                    return None
                number = await asyncio.to_thread(self._shards.claim)
                if number is None and is_holding:
                    return None
                if number is None or not await self._begin_claimed(number):
                    await asyncio.sleep(LOOK_SECONDS)
            if self._is_stopped or self._budget.exhausted:
                return None
            _, item = self._queue.popleft()
            return item

    def acknowledge(self, result: BatchResult) -> None:
        """Add the line of a question to its shard, for the other machines."""
        name = id_of(result.line)
        shard = self._held.get(self._shard_of.pop(name))
        if shard is not None:
            shard.open.discard(name)
            lines = shard.failures
            if result.failure is None:
                lines = shard.answers
            lines += json_line(result.line)

    def stop(self) -> None:
        self._is_stopped = True

    # Shards of this machine

    async def _begin_claimed(self, number: int) -> bool:
        """Queue the questions of a shard; returns whether it is one that is to be asked."""
        items = await asyncio.to_thread(self._read_shard, number)
        # A shard that this process sends, since a moment ago or less, may look free. It is not
        # asked again.
        if self._shards.knows(number):
            return False
        self._begin_shard(number, items)
        await self._send_done()  # all of it may be in the files already
        return True

    def _read_shard(self, number: int) -> list[BatchItem]:
        """Return the questions of a shard.

        Raises `UsageError` where the input cannot be read any more.
        """
        start = number * SHARD_QUESTIONS
        if start < self._position:
            self._items = self._batch.source.read(start)
            self._position = start
        passed = start - self._position
        items = [*islice(self._items, passed, passed + SHARD_QUESTIONS)]
        self._position = start + len(items)
        return items

    def _begin_shard(self, number: int, items: Sequence[BatchItem]) -> None:
        """Queue the questions of a shard that are not done here yet."""
        self._lose_shard(number)  # it may be one of this machine, which had it for too long
        shard = _Shard([item.id for item in items])
        self._held[number] = shard
        for item in items:
            is_under_way = item.id in self._shard_of
            if not is_under_way and self._is_written(item.id):
                self._copy_line(item.id, shard)
                continue
            if not is_under_way:
                self._queue.append((number, item))
            shard.open.add(item.id)
            self._shard_of[item.id] = number

    def _is_written(self, name: str) -> bool:
        """Return whether a question has its line in the files of this machine."""
        return self._batch.is_done(name) or name in self._asked_late

    def _copy_line(self, name: str, shard: _Shard) -> None:
        """Copy the line that is written here already."""
        if not self._copy_indexed(name, shard):
            self._offsets.clear()  # what is known of the files is older than the line
            self._copy_indexed(name, shard)

    def _copy_indexed(self, name: str, shard: _Shard) -> bool:
        """Copy the line of an id as far as the files are known; returns whether it was there."""
        files = self._batch.files
        for path, lines in (
            (files.answers.path, shard.answers),
            (files.failures.path, shard.failures),
        ):
            if path not in self._offsets:
                self._offsets[path] = LineOffsets(path)
            offset = self._offsets[path].offset_of(name)
            if offset is not None:
                with path.open("rb") as file:
                    file.seek(offset)
                    lines.extend(file.readline())
                return True
        return False

    async def _send_done(self) -> None:
        """Send the shards of which every question is done."""
        done = [number for number, shard in self._held.items() if not shard.open]
        for number in done:
            shard = self._held.pop(number, None)
            if shard is None:  # another task has sent it meanwhile
                continue
            answers = bytes(shard.answers)
            failures = bytes(shard.failures)
            try:
                await asyncio.to_thread(self._shards.finish(number, answers, failures))
            except ConductorError:
                self._held[number] = shard  # it is tried again
                return

    async def _renew_often(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            held = set(self._held)
            with suppress(ConductorError):  # the next time may be soon enough
                renewed = await asyncio.to_thread(self._shards.renew, held)
                for number in held.difference(renewed):
                    self._lose_shard(number)

    def _lose_shard(self, number: int) -> None:
        """Ask no more of a shard, which another machine has by now.

        What is under way ends, and counts here.
        """
        shard = self._held.pop(number, None)
        if shard is None:
            return
        kept = deque[tuple[int, BatchItem]]()
        queued: set[str] = set()
        for shard_number, item in self._queue:
            if shard_number == number:
                queued.add(item.id)
                del self._shard_of[item.id]
            else:
                kept.append((shard_number, item))
        self._queue = kept
        self._asked_late.update(set(shard.ids) - queued)
        self._offsets.clear()

    # Shards of others

    async def _collect_all(self) -> bool:
        """Write what others have sent since; returns whether every question of the batch is done.

        Raises `StateUnavailable`.
        """
        while True:
            shards, is_whole = await asyncio.to_thread(self._shards.collect)
            if not shards:
                return is_whole
            for number, answers, failures in shards:
                # This machine may have been asleep for longer than it had the shard
                self._lose_shard(number)
                self._write_lines(answers, None)
                failure = Failure(kind="worker", message="asked by another machine")
                self._write_lines(failures, failure)
                self._tell(self._batch.progress)

    def _write_lines(self, lines: bytes, failure: Failure | None) -> None:
        """Write what another machine has done, as far as it is not written here."""
        for raw in lines.splitlines():
            fields = read_json(raw)
            if self._is_written(id_of(fields)):
                continue
            cost = cost_of(fields)
            unpriced = unpriced_of(fields)
            result = BatchResult(line=fields, cost=cost, unpriced=unpriced, failure=failure)
            self._batch.files.write(result)
