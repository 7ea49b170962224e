"""The lines at the bottom of a terminal that are redrawn, below what is printed for good.

The cursor waits at the start of the line below them, and only lines that differ are written again. Most terminals wrap
the lines that they show again when they get narrower; how many rows then have to be erased is counted from the lines.
Rows that have left the screen by then cannot be erased, so callers draw only what `Screen.fits` allows. `rich.live`
does not count rows after a resize and leaves debris on the screen, which is why this module exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style

from conductor_cli.views.base import Clock
from conductor_cli.views.text_layout import Line, count_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

STYLES: Final[dict[str, str]] = {
    "question": "bold", "number": "dim", "worker": "bold", "plain": "", "quiet": "dim", "thinking": "dim italic",
    "waiting": "dim", "skipped": "dim", "planning": "cyan", "running": "cyan", "answering": "cyan",
    "done": "green", "retrying": "yellow", "stopped": "yellow", "note": "yellow", "rejected": "yellow", "failed": "red",
}  # fmt: skip
_STYLES: Final = {name: Style.parse(style) for name, style in STYLES.items()}

STABLE_AFTER: Final = 0.3
"""Seconds that a window must keep its size before its rows can be counted.

tmux reports the first of two sizes at once, and the second, which its screen already has by then, up to a quarter of a
second later.
"""

_ERASE: Final = (ControlType.ERASE_IN_LINE, 2)
_UP: Final = (ControlType.CURSOR_UP, 1)
_END: Final = Segment.line()

SegmentLine = Sequence[Segment]
"""One line as Rich writes it, without its end."""


def style_segments(line: Line) -> tuple[Segment, ...]:
    """A line's spans as segments."""
    return tuple(Segment(text, _STYLES[style]) for text, style in line)


class StyledLines:
    """Lines for Rich to print: computed at each drawing, not wrapped, and without markup."""

    def __init__(self, lines: Callable[[], Iterable[Line]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines():
            yield from style_segments(line)
            yield Segment.line()


class LiveRegion:
    """The live lines of one terminal. `rewraps`: it wraps its lines again when it gets narrower."""

    def __init__(self, console: Console, *, rewraps: bool = True, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._rewraps = rewraps
        self._clock = clock
        self._rows: list[SegmentLine] = []
        self._drawn = self._seen = console.size
        self._size_since = -STABLE_AFTER
        console.show_cursor(show=False)

    @property
    def size_is_stable(self) -> bool:
        """Whether the window has kept its size long enough to be drawn on."""
        size, now = self._console.size, self._clock()
        if size != self._seen:
            self._seen, self._size_since = size, now
        return now - self._size_since >= STABLE_AFTER

    def draw(self, rows: list[SegmentLine], above: ConsoleRenderable | None = None) -> None:
        """Replace the rows by `rows`, and print `above` for good before them."""
        size = self._console.size
        with self._console:  # one write for all of it
            if above is None and size == self._drawn:
                self._update(rows)
            else:
                self._erase()
                if above is not None:
                    self._print(above)
                self._print(Segments(segment for row in rows for segment in (*row, _END)))
        self._rows, self._drawn = rows, size

    def close(self) -> None:
        """Erase the lines and show the cursor again."""
        try:
            self.draw([])
        finally:
            self._console.show_cursor(show=True)

    def _update(self, rows: list[SegmentLine]) -> None:
        """Write the rows that differ from those on the screen."""
        before = self._rows
        # Rows above the first difference stay; the cursor goes up to that one.
        same = next((at for at, (old, new) in enumerate(zip(before, rows, strict=False)) if old != new), None)
        start = min(len(before), len(rows)) if same is None else same
        if start == len(before) == len(rows):
            return
        written = [_control(ControlType.CARRIAGE_RETURN, *[_UP] * (len(before) - start))]
        for at, row in enumerate(rows[start:], start):
            differs = at >= len(before) or before[at] != row
            written += [_control(_ERASE), *row, _END] if differs else [_END]
        # Rows that are no longer needed are erased below the new ones, and the cursor comes back up.
        gone = max(0, len(before) - len(rows))
        written.append(_control(*[_ERASE, (ControlType.CURSOR_DOWN, 1)] * gone, *[_UP] * gone))
        self._print(Segments(written))

    def _erase(self) -> None:
        # After a resize the terminal has wrapped the rows by its new width; they take more lines than were written.
        taken = count_rows(map(row_width, self._rows), self._console.width) if self._rewraps else len(self._rows)
        # The cursor cannot go above the screen: what has left it is lost, and `Screen.fits` prevents that.
        count = min(taken, max(0, self._console.height - 1))
        self._print(Segments([_control(ControlType.CARRIAGE_RETURN, _ERASE, *[_UP, _ERASE] * count)]))

    def _print(self, what: ConsoleRenderable) -> None:
        self._console.print(what, end="", crop=False, soft_wrap=False)


def _control(*codes: ControlType | tuple[ControlType, int]) -> Segment:
    return Control(*codes).segment


def row_width(row: SegmentLine) -> int:
    """How many cells a row takes."""
    return sum(segment.cell_length for segment in row)


def rewraps(environ: Mapping[str, str]) -> bool:
    """Whether the terminal wraps its lines again when it gets narrower; older ones cut them off."""
    return environ.get("TERM") != "linux" and not any(environ.get(name) for name in ("XTERM_VERSION", "STY"))
