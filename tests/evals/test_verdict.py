"""What an evaluation shows, in one sentence, and when its cases are too few to show it."""

from __future__ import annotations

import pytest

from conductor_cli.evals.report import EvaluationVerdict, corrected_p_values, reach_verdict
from conductor_cli.evals.summary import summarize
from tests.evals.sample_outcomes import outcomes


def judged(**signs: str) -> EvaluationVerdict:
    """The verdict on systems with these outcomes; `_` in a name stands for a hyphen, two of them for a colon."""
    named = {name.replace("__", ":").replace("_", "-"): found for name, found in signs.items()}
    made = [outcome for name, found in named.items() for outcome in outcomes(name, found)]
    return reach_verdict(summarize(made, systems=list(named)))


def test_a_clear_result_has_no_warning() -> None:
    """The system, its cases, the difference with its interval, and the p-value."""
    found = judged(best_worker="-" * 18 + "++", conductor="+" * 18 + "++")
    assert found.finding == (
        "conductor did best: 20 of 20 cases right, 90.0 points above best-worker, the best single worker by its card "
        "(95 % interval +64.2 to +97.2, p <0.001)."
    )
    assert (found.warning, found.cases_needed) == ("", None)


def test_few_cases_come_with_a_warning_and_the_number_that_would_do() -> None:
    """Two cases more of twelve may be chance."""
    found = judged(alone__a="++++++++----", conductor="++++++++-++-", moa="++++--------")
    assert found.finding.startswith("conductor did best: 10 of 12 cases right, 16.7 points above alone:a, ")
    assert "p 0.500 corrected for 2 comparisons" in found.finding
    assert found.cases_needed is not None
    assert found.cases_needed > 12
    assert found.warning == (
        f"12 cases cannot tell these apart; about {found.cases_needed} would be needed for a difference of this size."
    )
    assert found.text == f"{found.finding} {found.warning}"


def test_the_best_of_several_systems_needs_a_lower_p_value() -> None:
    """Six cases of six decide between two systems, but not if four were tried."""
    signs = {"best_worker": "-" * 6 + "+" * 4, "moa": "+" * 10}
    assert judged(**signs).warning == ""
    level = dict.fromkeys(("vote", "keyword", "conductor"), "-" * 6 + "+" * 4)
    assert judged(**signs, **level).warning.startswith("10 cases cannot tell these apart; about ")


def test_each_p_value_is_corrected_for_those_that_are_higher() -> None:
    """Holm's correction: three tries of the lowest, two of the next; single workers are no tries."""
    signs = {"vote": "+" * 8 + "--", "moa": "+" * 6 + "----", "keyword": "+" + "-" * 9}
    names = ["alone:a", "alone:b", *signs]
    made = [*outcomes("alone:a", "-" * 10), *outcomes("alone:b", "-" * 10)]
    made += [outcome for name, found in signs.items() for outcome in outcomes(name, found)]
    found = corrected_p_values(summarize(made, systems=names))
    assert found == pytest.approx({"vote": 3 * 2 / 2**8, "moa": 2 * 2 / 2**6, "keyword": 1.0})


def test_cost_and_time_stand_beside_the_difference() -> None:
    """Who does better may cost more: the sentence says how much, where both are known."""
    made = [
        *outcomes("best-worker", "-" * 18 + "++", cost="0.004", seconds=1.5),
        *outcomes("conductor", "+" * 18 + "++", cost="0.0123", seconds=0.04),
    ]
    found = reach_verdict(summarize(made, systems=["best-worker", "conductor"]))
    assert found.finding.endswith(" p <0.001), for $0.0123 a question instead of $0.0040, in 0.04 s instead of 1.5 s.")


def test_the_single_worker_may_be_the_best() -> None:
    """The sentence names it, and how far the next system is below it."""
    found = judged(best_worker="++++++++--", moa="+++++++---", vote="------++--")
    assert found.finding.startswith(
        "best-worker, the best single worker by its card, did best: 8 of 10 cases right; moa is 10.0 points below ("
    )


def test_equal_systems_are_level() -> None:
    """No number of cases would show a difference of nothing."""
    found = judged(best_worker="++--", moa="++--")
    assert "moa is level with it" in found.finding
    assert (found.warning, found.cases_needed) == ("4 cases cannot tell these apart.", None)


def test_the_known_decomposition_takes_no_part() -> None:
    """It is an upper bound, which nobody can use on a new question."""
    assert judged(best_worker="----", moa="++--", best_routing="++++").finding.startswith("moa did best")


def test_a_system_that_hardly_ever_answered_takes_no_part() -> None:
    """One right answer in one judged case says little."""
    assert judged(best_worker="++--------", moa="+!!!!!!!!!", vote="+++-------").finding.startswith("vote did best")


def test_single_workers_alone_are_compared_with_each_other() -> None:
    """If nothing else ran."""
    found = judged(alone__a="+++-", alone__b="+---")
    assert found.finding.startswith(
        "alone:a, the best single worker on these cases, did best: 3 of 4 cases right; alone:b is"
    )


def test_without_a_single_worker_there_is_no_comparison() -> None:
    """The sentence says so."""
    found = judged(moa="+++-", vote="++--")
    assert found.finding == (
        "moa did best: 3 of 4 cases right (95 % interval 30.1 to 95.4). No single worker was measured."
    )


def test_one_system_or_none_is_a_verdict_too() -> None:
    """Nothing fails when there is little to say."""
    assert judged(best_worker="++").finding == "Only best-worker was measured: 2 of 2 cases right."
    assert judged(moa="!!").finding == "No case could be judged, so nothing can be said."


def test_a_hostile_name_stays_in_one_line() -> None:
    """A worker's name comes from a file."""
    name = "alone:\x1b[31m\nx"
    found = reach_verdict(summarize([*outcomes(name, "+"), *outcomes("moa", "-")], systems=[name, "moa"]))
    assert "\x1b" not in found.text
    assert "\n" not in found.text
