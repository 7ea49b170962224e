"""Plain output.

An answer, whole in a pipe and streamed on a terminal, and lines of progress (see the snapshots).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Step
from conductor_cli.core.terminal_text import sanitize, without_controls, without_hidden
from conductor_cli.core.trace import fold
from conductor_cli.core.usage import Usage
from conductor_cli.views.base import RunView, Stderr, Stdout
from conductor_cli.views.plain import AnswerOutput, AnswerStream, PlainProgress, PlainSink
from tests.traces.make import (
    ANSWER,
    RUNS,
    SPREAD,
    Run,
    Writer,
    cancelled,
    limit,
    parallel,
    retry,
    started,
    tools,
)
from tests.views.terminals import Sink, play


def lines_of(events: list[ev.Event], *, stored: bool = True) -> list[str]:
    sink = Sink()
    play(PlainProgress(Stderr(sink), stored=stored), events)
    return sink.getvalue().splitlines()


def test_of_many_rejected_plans_only_the_first_have_lines() -> None:
    """A conductor that may try many times writes much the same again; the trace has all of it."""
    events: list[ev.Event] = [
        ev.PlanRejected(
            at=1.0, attempt=at, text="?", problem=f"problem {at}", hint="", usage=Usage()
        )
        for at in range(1, 17)
    ]
    lines = [line for line in lines_of([started(), *events]) if "problem" in line]
    assert len(lines) == 2
    assert "problem 2" in lines[-1]


def test_a_step_of_an_earlier_run_is_reused_and_takes_no_time() -> None:
    run = Writer(replace(started(), resumed="20260101-000000-abcdef"))
    run.plan(Step(worker="gpt", subtask="Answer."))
    run.finish(1, "Yes.", Usage())
    [line] = [line for line in lines_of(run.end("Yes.", usage=Usage())) if "finished: " in line]
    assert line == "step 1 of 1 finished: gpt, reused"


def test_lines_are_held_back_while_the_answer_streams() -> None:
    events = parallel()
    sink = Sink()
    view = PlainProgress(Stderr(sink))
    for event, trace in fold(events[:60]):
        view.show(event, trace)
    view.pause()
    before = sink.getvalue()
    for event, trace in [*fold(events)][60:]:
        view.show(event, trace)
    assert sink.getvalue() == before
    view.close()
    assert sink.getvalue().splitlines() == lines_of(events)


def test_a_trace_that_is_not_stored_is_not_named() -> None:
    assert [line for line in lines_of(limit(), stored=False)[1:] if "01JDQ7W3ZK" in line] == []


def output(sink: Sink) -> RunView:
    stdout = Stdout(sink)
    return AnswerStream(lambda: PlainSink(stdout)) if stdout.terminal else AnswerOutput(stdout)


def shown(events: Sequence[ev.Event], *, terminal: bool, encoding: str = "utf-8") -> str:
    sink = Sink(terminal=terminal, encoding=encoding)
    play(output(sink), events)
    return sink.getvalue()


def one_step(pieces: list[str], answer: str, *, partial: bool = False) -> list[ev.Event]:
    """A run of one step that writes these pieces and ends with this answer."""
    run = Writer(started())
    run.plan(Step(worker="gpt", subtask="Answer."))
    for piece in pieces:
        run.add(ev.StepDelta(at=run.at, step=1, attempt=1, text=piece))
    run.finish(1, "".join(pieces), Usage())
    return run.end(answer, usage=Usage(), partial=partial)


def test_what_a_worker_writes_before_it_calls_a_tool_is_not_its_answer() -> None:
    """A pipe does not get it; a terminal, which shows it already, says so."""
    assert shown(tools(), terminal=False) == "Schema B.\n"
    expected = [
        "I count them first.",
        "--- not the answer: the worker calls files.list ---",
        "Schema B.",
    ]
    assert shown(tools(), terminal=True).splitlines() == expected
    questions: list[
        ev.Event
    ] = []  # the question whether the tool may be called comes after that line
    for event in tools():
        if isinstance(event, ev.ToolCalled):
            offered = {
                name: getattr(event, name)
                for name in ("at", "step", "attempt", "turn", "call", "server")
            }
            questions.append(ev.ToolOffered(**offered))
        questions.append(event)
    assert shown(questions, terminal=True).splitlines() == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_pipe_gets_the_exact_answer(pieces: list[str]) -> None:
    text = "".join(pieces)
    answer = without_controls(text)
    assert shown(one_step(pieces, text), terminal=False) == answer + (
        "" if answer.endswith("\n") else "\n"
    )


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_terminal_gets_the_sanitized_answer_once(pieces: list[str]) -> None:
    answer = without_hidden(sanitize("".join(pieces)))
    end = "" if answer.endswith("\n") or not answer else "\n"
    assert shown(one_step(pieces, "".join(pieces)), terminal=True) == answer + end


def test_a_terminal_is_shown_nothing_that_hides_words() -> None:
    """Tags spell words that only a model reads.

    Marks of direction and soft hyphens change what a person reads.
    """
    hidden = "\u00ad\u061c\u200b\u200e\u200f\U000e0001\U000e0041"
    pieces = [f"a{hidden}b", hidden, "c\u200dd"]
    assert shown(one_step(pieces, "".join(pieces)), terminal=True) == "abc\u200dd\n"


def test_a_partial_answer_is_shown_once() -> None:
    run = Writer(started())
    run.plan(Step(worker="gpt", subtask="Answer."))
    run.say(0.1, s1="Half an ans")
    lost = Failure(kind="unreachable", message="the line went dead")
    run.add(ev.StepFailed(at=run.at, step=1, attempt=1, error=lost, usage=Usage()))
    assert (
        shown(run.end("Half an ans", usage=Usage(), partial=True, error=lost), terminal=True)
        == "Half an ans\n"
    )


@pytest.mark.parametrize("run", RUNS)
def test_the_answer_is_the_last_output(run: Run) -> None:
    """A run that failed writes nothing to a pipe."""
    events = run()
    last = events[-1]
    answer = last.answer if isinstance(last, ev.RunFinished) else ""
    assert shown(events, terminal=False).rstrip("\n") == without_controls(answer).rstrip("\n")
    assert shown(events, terminal=True).endswith(sanitize(answer) + "\n" if answer else "")


def test_a_terminal_gets_text_while_it_is_written() -> None:
    sink = Sink(terminal=True)
    view = output(sink)
    text = ""
    for event, trace in fold(parallel()):
        view.show(event, trace)
        text += event.text if isinstance(event, ev.StepDelta) and event.step == 3 else ""
        if not isinstance(event, ev.RunFinished):
            assert sink.getvalue() == text
    assert text == ANSWER


def test_a_terminal_waits_for_an_answer_that_the_run_holds() -> None:
    """What the last step writes may be the verdict of a check.

    The answer is then another step's.
    """
    events = one_step(["Y", "ES"], "PARIS")
    events = [
        replace(event, holds_answer=True) if isinstance(event, ev.RunStarted) else event
        for event in events
    ]
    assert shown(events, terminal=True) == "PARIS\n"


GONE = ev.RunFailed(at=9.0, error=Failure(kind="worker", message="gone"), usage=Usage())
PAUSE = "--- this attempt failed: gpt: 429 Too Many Requests; again in 12 s ---"
TEXT_ON_A_TERMINAL = {
    "a failed attempt is separated from the next": (retry(), f"{ANSWER[:27]}\n{PAUSE}\n{ANSWER}\n"),
    "a failed attempt without text needs no separator": (
        [event for event in retry() if not isinstance(event, ev.StepDelta) or event.attempt > 1],
        f"{ANSWER}\n",
    ),
    "a new attempt without a reported failure is separated": (
        [event for event in retry() if not isinstance(event, ev.StepFailed)],
        f"{ANSWER[:27]}\n--- attempt 2: gpt starts again ---\n{ANSWER}\n",
    ),
    "a streamed partial answer is not repeated": (limit(), f"{ANSWER[:36]}\n"),
    "a partial answer of another step is written": (cancelled(), f"{SPREAD}\n"),
    "another text than the streamed one is separated": (
        one_step(["draft"], "final"),
        "draft\n--- replaced by the final answer ---\nfinal\n",
    ),
    "a longer answer than the streamed text is completed": (one_step(["fin"], "final"), "final\n"),
    "surrounding white space is ignored": (one_step([" final\n"], "final"), " final\n"),
    "a failed run ends the line": ([*one_step(["half"], "")[:-1], GONE], "half\n"),
    "an interrupted run ends the line": (one_step(["half"], "")[:-2], "half\n"),
}


@pytest.mark.parametrize(
    ("events", "expected"), TEXT_ON_A_TERMINAL.values(), ids=TEXT_ON_A_TERMINAL
)
def test_what_a_terminal_shows_of_an_answer(events: list[ev.Event], expected: str) -> None:
    assert shown(events, terminal=True) == expected


@pytest.mark.parametrize("terminal", [True, False])
def test_characters_that_the_encoding_lacks_are_replaced(terminal: bool) -> None:
    assert shown(one_step(["né 漢"], "né 漢"), terminal=terminal, encoding="latin-1") == "né ?\n"
    assert shown(one_step(["a\ud83d"], "a\ud83d"), terminal=False) == "a?\n"
