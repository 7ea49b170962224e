"""Draws texts that a GBNF grammar admits.

Reads the grammar's own notation and knows nothing of plans.

What it knows: rules, literals and their escapes, classes with ranges, groups, choices, and the
counts `?` and `{n,m}`. Where a class admits it, awkward signs are drawn far more often than others.
"""

from __future__ import annotations

import random
from collections.abc import Callable

AWKWARD = (
    " .,:;|[]{}()<>\"'`“”„‘’\\-–=*#/_aAbB01é中🙂\n"
    "\t\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\u200b\ufeff"
)
COMMON = "abcdefghij ABC 0123456789 ,.:-'\"|"

Draw = Callable[[random.Random], str]


class Grammar:
    """A grammar, ready to be drawn from."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Draw] = {}
        for line in text.split("\n"):
            name, body = line.split(" ::= ", 1)
            reader = _Reader(body, self.rules)
            self.rules[name] = reader.choice()
            assert reader.at == len(body), f"not understood: {body[reader.at :]}"

    def draw(self, chance: random.Random) -> str:
        return self.rules["root"](chance)


class _Reader:
    def __init__(self, text: str, rules: dict[str, Draw]) -> None:
        self.text = text
        self.at = 0
        self.rules = rules

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self) -> None:
        while self.peek() == " ":
            self.at += 1

    def choice(self) -> Draw:
        options = [self.row()]
        while self.peek() == "|":
            self.at += 1
            options.append(self.row())
        return lambda chance: chance.choice(options)(chance)

    def row(self) -> Draw:
        parts: list[Draw] = []
        self.skip()
        while self.peek() and self.peek() not in "|)":
            parts.append(self.counted(self.part()))
            self.skip()
        return lambda chance: "".join(part(chance) for part in parts)

    def part(self) -> Draw:
        sign = self.peek()
        if sign == '"':
            return self.literal()
        if sign == "[":
            return self.signs()
        if sign == "(":
            self.at += 1
            inner = self.choice()
            assert self.peek() == ")"
            self.at += 1
            return inner
        start = self.at
        while self.peek().isalnum() or self.peek() == "-":
            self.at += 1
        name = self.text[start : self.at]
        assert name, f"not understood: {self.text[start:]}"
        # The rule may stand further down
        return lambda chance: self.rules[name](chance)  # noqa: PLW0108

    def sign(self) -> str:
        """One sign of a literal or class, its escape undone."""
        sign = self.peek()
        self.at += 1
        if sign != "\\":
            return sign
        kind = self.peek()
        self.at += 1
        length = {"x": 2, "u": 4, "U": 8}.get(kind)
        if length is None:
            return {"n": "\n", "t": "\t", "r": "\r"}.get(kind, kind)
        digits = self.text[self.at : self.at + length]
        self.at += length
        return chr(int(digits, 16))

    def literal(self) -> Draw:
        self.at += 1
        made = ""
        while self.peek() != '"':
            made += self.sign()
        self.at += 1
        return lambda chance: made

    def signs(self) -> Draw:
        self.at += 1
        ranges: list[tuple[str, str]] = []
        while self.peek() != "]":
            first = self.sign()
            last = first
            if self.peek() == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                last = self.sign()
            ranges.append((first, last))
        self.at += 1

        def admitted(sign: str) -> bool:
            return any(first <= sign <= last for first, last in ranges)

        kinds = [[sign for sign in signs if admitted(sign)] for signs in (AWKWARD, COMMON)]
        kinds = [signs for signs in kinds if signs]
        if not kinds:
            kinds = [[first for first, _ in ranges]]
        return lambda chance: chance.choice(chance.choice(kinds))

    def counted(self, part: Draw) -> Draw:
        least = 1
        most = 1
        if self.peek() == "{":
            end = self.text.index("}", self.at)
            least, most = map(int, self.text[self.at + 1 : end].split(","))
            self.at = end + 1
        elif self.peek() == "?":
            least = 0
            self.at += 1
        if (least, most) == (1, 1):
            return part

        def draw(chance: random.Random) -> str:
            # Mostly short, at times as long as may be: both ends of a count are where mistakes are.
            highest = most if chance.random() < 0.2 else min(most, least + 6)
            return "".join(part(chance) for _ in range(chance.randint(least, highest)))

        return draw
