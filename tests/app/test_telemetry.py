"""Telemetry over real runs.

The SDK's in-memory exporter, and a receiver of OTLP over HTTP on this machine.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import conductor_cli
from conductor_cli.app import telemetry
from conductor_cli.app.telemetry import exporter_names, watch_run
from conductor_cli.core import events as ev
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from tests.cli.stage import TWO, Stage, says
from tests.servers import SeenRequest, Wire, authority, loopback

OTLP = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
FOLDER = Path(__file__).parents[1] / "traces"
TRACES = sorted(FOLDER.glob("*.jsonl"))


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What one test sets up is shut down, and not there in the next."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    telemetry._provider_for.cache_clear()


@pytest.mark.parametrize(
    ("environ", "traces"),
    [
        ({}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "otlp"}, ()),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp")),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, ()),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, ()),
    ],
)
def test_only_a_named_exporter_switches_it_on(
    environ: dict[str, str], traces: tuple[str, ...]
) -> None:
    assert exporter_names(environ) == traces
    assert watch_run() is None


def sdk() -> tuple[Any, Any]:
    """A provider as a program sets it up for itself, and where its spans can be read."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider, spans


def in_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The finished spans of runs in a program with a provider of its own."""
    provider, spans = sdk()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    return spans


def events(path: Path) -> list[ev.Event]:
    return [ev.from_line(line) for line in path.read_text("utf-8").split("\n") if line]


def sent(path: Path, *, texts: bool = False) -> list[Any]:
    """The spans of a stored trace."""
    provider, spans = sdk()
    run = telemetry.RunTelemetry(provider.get_tracer("conductor"), texts=texts)
    for event in events(path):
        run.read(event)
    return list(spans.get_finished_spans())


def tokens_of(spans: list[Any]) -> int:
    """The tokens of all calls; a call that is a nested run stands for those inside it."""
    outer = {
        span.parent.span_id
        for span in spans
        if span.parent and span.name.startswith("invoke_workflow")
    }
    calls = [
        span
        for span in spans
        if span.name.startswith("chat ") and span.context.span_id not in outer
    ]
    tokens = 0
    for span in calls:
        tokens += span.attributes.get("gen_ai.usage.input_tokens", 0)
        tokens += span.attributes.get("gen_ai.usage.output_tokens", 0)
    return tokens


def used(run: list[ev.Event]) -> int:
    """The tokens of all calls; those of a nested run stand in for what its step says."""
    nested: dict[int, list[ev.Event]] = {}
    for event in run:
        if isinstance(event, ev.NestedEvent):
            nested.setdefault(event.step, []).append(event.event)
    calls = (ev.PlanRejected, ev.PlanReady, ev.StepFailed, ev.StepStopped, ev.StepFinished)
    own_calls = [
        event
        for event in run
        if isinstance(event, calls) and getattr(event, "step", 0) not in nested
    ]
    return sum(event.usage.tokens for event in own_calls) + sum(map(used, nested.values()))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_each_span_is_inside_its_parent_and_no_token_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nested runs too, whose events are timed from their own beginning. No text is among it all."""
    spans = sent(path)
    spans_by_id = {span.context.span_id: span for span in spans}
    assert [span.name for span in spans if span.parent is None] == ["invoke_workflow conductor"]
    for span in spans:
        if span.parent is not None:
            parent = spans_by_id[span.parent.span_id]
            assert parent.start_time <= span.start_time <= span.end_time <= parent.end_time
    assert tokens_of(spans) == used(events(path))
    names = set(chain.from_iterable(span.attributes for span in spans))
    assert not [
        name for name in names if "messages" in name or name.endswith(("arguments", "result"))
    ]
    assert any("gen_ai.input.messages" in span.attributes for span in sent(path, texts=True))
    assert not caplog.records


