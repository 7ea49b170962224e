"""What was spent, by day, provider and worker, beside the limits of a day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from conductor_cli.config import Settings
from conductor_cli.core.pool import DayLimits
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.daily_spend import SpentRow, local_now, read_spent


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendReport:
    """What was spent on the last days up to `today`, and the limits of a day."""

    today: date
    rows: tuple[SpentRow, ...]
    limits: DayLimits

    def total(self, day: date | None = None) -> Usage:
        """The sum of one day, or of all."""
        return sum((row.usage for row in self.rows if day in (None, row.day)), NO_USAGE)

    def worker_calls_today(self) -> int:
        """The calls that `limits.calls_day` counts: calls of the conductor itself are none of them."""
        return sum(row.calls for row in self.rows if row.day == self.today)

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        rows = [
            {"day": str(row.day), "provider": row.provider, "worker": row.worker, "model": row.model}
            | _usage_data(row.usage)
            for row in self.rows
        ]
        return {
            "today": str(self.today), "limits": dump(self.limits), "total": _usage_data(self.total()), "rows": rows,
        }  # fmt: skip


def _usage_data(usage: Usage) -> dict[str, Any]:
    """Money is text, as in traces; null when nothing has a price."""
    return {
        "calls": usage.calls, "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out,
        "cost": None if usage.cost is None else str(usage.cost), "unpriced": usage.unpriced,
    }  # fmt: skip


def report_spending(settings: Settings, days: int) -> SpendReport:
    """What was spent on so many days, today being the last. Raises `ConfigError`."""
    today = local_now().date()
    rows = read_spent(settings.paths.spending, today - timedelta(days=days - 1))
    return SpendReport(today=today, rows=rows, limits=settings.day_limits)
