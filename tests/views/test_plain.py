"""Plain lines. The snapshots `tests/traces/*.plain.txt` show what each event says; the rules are tested here."""

from __future__ import annotations

from conductor_cli.core import events as ev
from conductor_cli.core.trace import fold
from conductor_cli.core.usage import Usage
from conductor_cli.views.base import Stderr
from conductor_cli.views.plain import PlainProgress
from tests.traces.make import limit, parallel, started
from tests.views.terminals import Sink, play


def lines_of(events: list[ev.Event], *, stored: bool = True) -> list[str]:
    sink = Sink()
    play(PlainProgress(Stderr(sink), stored=stored), events)
    return sink.getvalue().splitlines()


def test_of_many_rejected_plans_only_the_first_have_lines() -> None:
    """A conductor that may try many times writes much the same again; the trace has all of it."""
    events: list[ev.Event] = [
        ev.PlanRejected(at=1.0, attempt=at, text="?", problem=f"problem {at}", hint="", usage=Usage())
        for at in range(1, 17)
    ]
    lines = [line for line in lines_of([started(), *events]) if "problem" in line]
    assert len(lines) == 2
    assert "problem 2" in lines[-1]


def test_lines_are_held_back_while_the_answer_streams() -> None:
    events = parallel()
    sink = Sink()
    view = PlainProgress(Stderr(sink))
    for event, trace in fold(events[:60]):
        view.show(event, trace)
    view.pause()
    before = sink.getvalue()
    for event, trace in [*fold(events)][60:]:
        view.show(event, trace)
    assert sink.getvalue() == before
    view.close()
    assert sink.getvalue().splitlines() == lines_of(events)


def test_a_trace_that_is_not_stored_is_not_named() -> None:
    assert [line for line in lines_of(limit(), stored=False)[1:] if "01JDQ7W3ZK" in line] == []
