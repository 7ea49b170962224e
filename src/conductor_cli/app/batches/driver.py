"""The one loop of every batch: questions from a source are asked, and answers go to a sink.

The loop knows neither where questions come from nor where answers go, nor on which machine they are
asked. It decides what a failure means, stops the batch, and watches over what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Final, Protocol

from conductor_cli.app.batches.answer_files import AnswerSink
from conductor_cli.app.batches.failure_rules import FailureRules, Verdict
from conductor_cli.app.batches.input_forms import BatchItem
from conductor_cli.app.batches.results import BatchProgress, BatchResult
from conductor_cli.app.batches.source import QuestionSource
from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.run.budget import Budget

SYNC_SECONDS: Final = 1.0  # Between two times that what was written is forced to the disk


class Asker(Protocol):
    """Who asks the questions of a batch: this process, or other ones."""

    async def ask_all(self, batch: BatchRun) -> None:
        """Ask until the batch has no question left, or the budget no room.

        Each result goes to `batch.finish` as soon as it is there.
        """


async def run_batch(
    source: QuestionSource,
    sink: AnswerSink,
    asker: Asker,
    *,
    parallel: int,
    tell: Callable[[BatchProgress], None],
) -> Failure | None:
    """Ask what a source has left; returns why the batch stopped early, None where it did not.

    The batch stops at a failure that says nothing about the question, where many questions in a row
    are refused, and where nobody was reachable many times in a row; `parallel` says what is many.
    It ends, too, when the budget of the asker is used up. What was asked then is asked again when
    the batch goes on. `tell` is called after each question. Raises `UsageError` where nothing can
    be written any more.
    """
    batch = BatchRun(source, sink, parallel=parallel, tell=tell)
    syncing = asyncio.create_task(batch.sync_often())
    try:
        await batch.work_off(asker)
    except* ConductorError as group:
        raise group.exceptions[0] from None
    finally:
        syncing.cancel()
        batch.keep_lines()
    return batch.stopped


class BatchRun:
    """A batch while it is asked: it hands out questions and takes their results."""

    def __init__(
        self,
        source: QuestionSource,
        sink: AnswerSink,
        *,
        parallel: int,
        tell: Callable[[BatchProgress], None],
    ) -> None:
        self.stopped: Failure | None = None
        """Why no more is asked. What is under way then ends, and counts."""
        self._source = source
        self._sink = sink
        self._rules = FailureRules(parallel)
        self._tell = tell

    async def next_question(self) -> BatchItem | None:
        """Return a question to ask; None where none is left, or the batch is stopped."""
        if self.stopped is not None:
            return None
        try:
            return await self._source.next_question(is_holding=self._rules.is_holding)
        except ConductorError as error:
            self._stop(error.failure)
            return None

    def finish(self, result: BatchResult) -> None:
        """Take what became of a question. Raises `UsageError` where it cannot be written."""
        self._follow(self._rules.judge(result))

    async def work_off(self, asker: Asker) -> None:
        """Ask until nothing is left, and decide about what is held back."""
        is_over = False
        while not is_over:
            await asker.ask_all(self)
            # What was held back may be all that other machines wait for, and these may leave more.
            is_over = not self._rules.is_holding
            are_others_answered = self._sink.has_answers or self._sink.progress.answered > 0
            self._follow(
                self._rules.judge_held(
                    are_others_answered=are_others_answered, is_stopped=self.stopped is not None
                )
            )

    async def sync_often(self) -> None:
        """Force what was written to the disk again and again, until this is cancelled."""
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            if message := await asyncio.to_thread(self._sink.sync):
                self._stop(Failure(kind="usage", message=message))

    def keep_lines(self) -> None:
        """Keep the lines of files that somebody else has removed, replaced or cut."""
        if message := self._sink.keep_lines():
            hint = "move the lines where they belong; the same command continues with what is there"
            self.stopped = Failure(kind="usage", message=message, hint=hint)

    def _follow(self, verdict: Verdict) -> None:
        for result in verdict.to_write:
            self._sink.write(result)
            self._source.acknowledge(result)
            self._tell(self._sink.progress)
        if verdict.to_stop:
            self._leave(verdict.to_stop)

    def _leave(self, results: Sequence[BatchResult]) -> None:
        """Stop the batch, and leave these questions to the next time. What they cost counts."""
        for result in results:
            self._sink.add_cost(result.cost or Decimal(0))
        failure = results[0].failure
        if failure is not None:
            self._stop(failure)

    def _stop(self, failure: Failure) -> None:
        """Hand out no more questions. The first reason is the one that is told."""
        if self.stopped is None:
            self.stopped = failure
        self._source.stop()


class ParallelAsker:
    """Asks questions in this process, at most `parallel` at once, as far as the budget goes."""

    def __init__(
        self,
        ask: Callable[[BatchItem], Awaitable[BatchResult]],
        *,
        parallel: int,
        budget: Budget,
    ) -> None:
        self._ask = ask
        self._parallel = parallel
        self._budget = budget

    async def ask_all(self, batch: BatchRun) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._parallel):
                tasks.create_task(self._ask_one_by_one(batch))

    async def _ask_one_by_one(self, batch: BatchRun) -> None:
        while batch.stopped is None and await self._budget.wait_start():
            item = await batch.next_question()
            if item is None:
                self._budget.finish(None)
                return
            result = await self._ask(item)
            self._budget.finish(result.cost)
            batch.finish(result)
