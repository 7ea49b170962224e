"""The live tree of a run on a terminal.

`show` only applies an event; a timer draws, at most eight times a second, however fast the workers write. What is
settled is printed once and scrolls away; only the live part is redrawn. It is never taller than the terminal, because a
line that has left the screen cannot be erased.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from conductor_cli.core import events as ev
from conductor_cli.core.events import Event, NestedEvent
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.views.base import Clock, Timer
from conductor_cli.views.live_region import LiveRegion, StyledLines, style_segments
from conductor_cli.views.run_lines import (
    StepLayout,
    answering_lines,
    footer,
    live_lines,
    problems,
    settled_lines,
    unsettled_lines,
)
from conductor_cli.views.text_layout import BLANK, WIDEST, Line, Screen

if TYPE_CHECKING:
    from rich.console import Console

TICK: Final = 1 / 8
"""Seconds between two drawings while something changes."""

IDLE: Final = 1.0
"""Seconds between two drawings while only time passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """How a run is drawn.

    `stored`: its trace is on disk. `shared`: the answer is written to the same terminal. `brief`: a finished step takes
    one line. `rewraps`: the terminal wraps its lines again when it gets narrower.
    """

    stored: bool = True
    shared: bool = False
    brief: bool = False
    rewraps: bool = True


class TreeProgress:
    """Draws one run. With `tick` None there is no timer, and only `draw` draws."""

    def __init__(
        self, console: Console, options: TreeOptions | None = None, *, clock: Clock = time.monotonic,
        tick: float | None = TICK,
    ) -> None:  # fmt: skip
        self._console = console
        self._options = options or TreeOptions()
        self._clock = clock
        self._tick = tick if console.is_interactive else None
        self._timer: Timer | None = None
        self._region: LiveRegion | None = None
        self._trace = Trace()
        self._clock_starts: dict[tuple[int, ...], float] = {}
        self._settled: deque[tuple[Event, Trace]] = deque()
        self._event_seen = self._drawn = clock()
        self._size = console.size
        self._changed = False
        self._resting = False
        self._asking = False
        self._answer_shown = False

    def show(self, event: Event) -> None:
        """Apply the event. Nothing is written here while the timer runs."""
        self._trace = apply_event(self._trace, event)
        self._event_seen = self._clock()
        self._changed = True
        # Nested events settle nothing by themselves: they are printed with the step that they are in.
        if isinstance(event, NestedEvent):
            self._clock_starts.update(nested_clock_starts(event))
        elif not (
            isinstance(event, (ev.StepDelta, ev.PlanDelta)) or (self._asking and isinstance(event, ev.StepStopped))
        ):
            # The steps of a plan that the user has just rejected are not shown again as stopped.
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
        lines = [BLANK] if self._options.shared and (self._answer_shown or self._trace.answer) else []
        lines += self._take_settled()
        if self._trace.run:
            lines += [] if self._trace.ended else [row.line for row in unsettled_lines(self._trace, layout)]
            lines += footer(self._trace, layout.screen, stored=self._options.stored)
        self._print(lines + problems(self._trace, layout.screen, stored=self._options.stored))

    def draw(self) -> None:
        """Print what was settled since the last drawing, and redraw the live part if anything changed."""
        now = self._clock()
        size = self._console.size
        if self._resting or (not self._changed and now - self._drawn < IDLE and size == self._size):
            return
        if self._region is not None and not self._region.size_is_stable:
            return  # the next tick tries again
        self._changed, self._drawn, self._size = False, now, size
        self._print(self._take_settled())

    def live(self) -> list[Line]:
        """The live part as it would be drawn now."""
        return live_lines(self._trace, self._layout())

    def _start_drawing(self) -> None:
        if not self._console.is_interactive:
            self.draw()
        elif self._region is None:
            self._region = LiveRegion(self._console, rewraps=self._options.rewraps, clock=self._clock)
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
            if self._region is not None:
                self._region.close()
                self._region = None

    def _take_settled(self) -> list[Line]:
        layout, lines = self._layout(), list[Line]()
        while self._settled:
            event, trace = self._settled.popleft()
            lines += settled_lines(event, trace, layout, shown=self._answer_shown)
        return lines

    def _lines_above_answer(self) -> list[Line]:
        if not self._options.shared:
            return []
        if self._trace.ended:
            return [BLANK] if self._trace.answer else []
        records = [record for record in self._trace.steps if record.last and record.state == "running"]
        self._answer_shown = bool(records)
        layout = self._layout()
        return [*(line for record in records for line in answering_lines(record, self._trace, layout)), BLANK]

    def _print(self, lines: list[Line]) -> None:
        """Print `lines` for good, and the live part below them."""
        above = StyledLines(lambda: lines) if lines else None
        if self._region is not None:
            self._region.draw([style_segments(line) for line in self.live()], above)
        elif above is not None:
            self._console.print(above, end="", crop=False)

    def _layout(self) -> StepLayout:
        width, height = self._console.size
        screen = Screen(width=min(width, WIDEST), height=height, encoding=self._console.encoding)
        now = self._trace.at + self._clock() - self._event_seen
        return StepLayout(screen, now, self._clock_starts, brief=self._options.brief)


def nested_clock_starts(event: NestedEvent) -> dict[tuple[int, ...], float]:
    """When the clocks of the nested runs that `event` passes through started, by the outermost run's clock."""
    starts: dict[tuple[int, ...], float] = {}
    path: tuple[int, ...] = ()
    at, inner = event.at, cast("Event", event)
    while isinstance(inner, NestedEvent):
        path = (*path, inner.step)
        inner = inner.event
        starts[path] = at - inner.at
    return starts
