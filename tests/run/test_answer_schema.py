"""A JSON Schema of the answer: one repair by the same worker, then a clear end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk
from conductor_cli.core.pool import Limits
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.programs import schema_check
from conductor_cli.run.state import NOT_JSON, schema_fault
from tests.run.kit import QUESTION, error_of, hold, play, read, says, setting, start
from tests.schema_bombs import BOMB, checking, with_ticks

SCHEMA = {"type": "object", "properties": {"apples": {"type": "integer"}}, "required": ["apples"]}
ASKED = replace(QUESTION, schema=SCHEMA)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ('{"apples": 3}', ""),
        ("three", NOT_JSON),
        ('```json\n{"apples": 3}\n```', NOT_JSON),
        ("[" * 100_000, NOT_JSON),
        ('{"apples": "3"}', 'apples: "3" is not of type "integer"'),
        ('{"apples": 3, "pears": NaN}', NOT_JSON),
        ('{"apples": 3, "pears": [-Infinity]}', NOT_JSON),
        (
            '{"apples": 1e999}',
            "1e999 is larger than any number that programs hold",
        ),
        ('{"apples": 3, "pears": "\\ud83d"}', ""),
        ('{"apples": "\\ud83d"}', 'apples: "?" is not of type "integer"'),
        (
            '{"apples": ' + "[" * 500 + "]" * 500 + "}",
            "it cannot be checked: Recursion limit reached",
        ),
    ],
)
def test_what_an_answer_breaks_is_named(answer: str, fault: str) -> None:
    assert asyncio.run(schema_fault(answer, SCHEMA)) == fault


def test_the_worker_is_told_what_is_wrong_and_answers_again() -> None:
    bob = ScriptedModel([["{}"], ['{"apples": 3}']])
    orchestra = setting("A | | count them\n", {"ann": bob}, limits=Limits(attempts=1))
    run, stream = play(orchestra, ASKED, streams_answer=True)
    end = stream[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.answer, end.partial, end.usage.calls) == ('{"apples": 3}', False, 3)
    first, again = bob.requests
    assert again.messages[: len(first.messages)] == first.messages
    assert again.messages[-2].content == "{}"
    assert '"apples" is a required property' in again.messages[-1].content
    (failed,) = run.trace.steps[0].failed
    assert (failed.error.reason, failed.retry_in) == ("schema", 0.0)


def test_after_one_repair_the_fault_is_the_end() -> None:
    run, _ = play(setting("A | | count them\n", {"ann": says("{}")}), ASKED)
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("{}", True, 7)
    assert (error_of(run).reason, len(run.trace.steps[0].failed)) == ("answer_not_schema", 1)
    assert '"apples" is a required property' in error_of(run).message


def test_only_the_answer_is_held_to_the_schema() -> None:
    cut = ScriptedModel([['{"app', Chunk(usage=Usage(calls=1), finish="length")]])
    run, _ = play(setting("A | | find\nB | 1 | count\n", {"ann": says("prose"), "bob": cut}), ASKED)
    assert [len(record.failed) for record in run.trace.steps] == [0, 0]
    assert error_of(run).reason == "answer_truncated"


def test_a_schema_that_takes_for_ever_ends_its_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 1.0)
    bob = says("{}")
    run = start(
        setting("A | | count them\n", {"ann": bob}, clock=lambda: 0.0),
        replace(QUESTION, schema=BOMB),
    )
    stream, ticks = asyncio.run(with_ticks(read(run)))
    hold(run, stream)
    assert ticks > 0
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code, len(bob.requests)) == (
        "{}",
        True,
        7,
        1,
    )
    message = (
        "the answer cannot be checked against the JSON Schema: the check takes too much time "
        "or "
        "memory"
    )
    assert (error_of(run).reason, error_of(run).message) == ("answer_not_checked", message)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_is_ended_ends_its_check(
    monkeypatch: pytest.MonkeyPatch, *, cancelled: bool
) -> None:
    monkeypatch.setattr(schema_check, "CHECK_SECONDS", 100.0)
    orchestra = setting("A | | count them\n", {"ann": says("{}")}, clock=lambda: 0.0)
    run = start(orchestra, replace(QUESTION, schema=BOMB))

    async def main() -> None:
        task = asyncio.create_task(read(run))
        while not checking():
            assert not task.done()
            await asyncio.sleep(0)
        if cancelled:
            task.cancel()
        else:
            run.stop("cancelled")
        await asyncio.wait([task])

    asyncio.run(main())
    assert checking() == []
    assert (run.trace.answer, run.trace.partial) == ("{}", True)
    assert error_of(run).kind == "cancelled"
    assert run.trace.steps[0].usage.calls == 1
