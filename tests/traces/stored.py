"""Runs that are stored, and traces on disk as their lines: a run that has ended is compressed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conductor_cli.core import events as ev
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.trace_file import open_trace


def begin_run(traces: Traces, run: str, events: Iterable[ev.Event]) -> Any:
    """Write events of a run, which goes on. Returns its writer."""
    writer = traces.open(run)
    for event in events:
        writer.write(event)
    return writer


def trace_bytes(path: Path) -> bytes:
    """Return the lines of a trace as they were written."""
    with open_trace(path) as file:
        return file.read()


def unpack(path: Path) -> Path:
    """Decompress a trace in its place, so that a test can damage its lines."""
    path.write_bytes(trace_bytes(path))
    return path
