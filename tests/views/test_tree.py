"""The live tree: what it draws, what it erases, and what it leaves."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from wcwidth import wcswidth

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Step
from conductor_cli.core.sanitize import is_sanitized
from conductor_cli.views.base import Stderr, Timer
from conductor_cli.views.tree import TICK, TreeProgress
from tests.traces.make import RUNS, Writer, crowd, hostile, nested, parallel, retry, started
from tests.views.terminals import Drawn, Sink, open_console

Run = Callable[[], list[ev.Event]]

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
SIZES = [(80, 24), (120, 40), (40, 12), (40, 10), (80, 5), (20, 3), (300, 60)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("run", RUNS)
def test_the_live_part_fits_the_terminal(run: Run, width: int, height: int) -> None:
    """At every event the live part leaves the cursor's line free, and no line is wider than the terminal."""
    drawn = Drawn(width=width, height=height)
    for event in run():
        drawn.show(event)
        lines = drawn.live()
        assert len(lines) <= height - 1
        assert max(wcswidth(line) for line in lines) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10)])
@pytest.mark.parametrize("run", RUNS)
def test_no_live_lines_are_left_at_the_end(run: Run, width: int, height: int) -> None:
    """A terminal that was redrawn at every event ends like one that was written to only at the end."""
    often, once = Drawn(width=width, height=height), Drawn(width=width, height=height)
    for event in run():
        often.show(event)
        once.clock.now = event.at
        once.tree.show(event)
    often.tree.close()
    once.tree.close()
    assert often.screen() == once.screen()


def test_a_finished_step_moves_above_the_live_part() -> None:
    """Right after its end it is printed for good."""
    drawn = Drawn()
    for event in parallel():
        drawn.show(event)
        if isinstance(event, ev.StepFinished) and event.step == 2:
            break
    above = "\n".join(drawn.screen()).removesuffix("\n".join(drawn.live()))
    assert " 2 done      gpt " in above
    assert not [line for line in drawn.live() if "gpt" in line]
    assert [line for line in drawn.live() if line.startswith(" 1 running")]


def test_steps_that_do_not_fit_are_counted() -> None:
    """On a very low terminal only their number is shown."""
    drawn = Drawn(height=5)
    for event in crowd()[:100]:
        drawn.show(event)
    assert drawn.live()[-2:] == ["   … and 3 more", "2 s, 0 of 5 steps done, 471 tokens, $0.00"]


def test_a_plan_is_shown_while_it_is_written() -> None:
    """Its unfinished line is at the end of the live part."""
    drawn = Drawn()
    for event in parallel()[:6]:
        drawn.show(event)
    assert drawn.live() == [
        "   planning  1 s",
        "   │ C | - | List the primes below 1000 whose last",
        "1 s, 0 steps done, 0 tokens",
    ]


def test_seconds_are_counted_between_events() -> None:
    """By the clock since the newest event, also when a replay is faster."""
    drawn = Drawn()
    for event in parallel()[:35]:
        drawn.tree.show(event)
    drawn.clock.now += 30.0
    assert drawn.live()[0].endswith("33 s")
    assert drawn.live()[-1].startswith("35 s")


def test_seconds_of_a_nested_run_are_counted_by_its_own_clock() -> None:
    """A nested step shows how long it has run."""
    drawn = Drawn()
    events = nested()
    begun = next(
        n for n, e in enumerate(events) if isinstance(e, ev.NestedEvent) and isinstance(e.event, ev.StepStarted)
    )
    for event in events[: begun + 1]:
        drawn.show(event)
    drawn.clock.now += 7.0
    line = next(line for line in drawn.live() if line.startswith("    1 running"))
    assert line.split()[-2:] == ["7", "s"]


def test_only_the_timer_draws() -> None:
    """However many events come, `show` writes nothing."""
    sink = Sink(terminal=True)
    tree = TreeProgress(console(sink), tick=3600.0)
    for event in parallel()[:60]:
        tree.show(event)
    assert sink.getvalue() == HIDE
    tree.close()
    assert " 1 done      math-worker" in sink.getvalue()


def test_without_a_change_the_tree_is_redrawn_once_a_second() -> None:
    """Other ticks cost nothing."""
    drawn = Drawn()
    drawn.show(parallel()[0])
    written = len(drawn.sink.getvalue())
    drawn.clock.now = 0.9
    drawn.tree.draw()
    assert len(drawn.sink.getvalue()) == written
    drawn.clock.now = 1.1
    drawn.tree.draw()
    assert "planning  1 s" in drawn.screen()[-2]


def test_the_timer_ticks_until_it_is_stopped() -> None:
    """After `stop` no tick is running and none comes."""
    ticked = threading.Event()
    ticks: list[str] = []

    def tick() -> None:
        ticks.append(threading.current_thread().name)
        ticked.set()

    timer = Timer(tick, 0.001)
    timer.start()
    assert ticked.wait(10)
    timer.stop()
    assert set(ticks) == {"conductor-tree"}
    assert "conductor-tree" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("count", [1, 12, 40, 60])
