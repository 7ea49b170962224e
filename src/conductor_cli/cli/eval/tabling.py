"""A summary on standard output: a table that fits the terminal, blocks on a narrow one, all columns in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from conductor_cli.cli.output import print_line, print_table, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from conductor_cli.evals.summary import Summary
    from conductor_cli.evals.table import Heading, Laid


def show(heading: Heading, summary: Summary, color: Any) -> None:  # noqa: ANN401 - views.ColorName; views are loaded late
    """The table, accuracy by tag, and what must be known to read them."""
    from conductor_cli.evals.table import STACKED, by_tag, lay_out, notes

    console = _console(color) if sys.stdout.isatty() else None
    width = console.width if console is not None else None
    tags = by_tag(summary, width)
    if width is not None and width < STACKED:
        _blocks(summary)
    else:
        best = max((row.score.value or 0.0 for row in summary.rows), default=0.0)
        _draw(lay_out(summary, width), console, [row.score.value == best for row in summary.rows])
        if tags is not None and len(tags.heads) > 1:
            print_line()
            _draw(tags, console, [False] * len(tags.rows))
    print_line()
    for note in notes(heading, summary):
        print_text(note)


def _console(color: Any) -> Console:  # noqa: ANN401 - views.ColorName
    from conductor_cli.views import OutputContext, uses_color
    from conductor_cli.views.base import Stderr
    from conductor_cli.views.tree import open_console

    around = OutputContext(stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=color)
    # Nobody has to read a table to its end: a write that a closing terminal refuses is dropped.
    return open_console(Stderr(sys.stdout), color=uses_color(around), environ=os.environ)


def _blocks(summary: Summary) -> None:
    from conductor_cli.evals.table import stacked

    for index, (name, figures) in enumerate(stacked(summary)):
        print_line("\n" * (index > 0) + name)
        for label, text in figures:
            print_line(f"  {label}: {text}")


def _draw(laid: Laid, console: Console | None, best: Sequence[bool]) -> None:
    if console is None:
        print_table(laid.heads, laid.rows)
        return
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    for index, head in enumerate(laid.heads):
        drawn.add_column(Text(head), justify="right" if index else "left", no_wrap=True)
    for row, is_best in zip(laid.rows, best, strict=True):
        drawn.add_row(*(Text(cell) for cell in row), style="bold" if is_best else None)
    console.print(drawn)
