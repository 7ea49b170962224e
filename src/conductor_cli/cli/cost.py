"""`conductor cost`: what was spent on which day, with whom."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.formatting import format_cost, format_money

if TYPE_CHECKING:
    from datetime import date

    from conductor_cli.config import Settings
    from conductor_cli.core.usage import Usage
    from conductor_cli.models.dayfile import Spent


def cost(
    context: typer.Context,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=3660, help="How many days, today last.")] = 7,
    json: opt.Json = False,
) -> None:
    """Show what was spent: by day, provider and worker, beside the limits of a day. Calls nobody."""
    from datetime import timedelta

    from conductor_cli.cli.output import print_json, print_notice
    from conductor_cli.config import load_settings
    from conductor_cli.models.daily_spend import local_now
    from conductor_cli.models.dayfile import spent

    settings = load_settings(os.environ, {}, context.obj.config)
    today = local_now().date()
    found, damaged = spent(settings.paths.spending, today - timedelta(days=days - 1))
    if json:
        print_json(_data(found, damaged, today, settings))
        return
    if damaged:
        print_notice(f"{damaged} lines in {settings.paths.spending} cannot be read and do not count")
    _show(found, days)
    for line in _limits(found, today, settings):
        print_notice(line)


def _show(found: Sequence[Spent], days: int) -> None:
    from conductor_cli.cli.output import print_notice, print_table

    if not found:
        print_notice(f"nothing was called in {days} days" if days > 1 else "nothing was called today")
        return
    rows = [[str(row.day), row.provider or "-", row.worker, *_figures(row.usage)] for row in found]
    for day in dict.fromkeys(row.day for row in found):
        last = max(index for index, row in enumerate(rows) if row[0] == str(day))
        rows.insert(last + 1, [str(day), "all", "", *_figures(_sum(found, day))])
    if len({row.day for row in found}) > 1:
        rows.append(["all", "", "", *_figures(_sum(found))])
    print_table(("DAY", "PROVIDER", "WORKER", "CALLS", "IN", "OUT", "COST"), rows)


def _figures(usage: Usage) -> list[str]:

    return [
        f"{usage.calls:,}",
        f"{usage.tokens_in:,}",
        f"{usage.tokens_out:,}",
        format_cost(usage) or "-",
    ]


def _sum(found: Sequence[Spent], day: date | None = None) -> Usage:
    from conductor_cli.core.usage import NO_USAGE

    return sum((row.usage for row in found if day in (None, row.day)), NO_USAGE)


def _limits(found: Sequence[Spent], today: date, settings: Settings) -> list[str]:
    """How far today is from each limit of a day."""
    from decimal import Decimal

    limits, usage = settings.day_limits, _sum(found, today)
    lines = []
    if limits.cost is not None:
        lines.append(f"today: {format_money(usage.cost or Decimal(0))} of ${limits.cost:f} (limits.cost_day)")
    if limits.tokens is not None:
        lines.append(f"today: {usage.tokens:,} of {limits.tokens:,} tokens (limits.tokens_day)")
    if limits.calls is not None:
        calls = sum(row.calls for row in found if row.day == today)
        lines.append(f"today: {calls:,} of {limits.calls:,} worker calls (limits.calls_day)")
    return lines


def _data(found: Sequence[Spent], damaged: int, today: date, settings: Settings) -> dict[str, Any]:
    from conductor_cli.core.serialization import dump

    return {
        "today": str(today),
        "limits": dump(settings.day_limits),
        "total": _usage(_sum(found)),
        "rows": [
            {
                "day": str(row.day), "provider": row.provider, "worker": row.worker, "model": row.model,
                **_usage(row.usage),
            }
            for row in found
        ],
        "damaged": damaged,
    }  # fmt: skip


def _usage(usage: Usage) -> dict[str, Any]:
    """Money is text, as in traces; null where nothing has a price."""
    return {
        "calls": usage.calls, "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out,
        "cost": None if usage.cost is None else str(usage.cost), "unpriced": usage.unpriced,
    }  # fmt: skip
