"""A terminal calls a person back to a run that waits or has ended, and nothing else is called."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import fold
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.views.attention import Attention, choose_notification
from conductor_cli.views.base import NotifyName, Stderr
from conductor_cli.views.output_formats import OutputContext, open_views
from tests.traces.make import started
from tests.views.terminals import Sink, play

RING = re.compile(r"\x1b\]9;[^\x07]*\x07|\x1b\]777;[^\x07]*\x07|\x1b\][^\x07]*\x07|\x07")
TITLE = "\x1b]2;"


def run(*events: ev.Event, question: str = "How many pears?") -> list[ev.Event]:
    return [started(question), *events]


def rings(
    events: list[ev.Event], notify: NotifyName = "bell", *, absent: float = 10.0, **environ: str
) -> list[str]:
    """The sequences that a terminal gets by which it calls, without those for its title."""
    sink = Sink(terminal=True)
    play(
        Attention(Stderr(sink), notify, {"TERM": "xterm"} | environ, absent_seconds=absent), events
    )
    return [piece for piece in RING.findall(sink.getvalue()) if not piece.startswith(TITLE)]


def ended(at: float) -> ev.RunFinished:
    return ev.RunFinished(at=at, answer="12", usage=NO_USAGE)


def test_a_long_run_rings_at_its_end_and_a_short_one_does_not() -> None:
    assert rings(run(ended(9.9))) == []
    assert rings(run(ended(10.0))) == ["\x07"]
    failed = ev.RunFailed(at=60.0, error=Failure(kind="worker", message="no"), usage=NO_USAGE)
    assert rings(run(failed), "osc9") == ["\x1b]9;conductor failed after 60 s: How many pears?\x07"]


def test_a_run_that_waits_after_a_while_rings_at_once() -> None:
    events = run(ev.PlanOffered(at=12.0), ev.PlanDecided(at=13.0, verdict="approved"))
    assert rings(events, "osc777") == [
        "\x1b]777;notify;conductor;conductor waits for approval of the plan: How many pears?\x07"
    ]


def test_a_run_that_waits_soon_rings_when_nobody_answers() -> None:
    answered = run(ev.PlanOffered(at=1.0), ev.PlanDecided(at=2.0, verdict="approved"))
    assert rings(answered) == []

    class Listening(Sink):
        rung = threading.Event()

        def write(self, text: str) -> int:
            if text == "\x07":
                self.rung.set()
            return super().write(text)

    sink = Listening(terminal=True)
    view = Attention(Stderr(sink), "bell", {"TERM": "xterm"}, absent_seconds=0.01)
    for event, trace in fold(run(ev.PlanOffered(at=0.0))):
        view.show(event, trace)
    assert sink.rung.wait(30.0)
    view.close()


def test_the_title_says_that_the_run_waits_and_is_taken_back() -> None:
    sink = Sink(terminal=True)
    view = Attention(Stderr(sink), "bell", {"TERM": "xterm"})
    play(view, run(ev.PlanOffered(at=1.0), ev.PlanDecided(at=2.0, verdict="approved")))
    assert sink.getvalue() == (
        "\x1b[22;2t\x1b]2;conductor waits for approval of the plan\x07\x1b[23;2t"
    )


@pytest.mark.parametrize("term", ["linux", "dumb"])
def test_a_terminal_without_a_title_gets_none(term: str) -> None:
    events = run(ev.PlanOffered(at=12.0))
    assert rings(events, TERM=term) == ["\x07"]
    sink = Sink(terminal=True)
    play(Attention(Stderr(sink), "bell", {"TERM": term}), events)
    assert "\x1b" not in sink.getvalue()


def test_what_a_model_or_a_user_wrote_ends_no_sequence() -> None:
    call = ToolCall(id="c", name="x\x07\x1b]52;c;aGk=\x07", arguments="{}")
    offered = ev.ToolOffered(
        at=20.0, step=1, attempt=1, turn=1, call=call, server="fs;\x9c\x1b\\", worker="a"
    )
    sink = Sink(terminal=True)
    hostile = "a;b\x1b[2J\x07\x9d0;c\x9c"
    play(Attention(Stderr(sink), "osc9", {"TERM": "xterm"}), run(offered, question=hostile))
    written = sink.getvalue()
    assert re.sub(r"\x1b\[2[23];2t|\x1b\](2|9);[^\x00-\x1f\x7f-\x9f;]*\x07", "", written) == ""


@pytest.mark.parametrize(
    ("environ", "form"),
    [
        ({"TERM": "xterm-256color"}, "bell"),
        ({"TERM": "xterm-kitty"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ({"TERM": "foot"}, "osc777"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/t", "TERM_PROGRAM": "WezTerm"}, "bell"),
    ],
)
def test_auto_is_what_the_terminal_is_known_to_have(
    environ: Mapping[str, str], form: NotifyName
) -> None:
    assert choose_notification("auto", environ) == form
    assert choose_notification("off", environ) == "off"


def test_a_notification_reaches_the_terminal_around_tmux() -> None:
    assert rings(run(ended(20.0)), "auto", TMUX="/tmp/t") == ["\x07"]
    sink = Sink(terminal=True)
    play(Attention(Stderr(sink), "osc9", {"TERM": "tmux", "TMUX": "/tmp/t"}), run(ended(20.0)))
    assert sink.getvalue().startswith("\x1bPtmux;\x1b\x1b]9;conductor finished")
    assert sink.getvalue().endswith("\x07\x1b\\")


@pytest.mark.parametrize(
    ("terminal", "quiet", "notify", "is_called"),
    [
        (True, False, "bell", True),
        (False, False, "bell", False),
        (True, True, "bell", False),
        (True, False, "off", False),
    ],
)
def test_only_a_terminal_that_shows_progress_is_called(
    terminal: bool, quiet: bool, notify: NotifyName, is_called: bool
) -> None:
    sink = Sink(terminal=terminal)
    context = OutputContext(
        stdout=Sink(), stderr=sink, environ={"TERM": "xterm"}, quiet=quiet, notify=notify
    )
    play(open_views("answer", "none", context), run(ended(20.0)))
    assert ("\x07" in sink.getvalue()) == is_called
