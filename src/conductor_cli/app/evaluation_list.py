"""The evaluations that are kept: where they are, which is meant, and a list of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_cli.cli.output import print_json, print_line, print_table
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.evals.storage import Evaluation
from conductor_cli.models.daily_spend import DailySpend

if TYPE_CHECKING:
    from conductor_cli.config import Settings


def evaluations_directory(settings: Settings) -> Path:
    """Where evaluations are kept."""
    return settings.paths.state / "evals"


def stored_evaluations(settings: Settings) -> Iterator[Evaluation]:
    """All evaluations that can be read, the newest first."""
    for found in _directories(settings):
        with suppress(ConductorError):
            yield Evaluation(found)


def _directories(settings: Settings) -> list[Path]:
    place = evaluations_directory(settings)
    return sorted((found for found in place.iterdir() if found.is_dir()), reverse=True) if place.is_dir() else []


def find_evaluation(name: str, settings: Settings) -> Evaluation:
    """The evaluation that `name` means: `last`, an id, or the beginning of exactly one. Raises `UsageError`."""
    there = list(stored_evaluations(settings))
    matching = (
        [item for item in there if item.directory.name.startswith(name)] if name not in ("", "last") else there[:1]
    )
    exact = [item for item in matching if item.directory.name == name]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    many = f"{len(matching)} evaluations begin with {name!r}"
    raise UsageError(many if matching else f"there is no evaluation {name!r}", hint="conductor eval --list shows them")


def listed(settings: Settings, *, json: bool) -> None:
    """All evaluations that are kept, the newest first; of one that cannot be read, its name."""
    rows = [_row(found) for found in _directories(settings)]
    if json:
        print_json(rows)
    elif rows:
        print_table(("ID", "BEGUN", "SOURCE", "CASES", "SYSTEMS", "DONE"), [_cells(row) for row in rows])
    else:
        print_line("no evaluation is kept; begin one: conductor eval rehearsal")


def _row(found: Path) -> dict[str, Any]:
    """What is known of one, None for all that cannot be read."""
    names = ("time", "source", "cases", "seed", "systems", "workers", "outcomes")
    row: dict[str, Any] = {"id": found.name, **dict.fromkeys(names)}
    with suppress(ConductorError):
        one = Evaluation(found)
        spec = one.spec
        row |= {
            "time": spec.time, "source": spec.cases, "cases": spec.count, "seed": spec.seed,
            "systems": list(spec.systems), "workers": list(spec.pool.names),
        }  # fmt: skip
        row["outcomes"] = len(one.outcomes())
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    systems = None if row["systems"] is None else len(row["systems"])
    known = (row["id"], row["time"], row["source"], row["cases"], systems, row["outcomes"])
    return ["?" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in known]


def remaining_today(settings: Settings) -> Decimal | None:
    """The dollars that the limit of the day leaves, None where there is none. Raises `ConfigError`."""
    limits = settings.day_limits
    if limits.cost is None:
        return None
    book = DailySpend(settings.paths.spending, limits)
    book.check()
    return max(limits.cost - book.today().cost, Decimal(0))
