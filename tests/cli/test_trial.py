"""What `conductor try` advises, and the questions that ship for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor_cli.cli.trial import advise
from conductor_cli.evals.cases import EVERYDAY_FILE, is_correct, read_cases
from conductor_cli.evals.summary import Summary, summarize
from tests.evals.sample_outcomes import outcomes

RIGHT, WRONG, MIXED = "+" * 12, "-" * 12, "+-" * 6


def summary(one: str, two: str, route: str, plan: str, *, valid: bool = True) -> Summary:
    ways = {"alone:one": one, "alone:two": two, "conductor-mini": route, "conductor": plan}
    found = [each for name, signs in ways.items() for each in outcomes(name, signs)]
    return summarize(
        [replace(each, planned=each.system.startswith("conductor"), valid=valid) for each in found], [*ways]
    )


@pytest.mark.parametrize(
    ("signs", "advice"),
    [
        ((WRONG, WRONG, WRONG, RIGHT), "Plan (the default mode): +100 points against one"),
        ((WRONG, WRONG, RIGHT, RIGHT), "Route (--mode mini): +100 points"),
        ((WRONG, RIGHT, WRONG, WRONG), "Ask one, two: with a plan, -100 points"),
        ((MIXED, WRONG, MIXED, MIXED), "Cannot say from 12 cases whether a plan pays: +0 points"),
        ((MIXED, WRONG, MIXED, "++" + MIXED[2:]), "About "),
        (("!" * 12, "!" * 12, MIXED, MIXED), "Nothing can be said"),
    ],
)
def test_advice_follows_from_the_interval(signs: tuple[str, str, str, str], advice: str) -> None:
    assert advice in advise(summary(*signs))


def test_a_planner_without_a_valid_plan_is_not_advised() -> None:
    assert "never wrote a valid plan" in advise(summary(WRONG, MIXED, RIGHT, RIGHT, valid=False))


def test_the_questions_that_ship_can_be_scored() -> None:
    cases = read_cases(EVERYDAY_FILE)
    assert [sum(tag in case.tags for case in cases) for tag in ("everyday", "hard")] == [12, 12]
    for case in cases:
        assert is_correct(f"Answer: {case.answer}", case), case.id
        assert not is_correct("Answer: 123456", case), case.id
