"""`conductor cost`: what was spent on which day, on whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

import typer  # noqa: TC002 - Typer reads the annotations

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table
from conductor_cli.config.settings import Settings
from conductor_cli.core.formatting import UNKNOWN, format_cost, format_count, format_money
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import NO_USAGE, Usage, total_usage
from conductor_cli.state.interfaces import CONDUCTOR
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import local_now
from conductor_cli.state.spending_file import SpentRow
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
        print_json(
            {
                "today": str(today),
                "limits": dump(settings.day_limits),
                "total": _usage_json(total_usage(rows)),
                "rows": [_row_json(row, by) for row in rows],
            }
        )
        return
    if rows:
        print_table(COLUMNS[by], list(_table_rows(rows, by)))
    elif days > 1:
        print_notice(f"no calls in the last {days} days")
    else:
        print_notice("no calls today")
    for line in _notes(settings, rows, [row for row in rows if row.day == today], by):
        print_notice(line)


def _row_json(row: SpentRow, by: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"day": str(row.day)}
    if by == "key":
        fields["key"] = row.key or None
    else:
        fields |= {"provider": row.provider, "worker": row.worker, "model": row.model}
    fields |= _usage_json(row.usage)
    fields["open"] = row.open
    failed = _usage_json(row.failed)
    fields["failed"] = {"calls": failed["calls"], "cost": failed["cost"]}
    return fields


def _usage_json(usage: Usage) -> dict[str, Any]:
    """Return the figures of a usage: money as text, as in traces; null when nothing has a price."""
    names = ("calls", "tokens_in", "tokens_out", "cost", "unpriced")
    return {name: value for name, value in dump(usage).items() if name in names}


def _table_rows(rows: Sequence[SpentRow], by: str) -> Iterator[list[str]]:
    """Yield the rows of each day with their sum, then the sum of all days."""
    empty_cells = [""] * (len(COLUMNS[by]) - len(_FIGURES) - 2)
    days = tuple(dict.fromkeys(row.day for row in rows))
    for day in days:
        rows_of_day = [row for row in rows if row.day == day]
        for row in rows_of_day:
            who = [row.provider or UNKNOWN, _worker_name(row)]
            if by == "key":
                who = [row.key or NO_KEY]
            yield [str(day), *who, *_figures([row])]
        yield [str(day), "all", *empty_cells, *_figures(rows_of_day)]
    if len(days) > 1:
        yield ["all", "", *empty_cells, *_figures(rows)]


def _worker_name(row: SpentRow) -> str:
    if row.worker != CONDUCTOR:
        return row.worker
    # A planner that is no worker of its own has no name.
    if not row.model:
        return "planner"
    model = row.model
    if model.endswith(".gguf"):
        model = PurePath(model).name.removesuffix(".gguf")
    return f"planner: {model}"


def _figures(rows: Sequence[SpentRow]) -> list[str]:
    """Return calls, tokens, cost, and the failed calls with what they cost.

    One that fails before its first word is free.
    """
    usage = total_usage(rows)
    failed = sum((row.failed for row in rows), NO_USAGE)
    failures = UNKNOWN
    if failed.calls:
        failures = f"{failed.calls:,}"
    if failed.cost:
        failures += f", {format_money(failed.cost)}"
    return [
        f"{usage.calls:,}",
        f"{usage.tokens_in:,}",
        f"{usage.tokens_out:,}",
        format_cost(usage) or UNKNOWN,
        failures,
    ]


def _notes(
    settings: Settings, rows: Sequence[SpentRow], today: Sequence[SpentRow], by: str
) -> Iterator[str]:
    """Yield how much of each limit is used up today, and what counts of calls that have no end."""
    usage = total_usage(today)
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
    open_calls = sum(row.open for row in rows)
    if open_calls:
        subject = "1 call has"
        if open_calls != 1:
            subject = f"{open_calls:,} calls have"
        yield (
            f"{subject} not ended, or the process was killed; counted with the most that may be "
            "charged"
        )
    if by == "key":
        from conductor_cli.server.client_keys import ClientKeys

        spent = {row.key: row.usage.cost for row in today}
        for key in ClientKeys(settings.paths.config).all():
            if key.max_cost_day is not None:
                amount = format_money(spent.get(key.name) or 0)
                yield f"today: {amount} of {format_money(key.max_cost_day)} (key {key.name})"
