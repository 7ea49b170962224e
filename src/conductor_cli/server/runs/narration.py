"""From the events of a run to what a client reads.

What happens as reasoning, the answer as it comes, calls; its end.

A stream cannot take text back. So only the text of the answering step is written as it comes, and
such a step is not tried again once it has written something (`RunSpec.streams_answer`,
`streams_nested`). Where the answering step is a nested run, such as a review, that is the answering
step in it: a draft that a review may discard is told in a line of the reasoning only. The text of
other steps is shortened to a line of the reasoning. What a worker writes before it calls a tool of
its own, or before its process is lost and the step begins again, turns out not to be the answer
when it is out already: it stays, and the answer follows as a paragraph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from operator import attrgetter
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, ToolCall
from conductor_cli.core.continuation import who_answers
from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import StepRecord, Trace, find_step
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.server.api.errors import request_error
from conductor_cli.server.api.request import RequestError, ServedAnswer, ServedUsage, StepUsage
from conductor_cli.views.run_text import describe_event, describe_notice, quote_text

SHOWN_STEPS: Final = (
    ev.StepPlanned
    | ev.PlanReady
    | ev.PlanOffered
    | ev.PlanDecided
    | ev.StepStarted
    | ev.StepFinished
    | ev.StepStopped
    | ev.ToolOffered
    | ev.ToolCalled
    | ev.ToolReturned
)
"""The events whose whole content a list of steps shows. Failures and notices are told in words."""

# As tuples: a union would be made anew for each event
_EDGES: Final = (ev.RunStarted, ev.RunFinished, ev.RunFailed)
_ENDS: Final = (
    ev.StepFinished,
    ev.StepFailed,
    ev.StepStopped,
    ev.RunFinished,
    ev.RunFailed,
)
_REPLY_BEGINNINGS: Final = (ev.ToolCalled, ev.StepStarted)
"""After these a worker begins a reply."""

_PLACED: Final = (ev.StepDelta, *_REPLY_BEGINNINGS)
"""The events whose step counts for the place of the answer."""

SignCalls = Callable[[Trace], tuple[ToolCall, ...]]

SCHEMA_BROKEN: Final = frozenset({"answer_not_json", "answer_not_schema"})
"""Why an answer is a failure to a client that gave a JSON Schema."""


def outcome_of(
    trace: Trace, reasoning: str = "", *, sign: SignCalls = attrgetter("tool_calls")
) -> ServedAnswer | RequestError:
    """Return how a run ended. `reasoning` is what was told of it.

    `sign` gives its calls with the ids that a client sees.
    """
    last = who_answers(trace)
    refusal = ""
    if trace.state == "failed":
        refusal = refusal_in(trace.error)
    if not refusal and (trace.state != "finished" or _broke_off(trace)):
        error = trace.error or Failure(kind="internal", message="the run has no end")
        attempts = list[Failure]()
        for record in trace.steps:
            attempts += [attempt.error for attempt in record.failed]
        return request_error(error, trace.run, attempts)
    reason = ""
    if trace.error is not None and not refusal:
        reason = trace.error.reason
    if trace.error is not None and reason in SCHEMA_BROKEN:
        return RequestError(502, "invalid_answer", f"{trace.error.message} [run {trace.run}]")
    if trace.error is not None and reason == "answer_not_checked":
        # To try again would cost another run, and end in the same way.
        return RequestError(400, "invalid_json_schema", f"{trace.error.message} [run {trace.run}]")
    return ServedAnswer(
        run=trace.run,
        text=refusal or trace.answer,
        finish="stop" if refusal else _finish_of(trace, last),
        usage=served_usage(trace),
        reasoning=reasoning,
        notices=tuple(describe_notice(notice) for notice in trace.all_notices()),
        tool_calls=() if refusal else sign(trace),
        stop_sequence=last.stop_sequence if last is not None else "",
        seconds=trace.at,
        quotes_files=trace.question.holds_files,
    )


def _broke_off(trace: Trace) -> bool:
    """Return whether the answer of a run is the beginning of one whose worker failed.

    Clients try again after an error. An end for the reason `length` they take for a limit that
    their user should raise, so such an answer is an error.
    """
    if not trace.partial or trace.error is None:
        return False
    if trace.error.kind not in ("worker", "unreachable"):
        return False
    return all(record.text != trace.answer for record in trace.steps if record.state == "done")


def _finish_of(trace: Trace, last: StepRecord | None) -> Finish:
    """Return why the answer of a run ends where it does."""
    if trace.tool_calls:
        return "tool"
    if trace.partial and trace.error is not None:
        if trace.error.reason == "answer_filtered":
            return "refusal"
        # An answer that is whole itself, though it is made of a step that is not, has reached no
        # limit that a client could raise. Its reasoning says so.
        if trace.error.reason == "step_truncated":
            return _finish_of_step(last)
    if trace.partial:
        return "length"
    return _finish_of_step(last)


def _finish_of_step(last: StepRecord | None) -> Finish:
    if last is None:
        return "stop"
    return last.finish or "stop"


def refusal_in(error: Failure | None) -> str:
    """Return what a client reads as the answer where the run declined to give one; else empty.

    It is a sentence. For a client, a model that declines has answered: an error would end an
    evaluation, or be tried again.
    """
    if error is not None and error.reason == "declined":
        return error.message
    return ""


def served_usage(trace: Trace) -> ServedUsage:
    """Return what a run used: its answering step, and all the rest.

    What no step reported counts as the rest.
    """
    last = who_answers(trace)
    answer = last.usage if last is not None else NO_USAGE
    models = {worker.name: worker.model_name for worker in trace.pool}
    steps = tuple(
        StepUsage(
            step=record.number,
            worker=record.worker,
            model=models.get(record.worker, ""),
            usage=record.usage,
        )
        for record in trace.steps
    )
    rest = dict[str, int]()
    for field in fields(Usage):
        if field.name != "cost":
            whole = getattr(trace.usage, field.name)
            rest[field.name] = max(whole - getattr(answer, field.name), 0)
    cost = trace.usage.cost
    if cost is not None and answer.cost is not None:
        # A cost of nothing is none where nothing else has a price, so that the sum says the same as
        # the total.
        cost = max(cost - answer.cost, Decimal(0))
    return ServedUsage(answer=answer, orchestration=Usage(cost=cost, **rest), steps=steps)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what is told of the run, or of what the answering worker thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of the answer."""

    text: str


