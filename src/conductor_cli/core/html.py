"""What every page and drawing for a browser needs: text that is safe there, and round numbers beside an axis. Pure."""

from __future__ import annotations

import math
from html import escape

from conductor_cli.core.sanitize import one_line


def html_text(text: str) -> str:
    """Any text, safe in HTML and SVG: one line, nothing that a browser would obey."""
    return escape(one_line(text))


def axis_ticks(most: float) -> list[float]:
    """Four to six round numbers, evenly apart, from 0 up to `most`, which is more than 0, or just beyond."""
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [step * index for index in range(math.ceil(most / step * 0.999) + 1)]
