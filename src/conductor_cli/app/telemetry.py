"""Telemetry: each run as spans of OpenTelemetry, where the environment names an exporter.

Nothing of OpenTelemetry is imported before, and nothing is sent by default. `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_TRACES_EXPORTER` switch it on, as the specification of the SDK's
environment variables says; `OTEL_SDK_DISABLED=true` switches it off. A program that imports this package and has set a
tracer provider of its own gets the spans there.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

log = logging.getLogger(__name__)

Key = tuple[int | str, ...]  # A span of one run
Attributes = Mapping[str, str | int | float | bool | Sequence[str] | Sequence[int]]

PROVIDERS: Final[Mapping[str, str]] = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "llama": "llama.cpp",
}
"""The names of the conventions for kinds of workers; any other kind is its own name."""

FINISHES: Final[Mapping[Finish, str]] = {"refusal": "content_filter", "tool": "tool_call"}

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which instrumentations of models are asked for texts: `true` and other words switch them on."""

EXPORT_SECONDS: Final = 2
"""How long an exporter may take where `OTEL_EXPORTER_OTLP_TIMEOUT` does not say: a dead collector must not hold a
command up."""


def exporter_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the exporters that the environment names; none where it names neither one nor an address."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ()
    named = environ.get("OTEL_TRACES_EXPORTER", "")
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not named and any(environ.get(address) for address in addresses):
        named = "otlp"
    names = [name.strip() for name in named.split(",")]
    return tuple(name for name in names if name not in {"", "none"})


class Telemetry:
    """Sends runs to the given provider."""

    def __init__(self, tracing: TracerProvider, *, texts: bool = False) -> None:
        self.tracer = tracing.get_tracer("conductor")
        self.texts = texts

    def watch(self) -> RunTelemetry:
        """What reads the events of one run."""
        return RunTelemetry(self)


