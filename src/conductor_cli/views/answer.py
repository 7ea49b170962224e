"""The answer and nothing else, on standard output.

A pipe or a file gets the whole answer once, as the worker wrote it, ending in one newline, but for control sequences:
`less -R` and `cat` would have the terminal obey them. `--format json` has those too. A terminal gets the text of
the answering step as it is written, made safe to show, as Markdown where the terminal has colours; what was shown is
not repeated when the run ends.
"""

from __future__ import annotations

from collections.abc import Callable

from conductor_cli.core import events as ev
from conductor_cli.core.terminal_text import StreamSanitizer, one_line, sanitize, without_controls, without_hidden
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import RunView, Stdout
from conductor_cli.views.run_text import describe_failure, describe_next_attempt, tool_name


def answering_step(trace: Trace) -> int:
    """The number of the step whose answer is the run's; 0 before it is known."""
    return next((record.number for record in reversed(trace.steps) if record.last), 0)


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
            self._stdout.write(answer if answer.endswith("\n") else answer + "\n")
            self._stdout.flush()


class AnswerStream(RunView):
    """Streams the answer to a terminal: the text of the current attempt at the answering step.

    `open_sink` is called when the first text arrives, because rendering Markdown takes long to load.
    """

    def __init__(self, open_sink: Callable[[], AnswerSink]) -> None:
        self._open_sink = open_sink
        self._sink: AnswerSink | None = None
        self._holds_text = False
        """Whether the answer is written when it is complete, because it is checked or decided first."""
        self._pieces: list[str] = []
        self._sanitizer = StreamSanitizer()

    def show(self, event: ev.Event, trace: Trace) -> None:
        match event:
            case ev.RunStarted():
                self._holds_text = event.question.schema is not None or event.holds_answer
            case ev.RunFinished():
                self._finish(event.answer)
            case ev.RunFailed():
                self.close()
            case _ if getattr(event, "step", 0) == answering_step(trace):
                self._show_step(event)

    def _show_step(self, event: ev.Event) -> None:
        """Show an event of the answering step."""
        match event:
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
            case _:
                pass

    def draw(self) -> None:
        if self._sink is not None:
            self._sink.draw()

    def close(self) -> None:
        self._write(self._sanitizer.close())
        if self._sink is not None:
            self._sink.close()

    def _finish(self, answer: str) -> None:
        """Write what is missing of the answer, or all of it if another text was shown."""
        shown = "".join(self._pieces)
        if answer.strip() != shown.strip():
            if answer.startswith(shown):
                self._write(self._sanitizer.feed(answer[len(shown) :]))
            else:
                self._discard("replaced by the final answer")
                self._write(sanitize(answer))
        self.close()

    def _discard(self, why: str) -> None:
        """A line between text that is no longer valid and what follows it."""
        if self._pieces and self._sink is not None:
            self.close()
            self._sink.write(f"--- {why} ---\n")
            self._sink.close()
        self._pieces = []
        self._sanitizer = StreamSanitizer()

    def _write(self, text: str) -> None:
        if text := without_hidden(text):
            self._sink = self._sink or self._open_sink()
            self._sink.write(text)
