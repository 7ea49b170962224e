"""The events of a run as spans and measurements, in the words of OpenTelemetry's conventions for generative AI. Pure.

opentelemetry.io/docs/specs/semconv/gen-ai, November 2026: a run is `invoke_workflow`, a step `invoke_agent`, a call of
a model `chat`, a call of a tool `execute_tool`. What the conventions have no word for begins with `conductor.`. Texts
are left out unless they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage

Key = tuple[int | str, ...]  # A span of one run. Those of a nested run begin with the step that it is, and `run`.
Attributes = Mapping[str, str | int | float | bool | Sequence[str] | Sequence[int]]

Instrument = Literal[
    "gen_ai.client.token.usage", "gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk",
    "conductor.run.duration", "conductor.cost",
]  # fmt: skip
"""A histogram of tokens or seconds, or a counter of US dollars."""

PROVIDERS: Final[Mapping[str, str]] = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "llama": "llama.cpp",
}
"""The names of the conventions for kinds of workers; any other kind is its own name."""

FINISHES: Final[Mapping[Finish, str]] = {"refusal": "content_filter", "tool": "tool_call"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStarted:
    """A span begins `at` seconds after the run began. `client` says that another program is called."""

    key: Key
    parent: Key | None
    name: str
    at: float
    client: bool = False
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEnded:
    """A span ends. `error` is the reason in a word, empty where it ended well."""

    key: Key
    at: float
    attributes: Attributes = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement."""

    instrument: Instrument
    value: float
    attributes: Attributes


Sent = SpanStarted | SpanEnded | Measured


