"""Telemetry.

Each run as spans of OpenTelemetry when it has ended, where the environment names an exporter.

Nothing of OpenTelemetry is imported before, and nothing is sent by default.
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_TRACES_EXPORTER` switch
it on, as the specification of the SDK's environment variables says; `OTEL_SDK_DISABLED=true`
switches it off. A program that imports this package and has set a tracer provider of its own gets
the spans there.

Spans are made when the run has ended, with both their times: no collector shows a span before its
end. A run whose process is killed sends none. There are no metrics, because collectors derive
counts, tokens and seconds from the spans.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message
from conductor_cli.core.plan import Plan
from conductor_cli.core.pool import Pool
from conductor_cli.core.usage import Usage
from conductor_cli.system.installation import extra_command
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.network import proxy_for, separate_tls_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

log = logging.getLogger(__name__)

PROVIDERS: Final[Mapping[str, str]] = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "llama": "llama.cpp",
}
"""The names of the conventions for kinds of workers; any other kind is its own name."""

FINISHES: Final[Mapping[Finish, str]] = {"refusal": "content_filter", "tool": "tool_call"}

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which instrumentations of models are asked for texts: `true` and other words
switch them on.
"""


def exporter_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the exporters that the environment names.

    None where it names neither one nor an address.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ()
    named = environ.get("OTEL_TRACES_EXPORTER", "")
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not named and any(environ.get(address) for address in addresses):
        named = "otlp"
    names = list(map(str.strip, named.split(",")))
    return tuple(name for name in names if name not in {"", "none"})


