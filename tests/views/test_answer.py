"""The answer on standard output: whole in a pipe, streamed on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Step
from conductor_cli.core.terminal_text import sanitize, without_controls
from conductor_cli.core.usage import Usage
from conductor_cli.views.answer import AnswerOutput, AnswerStream, PlainSink
from conductor_cli.views.base import Stdout, View
from tests.traces.make import ANSWER, RUNS, SPREAD, Writer, cancelled, failed, limit, parallel, retry, started, tools
from tests.views.terminals import Sink

Run = Callable[[], list[ev.Event]]


def output(sink: Sink) -> View:
    stdout = Stdout(sink)
    return AnswerStream(lambda: PlainSink(stdout)) if stdout.terminal else AnswerOutput(stdout)


def shown(events: Sequence[ev.Event], *, terminal: bool, encoding: str = "utf-8") -> str:
    sink = Sink(terminal=terminal, encoding=encoding)
    view = output(sink)
    for event in events:
        view.show(event)
    view.close()
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
    expected = ["I count them first.", "--- not the answer: the worker calls files.list ---", "Schema B."]
    assert shown(tools(), terminal=True).splitlines() == expected
    asked: list[ev.Event] = []  # the question whether the tool may be called comes after that line
    for event in tools():
        if isinstance(event, ev.ToolCalled):
            offered = {name: getattr(event, name) for name in ("at", "step", "attempt", "turn", "call", "server")}
            asked.append(ev.ToolOffered(**offered))
        asked.append(event)
    assert shown(asked, terminal=True).splitlines() == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_pipe_gets_the_exact_answer(pieces: list[str]) -> None:
    """A pipe gets the answer of `RunFinished` with one newline at its end: unchanged, but for control sequences."""
    text = "".join(pieces)
    answer = without_controls(text)
    assert shown(one_step(pieces, text), terminal=False) == answer + ("" if answer.endswith("\n") else "\n")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_terminal_gets_the_sanitized_answer_once(pieces: list[str]) -> None:
    """The streamed answer is sanitized, and the end of the run does not repeat it."""
    answer = sanitize("".join(pieces))
    end = "" if answer.endswith("\n") or not answer else "\n"
    assert shown(one_step(pieces, "".join(pieces)), terminal=True) == answer + end


def test_a_partial_answer_is_shown_once() -> None:
    """When the answering step fails for good, its text is the partial answer and is not repeated."""
    run = Writer(started())
    run.plan(Step(worker="gpt", subtask="Answer."))
    run.say(0.1, s1="Half an ans")
    lost = Failure(kind="unreachable", message="the line went dead")
    run.add(ev.StepFailed(at=run.at, step=1, attempt=1, error=lost, usage=Usage()))
    assert shown(run.end("Half an ans", usage=Usage(), partial=True, error=lost), terminal=True) == "Half an ans\n"


@pytest.mark.parametrize("run", RUNS)
def test_the_answer_is_the_last_output(run: Run) -> None:
    """For every canned run, a pipe gets only the answer, a terminal ends with it, and a failed run gives neither."""
    events = run()
    last = events[-1]
    answer = last.answer if isinstance(last, ev.RunFinished) else ""
    assert shown(events, terminal=False).rstrip("\n") == without_controls(answer).rstrip("\n")
    assert shown(events, terminal=True).endswith(sanitize(answer) + "\n" if answer else "")


def test_a_terminal_gets_text_while_it_is_written() -> None:
    """After each piece of the answering step the terminal has all text so far; texts of other steps are not shown."""
    sink = Sink(terminal=True)
    view = output(sink)
    text = ""
    for event in parallel():
        view.show(event)
        text += event.text if isinstance(event, ev.StepDelta) and event.step == 3 else ""
        if not isinstance(event, ev.RunFinished):
            assert sink.getvalue() == text
    assert text == ANSWER


def test_a_terminal_waits_for_an_answer_that_the_run_holds() -> None:
    """What the last step writes may be the verdict of a check; the answer is then another step's."""
    events = one_step(["Y", "ES"], "PARIS")
    events = [replace(event, holds_answer=True) if isinstance(event, ev.RunStarted) else event for event in events]
    assert shown(events, terminal=True) == "PARIS\n"


def test_a_failed_attempt_is_separated_from_the_next() -> None:
    """One line separates the discarded text from the text of the next attempt."""
    assert shown(retry(), terminal=True) == (
        f"{ANSWER[:27]}\n--- this attempt failed: gpt: 429 Too Many Requests; again in 12 s ---\n{ANSWER}\n"
    )


def test_a_failed_attempt_without_text_needs_no_separator() -> None:
    """If the failed attempt had written nothing, only the answer is shown."""
    events = [event for event in retry() if not (isinstance(event, ev.StepDelta) and event.attempt == 1)]
    assert shown(events, terminal=True) == ANSWER + "\n"


def test_a_new_attempt_without_a_reported_failure_is_separated() -> None:
    """Even without a failure event, a new attempt's text does not continue the old one's line."""
    events = [event for event in retry() if not isinstance(event, ev.StepFailed)]
    assert "\n--- attempt 2: gpt starts again ---\n" in shown(events, terminal=True)


def test_a_streamed_partial_answer_is_not_repeated() -> None:
    """When a limit stops the answering step, its text is shown once."""
    assert shown(limit(), terminal=True) == ANSWER[:36] + "\n"


def test_a_partial_answer_of_another_step_is_written() -> None:
    """If the answering step wrote nothing, the answer of another step is written."""
    assert shown(cancelled(), terminal=True) == SPREAD + "\n"


def test_an_answer_that_differs_from_the_streamed_text_is_separated() -> None:
    """A line separates the final answer from what was shown before."""
    assert shown(one_step(["draft"], "final"), terminal=True) == "draft\n--- replaced by the final answer ---\nfinal\n"


def test_an_answer_that_is_longer_than_the_streamed_text_is_completed() -> None:
    """Only the rest is added."""
    assert shown(one_step(["fin"], "final"), terminal=True) == "final\n"


def test_surrounding_white_space_is_ignored() -> None:
    """A trimmed answer is not written a second time."""
    assert shown(one_step([" final\n"], "final"), terminal=True) == " final\n"


def test_a_failed_run_ends_the_line() -> None:
    """After text on a terminal a failed run writes a newline; a pipe gets nothing."""
    events = one_step(["half"], "")[:-1]
    gone = Failure(kind="worker", message="gone")
    assert shown([*events, ev.RunFailed(at=9.0, error=gone, usage=Usage())], terminal=True) == "half\n"
    assert shown(failed(), terminal=False) == ""


def test_an_interrupted_run_ends_the_line() -> None:
    """Closing in the middle of the text leaves the prompt on a line of its own."""
    assert shown(one_step(["half"], "")[:-2], terminal=True) == "half\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_characters_that_the_encoding_lacks_are_replaced(terminal: bool) -> None:
    """They become question marks, and nothing is raised."""
    assert shown(one_step(["né 漢"], "né 漢"), terminal=terminal, encoding="latin-1") == "né ?\n"


def test_a_lone_surrogate_is_replaced() -> None:
    """Text that no encoding can write still reaches a pipe."""
    assert shown(one_step(["a\ud83d"], "a\ud83d"), terminal=False) == "a?\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_closed_pipe_is_reported(terminal: bool) -> None:
    """When nobody reads standard output any more, `BrokenPipeError` is raised."""

    class Closed(Sink):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = output(Closed(terminal=terminal))
    *_, last = parallel()
    with pytest.raises(BrokenPipeError):
        view.show(last)
