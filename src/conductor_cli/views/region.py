"""The lines at the bottom of a terminal that are drawn again and again, below what is printed for good.

The cursor waits at the start of the line below them. Only lines that differ are written again. Most terminals break
the lines that they show anew when they get narrower; how many rows then have to be erased is counted from the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import Style

from conductor_cli.views import draw
from conductor_cli.views.screen import Line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

_STYLES: Final = {name: Style.parse(style) for name, style in draw.STYLES.items()}

_ERASE: Final = (ControlType.ERASE_IN_LINE, 2)
_UP: Final = (ControlType.CURSOR_UP, 1)

Row = Sequence[Segment]
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


class Rows:
    """Rows as they stand."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in self._rows:
            yield from row
            yield Segment.line()


class Region:
    """The live lines of one terminal. `reflows`: it breaks its lines anew when it gets narrower."""

    def __init__(self, console: Console, *, reflows: bool = True) -> None:
        self._console = console
        self._reflows = reflows
        self._rows: list[Row] = []
        self._width = 0
        console.show_cursor(show=False)

    def draw(self, rows: list[Row], above: ConsoleRenderable | None = None) -> None:
        """Draw `rows` instead of those that stand there, and print `above` for good before them."""
        width = self._console.width
        with self._console:  # one write for all of it
            if above is None and width == self._width:
                self._update(rows)
            else:
                self._erase()
                if above is not None:
                    self._print(above)
                self._print(Rows(rows))
        self._rows, self._width = rows, width

    def close(self) -> None:
        """Take the lines away and give the cursor back."""
        try:
            self.draw([])
        finally:
            self._console.show_cursor(show=True)

    def _update(self, rows: list[Row]) -> None:
        """Write what differs from what stands there."""
        before = self._rows
        same = next((at for at, (old, new) in enumerate(zip(before, rows, strict=False)) if old != new), None)
        start = min(len(before), len(rows)) if same is None else same
        if start == len(before) == len(rows):
            return
        self._console.control(Control(ControlType.CARRIAGE_RETURN, *[_UP] * (len(before) - start)))
        for at, row in enumerate(rows[start:], start):
            if at >= len(before) or before[at] != row:
                self._console.control(Control(_ERASE))
                self._print(Rows([row]))
            else:
                self._print(Rows([()]))
        gone = len(before) - len(rows)
        if gone > 0:
            down = (ControlType.CURSOR_DOWN, 1)
            self._console.control(Control(*[_ERASE, down] * gone, *[_UP] * gone))

    def _erase(self) -> None:
        count = min(sum(map(self._height, self._rows)), max(0, self._console.height - 1))
        self._console.control(Control(ControlType.CARRIAGE_RETURN, _ERASE, *[_UP, _ERASE] * count))

    def _height(self, row: Row) -> int:
        """How many rows of the terminal a row takes by now."""
        width = sum(segment.cell_length for segment in row)
        return max(1, -(-width // max(1, self._console.width))) if self._reflows else 1

    def _print(self, what: ConsoleRenderable) -> None:
        self._console.print(what, end="", crop=False, soft_wrap=False)


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks its lines anew when it gets narrower; the old ones cut them off."""
    return environ.get("TERM") != "linux" and not any(environ.get(name) for name in ("XTERM_VERSION", "STY"))
