"""Answers that are nearly right: what a weak worker might write. Pure."""

from __future__ import annotations

from random import Random

from scripts.rehearsal.operations import Operation


def near_miss(random: Random, operation: Operation, answer: str) -> str:
    """An answer of the same kind that is not right."""
    while True:
        found = _number(random, answer) if answer.isdecimal() else _text(random, operation, answer)
        if found != answer:
            return found


def _number(random: Random, answer: str) -> str:
    if random.random() < 0.15:
        return answer[::-1]
    return str(max(int(answer) + random.choice((-10, -2, -1, -1, 1, 1, 2, 10, random.randint(-30, 30))), 0))


def _text(random: Random, operation: Operation, answer: str) -> str:
    """Another answer of the same operation, or the same with a letter changed, missing, or two exchanged."""
    if random.random() < 0.4:
        values = operation.starts(random, lambda drawn: drawn.choice(("LION", "TIGER", "RIVER", "BREAD")))
        return operation.does(*values) or answer
    at = random.randrange(len(answer))
    kind = random.random()
    if kind < 0.35 and len(answer) > 1:
        at = min(at, len(answer) - 2)
        return answer[:at] + answer[at + 1] + answer[at] + answer[at + 2 :]
    if kind < 0.55 and len(answer) > 1:
        return answer[:at] + answer[at + 1 :]
    letter = random.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return answer[:at] + letter + answer[at + (kind < 0.8) :]
