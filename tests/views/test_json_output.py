"""The run as one JSON object, and its events as lines of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.terminal_text import is_sanitized
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import Stdout
from conductor_cli.views.json_output import JsonLinesOutput, JsonOutput
from tests.traces.make import (
    ANSWER,
    RUNS,
    Run,
    failed,
    hostile,
    limit,
    nested,
    parallel,
    substitute,
    tools,
)
from tests.views.terminals import Sink, play

KEYS = [
    "state",
    "answer",
    "partial",
    "error",
    "run",
    "trace",
    "resumed",
    "mode",
    "planner",
    "conductor",
    "policy",
    "plan",
    "steps",
    "planner_worker",
    "planning",
    "usage",
    "notices",
    "rejected_plans",
    "waits",
    "waited",
]
STEP_KEYS = [
    "number",
    "planned_worker",
    "worker",
    "subtask",
    "access",
    "state",
    "text",
    "usage",
    "seconds",
    "error",
    "failed_attempts",
    "nested",
    "tools",
]


def reported(events: list[ev.Event], encoding: str = "utf-8") -> dict[str, Any]:
    sink = Sink(encoding=encoding)
    play(JsonOutput(Stdout(sink)), events)
    assert sink.getvalue().count("\n") == 1
    fields: dict[str, Any] = json.loads(sink.getvalue())
    return fields


@pytest.mark.parametrize("run", RUNS)
def test_every_run_is_one_object_with_the_same_keys(run: Run) -> None:
    fields = reported(run(), encoding="ascii")
    assert sorted(fields) == sorted(KEYS)
    assert all(sorted(step) == sorted(STEP_KEYS) for step in fields["steps"])
    last = run()[-1]
    assert fields["answer"] == (last.answer if isinstance(last, ev.RunFinished) else None)


def test_each_call_of_a_tool_is_an_object() -> None:
    first, second, third = reported(tools())["steps"][0]["tools"]
    assert first["ended"] is None
    assert (second["name"], second["text"][:7], second["error"]) == ("read_file", "# Notes", False)
    assert third | {"started": 4, "ended": 9} == {
        "attempt": 2,
        "turn": 1,
        "id": "c",
        "server": "web",
        "name": "fetch",
        "started": 4,
        "ended": 9,
        "arguments": '{"url": "https://example.org/rename", "format": "text"}',
        "text": "the address does not answer",
        "error": True,
    }


def test_a_finished_run_has_all_its_data() -> None:
    fields = reported(parallel())
    assert (fields["state"], fields["answer"], fields["partial"], fields["error"]) == (
        "finished",
        ANSWER,
        False,
        None,
    )
    assert [step["access"] for step in fields["plan"]["steps"]] == [[], [], [1, 2]]
    assert [(step["number"], step["state"], step["worker"]) for step in fields["steps"]] == [
        (1, "done", "math-worker"),
        (2, "done", "gpt"),
        (3, "done", "claude"),
    ]
    assert fields["steps"][2]["text"] == ANSWER
    assert fields["steps"][2]["seconds"] == 0.8
    assert (fields["usage"]["cost"], fields["usage"]["unpriced"]) == ("0.0042", 1)


def test_a_failed_run_has_no_answer_and_a_partial_one_says_so() -> None:
    fields = reported(failed())
    assert (fields["state"], fields["answer"], fields["error"]["kind"]) == (
        "failed",
        None,
        "unreachable",
    )
    fields = reported(limit())
    assert (fields["answer"], fields["partial"], fields["error"]["kind"]) == (
        ANSWER[:36],
        True,
        "limit",
    )


def test_a_substitute_worker_is_named() -> None:
    fields = reported(substitute())
    assert fields["plan"]["steps"][0]["worker"] == "math-worker"
    step = fields["steps"][0]
    assert (step["planned_worker"], step["worker"]) == ("math-worker", "gemini-flash")
    assert [attempt["worker"] for attempt in step["failed_attempts"]] == ["math-worker"]
    trimmed, notices = fields["notices"]
    assert trimmed == {
        "step": 1,
        "recovered": False,
        "text": "the prompt was trimmed from 9,120 to 8,000 tokens",
    }
    assert (notices["step"], notices["recovered"]) == (1, True)
    assert notices["text"].startswith(
        "gemini-flash answered instead of math-worker; math-worker failed: the key was"
    )


def test_a_nested_run_is_inside_its_step() -> None:
    inner = reported(nested())["steps"][1]["nested"]
    assert [step["subtask"] for step in inner["steps"]] == [
        "Add the primes up again, one by one.",
        "Accept the sum or have it done again.",
    ]
    assert inner["steps"][1]["nested"] == {"plan": "accept", "rejected_plans": [], "steps": []}


def test_an_interrupted_run_is_one_object() -> None:
    assert reported(parallel()[:40])["state"] == "interrupted"
    sink = Sink()
    JsonOutput(Stdout(sink)).close()
    assert sink.getvalue() == ""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("run", RUNS)
def test_every_event_is_a_line_that_can_be_read_back(run: Run, encoding: str) -> None:
    sink = Sink(encoding=encoding)
    play(JsonLinesOutput(Stdout(sink)), run())
    lines = sink.getvalue().split("\n")
    assert [ev.from_line(line) for line in lines[:-1]] == run()
    assert all(is_sanitized(line) for line in lines)


def test_a_lone_surrogate_is_escaped() -> None:
    event = ev.PlanDelta(at=1.0, text="a\ud83d")
    sink = Sink()
    JsonLinesOutput(Stdout(sink)).show(event, Trace())
    assert ev.from_line(sink.getvalue()) == event


def test_each_line_is_flushed() -> None:
    flushed: list[str] = []

    class Watched(Sink):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    sink = Watched()
    view = JsonLinesOutput(Stdout(sink))
    for event in hostile():
        view.show(event, Trace())
        assert flushed[-1] == sink.getvalue()
