"""Telemetry: each run as spans and metrics of OpenTelemetry, where the environment names an exporter.

Nothing of OpenTelemetry is imported before, and nothing is sent by default. `OTEL_EXPORTER_OTLP_ENDPOINT` (also with
`_TRACES_` or `_METRICS_`), `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` switch it on, as the specification of the
SDK's environment variables says; `OTEL_SDK_DISABLED=true` switches it off. A program that imports this package and has
set a tracer provider of its own gets the spans there.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.views.telemetry_spans import Key, Measured, SpanEnded, SpanMapper, SpanStarted

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

log = logging.getLogger(__name__)

Signal = Literal["traces", "metrics"]
SIGNALS: Final[tuple[Signal, ...]] = get_args(Signal)

Providers = tuple["TracerProvider", "MeterProvider"]

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which instrumentations of models are asked for texts: `true` and other words switch them on."""

EXPORT_SECONDS: Final = 2
"""How long an exporter may take where `OTEL_EXPORTER_OTLP_TIMEOUT` does not say: a dead collector must not hold a
command up."""

SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS: Final = tuple(4.0**power for power in range(14))
"""The buckets that the conventions recommend, for seconds and for tokens."""


def exporter_names(signal: Signal, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The exporters that the environment names for a signal; none where it names neither one nor an address."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ()
    named = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if not named and any(environ.get(address) for address in addresses):
        named = "otlp"
    names = [name.strip() for name in named.split(",")]
    return tuple(name for name in names if name not in {"", "none"})


class Telemetry:
    """Sends runs to the given providers."""

    def __init__(self, tracing: TracerProvider, metering: MeterProvider, *, texts: bool = False) -> None:
        self._tracer = tracing.get_tracer("conductor")
        self._texts = texts
        meter = metering.get_meter("conductor")
        histogram = meter.create_histogram
        self._instruments = {
            "gen_ai.client.token.usage": histogram(
                "gen_ai.client.token.usage", "{token}", "Tokens of calls.", explicit_bucket_boundaries_advisory=TOKENS
            ).record,
            **{
                name: histogram(name, "s", about, explicit_bucket_boundaries_advisory=SECONDS).record
                for name, about in (
                    ("gen_ai.client.operation.duration", "Seconds of calls."),
                    ("gen_ai.client.operation.time_to_first_chunk", "Seconds to the first text of calls."),
                    ("conductor.run.duration", "Seconds of runs."),
                )
            },
            "conductor.cost": meter.create_counter("conductor.cost", "{USD}", "US dollars of runs.").add,
        }  # fmt: skip

    def watch(self) -> RunTelemetry:
        """What reads the events of one run."""
        return RunTelemetry(self._tracer, self._instruments, SpanMapper(texts=self._texts))


class RunTelemetry:
    """Reads the events of one run. It raises nothing: what cannot be measured must not stop a run."""

    def __init__(self, tracer: Any, instruments: Mapping[str, Any], mapper: SpanMapper) -> None:  # noqa: ANN401 - of the SDK
        self._tracer = tracer
        self._instruments = instruments
        self._mapper = mapper
        self._spans: dict[Key, Span] = {}
        self._began = 0

    def read(self, event: ev.Event, trace: Trace) -> None:
        """Send what an event says."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        try:
            if isinstance(event, ev.RunStarted):
                self._began = int(datetime.fromisoformat(event.time).timestamp() * 1e9 - event.at * 1e9)
            for sent in self._mapper.read(event, trace):
                match sent:
                    case SpanStarted():
                        parent = self._spans.get(sent.parent) if sent.parent is not None else None
                        self._spans[sent.key] = self._tracer.start_span(
                            sent.name, context=set_span_in_context(parent) if parent is not None else None,
                            kind=SpanKind.CLIENT if sent.client else SpanKind.INTERNAL,
                            attributes=_redacted(sent.attributes), start_time=self._at(sent.at),
                        )  # fmt: skip
                    case SpanEnded():
                        span = self._spans.pop(sent.key)
                        span.set_attributes(_redacted(sent.attributes))
                        if sent.error:
                            span.set_attribute("error.type", sent.error)
                            span.set_status(StatusCode.ERROR, sent.error)
                        span.end(self._at(sent.at))
                    case Measured():
                        self._instruments[sent.instrument](sent.value, attributes=dict(sent.attributes))
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("telemetry failed: %s", type(error).__name__)

    def _at(self, seconds: float) -> int:
        """Nanoseconds since 1970."""
        return self._began + int(seconds * 1e9)


def _redacted(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes without any key that the program has read."""
    return {
        name: KNOWN_SECRETS.redact(value) if isinstance(value, str) else value for name, value in attributes.items()
    }


# Where it is sent


def watch_run() -> RunTelemetry | None:
    """What reads the events of a run; None where nothing is configured, which costs next to nothing. Raises nothing."""
    try:
        providers: Providers | None = None
        if "opentelemetry.sdk.trace" in sys.modules:  # the program around this package may have set up its own
            from opentelemetry.metrics import get_meter_provider
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace import get_tracer_provider

            tracing = get_tracer_provider()
            providers = (tracing, get_meter_provider()) if isinstance(tracing, TracerProvider) else None
        if providers is None:
            named = tuple(exporter_names(signal, os.environ) for signal in SIGNALS)
            providers = _providers_for(*named) if any(named) else None
        if providers is None:
            return None
        texts = os.environ.get(CAPTURE, "").lower() not in {"", "false", "no_content"}
        return _telemetry(*providers, texts=texts).watch()
    except Exception as error:  # noqa: BLE001 - an exporter of somebody else
        log.warning("telemetry cannot be set up: %s", error)
        return None


_telemetry = cache(Telemetry)


@cache
def _providers_for(traces: tuple[str, ...], metrics: tuple[str, ...]) -> Providers | None:
    """Providers that export as the environment says; None where that is not installed. They end with the process."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        log.warning('telemetry is configured, but not installed: pip install "conductor-llm[otel]"')
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What the SDK says of a collector that is away would be written into the answer's terminal.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {SERVICE_NAME: "conductor"})
    tracing = TracerProvider(resource=resource)
    for exporter in _exporters("traces", traces):
        tracing.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _exporters("metrics", metrics)]
    return tracing, MeterProvider(metric_readers=readers, resource=resource)


def _exporters(signal: Signal, names: Sequence[str]) -> Iterator[Any]:
    """The exporters of these names, as packages of OpenTelemetry offer them by entry points."""
    for name in names:
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        protocol = protocol or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        own = {"otlp": f"otlp_proto_{protocol.partition('/')[0]}"}.get(name, name)
        found = [*entry_points(group=f"opentelemetry_{signal}_exporter", name=own)]
        if not found:
            log.warning("there is no exporter of %s for %s: install a package that has it", name, signal)
            continue
        has_timeout = any(
            variable.startswith("OTEL_EXPORTER_OTLP") and "TIMEOUT" in variable for variable in os.environ
        )
        options = {"timeout": EXPORT_SECONDS} if name.startswith("otlp") and not has_timeout else {}
        yield found[0].load()(**options)