class RunTelemetry:
    """Keeps the events of one run, and sends its spans when it has ended.

    It raises nothing: what cannot be measured must not stop a run.
    """

    def __init__(self, tracer: Tracer, *, texts: bool = False) -> None:
        self._tracer = tracer
        self._texts = texts
        self._events: list[ev.Event] = []
        self._written: set[tuple[int, ...]] = set()
        """The attempts that have written some text: only their first piece is kept."""
        self._began = 0  # Nanoseconds since 1970 at the beginning of the run whose spans are made

    def read(self, event: ev.Event) -> None:
        """Keep an event; the last one of a run makes the spans and sends them."""
        inner = event
        path: tuple[int, ...] = ()
        while isinstance(inner, ev.NestedEvent):
            path = (*path, inner.step)
            inner = inner.event
        if isinstance(inner, ev.StepDelta):
            attempt = (*path, inner.step, inner.attempt)
            if attempt in self._written:
                return
            self._written.add(attempt)
        if not isinstance(inner, ev.PlanDelta):
            self._events.append(event)
        if isinstance(event, ev.RunFinished | ev.RunFailed):
            try:
                first = self._events[0]
                if isinstance(first, ev.RunStarted):
                    self._began = int(
                        datetime.fromisoformat(first.time).timestamp() * 1e9 - first.at * 1e9
                    )
                self._run(self._events, None)
            except Exception as error:  # noqa: BLE001 - see above
                log.warning("telemetry failed: %s", type(error).__name__)

    def _run(self, events: Sequence[ev.Event], above: Span | None) -> None:
        """Send a run inside the span `above`: its plans, its steps, and the runs inside these."""
        first = events[0]
        last = events[-1]
        assert isinstance(first, ev.RunStarted)
        about: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "conductor",
            "conductor.run.id": first.run,
            "conductor.mode": first.mode,
        }
        if first.question.parent:
            about["conductor.run.parent"] = first.question.parent
        error = "run_ended"
        if isinstance(last, ev.RunFinished | ev.RunFailed):
            error = ""
            if last.error is not None:
                error = last.error.reason or last.error.kind
            about |= usage_attributes(last.usage)
        received: list[Message] = []
        if isinstance(last, ev.RunFinished):
            about["conductor.partial"] = last.partial
            received = [Message(role="assistant", content=last.answer)]
        run = self._span(
            "invoke_workflow conductor",
            first.at,
            last.at,
            about,
            above,
            error,
            sent=[Message(role="user", content=first.question.text)],
            received=received,
        )
        self._plans(events, first.conductor.partition(" ")[0], run)
        access: dict[int, tuple[int, ...]] = {}
        by_step: dict[int, list[ev.Event]] = {}
        started: list[int] = []
        for event in events:
            by_step.setdefault(getattr(event, "step", 0), []).append(event)
            if isinstance(event, ev.StepPlanned):
                access[event.step] = event.access
            elif isinstance(event, ev.StepStarted):
                started.append(event.step)
        for number in dict.fromkeys(started):
            self._step(by_step[number], first.pool, access.get(number, ()), last.at, run)

    def _plans(self, events: Sequence[ev.Event], planner: str, run: Span) -> None:
        """Send planning.

        It begins with the run, and again where a plan is discarded or its rest is asked for.
        """
        began: float | None = events[0].at
        calls: list[ev.PlanRejected | ev.PlanReady] = []
        for event in events:
            if isinstance(event, ev.PlanRejected | ev.PlanReady):
                calls.append(event)
            ends = isinstance(event, ev.PlanReady | ev.PlanRevised) or event is events[-1]
            if ends and began is not None:
                about: dict[str, Any] = {"gen_ai.operation.name": "plan"}
                if isinstance(event, ev.PlanReady):
                    about["conductor.plan.steps"] = 0
                    if isinstance(event.plan, Plan):
                        about["conductor.plan.steps"] = len(event.plan.steps)
                error = ""
                if event is events[-1]:
                    error = "run_ended"
                plan = self._span("plan", began, event.at, about, run, error)
                self._calls_of_planner(calls, planner, began, plan)
                began = None
                calls = []
            is_rejected = isinstance(event, ev.PlanDecided) and event.verdict != "approved"
            if is_rejected or isinstance(event, ev.PlanRevised):
                began = event.at

    def _calls_of_planner(
        self,
        calls: Iterable[ev.PlanRejected | ev.PlanReady],
        planner: str,
        began: float,
        plan: Span,
    ) -> None:
        """Send the calls of the planner, each of which begins when the one before has ended."""
        for call in calls:
            error = ""
            if isinstance(call, ev.PlanRejected):
                error = call.reason
            if not call.usage.calls and not error:
                continue
            about = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": planner,
                "gen_ai.provider.name": "conductor",
                **usage_attributes(call.usage),
            }
            self._span(
                f"chat {planner}",
                began,
                call.at,
                about,
                plan,
                error,
                sent=call.prompt,
                client=True,
            )
            began = call.at

    def _step(
        self, events: Sequence[ev.Event], pool: Pool, access: Sequence[int], over: float, run: Span
    ) -> None:
        """Send a step by its events, and its attempts.

        What has no end ends when the run is `over`.
        """
        attempts: list[list[ev.Event]] = []
        ended = over
        error = "run_ended"
        for event in events:
            if isinstance(event, ev.StepStarted):
                attempts.append([event])
            elif attempts:
                attempts[-1].append(event)
            if isinstance(event, ev.StepFailed | ev.StepStopped | ev.StepFinished):
                goes_on = isinstance(event, ev.StepFailed) and not event.final
                ended = over if goes_on else event.at
                error = "run_ended" if goes_on else _error_of(event)
        first = attempts[0][0]
        assert isinstance(first, ev.StepStarted)
        about: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": first.worker,
            "conductor.step": first.step,
            "conductor.step.access": access,
        }
        step = self._span(f"invoke_agent {first.worker}", first.at, ended, about, run, error)
        for attempt in attempts:
            self._attempt(attempt, pool, over, step)

    def _attempt(self, events: Sequence[ev.Event], pool: Pool, over: float, step: Span) -> None:
        """Send the span of an attempt, made from its events.

        Its tool calls or its nested run are inside.
        """
        first = events[0]
        assert isinstance(first, ev.StepStarted)
        kind = first.worker
        model = first.worker
        if first.worker in pool:
            worker = pool[first.worker]
            kind = worker.kind
            model = worker.model_name or first.worker
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.provider.name": PROVIDERS.get(kind, kind),
            "conductor.worker": first.worker,
            "conductor.attempt": first.attempt,
        }
        ended = over
        error = "run_ended"
        received: list[Message] = []
        for event in events:
            if isinstance(event, ev.StepDelta):
                about.setdefault("gen_ai.response.time_to_first_chunk", event.at - first.at)
            elif isinstance(event, ev.StepFailed | ev.StepStopped | ev.StepFinished):
                ended = event.at
                error = _error_of(event)
                about |= usage_attributes(event.usage)
                if isinstance(event, ev.StepFinished):
                    about["gen_ai.response.finish_reasons"] = (
                        FINISHES.get(event.finish, event.finish),
                    )
                    received = [
                        Message(role="assistant", content=event.text, tool_calls=event.tool_calls)
                    ]
                break
        attempt = self._span(
            f"chat {model}",
            first.at,
            ended,
            about,
            step,
            error,
            sent=first.prompt,
            received=received,
            client=True,
        )
        self._tool_calls(events, ended, attempt)
        if nested := [event for event in events if isinstance(event, ev.NestedEvent)]:
            inside = RunTelemetry(self._tracer, texts=self._texts)
            inside._began = self._began + int((nested[0].at - nested[0].event.at) * 1e9)
            inside._run([event.event for event in nested], attempt)

    def _tool_calls(self, events: Sequence[ev.Event], over: float, attempt: Span) -> None:
        """Send the calls of tools of an attempt; those without a result end when it is `over`."""
        results: dict[tuple[int, str], ev.ToolReturned] = {}
        for event in events:
            if isinstance(event, ev.ToolReturned):
                results[event.turn, event.call_id] = event
        for event in events:
            if isinstance(event, ev.ToolCalled):
                self._tool_call(event, results.get((event.turn, event.call.id)), over, attempt)

    def _tool_call(
        self, event: ev.ToolCalled, result: ev.ToolReturned | None, over: float, attempt: Span
    ) -> None:
        call = event.call
        about: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "extension",
            "conductor.tool.server": event.server,
        }
        ended = over
        error = "attempt_ended"
        if result is not None:
            ended = result.at
            error = ""
            if result.error:
                error = "tool_error"
        if self._texts:
            about["gen_ai.tool.call.arguments"] = call.arguments
            if result is not None:
                about["gen_ai.tool.call.result"] = result.text
        self._span(f"execute_tool {call.name}", event.at, ended, about, attempt, error)

    def _span(
        self,
        name: str,
        start: float,
        end: float,
        attributes: Mapping[str, Any],
        above: Span | None,
        error: str,
        *,
        sent: Sequence[Message] = (),
        received: Sequence[Message] = (),
        client: bool = False,
    ) -> Span:
        """Send a span and return it. `error` is the reason in a word, empty where it ended well.

        `sent` and `received` are texts, which few want; `client` says that another program was
        called.
        """
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        values = {**attributes}
        if self._texts and sent:
            values["gen_ai.input.messages"] = messages_json(sent)
        if self._texts and received:
            values["gen_ai.output.messages"] = messages_json(received)
        for key, value in values.items():
            if isinstance(value, str):
                values[key] = KNOWN_SECRETS.redact(value)
        context = None
        if above is not None:
            context = set_span_in_context(above)
        span = self._tracer.start_span(
            name,
            context=context,
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes=values,
            start_time=self._began + int(start * 1e9),
        )
        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR, error)
        span.end(self._began + int(end * 1e9))
        return span


