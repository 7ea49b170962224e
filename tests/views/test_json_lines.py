"""The events as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.terminal_text import is_sanitized
from conductor_cli.views.base import Stdout
from conductor_cli.views.json_output import JsonLinesOutput
from tests.traces.make import RUNS, hostile, parallel
from tests.views.terminals import Sink

Run = Callable[[], list[ev.Event]]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("run", RUNS)
def test_every_event_is_a_line_that_can_be_read_back(run: Run, encoding: str) -> None:
    """In every encoding there are as many lines as events; each is sanitized and can be read back as its event."""
    sink = Sink(encoding=encoding)
    view = JsonLinesOutput(Stdout(sink))
    for event in run():
        view.show(event)
    view.close()
    lines = sink.getvalue().split("\n")
    assert [ev.from_line(line) for line in lines[:-1]] == run()
    assert all(is_sanitized(line) for line in lines)


def test_a_line_without_escapes_equals_the_trace_file() -> None:
    """If nothing has to be escaped, the line equals that of the trace file."""
    sink = Sink()
    view = JsonLinesOutput(Stdout(sink))
    view.show(parallel()[0])
    assert sink.getvalue() == ev.to_line(parallel()[0]) + "\n"


def test_a_lone_surrogate_is_escaped() -> None:
    """Text that no encoding can write is escaped, and can be read back."""
    event = ev.PlanDelta(at=1.0, text="a\ud83d")
    sink = Sink()
    JsonLinesOutput(Stdout(sink)).show(event)
    assert ev.from_line(sink.getvalue()) == event


def test_each_line_is_flushed() -> None:
    """A reader of a pipe gets each line as soon as its event has happened."""
    flushed: list[str] = []

    class Watched(Sink):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    sink = Watched()
    view = JsonLinesOutput(Stdout(sink))
    for event in hostile():
        view.show(event)
        assert flushed[-1] == sink.getvalue()


def test_a_closed_pipe_is_reported() -> None:
    """When nobody reads standard output any more, `BrokenPipeError` is raised."""

    class Closed(Sink):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        JsonLinesOutput(Stdout(Closed())).show(parallel()[0])
