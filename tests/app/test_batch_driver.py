"""The loop of every batch, over a source and a sink that are neither files nor a database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.app.batches import (
    BatchItem,
    BatchProgress,
    BatchResult,
    ParallelAsker,
    QuestionList,
    run_batch,
)
from conductor_cli.app.batches.answer_lines import LineFile
from conductor_cli.app.batches.failure_rules import MAX_REFUSED, MAX_UNREACHABLE
from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.run.budget import Budget

KEY = Failure(kind="key", message="a wrong key")
REFUSED = Failure(kind="conductor", message="a filter", reason="refused")
UNREACHABLE = Failure(kind="unreachable", message="nobody is there")
WORKER = Failure(kind="worker", message="no answer")

Ask = Callable[[BatchItem], Awaitable[BatchResult]]


class Memory:
    """A sink that remembers the ids that were written, and those that were acknowledged."""

    def __init__(self, total: int, *, loss: str = "") -> None:
        self.progress = BatchProgress(total=total)
        self.has_answers = False
        self.written = list[str]()
        self._loss = loss

    def write(self, result: BatchResult) -> None:
        self.progress = self.progress.after(result)
        self.written.append(result.line["id"])

    def add_cost(self, cost: Decimal) -> None:
        self.progress = BatchProgress(total=self.progress.total, cost=self.progress.cost + cost)

    def sync(self) -> str:
        return ""

    def keep_lines(self) -> str:
        return self._loss


class Unreadable(QuestionList):
    """A source that cannot be read any more after its last question."""

    def __init__(self, items: list[BatchItem]) -> None:
        super().__init__(items)
        self.acknowledged = list[str]()

    async def next_question(self, *, is_holding: bool) -> BatchItem | None:
        item = await super().next_question(is_holding=is_holding)
        if item is None:
            raise UsageError("the input cannot be read")
        return item

    def acknowledge(self, result: BatchResult) -> None:
        self.acknowledged.append(result.line["id"])


def items(count: int) -> list[BatchItem]:
    return [BatchItem(f"q{n}", {"id": f"q{n}", "question": "?"}) for n in range(count)]


def result(item: BatchItem, failure: Failure | None = None) -> BatchResult:
    return BatchResult(line=item.fields, failure=failure, cost=Decimal(1))


def ask_all(sink: Memory, failures: list[Failure | None], parallel: int = 1) -> Failure | None:
    """Ask a question for each of these, one after the other; returns why the batch stopped."""
    by_id = {f"q{n}": failure for n, failure in enumerate(failures)}

    async def ask(item: BatchItem) -> BatchResult:
        return result(item, by_id[item.id])

    return run(QuestionList(items(len(failures))), sink, ask, parallel)


def run(source: QuestionList, sink: Memory, ask: Ask, parallel: int = 1) -> Failure | None:
    asker = ParallelAsker(ask, parallel=parallel, budget=Budget())
    return asyncio.run(run_batch(source, sink, asker, parallel=parallel, tell=lambda _: None))


def test_a_source_that_cannot_go_on_stops_the_batch_and_loses_no_answer() -> None:
    """What is under way then ends, is written, and the source learns of it."""
    source = Unreadable(items(3))
    sink = Memory(4)
    failed = asyncio.Event()

    async def ask(item: BatchItem) -> BatchResult:
        if item.id == "q2":
            await failed.wait()  # until the other worker has found no more
        return result(item)

    async def next_question(*, is_holding: bool) -> BatchItem | None:
        try:
            return await Unreadable.next_question(source, is_holding=is_holding)
        except UsageError:
            failed.set()
            raise

    source.next_question = next_question  # type: ignore[method-assign]
    stopped = run(source, sink, ask, parallel=2)
    assert stopped is not None
    assert stopped.message == "the input cannot be read"
    assert sorted(sink.written) == ["q0", "q1", "q2"]
    assert source.acknowledged == sink.written


@pytest.mark.parametrize(
    ("failures", "written", "stopped"),
    [
        # one that is refused is a failure of its own once another one is answered
        ([KEY, None, None], ["q0", "q1", "q2"], None),
        ([None, KEY], ["q0", "q1"], None),
        # where none is answered, nobody knows whose fault it is
        ([KEY, WORKER], ["q1"], KEY),
        # but for a refusal of each question itself
        ([REFUSED, WORKER], ["q1", "q0"], None),
        ([KEY] * (MAX_REFUSED + 5), [], KEY),
        ([UNREACHABLE] * 10, [f"q{n}" for n in range(MAX_UNREACHABLE)], UNREACHABLE),
        ([WORKER] * 10, [f"q{n}" for n in range(10)], None),
    ],
)
def test_a_failure_is_of_its_question_or_stops_the_batch(
    failures: list[Failure | None], written: list[str], stopped: Failure | None
) -> None:
    sink = Memory(len(failures))
    assert ask_all(sink, failures) == stopped
    assert sink.written == written


def test_what_unwritten_questions_have_cost_counts() -> None:
    sink = Memory(1)
    assert ask_all(sink, [Failure(kind="policy", message="no")]) is not None
    assert (sink.written, sink.progress.cost) == ([], Decimal(1))


def test_what_became_of_the_answers_is_told_before_all_else() -> None:
    sink = Memory(1, loss="the file was cut")
    stopped = ask_all(sink, [KEY])
    assert stopped is not None
    assert stopped.message == "the file was cut"
    assert "the same command continues" in stopped.hint


def test_a_line_that_is_added_during_a_look_at_the_file_does_not_seem_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread looks at it while the loop goes on writing."""
    file = LineFile(tmp_path / "answers.jsonl")
    file.append({"id": "1"})
    look = os.fstat

    def look_slowly(descriptor: int) -> os.stat_result:
        status = look(descriptor)
        file.append({"id": "2"})
        return status

    with monkeypatch.context() as during_the_look:
        during_the_look.setattr(os, "fstat", look_slowly)
        loss = file.loss
    assert loss == ""
    file.close()