class RunTelemetry:
    """Makes spans of the events of one run, in order. `above` is the span that a nested run is in.

    It raises nothing: what cannot be measured must not stop a run.
    """

    def __init__(self, telemetry: Telemetry, *, above: Span | None = None, began: int = 0) -> None:
        self._telemetry = telemetry
        self._texts = telemetry.texts
        self._above = above
        self._began = began
        """Nanoseconds since 1970."""
        self._spans: dict[Key, Span] = {}
        """The spans that have begun. A key begins with that of the span around it, which comes first."""
        self._attempts: dict[int, ev.StepStarted] = {}
        self._first: dict[int, float] = {}
        """When each attempt that goes on wrote its first text."""
        self._nested: dict[int, RunTelemetry] = {}
        self._asked_at = 0.0
        """When the planner was asked."""

    def read(self, event: ev.Event, trace: Trace) -> None:
        """Send what an event says, given the trace after it."""
        try:
            self._read(event, trace)
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("telemetry failed: %s", type(error).__name__)

    def _read(self, event: ev.Event, trace: Trace) -> None:
        match event:
            case ev.RunStarted():
                self._start_run(event)
            case ev.PlanRejected() | ev.PlanReady() | ev.PlanRevised():
                self._plan(event, trace)
            case ev.StepStarted():
                self._start_attempt(event, trace)
            case ev.StepDelta():
                self._first.setdefault(event.step, event.at)
            case ev.ToolCalled() | ev.ToolReturned():
                self._tool(event)
            case ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
                self._end_attempt(event)
            case ev.NestedEvent():
                if isinstance(event.event, ev.RunStarted):
                    above, began = self._spans[event.step, "attempt"], self._at(event.at - event.event.at)
                    self._nested[event.step] = RunTelemetry(self._telemetry, above=above, began=began)
                nested = next((record.nested for record in trace.steps if record.number == event.step), None)
                self._nested[event.step].read(event.event, nested or Trace())
            case ev.RunFinished() | ev.RunFailed():
                self._end_run(event)
            case _:
                pass

    # The run and its plan

    def _start_run(self, event: ev.RunStarted) -> None:
        if self._above is None:
            self._began = int(datetime.fromisoformat(event.time).timestamp() * 1e9 - event.at * 1e9)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "conductor",
            "conductor.run.id": event.run, "conductor.mode": event.mode,
        }  # fmt: skip
        if event.question.parent:
            attributes["conductor.run.parent"] = event.question.parent
        if self._texts:
            asked = Message(role="user", content=event.question.text)
            attributes["gen_ai.input.messages"] = messages_json([asked])
        self._start((), "invoke_workflow conductor", event.at, attributes)
        self._start_planning(event.at)

    def _start_planning(self, at: float) -> None:
        self._asked_at = at
        self._start(("plan",), "plan", at, {"gen_ai.operation.name": "plan"})

    def _plan(self, event: ev.PlanRejected | ev.PlanReady | ev.PlanRevised, trace: Trace) -> None:
        """The planner was called; a plan is there, or the rest of it is asked for again."""
        if isinstance(event, ev.PlanRevised):
            self._end(("plan",), event.at)
            self._start_planning(event.at)
            return
        error = event.reason if isinstance(event, ev.PlanRejected) else ""
        if event.usage.calls or error:
            planner = trace.conductor.partition(" ")[0]
            attributes = {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": planner, "gen_ai.provider.name": "conductor",
            }  # fmt: skip
            began, self._asked_at = self._asked_at, event.at
            sent = {"gen_ai.input.messages": messages_json(event.prompt)} if self._texts and event.prompt else {}
            self._start(("plan", "call"), f"chat {planner}", began, attributes | sent, client=True)
            self._end(("plan", "call"), event.at, usage_attributes(event.usage), error)
        if isinstance(event, ev.PlanReady):
            steps = len(event.plan.steps) if isinstance(event.plan, Plan) else 0
            self._end(("plan",), event.at, {"conductor.plan.steps": steps})

    def _end_run(self, event: ev.RunFinished | ev.RunFailed) -> None:
        """The run ends, and with it whatever has no end of its own."""
        error = _reason(event.error) if event.error is not None else ""
        attributes: dict[str, Any] = usage_attributes(event.usage)
        if isinstance(event, ev.RunFinished):
            attributes["conductor.partial"] = event.partial
            if self._texts:
                attributes["gen_ai.output.messages"] = messages_json([Message(role="assistant", content=event.answer)])
        for key in [key for key in reversed(self._spans) if key]:
            self._end(key, event.at, error="run_ended")
        self._end((), event.at, attributes, error)

    # Steps

    def _start_attempt(self, event: ev.StepStarted, trace: Trace) -> None:
        attributes = _call_attributes(event, trace)
        if (event.step,) not in self._spans:
            access = next((record.step.access for record in trace.steps if record.number == event.step), ())
            about: dict[str, Any] = {
                "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.worker,
                "conductor.step": event.step, "conductor.step.access": access,
            }  # fmt: skip
            self._start((event.step,), f"invoke_agent {event.worker}", event.at, about)
        self._attempts[event.step] = event
        self._first.pop(event.step, None)
        sent = {"gen_ai.input.messages": messages_json(event.prompt)} if self._texts and event.prompt else {}
        model = attributes["gen_ai.request.model"]
        self._start((event.step, "attempt"), f"chat {model}", event.at, attributes | sent, client=True)

    def _end_attempt(self, event: ev.StepFailed | ev.StepStopped | ev.StepFinished) -> None:
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
            for key in [key for key in self._spans if key[:2] == (event.step, "attempt") and key[2:]]:
                self._end(key, event.at, error="attempt_ended")
            self._end((event.step, "attempt"), event.at, attributes, error)
        if not isinstance(event, ev.StepFailed) or event.final:
            self._end((event.step,), event.at, error=error)

    def _tool(self, event: ev.ToolCalled | ev.ToolReturned) -> None:
        if isinstance(event, ev.ToolReturned):
            result = {"gen_ai.tool.call.result": event.text} if self._texts else {}
            key = (event.step, "attempt", event.turn, event.call_id)
            self._end(key, event.at, result, "tool_error" if event.error else "")
            return
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.call.name,
            "gen_ai.tool.call.id": event.call.id, "gen_ai.tool.type": "extension",
            "conductor.tool.server": event.server,
        }  # fmt: skip
        if self._texts:
            attributes["gen_ai.tool.call.arguments"] = event.call.arguments
        key = (event.step, "attempt", event.turn, event.call.id)
        self._start(key, f"execute_tool {event.call.name}", event.at, attributes)

    # Spans

    def _start(self, key: Key, name: str, at: float, attributes: Attributes, *, client: bool = False) -> None:
        """Begin a span. `client` says that another program is called."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        around = (key[:length] for length in range(len(key) - 1, -1, -1))
        parent = next((self._spans[outer] for outer in around if outer in self._spans), self._above)
        self._spans[key] = self._telemetry.tracer.start_span(
            name, context=set_span_in_context(parent) if parent is not None else None,
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes=_redacted(attributes), start_time=self._at(at),
        )  # fmt: skip

    def _end(self, key: Key, at: float, attributes: Attributes | None = None, error: str = "") -> None:
        """End a span if it has begun. `error` is the reason in a word, empty where it ended well."""
        from opentelemetry.trace import StatusCode

        span = self._spans.pop(key, None)
        if span is None:
            return
        span.set_attributes(_redacted(attributes or {}))
        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR, error)
        span.end(self._at(at))

    def _at(self, seconds: float) -> int:
        """Nanoseconds since 1970."""
        return self._began + int(seconds * 1e9)


def _redacted(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes without any key that the program has read."""
    return {
        name: KNOWN_SECRETS.redact(value) if isinstance(value, str) else value for name, value in attributes.items()
    }


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


