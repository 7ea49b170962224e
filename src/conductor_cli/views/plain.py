"""Only the answer on standard output, and lines of progress on standard error, never redrawn.

A pipe or a file gets the whole answer once, as the worker wrote it, ending in one newline, but for
control sequences: `less -R` and `cat` would have the terminal obey them. `--format json` has those
too. A terminal gets the text of the answering step as it is written, made safe to show, as Markdown
where the terminal has colours; what was shown is not repeated when the run ends.

Lines of progress are for log files, simple terminals and screen readers: all of them, only notices
and problems, which a script's stderr gets, or only problems.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import (
    StreamSanitizer,
    one_line,
    sanitize,
    without_controls,
    without_hidden,
)
from conductor_cli.core.trace import Trace
from conductor_cli.system.terminal_tables import terminal_width, wrap_lines
from conductor_cli.views.base import RunView, Stderr, Stdout
from conductor_cli.views.run_text import (
    MAX_QUOTE,
    describe_failure,
    describe_next_attempt,
    describe_notice,
    describe_setup,
    describe_totals,
    log_lines,
    problem_lines,
    tool_name,
)

QUESTION_LINES: Final = 8


def answering_step(trace: Trace) -> int:
    """Return the number of the step whose answer is the run's; 0 before it is known."""
    for record in reversed(trace.steps):
        if record.last:
            return record.number
    return 0


class AnswerSink:
    """Where a terminal's answer is written: pieces of sanitized text, and the end of each text."""

    def write(self, text: str) -> None: ...

    def draw(self) -> None: ...

    def close(self) -> None: ...


class PlainSink(AnswerSink):
    """Writes every piece at once and as it is."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._in_line = False

    def write(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()
        self._in_line = not text.endswith("\n")

    def close(self) -> None:
        if self._in_line:
            self.write("\n")


class AnswerOutput(RunView):
    """Writes the whole answer to a file or pipe."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout

    def show(self, event: ev.Event, _: Trace) -> None:
        if isinstance(event, ev.RunFinished) and event.answer:
            answer = without_controls(event.answer)
            if not answer.endswith("\n"):
                answer += "\n"
            self._stdout.write(answer)
            self._stdout.flush()


class AnswerStream(RunView):
    """Streams the answer to a terminal: the text of the current attempt at the answering step.

    `open_sink` is called when the first text arrives, because rendering Markdown takes long to
    load.
    """

    def __init__(self, open_sink: Callable[[], AnswerSink]) -> None:
        self._open_sink = open_sink
        self._sink: AnswerSink | None = None
        self._holds_text = False
        """Whether the answer is written when it is complete: it is checked or decided first."""
        self._pieces: list[str] = []
        self._sanitizer = StreamSanitizer()

    def show(self, event: ev.Event, trace: Trace) -> None:
        match event:
            case ev.RunStarted():
                self._holds_text = event.question.schema is not None or event.holds_answer
            case ev.RunFinished(answer=answer):
                self._complete(answer)
                self.close()
            case ev.RunFailed():
                self.close()
            case _ if getattr(event, "step", 0) != answering_step(trace):
                pass
            case ev.StepDelta(text=text) if text and not self._holds_text:
                self._pieces.append(text)
                self._write(self._sanitizer.feed(text))
            case ev.StepFailed() if not event.final:
                why = f"{describe_failure(event.error)}; {describe_next_attempt(event)}"
                self._discard(f"this attempt failed: {why}")
            case ev.ToolOffered() | ev.ToolCalled():
                self._discard(f"not the answer: the worker calls {tool_name(event)}")
            case ev.StepStarted():
                self._discard(f"attempt {event.attempt}: {one_line(event.worker)} starts again")

    def draw(self) -> None:
        if self._sink is not None:
            self._sink.draw()

    def close(self) -> None:
        self._write(self._sanitizer.close())
        if self._sink is not None:
            self._sink.close()

    def _complete(self, answer: str) -> None:
        """Write what is missing of the answer, or all of it if another text was shown."""
        shown = "".join(self._pieces)
        if answer.strip() == shown.strip():
            return
        if answer.startswith(shown):
            self._write(self._sanitizer.feed(answer[len(shown) :]))
        else:
            self._discard("replaced by the final answer")
            self._write(sanitize(answer))

    def _discard(self, why: str) -> None:
        """Write a line between text that is no longer valid and what follows it."""
        if self._pieces and self._sink is not None:
            self.close()
            self._sink.write(f"--- {why} ---\n")
            self._sink.close()
        self._pieces = []
        self._sanitizer = StreamSanitizer()

    def _write(self, text: str) -> None:
        text = without_hidden(text)
        if text:
            self._sink = self._sink or self._open_sink()
            self._sink.write(text)


