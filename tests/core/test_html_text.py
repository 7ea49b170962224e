"""Text that is safe on a page, and round numbers beside an axis."""

from __future__ import annotations

import pytest

from conductor_cli.core.formatting import axis_ticks
from conductor_cli.core.sanitize import html_text


def test_text_is_one_line_that_a_browser_only_shows() -> None:
    """HTML characters are escaped, and terminal sequences removed."""
    assert html_text('a <b> & "c"\n\x1b[31md') == "a &lt;b&gt; &amp; &quot;c&quot; d"


@pytest.mark.parametrize("most", [1e-7, 0.003, 0.9, 1, 5, 7, 99, 1234, 10**9])
def test_the_scale_has_round_ends(most: float) -> None:
    """Four to six numbers, evenly apart, from 0 to the most or just beyond."""
    ticks = axis_ticks(most)
    assert ticks[0] == 0
    assert 4 <= len(ticks) <= 6
    assert most * 0.99 <= ticks[-1] <= most * 1.5
