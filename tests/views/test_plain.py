"""Plain lines. The snapshots `tests/traces/*.plain.txt` show what each event says; the rules are tested here."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.sanitize import is_sanitized
from conductor_cli.views.base import Stderr
from conductor_cli.views.plain import PATIENCE, PlainProgress
from tests.traces.make import RUNS, limit, parallel
from tests.views.snapshots import is_piece
from tests.views.terminals import Clock, Sink

Run = Callable[[], list[ev.Event]]


def lines_of(events: list[ev.Event], *, stored: bool = True) -> list[str]:
    sink = Sink()
    view = PlainProgress(Stderr(sink), stored=stored)
    for event in events:
        view.show(event)
    view.close()
    return sink.getvalue().splitlines()


@pytest.mark.parametrize("run", RUNS)
def test_lines_are_sanitized_and_bounded(run: Run) -> None:
    """A piece of text has no line, other events have few, and problems at the end take at most three."""
    events = run()
    sink = Sink()
    view = PlainProgress(Stderr(sink))
    for event in events:
        before = sink.getvalue()
        view.show(event)
        added = sink.getvalue().removeprefix(before)
        assert added.count("\n") <= (0 if is_piece(event) else 8)
        assert is_sanitized(added)
    written = len(sink.getvalue().splitlines())
    view.close()
    assert len(sink.getvalue().splitlines()) - written <= 3


def test_streamed_text_reports_the_working_steps_every_30_seconds() -> None:
    """The line names the steps and their times."""
    events = parallel()[:35]
    at = events[-1].at
    pieces = [ev.StepDelta(at=at + second, step=1, attempt=1, text="x") for second in range(1, 65)]
    added = lines_of([*events, *pieces])
    assert [line for line in added if line.startswith("still working")] == [
        "still working: step 1 for 34 s, step 2 for 32 s, 36 s in total",
        "still working: step 1 for 64 s, step 2 for 62 s, 66 s in total",
    ]
    assert PATIENCE == 30.0


def test_without_events_the_working_steps_are_reported_every_30_seconds() -> None:
    """Not while the answer uses the terminal, and not after the end."""
    clock, sink = Clock(), Sink()
    view = PlainProgress(Stderr(sink), clock=clock)

    def waited(seconds: float) -> list[str]:
        before = len(sink.getvalue())
        clock.now += seconds
        view.report_working()
        return sink.getvalue()[before:].splitlines()

    events = parallel()
    for event in events[:35]:
        view.show(event)
    assert waited(29.0) == []
    assert waited(1.0) == ["still working: step 1 for 34 s, step 2 for 32 s, 36 s in total"]
    assert waited(29.0) == []
    view.show(ev.PlanOffered(at=events[34].at + 59))
    assert waited(60.0) == []
    view.show(ev.PlanDecided(at=events[34].at + 119, verdict="approved"))
    assert len(waited(30.0)) == 1
    view.rest()
    assert waited(60.0) == []
    for event in events[35:]:
        view.show(event)
    assert waited(60.0) == []


def test_the_timer_ends_with_the_view() -> None:
    """Its thread is gone after `close`."""
    view = PlainProgress(Stderr(Sink()), tick=0.001)
    assert "conductor-plain" in [thread.name for thread in threading.enumerate()]
    view.close()
    assert "conductor-plain" not in [thread.name for thread in threading.enumerate()]


def test_long_planning_is_reported() -> None:
    """Before there is a step, the line says that the plan is being written."""
    lines = lines_of([parallel()[0], ev.PlanDelta(at=31.0, text="A")])
    assert lines[2] == "still working: planning, 31 s in total"


def test_lines_are_held_back_while_the_answer_streams() -> None:
    """After `rest` nothing is written; `close` writes everything in order."""
    events = parallel()
    sink = Sink()
    view = PlainProgress(Stderr(sink))
    for event in events[:60]:
        view.show(event)
    view.rest()
    before = sink.getvalue()
    for event in events[60:]:
        view.show(event)
    assert sink.getvalue() == before
    view.close()
    assert sink.getvalue().splitlines() == lines_of(events)


def test_a_trace_that_is_not_stored_is_not_named() -> None:
    """Neither its id nor a command to resume it is shown."""
    assert [line for line in lines_of(limit(), stored=False)[1:] if "01JDQ7W3ZK" in line] == []
