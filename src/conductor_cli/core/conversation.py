"""The next question of a conversation, and how much of the conversation goes along with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conductor_cli.core.question import Question, Turn
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import CHARS_PER_TOKEN


def continue_conversation(question: Question, earlier: Trace, *, keep_system: bool) -> Question:
    """`question` as the next one of a conversation, whose turns and files go along, and its system text if kept."""
    before = earlier.question
    return replace(
        question,
        history=(*before.history, Turn(question=before.text, answer=earlier.answer)),
        files=tuple(dict.fromkeys((*before.files, *question.files))),
        system=before.system if keep_system else question.system,
        parent=earlier.run,
    )


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