def test_a_failed_attempt_says_why_and_its_step_goes_on() -> None:
    spans = sent(FOLDER / "retry.jsonl")
    failed = next(
        span for span in spans if span.name.startswith("chat") and "error.type" in span.attributes
    )
    step = next(span for span in spans if span.context.span_id == failed.parent.span_id)
    assert step.name.startswith("invoke_agent")
    assert "error.type" not in step.attributes


def test_a_run_is_a_tree_of_spans_with_tokens(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program's own provider gets run, plan, steps and attempts, each below the right one."""
    spans = in_memory(monkeypatch)
    stage.plan = TWO
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("How many?")
        assert run.answer == "beta answers"
    spans_by_id = {span.context.span_id: span for span in spans.get_finished_spans()}

    def path(span: Any) -> str:
        above = spans_by_id.get(span.parent.span_id) if span.parent is not None else None
        return f"{path(above)} / {span.name}" if above is not None else span.name

    root = "invoke_workflow conductor"
    planner = next(
        span.name
        for span in spans_by_id.values()
        if span.attributes.get("gen_ai.provider.name") == "conductor"
    )
    assert sorted(map(path, spans_by_id.values())) == sorted(
        [
            root,
            f"{root} / plan",
            f"{root} / plan / {planner}",
            f"{root} / invoke_agent alpha",
            f"{root} / invoke_agent alpha / chat alpha",
            f"{root} / invoke_agent beta",
            f"{root} / invoke_agent beta / chat beta",
        ]
    )
    top = next(span for span in spans_by_id.values() if span.name == root)
    assert top.attributes["conductor.run.id"] == run.id
    assert top.attributes["gen_ai.usage.input_tokens"] == run.usage.tokens_in
    assert (top.end_time - top.start_time) / 1e9 == pytest.approx(run.trace.at, abs=0.01)
    assert "How many?" not in repr([dict(span.attributes) for span in spans_by_id.values()])
    assert tokens_of(list(spans_by_id.values())) == run.usage.tokens


def test_a_collector_is_sent_spans_and_texts_where_they_are_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver of OTLP gets what the variables name: texts if they are wanted, never a key."""
    service = pytest.importorskip(OTLP)
    KNOWN_SECRETS.add("sk-a-key-that-was-read")
    stage.models["alpha"] = says("the key is sk-a-key-that-was-read")

    async def receive(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, "application/x-protobuf")

    with loopback(receive) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv(telemetry.CAPTURE, "true")
        with conductor_cli.open() as orchestra:
            assert orchestra.ask("How many?").answer
        provider = telemetry._provider_for(("otlp",))
        assert provider is not None
        provider.shutdown()
    assert {request.path for request in collector.requests} == {"/v1/traces"}
    body = collector.requests[-1].body
    request = service.ExportTraceServiceRequest.FromString(
        gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    )
    (resource,) = request.resource_spans
    assert {
        attribute.key: attribute.value.string_value for attribute in resource.resource.attributes
    }["service.name"] == "conductor"
    is_sent = [
        text in str(request) for text in ("How many?", "the key is ", "sk-a-key-that-was-read")
    ]
    assert is_sent == [True, True, False]


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"])
def test_a_collector_has_the_proxies_and_the_certificates_of_all_requests(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    signed = authority(tmp_path)

    async def receive(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, "application/x-protobuf")

    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(signed.ca))
    # A collector on this machine is not asked through it.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "::1/128,[::1]")
    with loopback(receive, signed.tls) as collector, telemetry._collector_session() as session:
        answer = session.post(f"{collector.url}/v1/traces", data=b"x", timeout=9)
        settings = session.merge_environment_settings("https://a.test", None, None, None, None)
    assert answer.status_code == 200
    assert settings["proxies"] == {"http": "http://127.0.0.1:1", "https": "http://127.0.0.1:1"}


def test_a_fault_of_telemetry_does_not_stop_a_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory(monkeypatch)
    monkeypatch.setattr(telemetry.RunTelemetry, "_plans", lambda *_: 1 / 0)
    with conductor_cli.open() as orchestra:
        assert orchestra.ask("How many?").answer == "alpha answers"
