"""The live picture of a run on a terminal.

`show` only takes an event in; a timer draws, at most eight times a second, however fast the workers write. What is
settled is printed once and scrolls away with everything else; only what is going on is drawn again, and it is never
taller than the terminal: Rich cannot erase a line that has left the screen.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from conductor_cli.core.events import Event, Inner, PlanDelta, RunFailed, RunFinished, StepDelta
from conductor_cli.core.trace import Trace, apply
from conductor_cli.views import draw
from conductor_cli.views.port import Clock, Stderr
from conductor_cli.views.rows import Page
from conductor_cli.views.screen import Line, Screen

if TYPE_CHECKING:
    from typing import IO

TICK: Final = 1 / 8
"""Seconds between two drawings while something changes."""

IDLE: Final = 1.0
"""Seconds between two drawings while only time goes by."""

WIDEST: Final = 100
"""Columns beyond which the figures at the right edge would stand too far from their step."""

_STYLES: Final = {name: Style.parse(style) for name, style in draw.STYLES.items()}


class Tree:
    """Draws one run. `shared`: the answer is written to the same terminal. `tick` None: only `draw` draws."""

    def __init__(
        self, console: Console, *, kept: bool = True, shared: bool = False,
        clock: Clock = time.monotonic, tick: float | None = TICK,
    ) -> None:  # fmt: skip
        self._console = console
        self._kept = kept
        self._shared = shared
        self._clock = clock
        self._timer = Timer(self.draw, tick) if tick and console.is_interactive else None
        self._live: Live | None = None
        self._trace = Trace()
        self._zeros: dict[tuple[int, ...], float] = {}
        self._settled: deque[tuple[Event, Trace]] = deque()
        self._seen = self._drawn = clock()
        self._changed = False
        self._resting = False
        self._told = False

    def show(self, event: Event) -> None:
        """Take the event in. Nothing is written here while the timer runs."""
        self._trace = apply(self._trace, event)
        self._seen = self._clock()
        self._changed = True
        if isinstance(event, Inner):
            self._zeros.update(zeros(event))
        elif not isinstance(event, (StepDelta, PlanDelta)):
            self._settled.append((event, self._trace))
        if isinstance(event, (RunFinished, RunFailed)):
            self.rest()
        elif not self._resting:
            self._begin()

    def rest(self) -> None:
        """Take the live part away; what is settled stays. Another may write to the terminal until `close`."""
        if self._resting:
            return
        self._resting = True
        try:
            if self._timer is not None:
                self._timer.stop()
            self._print(self._news())
        finally:  # whatever interrupts, the cursor comes back
            if self._live is not None:
                self._live.stop()
                self._live = None
        self._print(self._opening())

    def close(self) -> None:
        """Say what was settled meanwhile, what never was, the totals, and what went wrong."""
        self.rest()
        page = self._page()
        lines = [draw.BLANK] if self._shared and (self._told or self._trace.answer) else []
        lines += self._news()
        if self._trace.run:
            lines += [] if self._trace.ended else [row.line for row in draw.unsettled(self._trace, page)]
            lines += draw.footer(self._trace, page.screen, kept=self._kept)
        self._print(lines + draw.trouble(self._trace, page.screen, kept=self._kept))

    def draw(self) -> None:
        """Print what was settled since the last drawing and draw the live part again, if there is anything new."""
        now = self._clock()
        if self._resting or (not self._changed and now - self._drawn < IDLE):
            return
        self._changed, self._drawn = False, now
        news = self._news()
        if news:
            self._print(news)
        elif self._live is not None:
            self._live.refresh()

    def live(self) -> list[Line]:
        """The live part as it would be drawn now."""
        return draw.going_on(self._trace, self._page())

    def _begin(self) -> None:
        if not self._console.is_interactive:
            self.draw()
        elif self._live is None:
            self._live = Live(
                Lines(self.live), console=self._console, auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False, vertical_overflow="crop",
            )  # fmt: skip
            self._live.start()
            if self._timer is not None:
                self._timer.start()

    def _news(self) -> list[Line]:
        page, lines = self._page(), list[Line]()
        while self._settled:
            event, trace = self._settled.popleft()
            lines += draw.settled(event, trace, page, told=self._told)
        return lines

    def _opening(self) -> list[Line]:
        """What stands above the answer where it is written to the same terminal."""
        if not self._shared:
            return []
        if self._trace.ended:
            return [draw.BLANK] if self._trace.answer else []
        records = [record for record in self._trace.steps if record.last and record.state == "running"]
        self._told = bool(records)
        return [*(line for record in records for line in draw.answering(record, self._trace, self._page())), draw.BLANK]

    def _print(self, lines: list[Line]) -> None:
        if lines:
            self._console.print(Lines(lambda: lines), end="", crop=False)

    def _page(self) -> Page:
        width, height = self._console.size
        screen = Screen(width=min(width, WIDEST), height=height, encoding=self._console.encoding)
        return Page(screen, self._trace.at + self._clock() - self._seen, self._zeros)


class Lines:
    """Lines as Rich prints them. Asked for anew at each drawing, and neither wrapped nor searched for markup."""

    def __init__(self, lines: Callable[[], Iterable[Line]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines():
            yield from (Segment(text, _STYLES[style]) for text, style in line)
            yield Segment.line()


class Timer:
    """Calls `tick` every so many seconds on a thread of its own, until it is stopped."""

    def __init__(self, tick: Callable[[], None], seconds: float) -> None:
        self._tick = tick
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="conductor-tree", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return once no tick is going on and none will come."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self._tick()


def zeros(event: Inner) -> dict[tuple[int, ...], float]:
    """When the clocks of the nested runs that `event` passes through began, by the outermost run's clock."""
    found: dict[tuple[int, ...], float] = {}
    path: tuple[int, ...] = ()
    at, inner = event.at, cast("Event", event)
    while isinstance(inner, Inner):
        path = (*path, inner.step)
        inner = inner.event
        found[path] = at - inner.at
    return found


def open_console(
    stderr: Stderr,
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
