"""The answer and nothing else, on standard output.

A pipe or a file gets the whole answer once, as the worker wrote it, with one newline at its end. A terminal gets the
answering step's text as it comes, made safe to show, as Markdown where the terminal has colours; what was shown is not
repeated when the run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from conductor_cli.core.events import (
    Event,
    RunFailed,
    RunFinished,
    StepDelta,
    StepFailed,
    StepPlanned,
    StepStarted,
)
from conductor_cli.core.sanitize import StreamSanitizer, one_line, sanitize
from conductor_cli.views.base import Stdout
from conductor_cli.views.run_text import describe_failure, describe_next_attempt


def answering_step(event: Event, known: int) -> int:
    """The number of the step whose answer is the run's, after `event`; 0 before it is known."""
    return event.step if isinstance(event, StepPlanned) and event.last else known


class AnswerSink(Protocol):
    """What a terminal's answer is written to: pieces of clean text, then `close`; a remark stands between two texts."""

    def write(self, text: str) -> None: ...

    def remark(self, text: str) -> None: ...

    def close(self) -> None: ...


class AnswerOutput:
    """Writes whole where nobody watches, and streams to `paper` where somebody does."""

    def __init__(self, stdout: Stdout, paper: AnswerSink | None = None) -> None:
        self._stdout = stdout
        self._stream = _AnswerStream(paper or PlainSink(stdout)) if stdout.terminal else None

    def show(self, event: Event) -> None:
        if self._stream is not None:
            self._stream.show(event)
        elif isinstance(event, RunFinished) and event.answer:
            self._stdout.write(event.answer if event.answer.endswith("\n") else event.answer + "\n")
            self._stdout.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.end()


class PlainSink:
    """Text as it is, a piece as soon as it comes."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._in_line = False

    def write(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()
        self._in_line = not text.endswith("\n")

    def remark(self, text: str) -> None:
        self.close()
        self.write(f"{text}\n")

    def close(self) -> None:
        if self._in_line:
            self.write("\n")


class LazySink:
    """A paper that is opened when the first text comes."""

    def __init__(self, opened: Callable[[], AnswerSink]) -> None:
        self._opened = opened
        self._paper: AnswerSink | None = None

    def write(self, text: str) -> None:
        self._paper = self._paper or self._opened()
        self._paper.write(text)

    def remark(self, text: str) -> None:
        self._paper = self._paper or self._opened()
        self._paper.remark(text)

    def close(self) -> None:
        if self._paper is not None:
            self._paper.close()


class _AnswerStream:
    """The text on the terminal: that of the current attempt at the answering step."""

    def __init__(self, paper: AnswerSink) -> None:
        self._paper = paper
        self._step = 0
        self._pieces: list[str] = []
        self._cleaner = StreamSanitizer()

    def show(self, event: Event) -> None:
        self._step = answering_step(event, self._step)
        match event:
            case StepDelta(text=text) if event.step == self._step and text:
                self._pieces.append(text)
                self._write(self._cleaner.feed(text))
            case StepFailed() if event.step == self._step and not event.final:
                self._break_off(
                    f"this attempt broke off: {describe_failure(event.error)}; {describe_next_attempt(event)}"
                )
            case StepStarted() if event.step == self._step:
                self._break_off(f"attempt {event.attempt}: {one_line(event.worker)} starts again")
            case RunFinished():
                self._finish(event.answer)
            case RunFailed():
                self.end()
            case _:
                pass

    def end(self) -> None:
        self._write(self._cleaner.close())
        self._paper.close()

    def _finish(self, answer: str) -> None:
        shown = "".join(self._pieces)
        if answer.strip() == shown.strip():
            pass
        elif answer.startswith(shown):
            self._write(self._cleaner.feed(answer[len(shown) :]))
        else:
            self._break_off("what stands instead")
            self._write(sanitize(answer))
        self.end()

    def _break_off(self, why: str) -> None:
        """One line between text that does not stand and what comes after it."""
        if self._pieces:
            self.end()
            self._paper.remark(f"--- {why} ---")
        self._pieces = []
        self._cleaner = StreamSanitizer()

    def _write(self, text: str) -> None:
        if text:
            self._paper.write(text)
