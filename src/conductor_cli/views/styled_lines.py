"""Lines of styled texts for Rich to print, and a part at the bottom that is redrawn in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment
from rich.style import Style

from conductor_cli.system.suspension import SUSPENSIONS
from conductor_cli.views.theme import STYLES

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

_STYLES: Final = {name: Style.parse(style) for name, style in STYLES.items()}


class StyledLines:
    """Lines of texts with their styles for Rich to print.

    Computed at each drawing, not wrapped, and without markup.
    """

    def __init__(self, lines: Callable[[], Iterable[tuple[tuple[str, str], ...]]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines():
            yield from (Segment(text, _STYLES[style]) for text, style in line if text)
            yield Segment.line()


class LiveLines(Live):
    """Shows something at the bottom of the terminal until `stop`, which erases it.

    Drawn only by `refresh`.

    Most terminals wrap the lines that they show when they become narrower (`reflows`). Rich erases
    as many rows as it has drawn, so the first ones would stay above the next drawing; the further
    rows are erased here. Rows that have left the screen by then cannot be erased. After a stop by
    Ctrl-Z nothing is erased, since the rows above the cursor are the shell's.
    """

    def __init__(self, console: Console, shown: ConsoleRenderable, *, reflows: bool = True) -> None:
        self._measured = _Measured(shown)
        self._reflows = reflows
        self._suspensions = SUSPENSIONS.count
        super().__init__(
            self._measured,
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.start()

    def refresh(self) -> None:
        with SUSPENSIONS.drawing:
            super().refresh()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what Rich prints for one drawing, after the erasing of wrapped rows."""
        further = 0
        if self._suspensions != SUSPENSIONS.count:
            self._suspensions = SUSPENSIONS.count
            self._live_render = LiveRender(self.get_renderable())
        elif self._reflows:
            further = self._measured.further_rows(self.console.width)
        drawn = super().process_renderables(renderables)
        return [
            Control(*((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)) * further),
            *drawn,
        ]


class _Measured:
    """What is drawn, and what its lines were when it was drawn last."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown
        self._segments: list[Segment] = []
        self._width = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._segments = list(console.render(self._shown, options))
        self._width = options.max_width
        return iter(self._segments)

    def further_rows(self, width: int) -> int:
        """Return how many more rows than lines a terminal of this width shows."""
        if width >= self._width:
            return 0
        # Rich crops longer lines.
        lengths = (
            min(Segment.get_line_length(line), self._width)
            for line in Segment.split_lines(self._segments)
        )
        return sum(max(0, length - 1) // max(1, width) for length in lengths)
