"""The lines at the bottom of a terminal that are drawn again and again, below what is printed for good.

The cursor waits at the start of the line below them. Only lines that differ are written again. Most terminals break
the lines that they show anew when they get narrower; how many rows then have to be erased is counted from the lines.
What has left the screen by then cannot be erased: whoever draws keeps to what `Screen.fits` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style

from conductor_cli.views import run_lines
from conductor_cli.views.base import Clock
from conductor_cli.views.text_layout import Line, folded

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

_STYLES: Final = {name: Style.parse(style) for name, style in run_lines.STYLES.items()}

SETTLING: Final = 0.3
"""Seconds for which a window keeps a size before its rows can be counted.

tmux gives the first of two sizes on at once and the second, which its screen has by then, up to a quarter of a second
later.
"""

_ERASE: Final = (ControlType.ERASE_IN_LINE, 2)
_UP: Final = (ControlType.CURSOR_UP, 1)
_END: Final = Segment.line()

SegmentLine = Sequence[Segment]
"""One line as Rich writes it, without its end."""


def styled(line: Line) -> tuple[Segment, ...]:
    """A line's spans as segments."""
    return tuple(Segment(text, _STYLES[style]) for text, style in line)


class Lines:
    """Lines as Rich prints them. Asked for anew at each drawing, and neither wrapped nor searched for markup."""

    def __init__(self, lines: Callable[[], Iterable[Line]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines():
            yield from styled(line)
            yield Segment.line()


class LiveRegion:
    """The live lines of one terminal. `reflows`: it breaks its lines anew when it gets narrower."""

    def __init__(self, console: Console, *, reflows: bool = True, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._reflows = reflows
        self._clock = clock
        self._rows: list[SegmentLine] = []
        self._drawn = self._seen = console.size
        self._since = -SETTLING
        console.show_cursor(show=False)

    @property
    def still(self) -> bool:
        """Whether the window has settled on its size. While it has not, it is better not drawn on."""
        size, now = self._console.size, self._clock()
        if size != self._seen:
            self._seen, self._since = size, now
        return now - self._since >= SETTLING

    def draw(self, rows: list[SegmentLine], above: ConsoleRenderable | None = None) -> None:
        """Draw `rows` instead of those that stand there, and print `above` for good before them."""
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
        """Take the lines away and give the cursor back."""
        try:
            self.draw([])
        finally:
            self._console.show_cursor(show=True)

    def _update(self, rows: list[SegmentLine]) -> None:
        """Write what differs from what stands there."""
        before = self._rows
        same = next((at for at, (old, new) in enumerate(zip(before, rows, strict=False)) if old != new), None)
        start = min(len(before), len(rows)) if same is None else same
        if start == len(before) == len(rows):
            return
        written = [_control(ControlType.CARRIAGE_RETURN, *[_UP] * (len(before) - start))]
        for at, row in enumerate(rows[start:], start):
            differs = at >= len(before) or before[at] != row
            written += [_control(_ERASE), *row, _END] if differs else [_END]
        gone = max(0, len(before) - len(rows))
        written.append(_control(*[_ERASE, (ControlType.CURSOR_DOWN, 1)] * gone, *[_UP] * gone))
        self._print(Segments(written))

    def _erase(self) -> None:
        taken = folded(map(width, self._rows), self._console.width) if self._reflows else len(self._rows)
        count = min(taken, max(0, self._console.height - 1))
        self._print(Segments([_control(ControlType.CARRIAGE_RETURN, _ERASE, *[_UP, _ERASE] * count)]))

    def _print(self, what: ConsoleRenderable) -> None:
        self._console.print(what, end="", crop=False, soft_wrap=False)


def _control(*codes: ControlType | tuple[ControlType, int]) -> Segment:
    return Control(*codes).segment


def width(row: SegmentLine) -> int:
    """How many columns a row takes."""
    return sum(segment.cell_length for segment in row)


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks its lines anew when it gets narrower; the old ones cut them off."""
    return environ.get("TERM") != "linux" and not any(environ.get(name) for name in ("XTERM_VERSION", "STY"))