class SpanMapper:
    """Maps the events of one run, in order. With `texts` prompts, answers, arguments and results are attributes too."""

    def __init__(self, *, texts: bool = False, prefix: Key = ()) -> None:
        self._texts = texts
        self._prefix = prefix
        self._open: dict[Key, float] = {}
        """The spans that have begun, and when; a parent comes before its children."""
        self._attempts: dict[int, ev.StepStarted] = {}
        self._first: dict[int, float] = {}
        """When each attempt that goes on wrote its first text."""
        self._nested: dict[int, SpanMapper] = {}
        self._asked_at = 0.0
        """When the planner was asked."""

    def read(self, event: ev.Event, trace: Trace) -> Iterator[Sent]:
        """What is sent at an event, given the trace after it."""
        match event:
            case ev.RunStarted():
                yield from self._start_run(event)
            case ev.PlanRejected() | ev.PlanReady() | ev.PlanRevised():
                yield from self._plan(event, trace)
            case ev.StepStarted():
                yield from self._start_attempt(event, trace)
            case ev.StepDelta():
                self._first.setdefault(event.step, event.at)
            case ev.ToolCalled() | ev.ToolReturned():
                yield from self._tool(event)
            case ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
                yield from self._end_attempt(event, trace)
            case ev.NestedEvent():
                inner = SpanMapper(texts=self._texts, prefix=(*self._prefix, event.step, "run"))
                nested = next((record.nested for record in trace.steps if record.number == event.step), None)
                yield from self._nested.setdefault(event.step, inner).read(event.event, nested or Trace())
            case ev.RunFinished() | ev.RunFailed():
                yield from self._end_run(event)
            case _:
                pass

    # The run and its plan

    def _start_run(self, event: ev.RunStarted) -> Iterator[Sent]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "conductor",
            "conductor.run.id": event.run, "conductor.mode": event.mode,
        }  # fmt: skip
        if event.question.parent:
            attributes["conductor.run.parent"] = event.question.parent
        if self._texts:
            asked = Message(role="user", content=event.question.text)
            attributes["gen_ai.input.messages"] = messages_json([asked])
        parent = (*self._prefix[:-1], "attempt") if self._prefix else None
        yield self._start((), parent, "invoke_workflow conductor", event.at, attributes)
        yield from self._start_planning(event.at)

    def _start_planning(self, at: float) -> Iterator[Sent]:
        self._asked_at = at
        yield self._start(("plan",), self._key(), "plan", at, {"gen_ai.operation.name": "plan"})

    def _plan(self, event: ev.PlanRejected | ev.PlanReady | ev.PlanRevised, trace: Trace) -> Iterator[Sent]:
        """The planner was called; a plan is there, or the rest of it is asked for again."""
        if isinstance(event, ev.PlanRevised):
            yield from self._end(("plan",), event.at)
            yield from self._start_planning(event.at)
            return
        error = event.reason if isinstance(event, ev.PlanRejected) else ""
        if event.usage.calls or error:
            planner = trace.conductor.partition(" ")[0]
            attributes = {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": planner, "gen_ai.provider.name": "conductor",
            }  # fmt: skip
            began, self._asked_at = self._asked_at, event.at
            sent = {"gen_ai.input.messages": messages_json(event.prompt)} if self._texts and event.prompt else {}
            yield self._start(("call",), self._key("plan"), f"chat {planner}", began, attributes | sent, client=True)
            yield from self._end(("call",), event.at, usage_attributes(event.usage), error)
            yield from measure_call(event.usage, event.at - began, attributes, error)
        if isinstance(event, ev.PlanReady):
            steps = len(event.plan.steps) if isinstance(event.plan, Plan) else 0
            yield from self._end(("plan",), event.at, {"conductor.plan.steps": steps})

    def _end_run(self, event: ev.RunFinished | ev.RunFailed) -> Iterator[Sent]:
        """The run ends, and with it whatever has no end of its own."""
        error = _reason(event.error) if event.error is not None else ""
        attributes: dict[str, Any] = usage_attributes(event.usage)
        if isinstance(event, ev.RunFinished):
            attributes["conductor.partial"] = event.partial
            if self._texts:
                attributes["gen_ai.output.messages"] = messages_json([Message(role="assistant", content=event.answer)])
        for key in [key for key in reversed(self._open) if key != self._key()]:
            yield SpanEnded(key=key, at=event.at, error="run_ended")
            del self._open[key]
        yield from self._end((), event.at, attributes, error)
        if not self._prefix:
            end = {"error.type": error} if error else {}
            yield Measured(instrument="conductor.run.duration", value=event.at, attributes=end)
            if event.usage.cost is not None:
                yield Measured(instrument="conductor.cost", value=float(event.usage.cost), attributes=end)

    # Steps

    def _start_attempt(self, event: ev.StepStarted, trace: Trace) -> Iterator[Sent]:
        step, attributes = self._key(event.step), _call_attributes(event, trace)
        if step not in self._open:
            access = next((record.step.access for record in trace.steps if record.number == event.step), ())
            about: dict[str, Any] = {
                "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.worker,
                "conductor.step": event.step, "conductor.step.access": access,
            }  # fmt: skip
            yield self._start((event.step,), self._key(), f"invoke_agent {event.worker}", event.at, about)
        self._attempts[event.step] = event
        self._first.pop(event.step, None)
        sent = {"gen_ai.input.messages": messages_json(event.prompt)} if self._texts and event.prompt else {}
        model = attributes["gen_ai.request.model"]
        yield self._start((event.step, "attempt"), step, f"chat {model}", event.at, attributes | sent, client=True)

    def _end_attempt(self, event: ev.StepFailed | ev.StepStopped | ev.StepFinished, trace: Trace) -> Iterator[Sent]:
        begun = self._attempts.pop(event.step, None)
        error = _reason(event.error) if isinstance(event, ev.StepFailed) else ""
        error = event.reason if isinstance(event, ev.StepStopped) else error
        if begun is not None:
            attributes: dict[str, Any] = usage_attributes(event.usage)
            first = self._first.pop(event.step, None)
            if first is not None:
                attributes["gen_ai.response.time_to_first_chunk"] = first - begun.at
            if isinstance(event, ev.StepFinished):
                attributes["gen_ai.response.finish_reasons"] = (FINISHES.get(event.finish, event.finish),)
                if self._texts:
                    said = Message(role="assistant", content=event.text, tool_calls=event.tool_calls)
                    attributes["gen_ai.output.messages"] = messages_json([said])
            for key in [key for key in self._open if key[:-2] == self._key(event.step, "tool")]:
                yield SpanEnded(key=key, at=event.at, error="attempt_ended")
                del self._open[key]
            yield from self._end((event.step, "attempt"), event.at, attributes, error)
            if event.step not in self._nested:  # whose calls are measured one by one
                about, first = _call_attributes(begun, trace), first and first - begun.at
                yield from measure_call(event.usage, event.at - begun.at, about, error, first=first)
        if not isinstance(event, ev.StepFailed) or event.final:
            yield from self._end((event.step,), event.at, error=error)

    def _tool(self, event: ev.ToolCalled | ev.ToolReturned) -> Iterator[Sent]:
        if isinstance(event, ev.ToolReturned):
            result = {"gen_ai.tool.call.result": event.text} if self._texts else {}
            key = (event.step, "tool", event.turn, event.call_id)
            yield from self._end(key, event.at, result, "tool_error" if event.error else "")
            return
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.call.name,
            "gen_ai.tool.call.id": event.call.id, "gen_ai.tool.type": "extension",
            "conductor.tool.server": event.server,
        }  # fmt: skip
        if self._texts:
            attributes["gen_ai.tool.call.arguments"] = event.call.arguments
        key, parent = (event.step, "tool", event.turn, event.call.id), self._key(event.step, "attempt")
        yield self._start(key, parent, f"execute_tool {event.call.name}", event.at, attributes)

    # Spans

    def _key(self, *own: int | str) -> Key:
        return (*self._prefix, *own)

    def _start(  # noqa: PLR0913 - the fields of a span
        self, own: Key, parent: Key | None, name: str, at: float, attributes: Attributes, *, client: bool = False
    ) -> SpanStarted:  # fmt: skip
        key = self._key(*own)
        self._open[key] = at
        return SpanStarted(key=key, parent=parent, name=name, at=at, client=client, attributes=attributes)

    def _end(
        self, own: Key, at: float, attributes: Attributes | None = None, error: str = ""
    ) -> Iterator[SpanEnded]:  # fmt: skip
        """The end of a span that is open; nothing for another."""
        if self._open.pop(self._key(*own), None) is not None:
            yield SpanEnded(key=self._key(*own), at=at, attributes=attributes or {}, error=error)


