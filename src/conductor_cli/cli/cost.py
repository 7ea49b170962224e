"""`conductor cost`: what was spent on which day, on whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from conductor_cli.app.cost import SpendReport, report_spending
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table
from conductor_cli.core.formatting import UNKNOWN, format_cost, format_count, format_money
from conductor_cli.core.usage import Usage


def cost(
    context: typer.Context,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=3660, help="Number of days, including today.")
    ] = 7,
    json: opt.Json = False,
) -> None:
    """Show what was spent by day, provider and worker, and the limits per day. No model is called."""
    report = report_spending(opt.stored_settings(context), days)
    if json:
        print_json(report.data())
        return
    if report.rows:
        print_table(("DAY", "PROVIDER", "WORKER", "CALLS", "IN", "OUT", "COST"), list(_table_rows(report)))
    else:
        print_notice(f"no calls in the last {days} days" if days > 1 else "no calls today")
    for line in _limit_lines(report):
        print_notice(line)


def _table_rows(report: SpendReport) -> Iterator[list[str]]:
    """The rows of each day with their sum, then the sum of all days."""
    days = tuple(dict.fromkeys(row.day for row in report.rows))
    for day in days:
        for row in report.rows:
            if row.day == day:
                yield [str(day), row.provider or UNKNOWN, row.worker, *_figures(row.usage)]
        yield [str(day), "all", "", *_figures(report.total(day))]
    if len(days) > 1:
        yield ["all", "", "", *_figures(report.total())]


def _figures(usage: Usage) -> list[str]:
    return [f"{usage.calls:,}", f"{usage.tokens_in:,}", f"{usage.tokens_out:,}", format_cost(usage) or UNKNOWN]


def _limit_lines(report: SpendReport) -> Iterator[str]:
    """How much of each limit is used up today."""
    limits, usage = report.limits, report.total(report.today)
    if limits.cost is not None:
        yield f"today: {format_money(usage.cost or 0)} of ${limits.cost:f} (limits.cost_day)"
    if limits.tokens is not None:
        yield f"today: {usage.tokens:,} of {format_count(limits.tokens, 'token')} (limits.tokens_day)"
    if limits.calls is not None:
        calls = report.worker_calls_today()
        yield f"today: {calls:,} of {format_count(limits.calls, 'worker call')} (limits.calls_day)"
