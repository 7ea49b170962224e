"""The report: its table, the notes under it, its JSON, and its verdict in one sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import chain

import pytest

from conductor_cli.evals.outcomes import EvaluationSpec
from conductor_cli.evals.report import (
    SOURCES,
    EvaluationVerdict,
    corrected_p_values,
    reach_verdict,
    report_json,
    report_notes,
    system_table,
    tag_table,
)
from conductor_cli.evals.summary import Summary, summarize
from conductor_cli.evals.systems import NAMES
from conductor_cli.system.terminal_tables import render_rows
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


def summary(cost: str | None = "0.0123") -> Summary:
    """Two workers and a conductor that wrote plans, one of which failed."""
    auto = [
        replace(item, planned=True, valid=item.case != "2", tags=("letters",), seconds=1.5)
        for item in outcomes("conductor", "++-!", tokens=120, calls=3, cost=cost)
    ]
    made = [
        *outcomes("alone:one", "+---", cost=cost),
        *outcomes("alone:two", "++--", cost=cost),
        *auto,
    ]
    return summarize(made, SYSTEMS)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_drops_columns_to_fit_the_screen(width: int) -> None:
    table = system_table(summary())
    lines = render_rows(table.columns, table.rows, width)
    assert all(len(line) <= width for line in chain(lines.head, *lines.rows))
    heads = {
        column.head for column in table.columns if f" {column.head} " in f" {' '.join(lines.head)} "
    }
    assert heads >= {
        "SYSTEM",
        "RIGHT",
        *({"95 %", "TOKENS", "CALLS"} if width >= 80 else {"FAILED"}),
    }


def test_the_table_has_every_figure() -> None:
    table = system_table(summary())
    auto = dict(zip((column.head for column in table.columns), table.rows[2], strict=True))
    assert re.fullmatch(r"-\d+\.\d to \+\d+\.\d", auto.pop("95 % OF IT"))
    assert auto == {
        "SYSTEM": "conductor",
        "RIGHT": "66.7",
        "95 %": "20.8-93.9",
        "FAILED": "1",
        "VALID": "66.7",
        "VS BEST": "+33.3",
        "P": "1.000",
        "TOKENS": "120",
        "PLANNER": "0.0",
        "CALLS": "3.0",
        "COST": "$0.0123",
        "SECONDS": "1.5",
    }


def test_a_long_or_unsafe_name_is_cropped_and_sanitized() -> None:
    name = "alone:\x1b[31m" + "n" * 60
    table = system_table(summarize(outcomes(name, "+-"), systems=[name]))
    (line,) = render_rows(table.columns, table.rows, 80).rows[0]
    assert len(line) <= 80
    assert "\x1b" not in line
    assert "n…" in line
    assert not {"FAILED", "VALID", "PLANNER"} & {column.head for column in table.columns}, (
        "they say nothing"
    )
    hostile = summarize(
        [*outcomes(f"{name}\n", "+"), *outcomes("moa", "-")], systems=[f"{name}\n", "moa"]
    )
    assert reach_verdict(hostile).text.isprintable()


def test_the_table_of_tags_has_a_column_for_each_tag() -> None:
    table = tag_table(summary())
    assert table is not None
    assert [column.head for column in table.columns] == ["SYSTEM", "letters"]
    assert table.rows == [["alone:one", "-"], ["alone:two", "-"], ["conductor", "66.7"]]
    assert tag_table(summarize(outcomes("moa", "+"), systems=["moa"])) is None


def test_the_notes_say_which_best_worker_is_meant() -> None:
    notes = "\n".join(
        report_notes(replace(SPEC, notes=("left out: conductor-mini",)), summary(), ["VS BEST"])
    )
    assert "4 cases of made.jsonl, seed 1" in notes
    assert (
        "VS BEST: points above the single worker that did best on the other half of the cases "
        "(25.0); on all of them alone:two did best (50.0)" in notes
    )
    assert "P: how likely" not in notes
    assert "interval" not in notes
    assert "failed cases, which are in no share: conductor 1" in notes
    assert notes.endswith("left out: conductor-mini")


def test_the_json_has_numbers_money_as_text_and_nulls() -> None:
    fields = json.loads(json.dumps(report_json("e1", SPEC, summary())))
    auto = fields["systems"][2]
    assert (fields["id"], fields["cases"], fields["seed"], fields["workers"]) == (
        "e1",
        4,
        1,
        ["one", "two"],
    )
    assert fields["best_worker"] == "alone:two"
    assert fields["verdict"].startswith(
        "conductor did best: 2 of 3 cases right, 33.3 points above the single worker that did "
        "best on the other half of the cases ("
    )
    assert "3 cases cannot tell these apart; about 22 would be needed" in fields["verdict"]
    assert fields["cases_needed"] == 22
    assert (auto["name"], auto["accuracy"], auto["n"], auto["failed"]) == ("conductor", 2 / 3, 3, 1)
    assert (auto["tokens"], auto["calls"], auto["cost"], auto["unpriced"]) == (120, 3, "0.0123", 0)
    assert auto["valid_plans"]["accuracy"] == 2 / 3
    assert [auto["total"][key] for key in ("tokens_in", "calls", "unpriced", "cost")] == [
        240,
        12,
        0,
        "0.0492",
    ]
    assert auto["versus_best"]["other"] == "alone:two"
    assert auto["tags"] == {
        "letters": {key: auto[key] for key in ("accuracy", "interval", "right", "n", "cases")}
    }
    assert fields["systems"][0]["valid_plans"] is None
    unknown = report_json("e1", SPEC, summary(None))["systems"][0]
    assert (unknown["cost"], unknown["unpriced"], unknown["total"]["cost"]) == (None, 4, None)


def test_each_system_of_a_paper_has_one_line_under_the_table_and_a_source() -> None:
    names = ("alone:ann", "reflect:ann", "reflect:bob", "moa")
    spec = replace(SPEC, systems=names)
    result = summarize([*outcomes("moa", "+-"), *outcomes("alone:ann", "+-")], names)
    lines = report_notes(spec, result, ())[-2:]
    assert [line.partition(": after ")[0] for line in lines] == ["reflect", "moa"]
    assert all("arXiv" in line and "Simplified: " in line for line in lines)
    sources = {
        system["name"]: system["source"] for system in report_json("1", spec, result)["systems"]
    }
    assert (sources["alone:ann"], set(sources["moa"])) == (None, {"paper", "simplified"})
    assert set(SOURCES) <= set(NAMES)


def judged(**signs: str) -> EvaluationVerdict:
    """The verdict on systems with these outcomes.

    `_` in a name stands for a hyphen, two of them for a colon.
    """
    named = {name.replace("__", ":").replace("_", "-"): sign for name, sign in signs.items()}
    made = chain.from_iterable(outcomes(name, sign) for name, sign in named.items())
    return reach_verdict(summarize(list(made), systems=list(named)))


def test_a_clear_result_has_no_warning() -> None:
    outcome = judged(best_worker="-" * 18 + "++", conductor="+" * 18 + "++")
    assert outcome.finding == (
        "conductor did best: 20 of 20 cases right, 90.0 points above best-worker, the best single "
        "worker by its card "
        "(95 % interval +64.2 to +97.2, p <0.001)."
    )
    assert (outcome.warning, outcome.cases_needed) == ("", None)


def test_few_cases_come_with_a_warning_and_the_number_that_would_do() -> None:
    outcome = judged(alone__a="++++++++----", conductor="++++++++-++-", moa="++++--------")
    assert outcome.finding.startswith(
        "conductor did best: 10 of 12 cases right, 16.7 points above alone:a, "
    )
    assert "p 0.500 corrected for 2 comparisons" in outcome.finding
    assert outcome.cases_needed is not None
    assert outcome.cases_needed > 12
    assert outcome.warning == (
        f"12 cases cannot tell these apart; about {outcome.cases_needed} would be needed if the "
        "difference is as large as it looks here."
    )
    assert outcome.text == f"{outcome.finding} {outcome.warning}"


def test_each_p_value_is_corrected_for_those_that_are_higher() -> None:
    """Holm's correction: three tries of the lowest, two of the next.

    Single workers are no tries.
    """
    signs = {"vote": "+" * 8 + "--", "moa": "+" * 6 + "----", "keyword": "+" + "-" * 9}
    names = ["alone:a", "alone:b", *signs]
    made = [*outcomes("alone:a", "-" * 10), *outcomes("alone:b", "-" * 10)]
    for name, case_signs in signs.items():
        made += outcomes(name, case_signs)
    p_values = corrected_p_values(summarize(made, systems=names))
    assert p_values == pytest.approx({"vote": 3 * 2 / 2**8, "moa": 2 * 2 / 2**6, "keyword": 1.0})


@pytest.mark.parametrize(
    ("signs", "finding"),
    [
        (
            {"best_worker": "++++++++--", "moa": "+++++++---", "vote": "------++--"},
            (
                "best-worker, the best single worker by its card, did best: 8 of 10 cases right; "
                "moa "
                "is 10.0 points below ("
            ),
        ),
        (
            {"best_worker": "----", "moa": "----"},
            "No system got any case right: check the answers and the scorer of the cases.",
        ),
        ({"best_worker": "----", "moa": "++--", "best_routing": "++++"}, "moa did best"),
        ({"best_worker": "++--------", "moa": "+!!!!!!!!!", "vote": "+++-------"}, "vote did best"),
        (
            {"alone__a": "+++-", "alone__b": "+---"},
            (
                "alone:a, the best single worker on these cases, did best: 3 of 4 cases right; "
                "alone:b is"
            ),
        ),
        (
            {"moa": "+++-", "vote": "++--"},
            (
                "moa did best: 3 of 4 cases right (95 % interval 30.1 to 95.4). No single worker "
                "was "
                "measured."
            ),
        ),
        ({"best_worker": "++"}, "Only best-worker was measured: 2 of 2 cases right."),
        ({"moa": "!!"}, "No case could be judged, so nothing can be said."),
    ],
)
def test_the_verdict_says_who_did_best_and_against_whom(
    signs: dict[str, str], finding: str
) -> None:
    """The known decomposition, and who hardly ever answered, take no part."""
    assert judged(**signs).text.startswith(finding)


def test_cost_and_time_stand_beside_the_difference() -> None:
    made = [
        *outcomes("best-worker", "-" * 18 + "++", cost="0.004", seconds=1.5),
        *outcomes("conductor", "+" * 18 + "++", cost="0.0123", seconds=0.04),
    ]
    verdict = reach_verdict(summarize(made, systems=["best-worker", "conductor"]))
    assert verdict.finding.endswith(
        " p <0.001), for $0.0123 a question instead of $0.0040, in 0.04 s instead of 1.5 s."
    )
    same = [
        *outcomes("best-worker", "+-", cost="0.00008", seconds=1.0),
        *outcomes("moa", "+-", cost="0.00008", seconds=1.0),
    ]
    assert (
        "instead of" not in reach_verdict(summarize(same, systems=["best-worker", "moa"])).finding
    )


def test_equal_systems_are_level() -> None:
    """No number of cases would show a difference of nothing."""
    outcome = judged(best_worker="++--", moa="++--")
    assert outcome.finding == (
        "moa is level with best-worker, the best single worker by its card: 2 of 4 cases right "
        "(95 % interval -35.0 to +35.0, p 1.000)."
    )
    assert (outcome.warning, outcome.cases_needed) == ("4 cases cannot tell these apart.", None)


@pytest.mark.parametrize(
    ("signs", "first"), [("++--", "conductor is level with"), ("----", "No system got any case")]
)
def test_a_planner_without_a_valid_plan_is_named(signs: str, first: str) -> None:
    auto = [replace(item, planned=True, valid=False) for item in outcomes("conductor", signs)]
    verdict = reach_verdict(
        summarize([*outcomes("alone:a", signs), *auto], systems=["alone:a", "conductor"])
    )
    assert verdict.text.startswith(first)
    assert verdict.text.endswith("The planner never wrote a valid plan (conductor).")
