"""When each attempt was made, as bars."""

from __future__ import annotations

import pytest

from conductor_cli.core.trace import Trace
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.html import timeline
from tests.traces.make import FOLDER

RUNS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def stored(name: str) -> Trace:
    return TraceStore(FOLDER).trace(name)


@pytest.mark.parametrize("run", RUNS)
def test_every_bar_is_on_the_axis(run: str) -> None:
    """Also those of nested runs and of hostile times; each step that has started has a row."""
    trace = stored(run)
    drawn = timeline(trace)
    for row in drawn.rows:
        for bar in row.bars:
            assert 0 <= bar.start <= bar.start + bar.length <= 100.001
    assert len(drawn.rows) >= sum(record.started is not None for record in trace.steps)
    assert len(drawn.ticks) == 3


def test_a_failed_attempt_is_a_bar_of_its_own() -> None:
    """Two seconds of failed attempts must not look like an answer that took two seconds more."""
    trace = stored("retry")
    record = next(record for record in trace.steps if record.failed and record.state == "done")
    (row,) = [row for row in timeline(trace).rows if row.label.startswith(f"{record.number} ")]
    kinds = [bar.kind for bar in row.bars]
    assert kinds.count("failed") == len(record.failed)
    assert kinds[-1] == "done"
    assert "waited" in kinds
    ends = [bar.start + bar.length for bar in row.bars]
    assert all(later.start >= end - 1 for end, later in zip(ends, row.bars[1:], strict=False))


def test_a_substituted_worker_names_who_failed() -> None:
    """The failed bar says whose attempt it was and why."""
    trace = stored("substitute")
    record = next(record for record in trace.steps if record.worker != record.step.worker)
    (row,) = [row for row in timeline(trace).rows if row.label == f"{record.number} {record.worker}"]
    failed = next(bar for bar in row.bars if bar.kind == "failed")
    assert failed.title.startswith(f"{record.step.worker}, attempt 1 failed: ")


def test_nested_steps_are_numbered_below_their_own() -> None:
    """They begin when their step does."""
    drawn = timeline(stored("nested"))
    labels = [row.label.split()[0] for row in drawn.rows]
    nested = [label for label in labels if "." in label]
    assert nested
    outer = {row.label.split()[0]: row.bars[0].start for row in drawn.rows if row.bars}
    assert all(outer[label] >= outer[label.partition(".")[0]] for label in nested if label in outer)


def test_a_run_without_events_has_no_rows() -> None:
    """Its axis has no length."""
    assert timeline(Trace()).rows == ()
    assert timeline(Trace(at=-5.0)).ticks == ("0.0 s", "0.0 s", "0.0 s")
