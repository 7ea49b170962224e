"""The report's table, the notes under it, and its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from conductor_cli.core.terminal_text import render_rows
from conductor_cli.evals.outcomes import EvaluationSpec
from conductor_cli.evals.report import ReportTable, report_json, report_notes, system_table, tag_table
from conductor_cli.evals.summary import Summary, summarize
from tests.evals.sample_outcomes import outcomes

SYSTEMS = ("alone:one", "alone:two", "conductor")
SPEC = EvaluationSpec(
    source="made.jsonl",
    hash="ab" * 32,
    cases=4,
    seed=1,
    systems=SYSTEMS,
    workers=("one", "two"),
    identity={},
)
ESSENTIAL = {"SYSTEM", "RIGHT", "95 %", "TOKENS", "CALLS"}


def summary(cost: str | None = "0.0123") -> Summary:
    """Two workers and a conductor that wrote plans, one of which failed."""
    auto = [
        replace(item, planned=True, valid=item.case != "2", tags=("letters",), seconds=1.5)
        for item in outcomes("conductor", "++-!", tokens=120, calls=3, cost=cost)
    ]
    made = [*outcomes("alone:one", "+---", cost=cost), *outcomes("alone:two", "++--", cost=cost), *auto]
    return summarize(made, SYSTEMS)


def heads(table: ReportTable, width: int) -> set[str]:
    head = render_rows(table.columns, table.rows, width).head
    return {column.head for column in table.columns if f" {column.head} " in f" {' '.join(head)} "}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_drops_columns_to_fit_the_screen(width: int) -> None:
    """The least important columns are dropped first, the essential ones never."""
    table = system_table(summary())
    lines = render_rows(table.columns, table.rows, width)
    assert all(len(line) <= width for line in (*lines.head, *(line for row in lines.rows for line in row)))
    assert heads(table, width) >= (ESSENTIAL if width >= 80 else {"SYSTEM", "RIGHT", "FAILED"})


def test_a_wider_screen_has_every_column_of_a_narrower_one() -> None:
    """A column that was shown stays when the screen gets wider."""
    table = system_table(summary())
    shown = [heads(table, width) for width in range(60, 240, 12)]
    assert all(narrow <= wide for narrow, wide in pairwise(shown))
    assert shown[-1] == {column.head for column in table.columns}


def test_the_table_has_every_figure() -> None:
    """Without a width nothing is left out."""
    table = system_table(summary())
    auto = dict(zip((column.head for column in table.columns), table.rows[2], strict=True))
    assert re.fullmatch(r"-\d+\.\d to \+\d+\.\d", auto.pop("95 % OF IT"))
    assert auto == {
        "SYSTEM": "conductor", "RIGHT": "66.7", "95 %": "20.8-93.9", "FAILED": "1", "VALID": "66.7",
        "VS BEST": "+0.0", "P": "1.000",
        "TOKENS": "120", "CONDUCTOR": "0.0", "CALLS": "3.0", "COST": "$0.0123", "SECONDS": "1.5",
    }  # fmt: skip


def test_columns_without_any_figure_are_left_out() -> None:
    """Without plans, failures or a single worker there are no empty columns."""
    columns = {column.head for column in system_table(summarize(outcomes("moa", "+-"), systems=["moa"])).columns}
    assert not {"FAILED", "VALID", "CONDUCTOR", "VS BEST"} & columns


def test_a_long_or_unsafe_name_is_cropped_and_sanitized() -> None:
    """A worker's name comes from a file and may contain anything."""
    name = "alone:\x1b[31m" + "n" * 60
    table = system_table(summarize(outcomes(name, "+-"), systems=[name]))
    (line,) = render_rows(table.columns, table.rows, 80).rows[0]
    assert len(line) <= 80
    assert "\x1b" not in line
    assert "n…" in line


def test_the_table_of_tags_has_a_column_for_each_tag() -> None:
    """A system without a case of that tag has a dash; without tags there is no table."""
    table = tag_table(summary())
    assert table is not None
    assert [column.head for column in table.columns] == ["SYSTEM", "letters"]
    assert table.rows == [["alone:one", "-"], ["alone:two", "-"], ["conductor", "66.7"]]
    assert tag_table(summarize(outcomes("moa", "+"), systems=["moa"])) is None


def test_the_notes_say_which_best_worker_is_meant() -> None:
    """They name it, and count failed cases."""
    notes = "\n".join(report_notes(replace(SPEC, notes=("left out: conductor-mini",)), summary(), ["VS BEST"]))
    assert "4 cases of made.jsonl, seed 1" in notes
    assert "VS BEST: points above alone:two (50.0), the single worker that did best on these cases" in notes
    assert "P: how likely" not in notes
    assert "failed cases, which are in no share: conductor 1" in notes
    assert notes.endswith("left out: conductor-mini")


def test_a_note_explains_only_columns_that_are_shown() -> None:
    """A narrow table without the comparison has no footnote about it."""
    assert not any("VS BEST" in note for note in report_notes(SPEC, summary(), ["SYSTEM", "RIGHT"]))
    (note,) = [note for note in report_notes(SPEC, summary(), ["VS BEST", "P"]) if "VS BEST" in note]
    assert "P: how likely chance alone makes such a difference" in note
    assert "interval" not in note


def test_the_json_has_numbers_money_as_text_and_nulls() -> None:
    """Numbers as numbers, money as text, unknown values as null."""
    data = json.loads(json.dumps(report_json("e1", SPEC, summary())))
    auto = data["systems"][2]
    assert (data["id"], data["cases"], data["seed"], data["workers"]) == ("e1", 4, 1, ["one", "two"])
    assert data["best_worker"] == "alone:two"
    assert data["verdict"].startswith(
        "alone:two, the best single worker on these cases, did best: 2 of 4 cases right; "
    )
    assert data["verdict"].endswith("3 cases cannot tell these apart.")
    assert data["cases_needed"] is None
    assert (auto["name"], auto["accuracy"], auto["n"], auto["failed"]) == ("conductor", 2 / 3, 3, 1)
    assert (auto["tokens"], auto["calls"], auto["cost"], auto["unpriced"]) == (120, 3, "0.0123", 0)
    assert auto["valid_plans"]["accuracy"] == 2 / 3
    assert [auto["total"][key] for key in ("tokens_in", "calls", "unpriced", "cost")] == [240, 12, 0, "0.0492"]
    assert auto["versus_best"]["other"] == "alone:two"
    assert auto["tags"] == {"letters": {key: auto[key] for key in ("accuracy", "interval", "right", "n", "cases")}}
    assert data["systems"][0]["valid_plans"] is None
    unknown = report_json("e1", SPEC, summary(None))["systems"][0]
    assert (unknown["cost"], unknown["unpriced"], unknown["total"]["cost"]) == (None, 4, None)
