"""The answer on standard output: whole in a pipe, as it comes on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Step
from conductor_cli.core.sanitize import sanitize
from conductor_cli.core.usage import Usage
from conductor_cli.views.answer import AnswerOutput
from conductor_cli.views.base import Stdout
from tests.traces.make import ANSWER, RUNS, SPREAD, Writer, cancelled, failed, limit, parallel, retry, started
from tests.views.terminals import Sink

Run = Callable[[], list[ev.Event]]


def shown(events: Sequence[ev.Event], *, terminal: bool, encoding: str = "utf-8") -> str:
    sink = Sink(terminal=terminal, encoding=encoding)
    view = AnswerOutput(Stdout(sink))
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


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_pipe_gets_the_answer_as_it_is(pieces: list[str]) -> None:
    """What a pipe gets is the answer of `RunFinished` to the character, with one newline at its end."""
    answer = "".join(pieces)
    assert shown(one_step(pieces, answer), terminal=False) == answer + ("" if answer.endswith("\n") else "\n")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_terminal_gets_the_answer_once_and_clean(pieces: list[str]) -> None:
    """What streams to a terminal is the cleaned answer, and the end of the run does not repeat it."""
    answer = sanitize("".join(pieces))
    end = "" if answer.endswith("\n") or not answer else "\n"
    assert shown(one_step(pieces, "".join(pieces)), terminal=True) == answer + end


def test_a_part_of_an_answer_stands_once() -> None:
    """Where the answering step fails for good, what it has written is the partial answer, and is not repeated."""
    run = Writer(started())
    run.plan(Step(worker="gpt", subtask="Answer."))
    run.say(0.1, s1="Half an ans")
    lost = Failure(kind="unreachable", message="the line went dead")
    run.add(ev.StepFailed(at=run.at, step=1, attempt=1, error=lost, usage=Usage()))
    assert shown(run.end("Half an ans", usage=Usage(), partial=True, error=lost), terminal=True) == "Half an ans\n"


@pytest.mark.parametrize("run", RUNS)
def test_the_answer_stands_at_the_end(run: Run) -> None:
    """Of every canned run: a pipe gets the answer alone, a terminal ends with it, and a failed run gives neither."""
    events = run()
    last = events[-1]
    answer = last.answer if isinstance(last, ev.RunFinished) else ""
    assert shown(events, terminal=False).rstrip("\n") == answer.rstrip("\n")
    assert shown(events, terminal=True).endswith(sanitize(answer) + "\n" if answer else "")


def test_a_terminal_sees_the_text_as_it_comes() -> None:
    """After each piece of the answering step the terminal has all text so far; other steps' text never shows."""
    sink = Sink(terminal=True)
    view = AnswerOutput(Stdout(sink))
    text = ""
    for event in parallel():
        view.show(event)
        text += event.text if isinstance(event, ev.StepDelta) and event.step == 3 else ""
        if not isinstance(event, ev.RunFinished):
            assert sink.getvalue() == text
    assert text == ANSWER


def test_an_attempt_that_breaks_off_is_marked_off() -> None:
    """One line stands between the text that was lost and the text of the next attempt."""
    assert shown(retry(), terminal=True) == (
        f"{ANSWER[:27]}\n--- this attempt failed: gpt: 429 Too Many Requests; again in 12 s ---\n{ANSWER}\n"
    )


def test_an_attempt_that_breaks_off_in_silence_needs_no_mark() -> None:
    """Where the lost attempt had written nothing, the answer stands alone."""
    events = [event for event in retry() if not (isinstance(event, ev.StepDelta) and event.attempt == 1)]
    assert shown(events, terminal=True) == ANSWER + "\n"


def test_an_attempt_that_starts_again_without_a_word_is_marked_off() -> None:
    """Even where no failure was told, a new attempt's text is not glued to the old one's."""
    events = [event for event in retry() if not isinstance(event, ev.StepFailed)]
    assert "\n--- attempt 2: gpt starts again ---\n" in shown(events, terminal=True)


def test_a_partial_answer_that_was_streamed_is_not_repeated() -> None:
    """A run that a limit cuts in its answering step leaves that step's text, once."""
    assert shown(limit(), terminal=True) == ANSWER[:36] + "\n"


def test_a_partial_answer_from_another_step_is_written() -> None:
    """Where the answering step never spoke, the answer of the step that did is written."""
    assert shown(cancelled(), terminal=True) == SPREAD + "\n"


def test_an_answer_other_than_what_was_streamed_is_marked_off() -> None:
    """What stands is told apart from what was shown before it."""
    assert shown(one_step(["draft"], "final"), terminal=True) == "draft\n--- replaced by the final answer ---\nfinal\n"


def test_an_answer_that_goes_on_is_completed() -> None:
    """Where the answer is the streamed text and more, only the rest is added."""
    assert shown(one_step(["fin"], "final"), terminal=True) == "final\n"


def test_white_space_at_the_ends_is_no_difference() -> None:
    """An answer that was trimmed is not written a second time."""
    assert shown(one_step([" final\n"], "final"), terminal=True) == " final\n"


def test_a_failed_run_ends_the_line() -> None:
    """Text that was on the screen when the run failed is followed by a newline, in a pipe by nothing."""
    events = one_step(["half"], "")[:-1]
    gone = Failure(kind="worker", message="gone")
    assert shown([*events, ev.RunFailed(at=9.0, error=gone, usage=Usage())], terminal=True) == "half\n"
    assert shown(failed(), terminal=False) == ""


def test_a_run_that_breaks_off_ends_the_line() -> None:
    """Closing in the middle of the text leaves the prompt on a line of its own."""
    assert shown(one_step(["half"], "")[:-2], terminal=True) == "half\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_an_encoding_lacks_is_replaced(terminal: bool) -> None:
    """A stream that cannot write a character gets a question mark, and nothing is raised."""
    assert shown(one_step(["né 漢"], "né 漢"), terminal=terminal, encoding="latin-1") == "né ?\n"


def test_half_a_surrogate_pair_is_replaced() -> None:
    """Text that no encoding can write still reaches a pipe."""
    assert shown(one_step(["a\ud83d"], "a\ud83d"), terminal=False) == "a?\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_closed_pipe_is_heard(terminal: bool) -> None:
    """When nobody reads standard output any more, the caller learns it."""

    class Closed(Sink):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = AnswerOutput(Stdout(Closed(terminal=terminal)))
    *_, last = parallel()
    with pytest.raises(BrokenPipeError):
        view.show(last)