def _error_of(event: ev.StepFailed | ev.StepStopped | ev.StepFinished) -> str:
    """Return why an attempt or a step has ended badly, in a word."""
    if isinstance(event, ev.StepFailed):
        return event.error.reason or event.error.kind
    if isinstance(event, ev.StepStopped):
        return event.reason
    return ""


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Return tokens and cost; the cost is left out where nothing has a price."""
    attributes: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.tokens_stored,
        "gen_ai.usage.reasoning.output_tokens": usage.tokens_reasoning,
    }
    if usage.cost is not None:
        attributes["conductor.cost"] = float(usage.cost)
    return attributes


def messages_json(messages: Sequence[Message]) -> str:
    """Messages as JSON, in the form of the conventions: roles and parts.

    Attachments are named only.
    """
    fields = [{"role": message.role, "parts": _parts_of(message)} for message in messages]
    return json.dumps(fields, ensure_ascii=False)


def _parts_of(message: Message) -> list[dict[str, str]]:
    if message.role == "tool":
        response = {"id": message.tool_call_id, "response": message.content}
        return [{"type": "tool_call_response", **response}]
    parts = []
    if message.content:
        parts.append({"type": "text", "content": message.content})
    for file in message.attachments:
        parts.append({"type": "file", "name": file.name, "mime_type": file.media_type})
    for call in message.tool_calls:
        parts.append(
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        )
    return parts


# Where it is sent


def watch_run() -> RunTelemetry | None:
    """Return what reads the events of a run; None where nothing is configured. Raises nothing."""
    try:
        tracing: TracerProvider | None = None
        # The program around this package may have set up its own
        if "opentelemetry.sdk.trace" in sys.modules:
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace import get_tracer_provider

            provider = get_tracer_provider()
            if isinstance(provider, TracerProvider):
                tracing = provider
        if tracing is None and (named := exporter_names(os.environ)):
            tracing = _provider_for(named)
        if tracing is None:
            return None
        texts = os.environ.get(CAPTURE, "").lower() not in {"", "false", "no_content"}
        return RunTelemetry(tracing.get_tracer("conductor"), texts=texts)
    except Exception as error:  # noqa: BLE001 - an exporter of somebody else
        log.warning("telemetry cannot be set up: %s", error)
        return None


@cache
def _provider_for(exporters: tuple[str, ...]) -> TracerProvider | None:
    """Return a provider that exports as the environment says; None where that is not installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        log.warning("telemetry is configured, but not installed: %s", extra_command("otel"))
        return None
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What the SDK says of a collector that is away would be written into the answer's terminal.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create()
    if not is_named:
        resource = Resource.create({SERVICE_NAME: "conductor"})
    tracing = TracerProvider(resource=resource)
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    otlp = f"otlp_proto_{(protocol or 'http/protobuf').partition('/')[0]}"
    has_timeout = False
    for name in os.environ:
        if name.startswith("OTEL_EXPORTER_OTLP") and "TIMEOUT" in name:
            has_timeout = True
    for name in exporters:
        # Packages of OpenTelemetry offer exporters by entry points.
        entry = name
        if name == "otlp":
            entry = otlp
        offered = [*entry_points(group="opentelemetry_traces_exporter", name=entry)]
        if not offered:
            log.warning(
                "there is no exporter of traces called %s: install a package that has it", name
            )
            continue
        # In seconds: a dead collector must not hold a command up.
        options: dict[str, Any] = {}
        if name.startswith("otlp") and not has_timeout:
            options["timeout"] = 2
        if offered[0].name == "otlp_proto_http":
            options["session"] = _collector_session()
        tracing.add_span_processor(BatchSpanProcessor(offered[0].load()(**options)))
    return tracing


def _collector_session() -> Any:  # noqa: ANN401 - of a library without types
    """Return what sends spans by HTTP, with the proxies and the certificates of all requests."""
    import requests  # the exporter needs it
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
            super().init_poolmanager(*arguments, **named, ssl_context=separate_tls_context())

        def proxy_manager_for(self, proxy: str, **named: Any) -> Any:  # noqa: ANN401
            return super().proxy_manager_for(proxy, **named, ssl_context=separate_tls_context())

    class Session(requests.Session):
        def merge_environment_settings(
            self,
            url: str,
            proxies: Mapping[str, str] | None,
            stream: object,
            verify: object,
            cert: object,
        ) -> dict[str, Any]:
            del proxies
            proxy = proxy_for(url)
            chosen = {"http": proxy, "https": proxy} if proxy else {}
            return {
                "proxies": chosen,
                "stream": stream,
                "verify": self.verify if verify is None else verify,
                "cert": cert,
            }

    session = Session()
    session.mount("https://", Adapter())
    return session
