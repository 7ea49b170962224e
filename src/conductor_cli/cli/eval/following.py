"""How far an evaluation is: what is counted, and its progress display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from conductor_cli.cli.progress import show_progress

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.outcomes import Outcome

Follow = Callable[["Outcome"], None]


class Count:
    """How much is done of `total` runs, what failed, and what it cost in this part of the evaluation."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total, self.failed, self.cost = done, total, 0, Decimal(0)

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.failed += outcome.verdict == "failed"
        self.cost += outcome.usage.cost or 0

    def detail(self) -> str:
        """`2 failed, $0.12`, or nothing."""
        parts = [f"{self.failed} failed" if self.failed else "", f"${self.cost:.2f}" if self.cost else ""]
        return ", ".join(filter(None, parts))


@contextmanager
def following(settings: Settings, count: Count, *, quiet: bool) -> Iterator[Follow]:
    """Show each outcome as it comes, until the block ends."""
    with show_progress(settings, quiet=quiet, unit="runs") as progress:
        progress.update("", count.done, count.total, count.detail())

        def follow(outcome: Outcome) -> None:
            count.add(outcome)
            progress.update("", count.done, count.total, count.detail())

        yield follow
