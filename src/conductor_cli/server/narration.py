"""From the events of a run to what a client reads: what happens as reasoning, the answer as it comes, calls. Pure.

A stream cannot take text back. So only the text of the answering step is written as it comes, and such a step is not
tried again once it has written something (`RunConfig.streams_answer`, `streams_nested`). Where the answering step is a
nested run, such as a review, that is the answering step in it: a draft that a review may discard is told in a line of
the reasoning only. The text of other steps is shortened to a line
of the reasoning. What a worker writes before it calls a tool of its own turns out not to be the answer when it is out
already: it stays, and the answer follows as a paragraph of its own.

One plain line for each event that a client of a server should hear of. Pure.

What a run that has ended is to its client: text, calls, usage, or an error. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.follow_up import who_answers
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import Outcome, RequestError, ServedUsage, StepUsage
from conductor_cli.views.run_text import (
    apply_without_deltas,
    describe_failure,
    describe_next_attempt,
    describe_notice,
    find_step,
    quote_text,
)


def describe_event(event: ev.Event, trace: Trace) -> str:
    """One line about an event that a client should hear of; empty for any other."""
    match event:
        case ev.RunStarted():
            return "started"
        case ev.StepPlanned():
            return f"step {event.step} planned: {short_name(event.worker)}, {quote_text(event.subtask)}"
        case ev.PlanReady():
            return f"plan ready: {format_count(len(trace.steps), 'step')}"
        case ev.PlanRejected():
            return f"plan not valid, trying again: {one_line(event.problem):.200}"
        case ev.PlanRevised():
            return f"plan revised: step {event.step} could not be done"
        case ev.StepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"{_step(event, trace)} started: {short_name(event.worker)}{again}"
        case ev.StepFinished():
            return f"{_step(event, trace)} finished: {_worker(event, trace)}, {format_duration(event.usage.seconds)}"
        case ev.StepFailed():
            rest = "" if event.final else f"; {describe_next_attempt(event)}"
            return f"{_step(event, trace)} failed: {_worker(event, trace)}, {describe_failure(event.error)}{rest}"
        case ev.StepStopped():
            return f"{_step(event, trace)} stopped: {event.reason.replace('_', ' ')}"
        case ev.ToolCalled():
            return f"{_step(event, trace)}: {_worker(event, trace)} calls {short_name(event.call.name)}"
        case ev.NestedEvent():
            record = find_step(trace, event.step)
            nested = describe_event(event.event, record.nested if record and record.nested else Trace())
            return f"step {event.step}, nested run: {nested}" if nested else ""
        case ev.RunFinished():
            return "finished with a part of the answer" if event.partial else "finished"
        case ev.RunFailed():
            return f"failed: {describe_failure(event.error)}"
    return ""


_StepEvent = ev.StepStarted | ev.StepFinished | ev.StepFailed | ev.StepStopped | ev.ToolCalled


def _step(event: _StepEvent, trace: Trace) -> str:
    return f"step {event.step} of {len(trace.steps)}" if trace.plan is not None else f"step {event.step}"


def _worker(event: _StepEvent, trace: Trace) -> str:
    """Who had the step when the event happened. A failed attempt belongs to the worker before the substitute."""
    record = find_step(trace, event.step)
    if record is None:
        return "a worker"
    if isinstance(event, ev.StepFailed) and record.failed:
        return short_name(record.failed[-1].worker)
    return short_name(record.worker)


def short_name(name: str) -> str:
    """The name of a worker or a tool in one line of bounded length."""
    return one_line(name)[:80]


SCHEMA_BROKEN: Final = frozenset({"answer_not_json", "answer_not_schema"})
"""Why an answer is a failure to a client that gave a JSON Schema."""


def outcome_of(trace: Trace, reasoning: str = "", *, now: datetime | None = None) -> Outcome | RequestError:
    """How a run ended. `reasoning` is what was told of it, `now` the local time, for limits of a day."""
    if (refusal := refusal_in(trace.error)) and trace.state == "failed":
        return Outcome(
            run=trace.run, text=refusal, finish="stop", usage=served_usage(trace), reasoning=reasoning, tool_calls=()
        )
    if trace.state != "finished" or _broke_off(trace):
        return request_error(_cause(trace), trace.run, now=now)
    if trace.error is not None and trace.error.reason in SCHEMA_BROKEN:
        return RequestError(502, "invalid_answer", f"{trace.error.message} [run {trace.run}]")
    if trace.error is not None and trace.error.reason == "answer_not_checked":
        # To try again would cost another run, and end likewise.
        return RequestError(400, "invalid_json_schema", f"{trace.error.message} [run {trace.run}]")
    return Outcome(
        run=trace.run, text=trace.answer, finish=_finish(trace), usage=served_usage(trace), reasoning=reasoning,
        tool_calls=trace.tool_calls,
    )  # fmt: skip


def refusal_in(error: Failure | None) -> str:
    """What a client reads as the answer where the run declined to give one, in a sentence; else empty.

    For a client, a model that declines has answered: an error would end an evaluation, or be tried again.
    """
    return error.message if error is not None and error.reason == "declined" else ""


def served_usage(trace: Trace) -> ServedUsage:
    """What a run used: its answering step, and all the rest. What no step reported counts as the rest."""
    last = who_answers(trace)
    answer = last.usage if last is not None else NO_USAGE
    models = {worker.name: worker.model_name for worker in trace.pool}
    steps = tuple(
        StepUsage(step=record.number, worker=record.worker, model=models.get(record.worker, ""), usage=record.usage)
        for record in trace.steps
    )
    return ServedUsage(answer=answer, orchestration=_rest(trace.usage, answer), steps=steps)


def _rest(total: Usage, part: Usage) -> Usage:
    """What `part` leaves of `total`."""
    cost: Decimal | None = total.cost
    if cost is not None and part.cost is not None:
        # A cost of nothing is none where nothing else has a price, so that the sum says the same as the total.
        cost = max(cost - part.cost, Decimal(0))
    return Usage(
        tokens_in=max(total.tokens_in - part.tokens_in, 0),
        tokens_out=max(total.tokens_out - part.tokens_out, 0),
        tokens_cached=max(total.tokens_cached - part.tokens_cached, 0),
        tokens_reasoning=max(total.tokens_reasoning - part.tokens_reasoning, 0),
        tokens_stored=max(total.tokens_stored - part.tokens_stored, 0),
        cost=cost,
        seconds=max(total.seconds - part.seconds, 0.0),
        calls=max(total.calls - part.calls, 0),
        unpriced=max(total.unpriced - part.unpriced, 0),
    )


def _broke_off(trace: Trace) -> bool:
    """Whether the answer is the beginning of one whose worker failed.

    Clients try again after an error. An end for the reason `length` they take for a limit that their user should raise.
    """
    if not trace.partial or trace.error is None or trace.error.kind not in ("worker", "unreachable"):
        return False
    return all(record.text != trace.answer for record in trace.steps if record.state == "done")


def _finish(trace: Trace) -> Finish:
    if trace.tool_calls:
        return "tool"
    if trace.partial:
        return "length"
    last = who_answers(trace)
    return last.finish or "stop" if last is not None else "stop"


def _cause(trace: Trace) -> Failure:
    """Why a run failed. Where each attempt found the conversation too long for its model, that is the reason."""
    error = trace.error or Failure(kind="internal", message="the run has no end")
    attempts = [attempt.error for record in trace.steps for attempt in record.failed]
    if error.kind == "worker" and attempts and all(each.reason == "length" for each in attempts):
        return replace(error, reason="length")
    return error


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