def test_an_interrupted_run_restores_the_terminal(count: int) -> None:
    """After `close` the cursor is visible, open steps are printed, and a line says that the run was interrupted."""
    drawn = Drawn()
    for event in parallel()[:count]:
        drawn.show(event)
    drawn.tree.close()
    written = drawn.sink.getvalue()
    assert written.count(HIDE) == written.count(SHOW) == 1
    assert written.rindex(SHOW) > written.rindex(HIDE)
    assert "conductor: the run was interrupted before its end" in drawn.screen()
    assert sum(line.startswith(" 1 ") for line in drawn.screen()) == (count > 10)


def test_after_rest_nothing_is_written_until_close() -> None:
    """What is settled meanwhile is printed by `close`."""
    drawn = Drawn(shared=True)
    events = parallel()
    for event in events[:60]:
        drawn.show(event)
    drawn.tree.rest()
    resting = drawn.sink.getvalue()
    assert " 3 answering claude" in resting[resting.index(SHOW) :]
    for event in events[60:]:
        drawn.show(event)
    assert drawn.sink.getvalue() == resting
    drawn.tree.close()
    assert drawn.screen()[-2].startswith(" 3 done      claude")


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_no_text_can_command_the_terminal(color: bool, shared: bool) -> None:
    """Only colours, cursor moves and line erasing are written, whatever questions, workers and errors contain."""
    drawn = Drawn(color=color, shared=shared)
    for event in hostile():
        drawn.show(event)
    drawn.tree.close()
    ours = re.compile(r"\x1b\[(?:[0-9;]*m|2K|1[AB]|\?25[lh])|\r")
    assert is_sanitized(ours.sub("", drawn.sink.getvalue()))
    assert "[bold red]evil" in "\n".join(drawn.screen())


def test_colours_do_not_change_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colours nothing is styled."""
    plain, coloured = Drawn(), Drawn(color=True)
    for event in parallel():
        plain.show(event)
        coloured.show(event)
    plain.tree.close()
    coloured.tree.close()
    assert plain.screen() == coloured.screen()
    assert "\x1b[32mdone" in coloured.sink.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*m", plain.sink.getvalue())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("run", RUNS)
def test_characters_that_the_encoding_lacks_are_replaced(run: Run, encoding: str) -> None:
    """Nothing is raised."""
    drawn = Drawn(encoding=encoding)
    for event in run():
        drawn.show(event)
    drawn.tree.close()
    assert "\u2502" not in drawn.sink.getvalue()


def test_without_a_terminal_only_settled_lines_are_written() -> None:
    """A tree in a file is plain text: no live part, no cursor moves, each step once."""
    sink = Sink()
    tree = TreeProgress(console(sink))
    written = []
    for event in parallel():
        tree.show(event)
        written.append(sink.getvalue())
    tree.close()
    assert is_sanitized(sink.getvalue())
    assert sink.getvalue().count("math-worker") == 1
    assert any(" 2 done" in text and " 1 done" not in text for text in written)


def test_a_closed_terminal_is_not_an_error() -> None:
    """The run continues."""
    sink = Sink(terminal=True)
    stderr = Stderr(sink)
    sink.close()
    tree = TreeProgress(open_console(stderr, color=False, width=80, height=24), tick=None)
    for event in parallel():
        tree.show(event)
        tree.draw()
    tree.close()


def test_a_waiting_step_names_the_steps_it_waits_for() -> None:
    """Only those of the steps it sees that have not ended."""
    drawn = Drawn()
    seen = set()
    for event in parallel():
        drawn.show(event)
        seen |= {line.strip() for line in drawn.live() if line.startswith(" 3 waiting")}
    assert seen == {
        "3 waiting   claude  waits for 1 and 2", "3 waiting   claude  waits for 1",
        "3 waiting   claude  sees 1 and 2",
    }  # fmt: skip


def test_five_workers_at_200_tokens_a_second_cost_less_than_10_percent_of_a_core() -> None:
    """Five seconds of events, drawn at every tick, take less than 0.5 s of CPU time."""
    drawn = Drawn(width=120, height=40)
    run = Writer(started())
    names = ("claude", "gpt", "math-worker", "gemini-flash", "claude")
    run.plan(*(Step(worker=name, subtask="Say what you found, in full.") for name in names), pace=0.0)
    for event in run.events:
        drawn.tree.show(event)
    begun = time.thread_time()
    for tick in range(int(5 / TICK)):
        for number in range(int(200 * TICK) * 5):
            at = (tick + number / 125) * TICK
            drawn.tree.show(ev.StepDelta(at=at, step=number % 5 + 1, attempt=1, text=f"word{number} "))
        drawn.clock.now = (tick + 1) * TICK
        drawn.tree.draw()
    assert time.thread_time() - begun < 0.10 * 5


def console(sink: Sink) -> Any:
    return open_console(Stderr(sink), color=False, width=80, height=24)


def test_attempts_beyond_a_workers_limit_are_shown_without_it() -> None:
    """Attempt 5 of a step may be the second of its second worker, so it is not called one of 3."""
    drawn, shown = Drawn(width=80, height=24), []
    for event in retry():
        if isinstance(event, ev.StepStarted | ev.StepFailed):
            drawn.show(replace(event, attempt=event.attempt + 3))
        else:
            drawn.show(event)
        shown += drawn.live()
    text = "\n".join(shown)
    assert "attempt 5" in text
    assert not re.search(r"attempt \d of", text)
