"""Rules that say which worker does a step. They know cards and manuals, and have seen no reward.

Each is called with a subtask and the kinds of the workers in the order of their pool. They were
written before any planner was trained by rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

ChooseWorker = Callable[[str, Sequence[str]], str]

LOOKUPS: Final = ("db", "db-old")
SUMS: Final = ("py", "bc")


def able_workers(subtask: str) -> tuple[str, ...]:
    """The kinds of workers that may do a subtask at all."""
    if is_query(subtask):
        return LOOKUPS
    return SUMS


def is_query(subtask: str) -> bool:
    """Whether a subtask is for a worker with tables."""
    return subtask.lower().lstrip().startswith("select")


def by_manuals(subtask: str, workers: Sequence[str]) -> str:
    """The worker that somebody chooses who has read what each of them is.

    An old copy of a table is never better than the table, and the calculator drops decimals and
    knows neither words nor dates. So neither is asked where the other one is there.
    """
    return next(kind for kind in able_workers(subtask) if kind in workers)


def by_cards(subtask: str, workers: Sequence[str]) -> str:
    """The worker with the best card for a subtask, the first of equals.

    The two tables have no figures and the two sums equal ones, so the order of the pool decides.
    """
    return next(kind for kind in workers if kind in able_workers(subtask))


RULES: Final[Mapping[str, ChooseWorker]] = {"manuals": by_manuals, "cards": by_cards}