Piece = Reasoning | AnswerText | ToolCall


# The number of a step, after those of the steps that are the nested runs around it
Path = tuple[int, ...]


class ResponseStream:
    """Tells one run to its clients.

    With `holds_text` the answer comes in one piece, when it is final.

    The same holds where the run keeps its answer back (`RunStarted.holds_answer`). `sign` gives the
    calls of a run with the ids that a client sees. Without `tells_steps`, what the plan and the
    steps do is not told: whoever reads this shows them in another way.
    """

    def __init__(
        self,
        *,
        holds_text: bool = False,
        tells_steps: bool = True,
        sign: SignCalls = attrgetter("tool_calls"),
    ) -> None:
        self.sign = sign
        self._tells_steps = tells_steps
        self.trace = Trace()  # The run up to the last event that was no piece of text
        self.shown = ""  # The text that is out, once the run has ended
        self._holds_text = holds_text
        self._written: list[str] = []
        self._answering: Path = ()
        self._held: tuple[Path, list[str]] = (), []
        """The text of the newest step while it is not known whether that step answers."""
        self._told: set[ev.Notice] = set()
        self._new_paragraph = False

    def outcome(self, reasoning: str = "") -> ServedAnswer | RequestError:
        """Return how the run ended. `reasoning` is what was told of it."""
        return outcome_of(self.trace, reasoning, sign=self.sign)

    def read(self, event: ev.Event, trace: Trace) -> Iterator[Piece]:
        """Yield what a client is told at this event, given the trace after it."""
        path, inner = _place_of(event)
        if isinstance(inner, ev.StepDelta):
            yield from self._read_delta(path, inner)
            return
        if isinstance(inner, ev.PlanDelta):
            return
        self.trace = trace
        if isinstance(event, ev.RunStarted):
            self._holds_text = self._holds_text or event.holds_answer
        yield from self._narrate(event, inner, trace)
        if isinstance(inner, ev.PlanRevised):
            self._answering = self._answering[: len(path) - 1]
        yield from self._find_answering(trace)
        if isinstance(inner, _REPLY_BEGINNINGS) and path == self._answering:
            self._new_paragraph = bool(self._written)
        if isinstance(event, ev.RunFinished):
            written = "".join(self._written)
            rest = _rest_of_answer(event, written)
            if rest:
                yield AnswerText(rest)
            self.shown = written + rest
            yield from self.sign(self.trace)
        elif isinstance(event, ev.RunFailed):
            refusal = refusal_in(event.error)
            if refusal:
                self._written.append(refusal)
                yield AnswerText(refusal)
            self.shown = "".join(self._written)

    def _find_answering(self, trace: Trace) -> Iterator[Piece]:
        """Yield what the answering step has written so far, once it is known which one that is."""
        answering = _path_of_answer(trace)
        if len(answering) <= len(self._answering):
            return
        self._answering = answering
        path, texts = self._held
        self._held = (), []
        if path == answering and texts:
            yield from self._write("".join(texts))

    def read_delta(self, event: ev.StepDelta) -> Sequence[Piece]:
        """Return what a client is told at a piece of text of a step, as `read` does."""
        if self._answering == (event.step,) and not event.thinking:  # as most are
            return self._write(event.text)
        return self._read_delta((event.step,), event)

    def _read_delta(self, path: Path, event: ev.StepDelta) -> Sequence[Piece]:
        if path == self._answering:
            if not event.thinking:
                return self._write(event.text)
            return (Reasoning(event.thinking), *self._write(event.text))
        if path == self._answering[: len(path)]:
            pass  # the whole answer of a nested run, which is out already
        elif path[: len(self._answering)] == self._answering and event.text:
            held_path, _ = self._held
            if held_path != path:
                self._held = (path, [])
            self._held[1].append(event.text)
        return ()

    def _write(self, text: str) -> Sequence[Piece]:
        if self._holds_text or not text:
            return ()
        if self._new_paragraph:
            self._new_paragraph = False
            text = f"\n\n{text}"
        self._written.append(text)
        return (AnswerText(text),)

    def _narrate(self, event: ev.Event, inner: ev.Event, trace: Trace) -> Iterator[Piece]:
        """Yield what is told of an event, which is `inner` in whatever nested run it happened."""
        is_edge = isinstance(event, _EDGES)
        # Clients such as aider join reasoning that follows the text to it, and write it into a
        # file.
        is_late = bool(self._written) and isinstance(inner, _ENDS)
        is_shown = not self._tells_steps and isinstance(inner, SHOWN_STEPS)
        line = "" if is_edge or is_late or is_shown else describe_event(event, trace)
        if isinstance(event, ev.StepFinished) and line:
            record = find_step(trace, event.step)
            if record is not None and not record.last and event.text.strip():
                line = f"{line}: {quote_text(event.text, 200)}"
        if line:
            yield Reasoning(f"{line}\n")
        for notice in trace.recovered:
            if notice not in self._told:
                self._told.add(notice)
                yield Reasoning(f"recovered: {describe_notice(notice)}\n")


def _place_of(event: ev.Event) -> tuple[Path, ev.Event]:
    """Return the step of an event in whatever nested run it happened, and the event there."""
    path: Path = ()
    while isinstance(event, ev.NestedEvent):
        path = (*path, event.step)
        event = event.event
    step = 0
    if isinstance(event, _PLACED):
        step = event.step
    return (*path, step), event


def _path_of_answer(trace: Trace) -> Path:
    for record in trace.steps:
        if not record.last:
            continue
        if record.nested is None:
            return (record.number,)
        return (record.number, *_path_of_answer(record.nested))
    return ()


def _rest_of_answer(event: ev.RunFinished, written: str) -> str:
    """Return what is missing of the answer.

    Where another text is out already, that one is the answer.
    """
    if event.error is not None and event.error.reason in SCHEMA_BROKEN:
        return ""
    if not event.answer.startswith(written):
        return ""
    return event.answer[len(written) :]
