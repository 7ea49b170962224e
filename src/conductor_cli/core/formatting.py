"""Amounts as people read them: money, durations, sizes, counts and times. Pure.

The only formatter of each kind; every command and view uses these. Start-up of `trace list` is
measured, so nothing beyond the standard library is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    from conductor_cli.core.usage import Usage

MAX_NAMED = 4  # Names of a long list that a line has; it counts the others

UNKNOWN = "-"  # Stands in a table where a value is not known


def format_money(amount: Decimal | float) -> str:
    """Return US dollars: `$0.00`, `$0.00002`, `$0.0042`, `$1.24`.

    An amount above zero never reads as zero.
    """
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.{max(4, -math.floor(math.log10(amount)))}f}"


def format_cost(usage: Usage) -> str:
    """Return what is known of a cost, such as `$0.0042, price unknown for 1 call`.

    Empty without calls.
    """
    missing = ""
    if usage.unpriced:
        missing = f"price unknown for {format_count(usage.unpriced, 'call')}"
    if usage.cost is None:
        return missing
    if missing:
        return f"{format_money(usage.cost)}, {missing}"
    return format_money(usage.cost)


def format_cost_cell(cost: Decimal | float | None, unpriced: int = 0) -> str:
    """Return a cost for a table cell.

    `$0.0042`, `$0.0042+` when some calls had no price, `unknown` when none had one.
    """
    if cost is None:
        if unpriced:
            return "unknown"
        return UNKNOWN
    money = format_money(cost)
    if unpriced:
        return f"{money}+"
    return money


def format_duration(seconds: float, *, tenths: bool = True) -> str:
    """Return `3.2 s`, `42 s`, `2 min 5 s`, `2 h 5 min`.

    Without `tenths`, `3 s`: for clocks and estimates.
    """
    seconds = max(0.0, seconds)
    if tenths and round(seconds, 1) < 10:
        return f"{round(seconds, 1)} s"
    # A watched clock counts completed seconds; a measured time is rounded.
    whole = round(round(seconds, 1)) if tenths else int(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_size(size: int) -> str:
    """Return bytes in decimal units, as disks are sold: `264 kB`, `4.68 GB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{_three_digits(size / factor)} {unit}"
    return format_count(size, "byte")


def _three_digits(value: float) -> str:
    """Return a value of at least 1 with three digits: `4.68`, `46.8`, `468`."""
    if value < 10:
        return f"{value:.2f}"
    if value < 100:
        return f"{value:.1f}"
    return f"{value:.0f}"


def format_count(number: int, noun: str) -> str:
    """Return `1 step`, `1,302 tokens`, `2 batches`."""
    if number == 1:
        return f"1 {noun}"
    ending = "s"
    if noun.endswith(("ch", "sh", "s", "x")):
        ending = "es"
    return f"{number:,} {noun}{ending}"


def format_list(names: Sequence[str]) -> str:
    """Return `1`, `1 and 3`, `1, 2 and 3`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def format_names(names: Sequence[str]) -> str:
    """Return the first names of many and how many more there are: `a, b, c, d and 8 more`."""
    text = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        text += f" and {len(names) - MAX_NAMED:,} more"
    return text


def without_file_hash(planner: str) -> str:
    """Return the name of a planner without the hash of its file."""
    return planner.partition(" sha256")[0].partition(" (sha256")[0]


def format_time(time: str, now: datetime) -> str:
    """Return an ISO 8601 time as its age, `5 min ago`; as its date after a month.

    `-` when it is no time.
    """
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return UNKNOWN
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = (now - then).total_seconds()
    if seconds >= 30 * 86_400:
        return f"{then:%Y-%m-%d}"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "now"
