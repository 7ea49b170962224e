"""How much of a conversation goes along with its next question. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from conductor_cli.core.prompts import CHARS_PER_TOKEN
from conductor_cli.core.question import Turn


def first_turn_to_send(turns: Sequence[Turn], first: int, tokens: int) -> int:
    """The first turn that goes along, where it was turn `first` so far and about `tokens` tokens may.

    When they have become too many, only the latest that take half of it are kept: what is sent then grows at its end
    again, so a model that remembers it reads only what is new. The last turn is kept however long it is; what
    overflows a model's own context is shortened where its prompt is made.
    """
    if sum(map(_length, turns[first:])) <= tokens * CHARS_PER_TOKEN:
        return first
    room, kept = tokens * CHARS_PER_TOKEN / 2, len(turns) - 1
    for number in range(len(turns) - 1, first, -1):
        room -= _length(turns[number])
        if room < 0:
            break
        kept = number
    return max(kept, first)


def _length(turn: Turn) -> int:
    return len(turn.question) + len(turn.answer)
