"""Round numbers beside an axis."""

from __future__ import annotations

import pytest

from conductor_cli.core.formatting import axis_ticks


@pytest.mark.parametrize("most", [1e-7, 0.003, 0.9, 1, 5, 7, 99, 1234, 10**9])
def test_the_scale_has_round_ends(most: float) -> None:
    """Four to six numbers, evenly apart, from 0 to the most or just beyond."""
    ticks = axis_ticks(most)
    assert ticks[0] == 0
    assert 4 <= len(ticks) <= 6
    assert most * 0.99 <= ticks[-1] <= most * 1.5
