"""The table at every width, the lines under it, and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from conductor_cli.evals.summary import Summary, summarize
from conductor_cli.evals.table import GAP, Heading, Laid, by_tag, dollars, figures, lay_out, notes, stacked
from tests.evals.made import outcomes

HEADING = Heading(id="e1", source="made.jsonl", hash="ab" * 32, cases=4, seed=1, workers=("one", "two"))
ESSENTIAL = {"SYSTEM", "RIGHT", "95 %", "TOKENS", "CALLS"}


def summary(cost: str | None = "0.0123") -> Summary:
    """Two workers and a conductor that wrote plans, of which one failed."""
    auto = [
        replace(item, planned=True, valid=item.case != "2", tags=("letters",), seconds=1.5)
        for item in outcomes("conductor:auto", "++-!", tokens=120, calls=3, cost=cost)
    ]
    made = [*outcomes("alone:one", "+---", cost=cost), *outcomes("alone:two", "++--", cost=cost), *auto]
    systems = ["alone:one", "alone:two", "conductor:auto"]
    return summarize(made, systems=systems, fixed=systems[:2], singles=systems[:2], by_card="alone:one")


def total(laid: Laid) -> int:
    """How wide the table is when it is printed."""
    return sum(max(map(len, column)) + GAP for column in zip(laid.heads, *laid.rows, strict=True)) - GAP


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_table_is_no_wider_than_the_screen(width: int) -> None:
    """Columns give way, the least important first; the essential ones never do."""
    laid = lay_out(summary(), width)
    assert total(laid) <= width
    assert set(laid.heads) >= (ESSENTIAL if width >= 80 else {"SYSTEM", "RIGHT", "FAILED"})
    assert all(len(row) == len(laid.heads) for row in laid.rows)


def test_a_wider_screen_has_all_that_a_narrower_one_has() -> None:
    """Widening never takes a column away."""
    kept = [set(lay_out(summary(), width).heads) for width in range(60, 240, 4)]
    assert all(narrow <= wide for narrow, wide in pairwise(kept))
    assert kept[-1] == set(lay_out(summary()).heads)


def test_the_whole_table_tells_every_figure() -> None:
    """In a pipe nothing is left out."""
    laid = lay_out(summary())
    auto = dict(zip(laid.heads, laid.rows[2], strict=True))
    assert auto == {
        "SYSTEM": "conductor:auto", "RIGHT": "66.7", "95 %": "20.8-93.9", "FAILED": "1", "VALID": "66.7",
        "IF VALID": "50.0", "TOKENS": "120", "IN": "60.0", "OUT": "60.0", "OWN": "0.0", "CALLS": "3.0",
        "COST": "$0.0123", "SECONDS": "1.5", "P95": "1.5", "GAIN": auto["GAIN"],
        "VS CARD": auto["VS CARD"], "VS BEST": auto["VS BEST"],
    }  # fmt: skip
    assert auto["GAIN"] == "+0.0", "the case that failed is left out for the others too"
    assert auto["VS CARD"].startswith("+33.3 (")
    assert auto["VS BEST"].startswith("+0.0 (")


def test_figures_that_no_system_has_have_no_column() -> None:
    """Without plans, failures or a card there are no empty columns."""
    made = summarize(outcomes("moa", "+-"), systems=["moa"])
    assert not {"FAILED", "VALID", "OWN", "VS CARD", "VS BEST", "GAIN"} & set(lay_out(made).heads)


def test_a_narrow_screen_gets_a_block_for_each_system() -> None:
    """Every figure with its name, none wider than 40 columns but the comparisons."""
    blocks = dict(stacked(summary()))
    assert list(blocks) == ["alone:one", "alone:two", "conductor:auto"]
    assert dict(blocks["alone:two"])["right, %"] == "50.0"


def test_a_long_or_unsafe_name_is_cropped_and_made_safe() -> None:
    """A worker's name comes from a file and may be anything."""
    name = "alone:\x1b[31m" + "n" * 60
    laid = lay_out(summarize(outcomes(name, "+-"), systems=[name]), 80)
    assert total(laid) <= 80
    assert "\x1b" not in laid.rows[0][0]
    assert laid.rows[0][0].endswith("..")


def test_accuracy_by_tag_has_a_column_for_each_tag() -> None:
    """A system without a case of that tag has a dash; tags that do not fit are left out; no tags, no table."""
    laid = by_tag(summary())
    assert laid == Laid(("SYSTEM", "letters"), (("alone:one", "-"), ("alone:two", "-"), ("conductor:auto", "66.7")))
    narrow = by_tag(summary(), 20)
    assert narrow is not None
    assert narrow.heads == ("SYSTEM",)
    assert by_tag(summarize(outcomes("moa", "+"), systems=["moa"])) is None


def test_the_notes_say_which_best_worker_is_meant() -> None:
    """By card and in hindsight are told apart, equal cost says in what, and what failed is named."""
    said = "\n".join(notes(replace(HEADING, remarks=("conductor: no model is chosen",)), summary()))
    assert "4 cases of made.jsonl, seed 1" in said
    assert "VS CARD: points above alone:one (25.0), the best worker by its card" in said
    assert "VS BEST: points above alone:two (50.0), the worker that was best on these very cases" in said
    assert "at as many dollars" in said
    assert "failed, in no share: conductor:auto 1" in said
    assert said.endswith("conductor: no model is chosen")
    assert "at as many tokens" in "\n".join(notes(HEADING, summary(None)))


def test_the_json_has_what_a_script_needs() -> None:
    """Numbers as numbers, money as text, what is not known as null."""
    data = json.loads(json.dumps(figures(HEADING, summary())))
    auto = data["systems"][2]
    assert (data["cases"], data["seed"], data["equal_cost_in"]) == (4, 1, "usd")
    assert data["best_worker"] == {"by_card": "alone:one", "in_hindsight": "alone:two"}
    assert (auto["name"], auto["accuracy"], auto["n"], auto["failed"]) == ("conductor:auto", 2 / 3, 3, 1)
    assert (auto["tokens"], auto["calls"], auto["cost"], auto["unpriced"]) == (120, 3, "0.0123", 0)
    assert auto["plans"]["rate"] == 2 / 3
    assert auto["total"] == {"tokens": 480, "calls": 12, "unpriced": 0, "cost": "0.0492"}
    assert auto["versus_card"]["system"] == "alone:one"
    assert auto["tags"] == {"letters": {key: auto[key] for key in ("accuracy", "interval", "right", "n")}}
    assert data["systems"][0]["plans"] is None
    assert (data["systems"][0]["at_equal_cost"], data["systems"][0]["gain"]) == (0.5, -0.25)
    unknown = figures(HEADING, summary(None))["systems"][0]
    assert (unknown["cost"], unknown["unpriced"], unknown["total"]["cost"]) == (None, 4, None)


@pytest.mark.parametrize(
    ("cost", "unpriced", "said"),
    [(None, 3, "unknown"), (None, 0, "-"), ("0", 0, "$0"), ("0.00000123", 0, "$0.000001"), ("0.0123", 0, "$0.0123"),
     ("12.345", 0, "$12.35"), ("0.5", 2, "$0.5000+?")],
)  # fmt: skip
def test_money_is_never_nothing_where_it_is_not_known(cost: str | None, unpriced: int, said: str) -> None:
    """A price of nothing is $0, no price is unknown, some without a price are a question mark."""
    from decimal import Decimal

    shown = dollars(None if cost is None else Decimal(cost), unpriced)
    assert shown == said or (cost == "12.345" and shown in {"$12.34", "$12.35"})
