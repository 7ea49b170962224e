"""Amounts as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from conductor_cli.core.formatting import (
    format_cost,
    format_cost_cell,
    format_count,
    format_duration,
    format_list,
    format_money,
    format_size,
    format_time,
)
from conductor_cli.core.usage import Usage

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("0", "$0.00"),
        ("0.00421", "$0.0042"),
        ("0.000018", "$0.00002"),
        ("1.239", "$1.24"),
        ("12345.5", "$12,345.50"),
    ],
)
def test_small_amounts_do_not_read_as_zero(amount: str, expected: str) -> None:
    assert (format_money(Decimal(amount)), format_money(float(amount))) == (expected, expected)


@pytest.mark.parametrize(
    ("cost", "unpriced", "expected", "cell"),
    [
        (None, 0, "", "-"),
        (None, 2, "price unknown for 2 calls", "unknown"),
        ("0.1", 1, "$0.1000, price unknown for 1 call", "$0.1000+"),
        ("0", 0, "$0.00", "$0.00"),
    ],
)
def test_a_cost_says_how_many_calls_have_no_price(
    cost: str | None, unpriced: int, expected: str, cell: str
) -> None:
    amount = None if cost is None else Decimal(cost)
    usage = Usage(cost=amount, calls=2, unpriced=unpriced)
    assert (format_cost(usage), format_cost_cell(amount, unpriced)) == (expected, cell)


@pytest.mark.parametrize(
    ("seconds", "expected", "clock"),
    [
        (-1.0, "0.0 s", "0 s"),
        (3.24, "3.2 s", "3 s"),
        (9.96, "10 s", "9 s"),
        (41.6, "42 s", "41 s"),
        (119.9, "2 min 0 s", "119 s"),
        (125.0, "2 min 5 s", "2 min 5 s"),
        (7500.0, "2 h 5 min", "2 h 5 min"),
    ],
)
def test_a_duration_is_rounded_and_a_clock_counts_completed_seconds(
    seconds: float, expected: str, clock: str
) -> None:
    assert (format_duration(seconds), format_duration(seconds, tenths=False)) == (expected, clock)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (264_000, "264 kB"),
        (1_500_000, "1.50 MB"),
        (4_680_000_000, "4.68 GB"),
    ],
)
def test_sizes_are_written_in_decimal_units(size: int, expected: str) -> None:
    assert format_size(size) == expected


def test_counts_and_lists_are_written_out() -> None:
    assert [format_count(1, "step"), format_count(1302, "token")] == [
        "1 step",
        "1,302 tokens",
    ]
    assert [format_list(names) for names in ([], ["1"], ["1", "3"], ["1", "2", "3"])] == [
        "",
        "1",
        "1 and 3",
        "1, 2 and 3",
    ]


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (0, "now"),
        (59, "now"),
        (-60, "now"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (86400 * 29, "29 d ago"),
        (86400 * 40, "2026-10-13"),
    ],
)
def test_a_time_is_shown_as_its_age(ago: int, expected: str) -> None:
    assert format_time((NOW - timedelta(seconds=ago)).isoformat(), NOW) == expected


def test_a_time_that_cannot_be_parsed_is_a_dash() -> None:
    assert format_time("yesterday", NOW) == "-"
