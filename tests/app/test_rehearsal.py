"""Which of the shipped questions an evaluation or a calibration of the demo uses."""

from __future__ import annotations

import pytest

from conductor_cli.app.rehearsal import held_out_cases
from conductor_cli.core.errors import UsageError


def test_each_seed_takes_the_next_block_of_questions() -> None:
    """Three sets of 500 share no question. A set is always complete and has no question twice; more are refused."""
    sets = [held_out_cases(500, seed) for seed in range(3)]
    assert [case.id for case in sets[0][:2]] == ["test-0-0001", "test-0-0002"]
    assert len({case.id for cases in sets for case in cases}) == 1500
    assert held_out_cases(500, 2) == sets[2]
    for seed in (0, 1, 10**9):
        assert len({case.id for case in held_out_cases(1999, seed)}) == 1999
    with pytest.raises(UsageError, match=r"--n 2001: the demo has 2,000 questions"):
        held_out_cases(2001, 0)
