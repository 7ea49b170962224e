"""The live tree of a run on a terminal.

`show` only applies an event; a timer draws, at most eight times a second, however fast the workers write. What is
settled is printed once and scrolls away; only the live part is redrawn. It is never taller than the terminal, because a
line that has left the screen cannot be erased.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.views.base import Clock, Timer
from conductor_cli.views.run_lines import (
    StepLayout,
    answering_lines,
    footer,
    live_lines,
    open_lines,
    problems,
    settled_lines,
)
from conductor_cli.views.styled_lines import StyledLines, start_live
from conductor_cli.views.text_layout import BLANK, WIDEST, Line, Screen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

TICK: Final = 1 / 8
"""Seconds between two drawings while something changes."""

IDLE: Final = 1.0
"""Seconds between two drawings while only time passes."""


class TreeProgress:
    """Draws one run. With `tick` None there is no timer, and only `draw` draws.

    `stored`: its trace is on disk. `shared`: the answer is written to the same terminal.
    """

    def __init__(
        self, console: Console, *, stored: bool = True, shared: bool = False,
        clock: Clock = time.monotonic, tick: float | None = TICK,
    ) -> None:  # fmt: skip
        self._console = console
        self._stored = stored
        self._shared = shared
        self._clock = clock
        self._tick = tick
        self._timer: Timer | None = None
        self._live: Live | None = None
        self._trace = Trace()
        self._settled: deque[tuple[Event, Trace]] = deque()
        self._event_seen = self._drawn = clock()
        self._changed = self._resting = self._asking = self._answer_shown = False

    def show(self, event: Event) -> None:
        """Apply the event. Nothing is written here while the timer runs."""
        self._trace = apply_event(self._trace, event)
        self._event_seen = self._clock()
        self._changed = True
        # Pieces of text, the most events by far, settle nothing. The steps of a plan that the user has just rejected
        # are not shown again as stopped.
        hidden = (ev.StepDelta, ev.PlanDelta, *((ev.StepStopped,) if self._asking else ()))
        if not isinstance(event, hidden):
            self._settled.append((event, self._trace))
        if isinstance(event, (ev.RunFinished, ev.RunFailed)):
            self.rest()
        elif isinstance(event, ev.PlanOffered):
            self._stop_drawing()
            self._asking = True
        elif isinstance(event, ev.PlanDecided):
            self._asking = False
        if not self._asking and not self._resting:
            self._start_drawing()

    def rest(self) -> None:
        """Erase the live part, so that the answer can be written below what is settled."""
        if self._resting:
            return
        self._resting = True
        self._stop_drawing()
        self._print(self._lines_above_answer())

    def wake(self) -> None:
        """Draw again below the answer that broke off; its own view said why."""
        if self._resting and not self._trace.ended:
            self._print(self._take_settled())
            self._resting = self._answer_shown = False
            self._start_drawing()

    def close(self) -> None:
        """Print what was settled meanwhile, the steps that never ended, the totals, and what went wrong."""
        self.rest()
        layout = self._layout()
        # On a shared terminal a blank line separates the totals from the answer above them.
        lines = [BLANK] if self._shared and (self._answer_shown or self._trace.answer) else []
        lines += self._take_settled()
        if self._trace.run:
            lines += [] if self._trace.ended else open_lines(self._trace, layout)
            lines += footer(self._trace, layout.screen, stored=self._stored)
        self._print(lines + problems(self._trace, layout.screen, stored=self._stored))

    def draw(self) -> None:
        """Print what was settled since the last drawing, and redraw the live part if anything changed."""
        now = self._clock()
        if self._resting or (not self._changed and now - self._drawn < IDLE):
            return
        self._changed, self._drawn = False, now
        lines = self._take_settled()
        self._print(lines)
        if self._live is not None and not lines:
            self._live.refresh()

    def live(self) -> list[Line]:
        """The live part as it would be drawn now."""
        return live_lines(self._trace, self._layout())

    def _start_drawing(self) -> None:
        if not self._console.is_interactive:
            self.draw()
        elif self._live is None:
            self._live = start_live(self._console, StyledLines(self.live))
            if self._tick:
                self._timer = Timer(self.draw, self._tick)
                self._timer.start()

    def _stop_drawing(self) -> None:
        try:
            if self._timer is not None:
                self._timer.stop()
                self._timer = None
            self._print(self._take_settled())
        finally:  # whatever interrupts this, the cursor must be shown again
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _take_settled(self) -> list[Line]:
        layout, lines = self._layout(), list[Line]()
        while self._settled:
            event, trace = self._settled.popleft()
            lines += settled_lines(event, trace, layout, shown=self._answer_shown)
        return lines

    def _lines_above_answer(self) -> list[Line]:
        if not self._shared:
            return []
        if self._trace.ended:
            return [BLANK] if self._trace.answer else []
        records = [record for record in self._trace.steps if record.last and record.state == "running"]
        self._answer_shown = bool(records)
        layout = self._layout()
        return [*(line for record in records for line in answering_lines(record, self._trace, layout)), BLANK]

    def _print(self, lines: list[Line]) -> None:
        """Print `lines` for good, above the live part."""
        if lines:
            self._console.print(StyledLines(lambda: lines), end="", crop=False)

    def _layout(self) -> StepLayout:
        width, height = self._console.size
        screen = Screen(width=min(width, WIDEST), height=height, encoding=self._console.encoding)
        now = self._trace.at + self._clock() - self._event_seen
        return StepLayout(screen, now)
