"""`conductor cost`: what was spent on which day, on whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

import typer  # noqa: TC002 - Typer reads the annotations

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table
from conductor_cli.config.settings import Settings
from conductor_cli.core.formatting import UNKNOWN, format_cost, format_count, format_money
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.state.interfaces import CONDUCTOR
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import SpentRow, local_now
from conductor_cli.system.terminal_tables import Column

_FIGURES: Final = (
    Column("CALLS", drop=1),
    Column("IN", drop=5),
    Column("OUT", drop=4),
    Column("COST", shrink=10),
    Column("FAILED", drop=2),
)
"""FAILED is the part of the calls whose replies were not used, and what they cost."""

COLUMNS: Final = {
    "worker": (Column("DAY"), Column("PROVIDER", drop=3), Column("WORKER", shrink=12), *_FIGURES),
    "key": (Column("DAY"), Column("KEY", shrink=12), *_FIGURES),
}

# Who asks without a key: the user of this machine, and clients of a server that has none
NO_KEY: Final = "(no key)"


def cost_command(
    context: typer.Context,
    days: Annotated[
        int, opt.option("--days", "Number of days, including today.", "N", min=1, max=3660)
    ] = 7,
    by: Annotated[
        Literal["worker", "key"],
        opt.option("--by", "Show it by provider and worker, or by the clients' keys."),
    ] = "worker",
    json: opt.Json = False,
) -> None:
    """Show what was spent on each day, on whom or with which key, and the limits per day.

    No model is called.
    """
    settings = opt.stored_settings(context)
    today = local_now().date()
    rows = open_state(settings.paths).read_spent(today - timedelta(days=days - 1), by)
    if json:
        who = ("provider", "worker", "model")
        data = [
            {"day": str(row.day)}
            | (
                {"key": row.key or None}
                if by == "key"
                else {name: getattr(row, name) for name in who}
            )
            | _usage_data(row.usage)
            | {
                "open": row.open,
                "failed": {name: _usage_data(row.failed)[name] for name in ("calls", "cost")},
            }
            for row in rows
        ]
        limits = dump(settings.day_limits)
        print_json(
            {"today": str(today), "limits": limits, "total": _usage_data(_sum(rows)), "rows": data}
        )
        return
    if rows:
        print_table(COLUMNS[by], list(_table_rows(rows, len(COLUMNS[by]) - len(_FIGURES))))
    else:
        print_notice(f"no calls in the last {days} days" if days > 1 else "no calls today")
    for line in _notes(settings, rows, [row for row in rows if row.day == today], by):
        print_notice(line)


def _usage_data(usage: Usage) -> dict[str, Any]:
    """Money is text, as in traces; null when nothing has a price."""
    names = ("calls", "tokens_in", "tokens_out", "cost", "unpriced")
    return {name: value for name, value in dump(usage).items() if name in names}


def _sum(rows: Iterable[SpentRow]) -> Usage:
    return sum((row.usage for row in rows), NO_USAGE)


def _table_rows(rows: Sequence[SpentRow], heads: int) -> Iterator[list[str]]:
    """The rows of each day with their sum, then the sum of all days.

    `heads` columns come before the figures.
    """
    days = tuple(dict.fromkeys(row.day for row in rows))
    for day in days:
        of_day = [row for row in rows if row.day == day]
        for row in of_day:
            worker = row.worker
            if worker == CONDUCTOR:  # a planner that is no worker of its own has no name
                name = (
                    PurePath(row.model).name.removesuffix(".gguf")
                    if row.model.endswith(".gguf")
                    else row.model
                )
                worker = f"planner: {name}" if name else "planner"
            who = [row.provider or UNKNOWN, worker] if heads == 3 else [row.key or NO_KEY]
            yield [str(day), *who, *_figures([row])]
        yield [str(day), "all", *[""] * (heads - 2), *_figures(of_day)]
    if len(days) > 1:
        yield ["all", *[""] * (heads - 1), *_figures(rows)]


def _figures(rows: Sequence[SpentRow]) -> list[str]:
    """Calls, tokens, cost, and the failed calls with what they cost.

    One that fails before its first word is free.
    """
    usage = _sum(rows)
    failed = sum((row.failed for row in rows), NO_USAGE)
    told = f"{failed.calls:,}" if failed.calls else UNKNOWN
    told += f", {format_money(failed.cost)}" if failed.cost else ""
    figures = [
        f"{usage.calls:,}",
        f"{usage.tokens_in:,}",
        f"{usage.tokens_out:,}",
        format_cost(usage) or UNKNOWN,
    ]
    return [*figures, told]


def _notes(
    settings: Settings, rows: Sequence[SpentRow], today: Sequence[SpentRow], by: str
) -> Iterator[str]:
    """Yield how much of each limit is used up today, and what counts of calls that have no end."""
    usage = _sum(today)
    limits = settings.day_limits
    if limits.cost is not None:
        yield (
            f"today: {format_money(usage.cost or 0)} of {format_money(limits.cost)} "
            "(limits.cost_day)"
        )
    if limits.tokens is not None:
        yield (
            f"today: {usage.tokens:,} of {format_count(limits.tokens, 'token')} (limits.tokens_day)"
        )
    if limits.calls is not None:
        # Calls of the conductor itself do not count.
        calls = sum(row.calls for row in today)
        yield f"today: {calls:,} of {format_count(limits.calls, 'worker call')} (limits.calls_day)"
    if calls := sum(row.open for row in rows):
        what = "1 call has" if calls == 1 else f"{calls:,} calls have"
        yield (
            f"{what} not ended, or the process was killed; counted with the most that may be "
            "charged"
        )
    if by == "key":
        from conductor_cli.server.client_keys import ClientKeys

        spent = {row.key: row.usage.cost for row in today}
        for key in ClientKeys(settings.paths.config).all():
            if key.max_cost_day is not None:
                amount = format_money(spent.get(key.name) or 0)
                yield f"today: {amount} of {format_money(key.max_cost_day)} (key {key.name})"
