"""How far an evaluation is, on standard error: a bar on a terminal that can redraw, else a line every few seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.core.formatting import format_duration

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.outcomes import Outcome

PERIOD: Final = 10.0
"""Seconds between two plain lines."""

Follow = Callable[["Outcome"], None]


class Count:
    """How much is done of `total` runs, what failed, and what it cost in this part of the evaluation."""

    def __init__(self, done: int, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.done, self.total, self.failed, self.cost = done, total, 0, Decimal(0)
        self._first, self._clock, self._began = done, clock, clock()

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.failed += outcome.verdict == "failed"
        self.cost += outcome.usage.cost or 0

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None before anything is known of it."""
        new = self.done - self._first
        return (self._clock() - self._began) / new * (self.total - self.done) if new else None

    def said(self) -> str:
        """`1,204 of 8,000 runs, 2 failed, $0.12, 5 min left`."""
        parts = [f"{self.done:,} of {self.total:,} runs", *self._more()]
        return ", ".join([*parts, *([] if self.left is None else [f"{format_duration(self.left, tenths=False)} left"])])

    def _more(self) -> list[str]:
        failed = [f"{self.failed} failed"] if self.failed else []
        return [*failed, *([f"${self.cost:.2f}"] if self.cost else [])]

    def more(self) -> str:
        return ", ".join(self._more())


@contextmanager
def following(settings: Settings, count: Count, *, quiet: bool) -> Iterator[Follow]:
    """Show each outcome as it comes, until the block ends."""
    from conductor_cli.views import Surroundings, choose_progress

    around = Surroundings(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=settings["output.color"], quiet=quiet
    )
    terminal = sys.stderr.isatty()
    asked = settings["output.progress"]
    # An evaluation may take hours; in a file or a pipe, too, somebody wants to know how far it is.
    name = "plain" if asked == "auto" and not terminal and not quiet else choose_progress("answer", asked, around)
    if name == "tree" and terminal:
        with _bar(around, count) as follow:
            yield follow
    else:
        yield _lines(count) if name != "none" else count.add


def _lines(count: Count) -> Follow:
    last = time.monotonic()

    def follow(outcome: Outcome) -> None:
        nonlocal last
        count.add(outcome)
        if count.done == count.total or time.monotonic() - last >= PERIOD:
            last = time.monotonic()
            print_notice(count.said())

    return follow


@contextmanager
def _bar(around: Any, count: Count) -> Iterator[Follow]:  # noqa: ANN401 - views.Surroundings; views are loaded late
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from conductor_cli.views import colored
    from conductor_cli.views.port import Stderr
    from conductor_cli.views.tree import open_console

    console = open_console(Stderr(sys.stderr), color=colored(around), environ=around.environ)
    wide = (BarColumn(),) if console.width >= 60 else ()
    more = TextColumn("{task.fields[more]}", markup=False)
    with Progress(
        *wide, MofNCompleteColumn(), more, TimeRemainingColumn(compact=True), console=console, transient=True
    ) as bar:
        task = bar.add_task("", total=count.total, completed=count.done, more="runs")

        def follow(outcome: Outcome) -> None:
            count.add(outcome)
            bar.update(task, completed=count.done, more=count.more() or "runs")

        yield follow
