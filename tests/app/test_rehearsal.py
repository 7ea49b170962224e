"""Which of the shipped questions an evaluation or a calibration of the demo uses."""

from __future__ import annotations

import pytest

from conductor_cli.app.rehearsal import held_out_cases
from conductor_cli.core.errors import UsageError


def test_each_seed_asks_questions_of_its_own() -> None:
    """Twenty sets of 500 share no question. A set is always complete and has none twice; more are refused."""
    sets = [held_out_cases(500, seed) for seed in range(20)]
    assert [case.id for case in sets[0][:2]] == ["test-0-0001", "test-0-0002"]
    assert len({case.question for cases in sets for case in cases}) == 10_000
    assert held_out_cases(500, 22) == sets[2]
    assert len({case.id for case in held_out_cases(9_999, 10**9)}) == 9_999
    with pytest.raises(UsageError, match=r"--n 10001: the demo has 10,000 questions"):
        held_out_cases(10_001, 0)
