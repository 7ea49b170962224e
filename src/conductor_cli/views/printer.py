"""Lines with styles on a stream: in colours and broken for a terminal, as plain text elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conductor_cli.views import OutputContext, uses_color
from conductor_cli.views.base import Stdout
from conductor_cli.views.text_layout import WIDEST, Line, Screen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console


class Printer:
    """Prints to one stream. A write that is refused is the stream's to tell."""

    def __init__(self, stream: Stdout, around: OutputContext) -> None:
        self._stream = stream
        self._around = around
        self._console: Console | None = None

    @property
    def screen(self) -> Screen:
        """The room there is now: a terminal's size may change."""
        width = min(self._open().size.width, WIDEST) if self._stream.terminal else WIDEST
        return Screen(width=width, encoding=self._stream.encoding)

    def print(self, lines: Iterable[Line]) -> None:
        """Write the lines and a newline behind each."""
        found = list(lines)
        if self._stream.terminal:
            from conductor_cli.views.live_region import Lines

            self._open().print(Lines(lambda: found), end="", crop=False)
        else:
            self._stream.write("".join(f"{''.join(text for text, _ in line).rstrip()}\n" for line in found))
        self._stream.flush()

    def _open(self) -> Console:
        from conductor_cli.views.tree import open_console

        around = self._around
        self._console = self._console or open_console(
            self._stream, color=uses_color(around), environ=around.environ, width=around.width, height=around.height
        )
        return self._console
