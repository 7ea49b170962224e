"""Verdicts that hold: what counts, whom it is compared with, and how often advice is wrong."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random
from statistics import fmean
from typing import Any

import pytest

from conductor_cli.cli.try_command import advise
from conductor_cli.core.errors import ModelError
from conductor_cli.core.question import Question
from conductor_cli.evals.outcomes import CaseOutcome, EvaluationSpec, judge_run
from conductor_cli.evals.report import corrected_p_values, reach_verdict, report_notes
from conductor_cli.evals.significance import SIGNIFICANT
from conductor_cli.evals.summary import NEAR_BEST, Summary, prove_differences, summarize
from conductor_cli.evals.systems import RunSetup, select_systems
from conductor_cli.models.base import ScriptedModel
from tests.evals.kit import case, orchestra
from tests.evals.sample_outcomes import outcomes
from tests.run.kit import play, says

WAYS = ("conductor-mini", "conductor")


def summary_of(**signs: str) -> Summary:
    ways = {name.replace("__", ":").replace("_", "-"): text for name, text in signs.items()}
    made: list[CaseOutcome] = []
    for name, text in ways.items():
        made += outcomes(name, text)
    return summarize(made, [*ways])


def outcome_of(name: str, **fields: Any) -> CaseOutcome:
    by = orchestra(**fields)
    (system,) = select_systems(name, by.team, cases=[case()])
    setup = system.configure(RunSetup.of(by))
    plan = None if system.plan is None else system.plan(case())
    run, events = play(
        by,
        Question(text=case().question),
        plan=plan,
        team=setup.team,
        limits=setup.limits,
        seed=setup.seed,
    )
    return judge_run(system, case(), run.trace, events)


@pytest.mark.parametrize("reason", ["length", "refused", "timeout"])
def test_a_failure_that_the_system_caused_counts_as_it_ended(reason: Any) -> None:
    """Alone it is wrong; where another worker helped out, what the user got counts."""
    broken = ScriptedModel([[ModelError(reason, "no")]] * 9)
    alone = outcome_of("alone:ann", models={"ann": broken, "bob": says("4")})
    assert (alone.verdict, alone.fault, alone.error) == ("wrong", reason, "")
    broken = ScriptedModel([[ModelError(reason, "no")]] * 9)
    plans = ScriptedModel([["B | - | Do it."]])  # A is bob, whose card is better
    helped = outcome_of("conductor", models={"ann": broken, "bob": says("4")}, model=plans)
    assert (helped.verdict, helped.fault, helped.answer) == ("right", reason, "4")


@pytest.mark.parametrize("reason", ["auth", "rate", "overloaded", "connect", "broken", "missing"])
def test_a_fault_of_the_transport_is_missing(reason: Any) -> None:
    broken = ScriptedModel([[ModelError(reason, "no")]] * 9)
    alone = outcome_of("alone:ann", models={"ann": broken, "bob": says("4")})
    assert (alone.verdict, alone.fault) == ("failed", "")
    assert alone.error


def test_an_answer_that_was_cut_off_is_noted_with_its_number() -> None:
    made = [replace(item, cut_off=True) for item in outcomes("alone:one", "+---")]
    made += outcomes("conductor", "++++")
    summary = summarize(made, ["alone:one", "conductor"])
    spec = EvaluationSpec(
        source="made", hash="", cases=4, systems=(), workers=(), identity={}, notes=()
    )
    notes = report_notes(spec, summary, ())
    assert any("cut off" in note and "4 of 4 of alone:one" in note for note in notes)


def test_the_sentence_says_what_failed_what_is_tied_and_what_it_cost() -> None:
    made = [
        *outcomes("alone:one", "+++---------"),
        *outcomes("moa", "++++++++++--"),
        *[replace(item, fault="length") for item in outcomes("conductor", "++++++++++--")],
    ]
    summary = summarize(made, ["alone:one", "moa", "conductor"])
    verdict = reach_verdict(summary, spent=Decimal("0.12"))
    assert "tied with" in verdict.finding
    assert "of conductor in 12 of 12 (a prompt too long for the worker 12)" in verdict.finding
    assert verdict.finding.endswith("All of it cost $0.1200.")


def test_no_verdict_stands_on_runs_that_failed() -> None:
    """Of ten runs that failed nobody knows whether they would have been right."""
    signs = {"alone__solo": "+" * 2 + "-" * 8 + "+" * 10, "conductor": "+" * 10 + "!" * 10}
    summary = summary_of(**signs)
    assert corrected_p_values(summary)["conductor"] < SIGNIFICANT
    verdict = reach_verdict(summary)
    assert verdict.finding.startswith("Nothing can be said yet: runs failed (conductor 10)")
    assert "between conductor and alone:solo into -10.0" in verdict.finding
    mini = {"conductor_mini": signs["conductor"]}
    assert "Nothing can be said yet" in advise(summary_of(**mini, **signs))


def test_a_verdict_that_failures_cannot_turn_stands() -> None:
    summary = summary_of(alone__solo="-" * 20, conductor="+" * 18 + "!!")
    assert reach_verdict(summary).finding.startswith("conductor did best: 18 of 18 cases right")


def test_the_best_worker_is_chosen_on_other_cases_than_it_is_compared_on() -> None:
    """Two workers that are right in one half each are no worker that is right in all."""
    plan = "+-" * 20
    summary = summary_of(alone__a=plan, alone__b=plan.translate({43: 45, 45: 43}), conductor=plan)
    assert summary.baseline is not None
    assert summary.baseline.n == 40
    assert summary.baseline.right <= 20


def draw(random: Random, cases: int, workers: int) -> list[CaseOutcome]:
    """Outcomes of ways that are all equally good, on cases of different difficulty."""
    names = [*(f"alone:w{number}" for number in range(workers)), *WAYS]
    made = []
    for number in range(cases):
        share = min(0.98, max(0.02, random.gauss(0.6, 0.2)))
        for name in names:
            verdict: Any = "right" if random.random() < share else "wrong"
            made.append(CaseOutcome(system=name, case=str(number), verdict=verdict))
    return made


@pytest.mark.parametrize(("cases", "workers"), [(12, 2), (12, 5), (40, 5)])
def test_advice_is_wrong_in_at_most_5_percent_of_trials_without_a_difference(
    cases: int, workers: int
) -> None:
    """1,000 trials in all. The comparison with the best worker favours nobody, either."""
    random = Random(workers * cases)
    wrong = 0
    trials = 334
    differences = []
    for _ in range(trials):
        made = draw(random, cases, workers)
        summary = summarize(made, [*dict.fromkeys(outcome.system for outcome in made)])
        advice = advise(summary)
        wrong += advice.startswith(("Plan", "Route", "Ask one"))
        plan = summary.systems[-1].versus_best
        assert plan is not None
        differences.append(plan.difference)
    assert wrong <= 0.05 * trials
    assert abs(fmean(differences)) < 0.03


def test_among_single_workers_all_pairs_are_corrected_for() -> None:
    """The best of five is picked out of ten pairs, not out of four."""
    signs = {f"alone__{name}": "+" * 6 + "-" * 14 for name in "abcd"}
    summary = summary_of(alone__e="+" * 13 + "-" * 7, **signs)
    compared = {s.name: s.versus_best for s in summary.systems if s.versus_best is not None}
    assert next(iter(corrected_p_values(summary).values())) == pytest.approx(10 * 2 / 2**7)
    assert prove_differences(compared)["alone:a"].p == pytest.approx(4 * 2 / 2**7)


def test_nobody_right_in_the_first_runs_is_no_fault_of_the_cases() -> None:
    summary = summary_of(alone__a="--", conductor="--")
    assert "in the 4 of 160 runs that are done" in reach_verdict(summary, runs=160).finding
    assert "check the answers and the scorer" in reach_verdict(summary, runs=4).finding


def test_a_way_that_is_as_good_as_the_best_worker_is_rarely_called_better() -> None:
    """One worker is better than the others: half of the cases often choose another one."""
    random = Random(2)
    trials = 150
    better = 0
    for _ in range(trials):
        made = []
        for number in range(100):
            share = min(0.98, max(0.02, random.gauss(0.6, 0.2)))
            for name in ("alone:w0", "alone:w1", "alone:w2", *WAYS):
                lag = 0.1 if name in ("alone:w1", "alone:w2") else 0.0
                verdict: Any = "right" if random.random() < share - lag else "wrong"
                made.append(CaseOutcome(system=name, case=str(number), verdict=verdict))
        summary = summarize(made, ["alone:w0", "alone:w1", "alone:w2", *WAYS])
        better += advise(summary).startswith(("Plan", "Route"))
    assert better / trials <= SIGNIFICANT


def test_a_way_that_is_hardly_above_the_best_worker_is_not_called_better() -> None:
    """It is above the workers that the two halves of the cases choose."""
    names = [str(number) for number in range(60)]
    for seed in range(500):
        random = Random(seed)
        made = []
        for name, share in (("alone:a", 0.6), ("alone:b", 0.55), *((way, 0.7) for way in WAYS)):
            for case_id in names:
                verdict: Any = "right" if random.random() < share else "wrong"
                made.append(CaseOutcome(system=name, case=case_id, verdict=verdict))
        summary = summarize(made, ["alone:a", "alone:b", *WAYS])
        comparison = summary.systems[-1].versus_best
        assert comparison is not None
        proved = prove_differences({"conductor": comparison})["conductor"]
        if proved.is_near_best:
            assert proved.p < SIGNIFICANT
            assert not proved.is_better
            assert comparison.p_best >= NEAR_BEST
            return
    raise AssertionError("in no trial the best worker was near")
