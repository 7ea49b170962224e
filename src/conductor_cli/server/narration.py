"""From the events of a run to what a client reads: what happens as reasoning, the answer as it comes, calls. Pure.

A stream cannot take text back. So only the text of the answering step is written as it comes, and such a step is not
tried again once it has written something (`RunConfig.streams_answer`, `streams_nested`). Where the answering step is a
nested run, such as a review, that is the answering step in it: a draft that a review may discard is told in a line of
the reasoning only. The text of other steps is shortened to a line
of the reasoning. What a worker writes before it calls a tool of its own turns out not to be the answer when it is out
already: it stays, and the answer follows as a paragraph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import ToolCall
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.server.event_lines import describe_event
from conductor_cli.server.outcomes import SCHEMA_BROKEN, refusal_in
from conductor_cli.views.run_text import apply_without_deltas, describe_notice, find_step, quote_text

SHORTENED: Final = 200
"""Characters of the answer of a step that is not the last which are shown."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what is told of the run, or of what the answering worker thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of the answer."""

    text: str


Piece = Reasoning | AnswerText | ToolCall | ev.Event


Path = tuple[int, ...]
"""The number of a step, after those of the steps that are the nested runs around it."""

SignCalls = Callable[[Trace], tuple[ToolCall, ...]]


class Narrator:
    """Tells one run to its clients. With `holds_text` the answer comes in one piece, when it is final.

    So it does where the run itself holds it. With `keeps_events` each event is a piece too. `sign` gives the calls of a
    run with the ids that a client sees.
    """

    def __init__(
        self, *, holds_text: bool = False, keeps_events: bool = False, sign: SignCalls = attrgetter("tool_calls")
    ) -> None:
        self.sign = sign
        self.trace = Trace()
        """The run so far, without the texts of steps that are not done."""
        self.shown = ""
        """The text that is out, once the run has ended."""
        self._holds_text = holds_text
        self._keeps_events = keeps_events
        self._written: list[str] = []
        self._answering: Path = ()
        self._held: tuple[Path, list[str]] = (), []
        """The text of the newest step while it is not known whether that step answers."""
        self._told: set[ev.Notice] = set()
        self._new_paragraph = False

    def read(self, event: ev.Event) -> Iterator[Piece]:
        """What a client is told at this event."""
        if self._keeps_events:
            yield event
        path, inner = _place_of(event)
        if isinstance(inner, ev.StepDelta):
            yield from self._read_delta(path, inner)
            return
        if isinstance(inner, ev.PlanDelta):
            return
        self.trace = trace = apply_without_deltas(self.trace, event)
        if isinstance(event, ev.RunStarted):
            self._holds_text = self._holds_text or event.holds_answer
        yield from self._narrate(event, trace)
        if isinstance(inner, ev.PlanRevised):
            self._answering = self._answering[: len(path) - 1]
        yield from self._find_answering_step(trace)
        if isinstance(inner, ev.ToolCalled) and path == self._answering:
            self._new_paragraph = bool(self._written)
        match event:
            case ev.RunFinished():
                yield from self._finish(event)
            case ev.RunFailed():
                if refusal := refusal_in(event.error):
                    self._written.append(refusal)
                    yield AnswerText(refusal)
                self.shown = "".join(self._written)
            case _:
                pass

    def _read_delta(self, path: Path, event: ev.StepDelta) -> Iterator[Piece]:
        if path == self._answering:
            if event.thinking:
                yield Reasoning(event.thinking)
            if event.text:
                yield from self._write(event.text)
        elif path == self._answering[: len(path)]:
            pass  # the whole answer of a nested run, which is out already
        elif path[: len(self._answering)] == self._answering and event.text:
            where, texts = self._held
            self._held = (where, texts) if where == path else (path, [])
            self._held[1].append(event.text)

    def _write(self, text: str) -> Iterator[Piece]:
        if self._holds_text:
            return
        if self._new_paragraph:
            self._new_paragraph = False
            text = f"\n\n{text}"
        self._written.append(text)
        yield AnswerText(text)

    def _find_answering_step(self, trace: Trace) -> Iterator[Piece]:
        """Where more is known now of who answers: what that step has written so far."""
        path = _path_of_answer(trace)
        if len(path) <= len(self._answering):
            return
        self._answering = path
        where, texts = self._held
        self._held = (), []
        if where == path and texts:
            yield from self._write("".join(texts))

    def _finish(self, event: ev.RunFinished) -> Iterator[Piece]:
        """What is missing of the answer. Where another text is out already, that one stays the answer."""
        written = "".join(self._written)
        rest = event.answer[len(written) :] if event.answer.startswith(written) else ""
        if event.error is not None and event.error.reason in SCHEMA_BROKEN:
            rest = ""
        if rest:
            yield AnswerText(rest)
        self.shown = written + rest
        yield from self.sign(self.trace)

    def _narrate(self, event: ev.Event, trace: Trace) -> Iterator[Piece]:
        is_edge = isinstance(event, ev.RunStarted | ev.RunFinished | ev.RunFailed)
        # Clients such as aider join reasoning that follows the text to it, and write it into a file.
        inner = ev.innermost_event(event)
        is_late = bool(self._written) and isinstance(inner, ev.StepFinished | ev.StepFailed | ev.StepStopped | _ENDS)
        line = "" if is_edge or is_late else describe_event(event, trace)
        if isinstance(event, ev.StepFinished) and line:
            line = f"{line}, {_spent(event.usage)}" if event.usage.tokens else line
            record = find_step(trace, event.step)
            if record is not None and not record.last and event.text.strip():
                line = f"{line}: {quote_text(event.text, SHORTENED)}"
        if line:
            yield Reasoning(f"{line}\n")
        for notice in trace.recovered:
            if notice not in self._told:
                self._told.add(notice)
                yield Reasoning(f"recovered: {describe_notice(notice)}\n")


_ENDS = ev.RunFinished | ev.RunFailed


def _place_of(event: ev.Event) -> tuple[Path, ev.Event]:
    """The step of an event in whatever nested run it happened, and the event as it is there."""
    path: Path = ()
    while isinstance(event, ev.NestedEvent):
        path, event = (*path, event.step), event.event
    step = event.step if isinstance(event, ev.StepDelta | ev.ToolCalled) else 0
    return (*path, step), event


def _path_of_answer(trace: Trace) -> Path:
    """The step that answers, as far as that is known."""
    record = next((each for each in trace.steps if each.last), None)
    if record is None:
        return ()
    return (record.number, *(_path_of_answer(record.nested) if record.nested is not None else ()))


def _spent(usage: Usage) -> str:
    cost = format_cost(usage)
    return f"{format_count(usage.tokens, 'token')}{f', {cost}' if cost else ''}"
