"""Where output goes: the streams, whether they take colours, and consoles and printers for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO, cast

from conductor_cli.views.base import Clock, Stdout

if TYPE_CHECKING:
    from typing import IO

    from rich.console import Console

    from conductor_cli.views.text_layout import Line, Screen

ColorName = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContext:
    """Where a run is shown, and how.

    `asked`: the question stands on the terminal already, and a log does not repeat it. `stored`: its trace is on disk,
    so the run can be resumed; `trace_path` is where, by the run's id. `markdown`: answers are rendered where the
    terminal shows colours. `width` and `height` override the terminal's size in tests.
    """

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    color: ColorName = "auto"
    quiet: bool = False
    asked: bool = False
    stored: bool = True
    trace_path: Callable[[str], str] | None = None
    markdown: bool = True
    clock: Clock = time.monotonic
    width: int | None = None
    height: int | None = None

    def open_console(self, stream: Stdout) -> Console:
        """A Rich console that writes to one of the streams and reads nothing from this process's environment."""
        from rich.console import Console  # loading Rich takes longer than many commands do

        color = uses_color(self)
        # `_environ` keeps Rich from reading COLUMNS, NO_COLOR and the like, which `uses_color` has already decided.
        return Console(
            file=cast("IO[str]", stream), force_terminal=stream.terminal, _environ=self.environ, width=self.width,
            height=self.height, color_system={True: "standard", False: None, None: "auto"}[color],
            no_color=color is False, markup=False, highlight=False, emoji=False, soft_wrap=False,
        )  # fmt: skip


def uses_color(context: OutputContext) -> bool | None:
    """Whether to use colours; None lets the terminal decide. The setting wins over the environment."""
    if context.color != "auto":
        return context.color == "always"
    if context.environ.get("NO_COLOR"):
        return False
    return True if _is_set(context.environ, "CLICOLOR_FORCE") or _is_set(context.environ, "FORCE_COLOR") else None


def cannot_redraw(environ: Mapping[str, str]) -> bool:
    """Whether nothing may be redrawn: the terminal cannot, or a screen reader would read it out every time."""
    return environ.get("TERM") == "dumb" or _is_set(environ, "ACCESSIBLE")


def page_screen(width: int, encoding: str, environ: Mapping[str, str]) -> Screen:
    """A screen for a page of text on a terminal of this width; 0 for a file or a pipe."""
    from conductor_cli.views.text_layout import WIDEST, Screen  # loads a part of Rich

    return Screen(width=width or WIDEST, encoding=encoding, words=cannot_redraw(environ))


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal wraps the lines that it shows when it becomes narrower; the oldest ones cut them off."""
    return environ.get("TERM") != "linux" and not any(environ.get(name) for name in ("XTERM_VERSION", "STY"))


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "") not in ("", "0")


class Printer:
    """Prints styled lines to one stream: with colours on a terminal, as plain text elsewhere."""

    def __init__(self, stream: Stdout, context: OutputContext) -> None:
        self._stream = stream
        self._context = context
        self._console: Console | None = None

    @property
    def screen(self) -> Screen:
        """The room there is now; a terminal's size may change."""
        from conductor_cli.views.text_layout import WIDEST, Screen  # loads a part of Rich

        width = min(self._open().size.width, WIDEST) if self._stream.terminal else WIDEST
        return Screen(width=width, encoding=self._stream.encoding)

    def print(self, lines: Iterable[Line]) -> None:
        """Write the lines. Errors of the stream are raised."""
        shown = list(lines)
        if self._stream.terminal:
            from conductor_cli.views.styled_lines import StyledLines

            self._open().print(StyledLines(lambda: shown), end="", crop=False)
        else:
            self._stream.write("".join(f"{''.join(text for text, _ in line).rstrip()}\n" for line in shown))
        self._stream.flush()

    def _open(self) -> Console:
        self._console = self._console or self._context.open_console(self._stream)
        return self._console
