"""The live tree: what it draws, what it erases, and what it leaves."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from wcwidth import wcswidth

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.terminal_text import is_sanitized
from conductor_cli.core.trace import NO_PLANNER, fold
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.views.base import Stderr
from conductor_cli.views.tree import TreeProgress
from tests.traces.make import (
    RUNS,
    Run,
    Writer,
    crowd,
    hostile,
    nested,
    parallel,
    retry,
    spent,
    started,
)
from tests.views.terminals import Drawn, Reflowing, Sink, open_console, without_ours

HIDE = "\x1b[?25l"
SHOW = "\x1b[?25h"
SIZES = [(160, 40), (80, 24), (40, 10), (20, 3)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("run", RUNS)
def test_the_live_part_fits_the_terminal(run: Run, width: int, height: int) -> None:
    drawn = Drawn(width=width, height=height)
    for event in run():
        drawn.show(event, draw=False)
        lines = drawn.live()
        assert len(lines) <= height - 1
        assert max(wcswidth(line) for line in lines) <= width


@pytest.mark.parametrize("run", [parallel, nested, hostile, crowd])
def test_no_live_lines_are_left_at_the_end(run: Run) -> None:
    often = Drawn(width=40, height=10)
    once = Drawn(width=40, height=10)
    for event, trace in fold(run()):
        often.show(event)
        once.clock.now = event.at
        once.tree.show(event, trace)
    often.tree.close()
    once.tree.close()
    assert often.screen() == once.screen()


def test_seconds_are_counted_between_events() -> None:
    drawn = Drawn()
    for event, trace in fold(parallel()[:35]):
        drawn.tree.show(event, trace)
    drawn.clock.now += 30.0
    assert next(line for line in drawn.live() if "1 math-worker" in line).endswith("● 33 s")
    assert drawn.live()[-1].startswith("35 s")


def test_seconds_of_a_nested_run_are_counted_by_its_own_clock() -> None:
    drawn = Drawn()
    events = nested()
    begun = next(
        n
        for n, e in enumerate(events)
        if isinstance(e, ev.NestedEvent) and isinstance(e.event, ev.StepStarted)
    )
    drawn.play(events[: begun + 1], close=False)
    drawn.clock.now += 7.0
    line = next(line for line in drawn.live() if "2.1 math-worker" in line)
    assert line.split()[-3:] == ["●", "7", "s"]


def test_showing_an_event_draws_nothing() -> None:
    sink = Sink(terminal=True)
    tree = TreeProgress(open_console(Stderr(sink)))
    for event, trace in fold(parallel()[:60]):
        tree.show(event, trace)
    assert sink.getvalue() == HIDE
    tree.close()
    assert "1 math-worker" in sink.getvalue()


def test_without_a_change_the_tree_is_redrawn_once_a_second() -> None:
    drawn = Drawn()
    drawn.show(parallel()[0])
    written = len(drawn.sink.getvalue())
    drawn.clock.now = 0.9
    drawn.tree.draw()
    assert len(drawn.sink.getvalue()) == written
    drawn.clock.now = 1.1
    drawn.tree.draw()
    assert drawn.screen()[-2].split() == ["└─", "planning", "●", "1", "s"]


def test_whoever_waits_for_a_plan_sees_how_far_the_planner_has_read() -> None:
    drawn = Drawn()
    drawn.show(parallel()[0])
    drawn.show(ev.PromptRead(at=2.0, tokens=256, total=1204, seconds_left=14.2))
    assert "reads its instructions: 256 of 1,204 tokens, about 14 s left" in drawn.screen()[-2]
    drawn.show(ev.PlanDelta(at=20.0, text="B | -"))
    assert "instructions" not in "".join(drawn.screen())


@pytest.mark.parametrize("count", [1, 12, 40, 60])
def test_an_interrupted_run_restores_the_terminal(count: int) -> None:
    drawn = Drawn()
    drawn.play(parallel()[:count])
    written = drawn.sink.getvalue()
    assert written.count(HIDE) == written.count(SHOW) == 1
    assert written.rindex(SHOW) > written.rindex(HIDE)
    assert "conductor: the run was interrupted before its end" in drawn.screen()
    assert sum("1 math-worker" in line for line in drawn.screen()) == (count > 10)


def test_after_a_pause_nothing_is_written_until_close() -> None:
    drawn = Drawn(shared=True)
    events = parallel()
    drawn.play(events[:60], close=False)
    drawn.tree.pause()
    paused = drawn.sink.getvalue()
    assert "answers below" in paused[paused.index(SHOW) :]
    drawn.play(events[60:], close=False)
    assert drawn.sink.getvalue() == paused
    drawn.tree.close()
    heads = [line.split() for line in drawn.screen() if "3 claude" in line]
    assert heads[0][-3:] == ["↓", "answers", "below"]
    assert heads[1] == ["3", "claude", "✓", "0.8", "s", "41", "tokens"]
    assert drawn.screen()[-1].startswith("3 steps, ")


def test_the_tree_of_one_call_that_was_stopped_stands_below_its_answer() -> None:
    """Such a call is drawn only where something happened to it, and then the answer is above."""
    run = Writer(replace(started(), conductor=NO_PLANNER))
    only = Step(worker="gpt", subtask="Answer the question.")
    run.steps.append(only)
    run.add(ev.StepPlanned(at=0, step=1, last=True, worker="gpt", subtask=only.subtask, access=()))
    run.add(ev.PlanReady(at=0, plan=Plan(steps=(only,)), usage=NO_USAGE))
    run.start(1)
    run.say(0.1, s1="Half of it")
    begun = len(run.events)
    run.add(ev.StepStopped(at=run.at, step=1, reason="cancelled", usage=spent(5, 3)))
    error = Failure(kind="cancelled", message="interrupted")
    run.end("Half of it", usage=spent(5, 3), error=error, partial=True)
    drawn = Drawn(shared=True)
    drawn.play(run.events[:begun], close=False)
    drawn.tree.pause()
    assert "gpt" not in "".join(drawn.screen())
    drawn.play(run.events[begun:])
    screen = drawn.screen()
    assert "answers below" not in "".join(screen)
    question = next(number for number, line in enumerate(screen) if line.startswith("? "))
    assert not screen[question - 1]
    step, totals = screen[question + 2 : question + 4]
    assert step.split()[-3:] == ["cancelled,", "0.2", "s"]
    assert totals.startswith("gpt, 8 tokens")


@pytest.mark.parametrize("width", [30, 50, 79, 120])
@pytest.mark.parametrize("keeps", [False, True])
def test_nothing_is_drawn_twice_after_a_resize(width: int, keeps: bool) -> None:
    drawn = Drawn(reflows=not keeps)
    terminal = Reflowing(80, keeps=keeps)
    fed = 0
    terminal.feed("".join(f"{number}\r\n" for number in range(20)))
    events = parallel()
    for number, event in enumerate(events):
        drawn.show(event)
        terminal.feed(drawn.sink.getvalue()[fed:].replace("\n", "\r\n"))
        fed = len(drawn.sink.getvalue())
        if number == len(events) // 2:
            terminal.resize(width)
            drawn.resize(width)
    drawn.tree.close()
    terminal.feed(drawn.sink.getvalue()[fed:].replace("\n", "\r\n"))
    heads = [line for line in terminal.shown() if re.search(r"\d (math|gpt|claude)", line)]
    assert [re.findall(r"\d", line)[0] for line in heads] == ["1", "2", "3"]
    assert terminal.shown()[:20] == [str(number) for number in range(20)]


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_no_text_can_command_the_terminal(color: bool, shared: bool) -> None:
    drawn = Drawn(color=color, shared=shared)
    drawn.play(hostile())
    assert is_sanitized(without_ours(drawn.sink.getvalue()))
    assert "[bold red]evil" in "\n".join(drawn.screen())


def test_colours_do_not_change_the_words() -> None:
    plain = Drawn()
    coloured = Drawn(color=True)
    plain.play(parallel())
    coloured.play(parallel())
    assert plain.screen() == coloured.screen()
    assert "\x1b[32m✓" in coloured.sink.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*m", plain.sink.getvalue())


def test_without_a_terminal_the_tree_is_written_once() -> None:
    sink = Sink()
    tree = TreeProgress(open_console(Stderr(sink)))
    for event, trace in fold(parallel()):
        assert sink.getvalue() == ""
        tree.show(event, trace)
    tree.close()
    assert is_sanitized(sink.getvalue())
    assert sink.getvalue().count("math-worker") == 1


def test_a_closed_terminal_is_not_an_error() -> None:
    sink = Sink(terminal=True)
    stderr = Stderr(sink)
    sink.close()
    tree = TreeProgress(open_console(stderr))
    for event, trace in fold(parallel()):
        tree.show(event, trace)
        tree.draw()
    tree.close()


def test_attempts_beyond_a_workers_limit_are_shown_without_it() -> None:
    """Attempt 5 of a step may be the second of its second worker, so it is not called one of 3."""
    drawn = Drawn(width=80, height=24)
    shown = []
    for event in retry():
        if isinstance(event, ev.StepStarted | ev.StepFailed):
            drawn.show(replace(event, attempt=event.attempt + 3))
        else:
            drawn.show(event)
        shown += drawn.live()
    text = "\n".join(shown)
    assert "attempt 5" in text
    assert not re.search(r"attempt \d of", text)