def _call_attributes(event: ev.StepStarted, trace: Trace) -> dict[str, Any]:
    worker = next((each for each in trace.pool if each.name == event.worker), None)
    kind, model = (worker.kind, worker.model_name) if worker is not None else (event.worker, "")
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model or event.worker,
        "gen_ai.provider.name": PROVIDERS.get(kind, kind),
        "conductor.worker": event.worker, "conductor.attempt": event.attempt,
    }  # fmt: skip


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Tokens and cost; the cost is left out where nothing has a price."""
    found: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.tokens_in, "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.tokens_stored,
        "gen_ai.usage.reasoning.output_tokens": usage.tokens_reasoning,
    }  # fmt: skip
    if usage.cost is not None:
        found["conductor.cost"] = float(usage.cost)
    return found


def measure_call(
    usage: Usage, seconds: float, about: Mapping[str, Any], error: str, *, first: float | None = None
) -> Iterator[Measured]:  # fmt: skip
    """The measurements of one call of a model."""
    kept = {name: value for name, value in about.items() if name.startswith("gen_ai.")}
    end = kept | ({"error.type": error} if error else {})
    yield Measured(instrument="gen_ai.client.operation.duration", value=max(seconds, 0.0), attributes=end)
    if first is not None:
        yield Measured(instrument="gen_ai.client.operation.time_to_first_chunk", value=max(first, 0.0), attributes=kept)
    for kind, tokens in (("input", usage.tokens_in), ("output", usage.tokens_out)):
        if tokens:
            about_tokens = kept | {"gen_ai.token.type": kind}
            yield Measured(instrument="gen_ai.client.token.usage", value=tokens, attributes=about_tokens)


def messages_json(messages: Sequence[Message]) -> str:
    """Messages as JSON, in the form of the conventions: roles and parts. Attachments are named only."""
    return json.dumps(
        [{"role": each.role, "parts": list(_message_parts(each))} for each in messages], ensure_ascii=False
    )


def _message_parts(message: Message) -> Iterator[dict[str, str]]:
    if message.role == "tool":
        yield {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return
    if message.content:
        yield {"type": "text", "content": message.content}
    for each in message.attachments:
        yield {"type": "file", "name": each.name, "mime_type": each.media_type}
    for call in message.tool_calls:
        yield {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _reason(failure: Failure) -> str:
    return failure.reason or failure.kind
