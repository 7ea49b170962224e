"""The live picture of a run on a terminal.

`show` only takes an event in; a timer draws, at most eight times a second, however fast the workers write. What is
settled is printed once and scrolls away with everything else; only what is going on is drawn again, and it is never
taller than the terminal: a line that has left the screen cannot be erased.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from rich.console import Console

from conductor_cli.core import events as ev
from conductor_cli.core.events import Event, NestedEvent
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.views import run_lines
from conductor_cli.views.base import Clock, Stdout
from conductor_cli.views.live_region import Lines, LiveRegion, styled
from conductor_cli.views.step_lines import StepLayout
from conductor_cli.views.text_layout import BLANK, WIDEST, Line, Screen
from conductor_cli.views.timer import Timer

if TYPE_CHECKING:
    from typing import IO

TICK: Final = 1 / 8
"""Seconds between two drawings while something changes."""

IDLE: Final = 1.0
"""Seconds between two drawings while only time goes by."""

_UNTOLD: Final = (ev.StepDelta, ev.PlanDelta)
"""What settles nothing; nor do the steps of a plan that was dropped, which whoever dropped it has just seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """How a run is drawn.

    `kept`: its trace is on disk. `shared`: the answer is written to the same terminal. `brief`: a step that has ended
    is one line. `reflows`: the terminal breaks its lines anew when it gets narrower.
    """

    kept: bool = True
    shared: bool = False
    brief: bool = False
    reflows: bool = True


class TreeProgress:
    """Draws one run. `tick` None: only `draw` draws."""

    def __init__(
        self,
        console: Console,
        look: TreeOptions | None = None,
        *,
        clock: Clock = time.monotonic,
        tick: float | None = TICK,
    ) -> None:
        self._console = console
        self._look = look or TreeOptions()
        self._clock = clock
        self._tick = tick if console.is_interactive else None
        self._timer: Timer | None = None
        self._region: LiveRegion | None = None
        self._trace = Trace()
        self._zeros: dict[tuple[int, ...], float] = {}
        self._settled: deque[tuple[Event, Trace]] = deque()
        self._seen = self._drawn = clock()
        self._size = console.size
        self._changed = False
        self._resting = False
        self._asking = False
        self._told = False

    def show(self, event: Event) -> None:
        """Take the event in. Nothing is written here while the timer runs."""
        self._trace = apply_event(self._trace, event)
        self._seen = self._clock()
        self._changed = True
        if isinstance(event, NestedEvent):
            self._zeros.update(nested_clock_starts(event))
        elif not isinstance(event, _UNTOLD) and not (self._asking and isinstance(event, ev.StepStopped)):
            self._settled.append((event, self._trace))
        if isinstance(event, (ev.RunFinished, ev.RunFailed)):
            self.rest()
        elif isinstance(event, ev.PlanOffered):
            self._clear()
            self._asking = True
        elif isinstance(event, ev.PlanDecided):
            self._asking = False
        if not self._asking and not self._resting:
            self._begin()

    def rest(self) -> None:
        """Take the live part away; what is settled stays. Another may write to the terminal until `wake` or `close`."""
        if self._resting:
            return
        self._resting = True
        self._clear()
        self._print(self._opening())

    def wake(self) -> None:
        """Draw again, after what another has written; it said why the answer broke off."""
        if self._resting and not self._trace.ended:
            self._print(self._news())
            self._resting = self._told = False
            self._begin()

    def _clear(self) -> None:
        """Take the live part away, until `_begin`."""
        try:
            if self._timer is not None:
                self._timer.stop()
                self._timer = None
            self._print(self._news())
        finally:  # whatever interrupts, the cursor comes back
            if self._region is not None:
                self._region.close()
                self._region = None

    def close(self) -> None:
        """Say what was settled meanwhile, what never was, the totals, and what went wrong."""
        self.rest()
        page = self._page()
        lines = [BLANK] if self._look.shared and (self._told or self._trace.answer) else []
        lines += self._news()
        if self._trace.run:
            lines += [] if self._trace.ended else [row.line for row in run_lines.unsettled(self._trace, page)]
            lines += run_lines.footer(self._trace, page.screen, kept=self._look.kept)
        self._print(lines + run_lines.trouble(self._trace, page.screen, kept=self._look.kept))

    def draw(self) -> None:
        """Print what was settled since the last drawing and draw the live part again, if there is anything new."""
        now = self._clock()
        size = self._console.size
        if self._resting or (not self._changed and now - self._drawn < IDLE and size == self._size):
            return
        if self._region is not None and not self._region.still:
            return
        self._changed, self._drawn, self._size = False, now, size
        self._print(self._news())

    def live(self) -> list[Line]:
        """The live part as it would be drawn now."""
        return run_lines.going_on(self._trace, self._page())

    def _begin(self) -> None:
        if not self._console.is_interactive:
            self.draw()
        elif self._region is None:
            self._region = LiveRegion(self._console, reflows=self._look.reflows, clock=self._clock)
            if self._tick:
                self._timer = Timer(self.draw, self._tick)
                self._timer.start()

    def _news(self) -> list[Line]:
        page, lines = self._page(), list[Line]()
        while self._settled:
            event, trace = self._settled.popleft()
            lines += run_lines.settled(event, trace, page, told=self._told)
        return lines

    def _opening(self) -> list[Line]:
        """What stands above the answer where it is written to the same terminal."""
        if not self._look.shared:
            return []
        if self._trace.ended:
            return [BLANK] if self._trace.answer else []
        records = [record for record in self._trace.steps if record.last and record.state == "running"]
        self._told = bool(records)
        return [*(line for record in records for line in run_lines.answering(record, self._trace, self._page())), BLANK]

    def _print(self, lines: list[Line]) -> None:
        """Print `lines` for good, and what is going on below them."""
        above = Lines(lambda: lines) if lines else None
        if self._region is not None:
            self._region.draw([styled(line) for line in self.live()], above)
        elif above is not None:
            self._console.print(above, end="", crop=False)

    def _page(self) -> StepLayout:
        width, height = self._console.size
        screen = Screen(width=min(width, WIDEST), height=height, encoding=self._console.encoding)
        return StepLayout(screen, self._trace.at + self._clock() - self._seen, self._zeros, brief=self._look.brief)


def nested_clock_starts(event: NestedEvent) -> dict[tuple[int, ...], float]:
    """When the clocks of the nested runs that `event` passes through began, by the outermost run's clock."""
    found: dict[tuple[int, ...], float] = {}
    path: tuple[int, ...] = ()
    at, inner = event.at, cast("Event", event)
    while isinstance(inner, NestedEvent):
        path = (*path, inner.step)
        inner = inner.event
        found[path] = at - inner.at
    return found


def open_console(
    stderr: Stdout,
    *,
    color: bool | None,
    environ: Mapping[str, str],
    width: int | None = None,
    height: int | None = None,
) -> Console:
    """A console that writes to `stderr` and takes nothing from the process's own environment."""
    return Console(
        file=cast("IO[str]", stderr), force_terminal=stderr.terminal, _environ=environ, width=width, height=height,
        color_system={True: "standard", False: None, None: "auto"}[color], no_color=color is False,
        markup=False, highlight=False, emoji=False, soft_wrap=False,
    )  # fmt: skip
