"""Works out a question of the rehearsal from its text alone: an independent computation for the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from scripts.rehearsal.phrasings import FRAMES, HELD_FRAMES, HELD_OPENINGS, OPENINGS, PRONOUNS, WAYS
from scripts.rehearsal.words import CAPITALS, ELEMENTS, MONTHS, OPPOSITES

JOINTS = ((), ("and",), ("then",), ("and", "then"))


def answers(text: str) -> set[str]:
    """Every answer that a normal text can be read to ask for."""
    found: set[str] = set()
    for form in FRAMES:
        for frame in FRAMES[form] + HELD_FRAMES[form]:
            head = frame.removesuffix("{s}")
            if text.startswith(head):
                rest = text.removeprefix(head)
                found.update(value(rest) if form == "noun" else asked(rest) if form == "ask" else rows(rest, None))
    for opening in OPENINGS + HELD_OPENINGS:
        pattern = (
            re.escape(opening.replace(",", "")).replace(r"\{x\}", "(?P<x>[A-Z0-9]+)").replace(r"\{s\}", "(?P<s>.+)")
        )
        if match := re.fullmatch(pattern, text):
            found.update(rows(match["s"], match.groupdict().get("x")))
    return found


@cache
def value(text: str) -> frozenset[str]:
    """What a noun phrase may stand for."""
    if re.fullmatch("[A-Z]+|[0-9]+", text):
        return frozenset({text})
    return frozenset(phrased(text, "noun"))


def asked(text: str) -> Iterator[str]:
    return phrased(text, "ask")


def phrased(text: str, form: str, it: str | None = None) -> Iterator[str]:
    for operation, ways in WAYS.items():
        for phrasing in ways.of(form, "all"):  # type: ignore[arg-type]
            pattern = re.escape(phrasing).replace(r"\{x\}", "(?P<x>.+)").replace(r"\{k\}", "(?P<k>[0-9]+)")
            match = re.fullmatch(pattern, text)
            if match is None:
                continue
            given = match.groupdict()
            inner = {it} if "x" not in given or given["x"] in PRONOUNS else value(given["x"])
            for x in filter(None, inner):
                if (result := done(operation, x, int(given.get("k") or 0))) is not None:
                    yield result


def rows(text: str, it: str | None) -> Iterator[str]:
    """What a row of orders leads to, wherever one order may end and the next begin."""
    words = text.split()
    for end in range(2, len(words) + 1):
        for result in set(phrased(" ".join(words[:end]), "order", it)):
            if end == len(words):
                yield result
            for joint in JOINTS:
                if tuple(words[end : end + len(joint)]) == joint:
                    yield from rows(" ".join(words[end + len(joint) :]), result)


def done(operation: str, x: str, k: int) -> str | None:
    """The operation, written once more and in another way."""
    if operation in {"reverse", "count", "sort", "first", "last"}:
        if not x.isalpha() or len(x) not in range(3, 10):  # "the element whose symbol is O written backwards" is OXYGEN
            return None
        return {"reverse": "".join(reversed(x)), "count": f"{len(list(x))}", "sort": "".join(sorted(x)),
                "first": x[:1], "last": x[-1:]}[operation]  # fmt: skip
    if operation in {"add", "subtract", "multiply"}:
        return None if not x.isdecimal() else str(
            {"add": int(x) + k, "subtract": int(x) - k, "multiply": int(x) * k}[operation]
        )  # fmt: skip
    return fact(operation, x)


def fact(operation: str, x: str) -> str | None:
    for name, symbol, number in ELEMENTS:
        pair = {"element": (symbol, name), "symbol": (name, symbol), "number": (name, str(number)),
                "numbered": (str(number), name)}.get(operation)  # fmt: skip
        if pair is not None and pair[0] == x:
            return pair[1]
    for one, two in OPPOSITES:
        if operation == "opposite" and x in (one, two):
            return two if x == one else one
    if operation in {"after", "before"} and x in MONTHS:
        return MONTHS[(MONTHS.index(x) + (1 if operation == "after" else -1)) % 12]
    return CAPITALS.get(x) if operation == "capital" else None
