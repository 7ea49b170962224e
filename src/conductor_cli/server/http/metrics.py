"""Counters of a server, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    exposition,
    multiprocess,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from conductor_cli.run.circuits import CircuitReport
from conductor_cli.server.api.request import ServedAnswer
from conductor_cli.server.runs.run_registry import ServedRun

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)

CIRCUIT_LABELS: Final = ["kind", "name"]
CIRCUIT_OPEN: Final = "1 while a worker or provider that failed is skipped."
CIRCUIT_OPENINGS: Final = "How often a worker or provider began to be skipped."


class Metrics:
    """Requests, runs, tokens, money, seconds until the first text, and who is skipped now.

    Where a server has several processes, these are sums over all of them, which each process keeps
    in a file: the library's own way.
    """

    def __init__(
        self,
        circuits: Callable[[], Sequence[CircuitReport]] = list,
        *,
        has_siblings: bool = False,
    ) -> None:
        self._has_siblings = has_siblings
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "conductor_requests", "Requests that were answered.", ["api"], registry=registry
        )
        self.refused = Counter(
            "conductor_refused", "Requests that were refused.", ["api", "status"], registry=registry
        )
        self._runs = Counter("conductor_runs", "Runs that have ended.", ["end"], registry=registry)
        self._running = Gauge(
            "conductor_runs_running",
            "Runs that go on or wait.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._tokens = Counter(
            "conductor_tokens", "Tokens of all runs.", ["kind", "part"], registry=registry
        )
        self._cost = Counter(
            "conductor_cost_dollars", "US dollars of all runs that have a price.", registry=registry
        )
        self._first = Histogram(
            "conductor_first_text_seconds",
            "Seconds to the first text of the answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        # The labels are few, and the library looks for each of them under a lock
        self.requests_of = cache(self.requests.labels)
        self._runs_with = cache(self._runs.labels)
        self._tokens_of = cache(self._tokens.labels)
        self._circuits = circuits
        if not has_siblings:
            registry.register(self)
            return
        self._open = Gauge(
            "conductor_circuit_open",
            CIRCUIT_OPEN,
            CIRCUIT_LABELS,
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._openings = Counter(
            "conductor_circuit_openings", CIRCUIT_OPENINGS, CIRCUIT_LABELS, registry=registry
        )
        self._counted_openings: dict[tuple[str, str], int] = {}

    def count_run(self, served: ServedRun) -> None:
        if self._has_siblings:
            self._share_circuits()
        ended = served.ended
        self._runs_with(ended.finish if isinstance(ended, ServedAnswer) else "failed").inc()
        if served.first_text_at is not None:
            self._first.observe(max(0.0, served.first_text_at - served.began_at))
        if isinstance(ended, ServedAnswer):
            for part, usage in (
                ("answer", ended.usage.answer),
                ("orchestration", ended.usage.orchestration),
            ):
                self._tokens_of("input", part).inc(usage.tokens_in)
                self._tokens_of("output", part).inc(usage.tokens_out)
            self._cost.inc(float(ended.usage.total.cost or 0))

    def render(self, running: int) -> tuple[bytes, str]:
        """Return all counters as text, and its type."""
        self._running.set(running)
        if self._has_siblings:
            self._share_circuits()
            everything = CollectorRegistry()
            multiprocess.MultiProcessCollector(everything)  # type: ignore[no-untyped-call]
            return exposition.generate_latest(everything), exposition.CONTENT_TYPE_PLAIN_0_0_4
        return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """Yield which workers and providers are skipped, whenever asked for.

        One that never failed has no line.
        """
        skipped = GaugeMetricFamily("conductor_circuit_open", CIRCUIT_OPEN, labels=CIRCUIT_LABELS)
        opened = CounterMetricFamily(
            "conductor_circuit_openings", CIRCUIT_OPENINGS, labels=CIRCUIT_LABELS
        )
        for key, (is_open, times) in self._circuit_lines().items():
            skipped.add_metric(list(key), float(is_open))
            opened.add_metric(list(key), times)
        yield skipped
        yield opened

    def _circuit_lines(self) -> dict[tuple[str, str], tuple[bool, int]]:
        """Return whether each worker or provider is skipped, and how often it began to be."""
        lines: dict[tuple[str, str], tuple[bool, int]] = {}
        for report in self._circuits():
            # Workers of one name whose settings have changed, and accounts at one provider, are one
            # line.
            is_open, times = lines.get((report.kind, report.name), (False, 0))
            lines[report.kind, report.name] = (
                is_open or report.state != "closed",
                times + report.opened,
            )
        return lines

    def _share_circuits(self) -> None:
        """Let the other processes know whom this one skips."""
        for key, (is_open, times) in self._circuit_lines().items():
            self._open.labels(*key).set(float(is_open))
            self._openings.labels(*key).inc(times - self._counted_openings.get(key, 0))
            self._counted_openings[key] = times
