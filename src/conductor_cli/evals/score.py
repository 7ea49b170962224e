"""What a scorer, or a reward, says of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNSCORED: Final = "not scored"
"""How the reason of a score begins that could not be found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Whether an answer is right, and why in words.

    What was taken from it, and which test it failed.

    `right` is None where that could not be found out, which says nothing about the answer: it
    counts neither as right nor as wrong.
    """

    right: bool | None
    why: str = ""
