"""Traces on disk as their lines: a run that has ended is compressed."""

from __future__ import annotations

from pathlib import Path

from conductor_cli.state.trace_file import open_trace


def trace_bytes(path: Path) -> bytes:
    """Return the lines of a trace as they were written."""
    with open_trace(path) as file:
        return file.read()


def unpack(path: Path) -> Path:
    """Decompress a trace in its place, so that a test can damage its lines."""
    path.write_bytes(trace_bytes(path))
    return path
