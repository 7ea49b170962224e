"""`conductor trace rate`, and what `conductor workers show` says of ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.cli.stage import TWO, Stage, refuses

CARDS = "card = { strengths = { math = 0.8 } }\nprice = { input = 1, output = 2 }"


@pytest.fixture
def carded(stage: Stage) -> Stage:
    """Two workers whose cards have a figure."""
    configure(stage)
    return stage


def configure(stage: Stage, more: str = "") -> None:
    stage.configure(more, workers=dict.fromkeys(("alpha", "beta"), CARDS))


def asked(stage: Stage, plan: str) -> str:
    stage.plan = plan
    return str(stage.inside("ask", "How many?", "--format", "json").json["run"])


def cards(stage: Stage) -> dict[str, Any]:
    """The ratings of each worker for its only tag."""
    return {name: stage.inside("workers", "show", name, "--json").json["ratings"]["math"] for name in ("alpha", "beta")}


def prompt_of_planner(stage: Stage) -> str:
    return "".join(message["content"] for message in stage.asked("planner")[-1].json["messages"])


def test_a_rating_changes_the_cards_that_the_planner_reads(carded: Stage) -> None:
    asked(carded, TWO)
    before, sent = prompt_of_planner(carded), [seen.json for seen in carded.asked("alpha")]
    done = carded.inside("trace", "rate", "last", "bad")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(" bad; credit: alpha 0.50, beta 0.50\n")
    assert cards(carded)["alpha"] == {"good": 0, "bad": 1, "weight": 0.25, "now": 0.7805}
    assert "math 0 good, 1 bad, so the planner reads 0.78" in carded.inside("workers", "show", "alpha").out
    asked(carded, TWO)
    assert before.replace("math 0.80", "math 0.78") == prompt_of_planner(carded)
    assert "math 0.78" in prompt_of_planner(carded)
    assert [seen.json for seen in carded.asked("alpha")] == sent * 2


def test_the_last_rating_of_a_run_counts_and_outlives_its_trace(carded: Stage) -> None:
    run = asked(carded, TWO)
    for verdict in ("bad", "good"):
        carded.inside("trace", "rate", run, verdict)
    assert (cards(carded)["beta"]["good"], cards(carded)["beta"]["bad"]) == (1, 0)
    assert carded.inside("trace", "rm", run).code == 0
    assert cards(carded)["beta"]["good"] == 1
    text = carded.traces.with_name("ratings.jsonl").read_text()
    assert not [word for word in ("How many", "Find it", "answers") if word in text]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["19990101-000000", "good"], "there is no run"),
        (["last", "fine"], "good"),
        (["last", "good", "--step", "4"], "has no step 4"),
        (["last", "good"], "has no answer to rate"),
        (["last", "bad", "--step", "1"], "has no answer to rate"),
    ],
)
def test_what_cannot_be_rated_is_said(carded: Stage, arguments: Sequence[str], said: str) -> None:
    carded.models |= {"alpha": refuses(500), "beta": refuses(500)}
    asked(carded, "alpha | - | Answer it.")
    carded.ends(2, "trace", "rate", *arguments, told=said)
    assert not carded.traces.with_name("ratings.jsonl").exists()


def test_a_damaged_file_of_ratings_is_read_as_far_as_it_can_be(carded: Stage) -> None:
    asked(carded, TWO)
    carded.inside("trace", "rate", "last", "good")
    path = carded.traces.with_name("ratings.jsonl")
    whole = path.read_bytes()
    path.write_bytes(b"\xff\x00 garbage\n" + whole + whole.strip()[:60])
    assert "2 lines are damaged; 1 rating could be read" in carded.inside("workers", "show", "alpha").err
    carded.inside("trace", "rate", "last", "good", "--step", "1")
    assert "2 lines are damaged; 2 ratings could be read" in carded.inside("workers", "show", "alpha").err
    assert cards(carded)["alpha"]["good"] == 1
    path.unlink()
    path.mkdir()
    carded.fails(3, "trace", "rate", "last", "good")


def test_learning_is_off_by_one_setting(carded: Stage) -> None:
    asked(carded, TWO)
    carded.inside("trace", "rate", "last", "bad")
    configure(carded, "[learning]\nenabled = false")
    assert cards(carded)["alpha"]["now"] == 0.8
    asked(carded, TWO)
    assert "math 0.80" in prompt_of_planner(carded)
    carded.fails(3, "trace", "rate", "last", "good")