# Where it is sent


def watch_run() -> RunTelemetry | None:
    """What reads the events of a run; None where nothing is configured, which costs next to nothing. Raises nothing."""
    try:
        tracing: TracerProvider | None = None
        if "opentelemetry.sdk.trace" in sys.modules:  # the program around this package may have set up its own
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace import get_tracer_provider

            found = get_tracer_provider()
            tracing = found if isinstance(found, TracerProvider) else None
        if tracing is None and (named := exporter_names(os.environ)):
            tracing = _provider_for(named)
        if tracing is None:
            return None
        texts = os.environ.get(CAPTURE, "").lower() not in {"", "false", "no_content"}
        return _telemetry(tracing, texts=texts).watch()
    except Exception as error:  # noqa: BLE001 - an exporter of somebody else
        log.warning("telemetry cannot be set up: %s", error)
        return None


_telemetry = cache(Telemetry)


@cache
def _provider_for(exporters: tuple[str, ...]) -> TracerProvider | None:
    """Return a provider that exports as the environment says; None where that is not installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        log.warning('telemetry is configured, but not installed: pip install "conductor-llm[otel]"')
        return None
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What the SDK says of a collector that is away would be written into the answer's terminal.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {SERVICE_NAME: "conductor"})
    tracing = TracerProvider(resource=resource)
    for exporter in _exporters(exporters):
        tracing.add_span_processor(BatchSpanProcessor(exporter))
    return tracing


def _exporters(names: Sequence[str]) -> Iterator[Any]:
    """The exporters of these names, as packages of OpenTelemetry offer them by entry points."""
    for name in names:
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        protocol = protocol or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        own = {"otlp": f"otlp_proto_{protocol.partition('/')[0]}"}.get(name, name)
        found = [*entry_points(group="opentelemetry_traces_exporter", name=own)]
        if not found:
            log.warning("there is no exporter of traces called %s: install a package that has it", name)
            continue
        has_timeout = any(
            variable.startswith("OTEL_EXPORTER_OTLP") and "TIMEOUT" in variable for variable in os.environ
        )
        options = {"timeout": EXPORT_SECONDS} if name.startswith("otlp") and not has_timeout else {}
        yield found[0].load()(**options)