class SilentProgress(RunView):
    """Writes at most three lines of what went wrong, and what no worker was sent whole.

    `stored`: the trace is on disk, so the run can be resumed.
    """

    def __init__(self, stderr: Stderr, *, stored: bool = True) -> None:
        self._stderr = stderr
        self._stored = stored
        self._trace = Trace()

    def show(self, _: ev.Event, trace: Trace) -> None:
        self._trace = trace

    def leave(self) -> None: ...

    def close(self) -> None:
        self._write(_shortening_lines(self._trace))
        self._write(problem_lines(self._trace, stored=self._stored))

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._stderr.write("".join(f"{line}\n" for line in lines))
            self._stderr.flush()


def _shortening_lines(trace: Trace) -> list[str]:
    shortened = []
    for notice in trace.all_notices():
        if notice.reason == "shortened":
            shortened.append(f"conductor: {describe_notice(notice)}")
    return shortened


class NoticesProgress(SilentProgress):
    """Also writes each notice and what was recovered.

    Whoever uses an answer should know how it came about.
    """

    _written: Sequence[ev.Notice] = ()

    def show(self, event: ev.Event, trace: Trace) -> None:
        self._trace = trace
        if isinstance(ev.innermost_event(event), ev.PlanDelta | ev.StepDelta):
            return
        notices = trace.all_notices()
        lines = []
        for notice in notices:
            if notice not in self._written:
                lines.append(f"conductor: {describe_notice(notice)}")
        self._written = notices
        self._write(lines)

    def close(self) -> None:
        self._write(problem_lines(self._trace, stored=self._stored))


class PlainProgress(SilentProgress):
    """Writes what the live tree shows, as a log: each step when it is planned, starts and ends."""

    def __init__(
        self, stderr: Stderr, *, stored: bool = True, question_is_shown: bool = False
    ) -> None:
        """`question_is_shown`: the question stands on the terminal already."""
        super().__init__(stderr, stored=stored)
        self._question_is_shown = question_is_shown
        self._paused = False
        self._held: list[str] = []

    def show(self, event: ev.Event, trace: Trace) -> None:
        self._trace = trace
        match event:
            case ev.RunStarted():
                if not self._question_is_shown:
                    self._held += _first_lines(trace.question.text)
                self._held.append(describe_setup(trace))
            case ev.RunFinished() | ev.RunFailed():
                self._held.append(describe_totals(trace, stored=self._stored))
            case _:
                self._held += log_lines(event, trace)
        if not self._paused:
            self.resume()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        width = terminal_width(self._stderr.stream)
        self._write([wrap_lines(line, width) for line in self._held])
        self._held.clear()

    def close(self) -> None:
        self.resume()
        self._write(problem_lines(self._trace, stored=self._stored))


def _first_lines(question: str) -> list[str]:
    """Return the first lines of a question, and how many follow."""
    lines = question.strip().splitlines()
    rows = list[str]()
    for line in lines[:QUESTION_LINES]:
        rows += textwrap.wrap(one_line(line), MAX_QUOTE)
    shown = rows[:QUESTION_LINES]
    further = len(lines) - QUESTION_LINES
    if further > 0:
        shown.append(f"... +{format_count(further, 'line')}")
    return shown
