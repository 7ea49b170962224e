"""Lines in the terminal's own colours, for Rich to print, and a live part below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from conductor_cli.views.text_layout import Line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

STYLES: Final[dict[str, str]] = {
    "question": "bold", "number": "dim", "worker": "bold", "plain": "", "quiet": "dim", "thinking": "dim italic",
    "waiting": "dim", "skipped": "dim", "planning": "cyan", "running": "cyan", "answering": "cyan",
    "done": "green", "retrying": "yellow", "stopped": "yellow", "note": "yellow", "rejected": "yellow", "failed": "red",
}  # fmt: skip
_STYLES: Final = {name: Style.parse(style) for name, style in STYLES.items()}


class StyledLines:
    """Lines for Rich to print: computed at each drawing, not wrapped, and without markup."""

    def __init__(self, lines: Callable[[], Iterable[Line]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines():
            yield from (Segment(text, _STYLES[style]) for text, style in line)
            yield Segment.line()


def start_live(console: Console, shown: ConsoleRenderable) -> Live:
    """Show `shown` at the bottom of the terminal until `stop`, which erases it. Drawn only by `refresh`."""
    live = Live(
        shown, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    live.start()
    return live
