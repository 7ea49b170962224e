"""Asks the questions of a batch on the nodes of a Ray cluster. This process writes the answers."""

from __future__ import annotations

from contextlib import aclosing

from conductor_cli.app.batches.driver import BatchRun
from conductor_cli.app.batches.input_forms import BatchItem
from conductor_cli.app.batches.results import BatchResult, batch_result_of
from conductor_cli.app.ray_jobs import ROWS_OF_A_JOB, Opener, ask_over_nodes
from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import Trace
from conductor_cli.run.budget import Budget


class NodeAsker:
    """Asks questions on all nodes, at most `parallel` at once on each; they share the budget."""

    def __init__(self, opener: Opener, *, parallel: int, budget: Budget) -> None:
        self._opener = opener
        self._parallel = parallel
        self._budget = budget

    async def ask_all(self, batch: BatchRun) -> None:
        while items := await _questions_of_a_job(batch):
            unasked = len(items)
            results = ask_over_nodes(
                items,
                self._opener,
                parallel=self._parallel,
                budget=self._budget,
                is_stopped=lambda: batch.stopped is not None,
            )
            async with aclosing(results):
                async for item, result in results:
                    unasked -= 1
                    batch.finish(_batch_result(item, result))
            if unasked:  # the budget has no room, or the batch is stopped
                return


async def _questions_of_a_job(batch: BatchRun) -> list[BatchItem]:
    items: list[BatchItem] = []
    while len(items) < ROWS_OF_A_JOB and (item := await batch.next_question()) is not None:
        items.append(item)
    return items


def _batch_result(item: BatchItem, result: BatchResult | Failure) -> BatchResult:
    if isinstance(result, Failure):
        return batch_result_of(item, Trace(error=result), stores=False)
    return result
