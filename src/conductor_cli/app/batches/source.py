"""Where the questions of a batch come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from conductor_cli.app.batches.input_forms import BatchItem
from conductor_cli.app.batches.results import BatchResult


class QuestionSource(Protocol):
    """Hands out the questions of a batch, each to one who asks it."""

    async def next_question(self, *, is_holding: bool) -> BatchItem | None:
        """Return a question, or None where none is left or this source was stopped.

        `is_holding` says that results are held back which are not written yet. A source that waits
        for others must not do so then, because they may wait for these. Raises `ConductorError`
        where it cannot hand out any more.
        """

    def acknowledge(self, result: BatchResult) -> None:
        """Learn that what became of a question is written."""

    def stop(self) -> None:
        """Hand out no more questions, also to those who wait for one."""


class QuestionList:
    """The questions of one input, which this process alone asks."""

    def __init__(self, items: Iterable[BatchItem]) -> None:
        self._items = iter(items)

    async def next_question(self, *, is_holding: bool) -> BatchItem | None:  # noqa: ARG002
        return next(self._items, None)

    def acknowledge(self, result: BatchResult) -> None:
        """Do nothing: nobody else waits for it."""

    def stop(self) -> None:
        self._items = iter(())
