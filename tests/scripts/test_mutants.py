"""The figures of `make mutants`: what counts as noticed, and what was not tried."""

from __future__ import annotations

from scripts.mutants import report

RESULTS = """
    conductor_cli.core.ledger.x_reserve__mutmut_1: killed
    conductor_cli.core.ledger.x_reserve__mutmut_2: timeout
    conductor_cli.core.ledger.x_reserve__mutmut_3: survived
    conductor_cli.core.plan.xǁPlanǁsources__mutmut_1: no tests
    conductor_cli.core.plan.xǁPlanǁsources__mutmut_2: not checked
""".splitlines()


def test_a_mutant_that_hangs_is_noticed_and_one_without_tests_is_not() -> None:
    lines, share = report(RESULTS)
    assert lines[0] == "ledger: 2 of 3 noticed (66.7%), 0 not tried"
    assert lines[1] == "plan: 0 of 1 noticed (0.0%), 1 not tried"
    assert lines[2].startswith("mutants: 2 of 4 noticed (50.0%), 1 not tried")
    assert share == 0.5


def test_where_nothing_was_tried_nothing_is_said_to_be_noticed() -> None:
    assert report([])[1] == 0.0
