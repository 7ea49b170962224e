"""The live lines at the bottom of a terminal: how they are redrawn and erased."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conductor_cli.views.base import Stdout
from conductor_cli.views.console import open_console
from conductor_cli.views.live_region import STABLE_AFTER, LiveRegion, SegmentLine, StyledLines, rewraps, style_segments
from conductor_cli.views.text_layout import Line
from tests.views.terminals import Clock, Reflowing, Sink

if TYPE_CHECKING:
    from rich.console import Console


def rows(*texts: str) -> list[SegmentLine]:
    return [style_segments(((text, "plain"),)) for text in texts]


def lines(*texts: str) -> StyledLines:
    found: list[Line] = [((text, "plain"),) for text in texts]
    return StyledLines(lambda: found)


class Window:
    """A region on a terminal whose size changes."""

    def __init__(self, width: int, height: int, *, keeps: bool = False) -> None:
        self.sink = Sink(terminal=True)
        self.terminal = Reflowing(width, height, keeps=keeps)
        self.console: Console = open_console(Stdout(self.sink), color=False, environ={}, width=width, height=height)
        self.clock = Clock()
        self.region = LiveRegion(self.console, rewraps=not keeps, clock=self.clock)

    def draw(self, texts: list[str], *above: str) -> str:
        """What is written for it."""
        before = len(self.sink.getvalue())
        self.region.draw(rows(*texts), lines(*above) if above else None)
        written = self.sink.getvalue()[before:]
        self.terminal.feed(written)
        return written

    def resize(self, width: int) -> None:
        self.console.width = width
        self.terminal.resize(width)


def test_unchanged_lines_are_not_written_again() -> None:
    """The same lines cost nothing, and of others only the differences are written."""
    window = Window(40, 10)
    window.draw(["one", "two", "three"])
    assert window.draw(["one", "two", "three"]) == ""
    written = window.draw(["one", "2", "three"])
    assert "2" in written
    assert "one" not in written
    assert "three" not in written
    assert window.terminal.shown() == ["one", "2", "three"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a", "b", "c"], ["a"]), (["a"], ["a", "b", "c"]), (["a", "b"], []), ([], ["a", "b"]),
        (["a", "b", "c"], ["x", "b"]), (["a", "", "c"], ["a", "", "x", "y"]),
    ],
)  # fmt: skip
def test_lines_replace_the_lines_before_them(before: list[str], after: list[str]) -> None:
    """Afterwards only the new lines are on the screen, below what was printed for good."""
    window = Window(20, 10)
    window.draw(before, "said")
    window.draw(after)
    assert window.terminal.shown() == ["said", *filter(None, after)]
    window.draw(["end"], "more")
    assert window.terminal.shown() == ["said", "more", "end"]


@pytest.mark.parametrize("keeps", [False, True], ids=["breaks its lines anew", "cuts them off"])
@pytest.mark.parametrize("width", [13, 20, 39, 41, 80])
def test_nothing_is_drawn_twice_after_a_resize(width: int, keeps: bool) -> None:
    """Lines that a narrower terminal has wrapped are all erased."""
    window = Window(40, 24, keeps=keeps)
    long = "x" * 40
    window.draw([long, "short", "y" * 25], "said")
    window.resize(width)
    window.draw(["live"], "more")
    assert [line for line in window.terminal.shown() if line in ("said", "more", "live")][-2:] == ["more", "live"]
    assert "".join(window.terminal.shown()) == "saidmorelive"


def test_a_lower_window_is_redrawn() -> None:
    """If the window lost some of its rows, the others are erased before anything is written."""
    window = Window(40, 24)
    window.draw([f"row {number}" for number in range(12)])
    window.console.height = 8
    written = window.draw(["row 0", "row 1", "new"])
    assert written.count("\x1b[2K") == 8
    assert "row 1" in written


def test_a_resized_window_is_drawn_on_when_its_size_is_stable() -> None:
    """After a change of size the region waits until nothing has changed for a while."""
    window = Window(40, 24)
    assert window.region.size_is_stable
    for size in (39, 20):
        window.clock.now += STABLE_AFTER / 2
        window.console.width = size
        assert not window.region.size_is_stable
    window.clock.now += STABLE_AFTER * 0.9
    assert not window.region.size_is_stable
    window.clock.now += STABLE_AFTER * 0.2
    assert window.region.size_is_stable


def test_closing_shows_the_cursor_again() -> None:
    """A closed region leaves no lines."""
    window = Window(40, 10)
    window.draw(["live"], "said")
    before = len(window.sink.getvalue())
    window.region.close()
    window.terminal.feed(window.sink.getvalue()[before:])
    assert window.terminal.shown() == ["said"]
    assert window.sink.getvalue().endswith("\x1b[?25h")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, True), ({"TERM": "linux"}, False), ({"XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "screen", "STY": "1.pts"}, False), ({"TERM": "screen", "TMUX": "/tmp/tmux"}, True),
    ],
)  # fmt: skip
def test_which_terminals_wrap_their_lines_again(environ: dict[str, str], expected: bool) -> None:
    """Old terminals are known by their variables."""
    assert rewraps(environ) is expected
