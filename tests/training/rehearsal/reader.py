"""Works out a step of the rehearsal from its words alone: an independent computation for the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, permutations

from conductor_cli.rehearsal.words import normalize
from training.rehearsal.phrasings import WAYS, PhrasingForm, expand, lines_of
from training.rehearsal.sentences import clause
from training.rehearsal.words import CAPITALS, COLOURS, ELEMENTS, MONTHS, OPPOSITES, SPANISH, WEEKDAYS

FORMS: tuple[PhrasingForm, ...] = ("noun", "ask", "order", "then")
VALUE = re.compile(r"\b(it|that|the result|the first|the second|[A-Z]+|[0-9]+)\b")
BEFORE = {"it": -1, "that": -1, "the result": -1, "the first": 0, "the second": 1}


def readings(subtask: str, seen: Sequence[str]) -> set[str]:
    """Every answer that the words of a step can be read to ask for, given the answers that it sees."""
    return set(filter(None, _readings(subtask, seen)))


def _readings(subtask: str, seen: Sequence[str]) -> Iterator[str | None]:
    values = list(VALUE.finditer(subtask))
    for given in ([], *([one] for one in values), *(list(two) for two in combinations(values, 2))):
        for names in permutations("xy", len(given)):
            slots = dict(zip(names, given, strict=True))
            if "y" in slots and "x" not in slots:
                continue
            for operation in _texts().get(_with_slots(subtask, slots), ()):
                yield _read(operation, {name: value[0] for name, value in slots.items()}, seen)


def _with_slots(subtask: str, slots: dict[str, re.Match[str]]) -> str:
    """The step with marks in the place of its values."""
    for name, value in sorted(slots.items(), key=lambda slot: -slot[1].start()):
        subtask = f"{subtask[: value.start()]}{name.upper()}V{subtask[value.end() :]}"
    return subtask


def _read(operation: str, given: dict[str, str], seen: Sequence[str]) -> str | None:
    """The answer of one reading; None if it makes no sense."""
    words = [given[name] for name in ("x", "y") if name in given]
    if not words:
        return done(operation, *seen)
    if any(word in BEFORE and not seen for word in words):
        return None
    return done(operation, *(seen[BEFORE[word]] if word in BEFORE else word for word in words))


@cache
def _texts() -> dict[str, list[str]]:
    """The operations that a step with marks in the place of its values can ask for."""
    found: dict[str, list[str]] = {}
    for operation, lines in WAYS.items():
        texts = {text for form in FORMS for line in lines_of(lines, form, "all") for text in expand(line)}
        for text in {_marked(text) for text in texts}:
            found.setdefault(text, []).append(operation)
    return found


def _marked(text: str) -> str:
    return clause(normalize(text.replace("{x}", "XV").replace("{y}", "YV")))


def done(operation: str, *values: str) -> str | None:
    """The operation, written once more and in another way."""
    numbers = [int(value) for value in values if value.isdecimal()]
    if operation in NUMBERS:
        return None if len(numbers) != len(values) or len(numbers) != NUMBERS[operation] else _sum(operation, numbers)
    if numbers and operation not in {"numbered", "month_numbered"}:
        return None
    if len(values) == 2:
        return _two(operation, *values)
    return None if len(values) != 1 else _letters(operation, values[0]) or _fact(operation, values[0])


NUMBERS = {"plus": 2, "minus": 2, "times": 2, "larger": 2, "smaller": 2, "double": 1, "triple": 1, "half": 1}


def _sum(operation: str, numbers: list[int]) -> str | None:
    one, other = numbers[0], numbers[-1]
    found = {"plus": one + other, "minus": one - other, "times": one * other, "larger": max(numbers), "triple": 3 * one,
             "smaller": min(numbers), "double": one + one, "half": one / 2}[operation]  # fmt: skip
    return str(int(found)) if found >= 0 and found == int(found) else None


def _two(operation: str, one: str, other: str) -> str | None:
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return {
        "joined": f"{one}{other}", "longer": longer, "shorter": shorter, "alphabetical": min(one, other),
    }.get(operation)  # fmt: skip


def _letters(operation: str, word: str) -> str | None:
    vowels = len(re.findall("[AEIOU]", word))
    found = {"reverse": "".join(reversed(word)), "letters": f"{len(list(word))}", "sort": "".join(sorted(word)),
             "first": word[:1], "last": word[-1:], "vowels": f"{vowels}"}  # fmt: skip
    return found.get(operation)


def _fact(operation: str, x: str) -> str | None:
    for name, symbol, number in ELEMENTS:
        pair = {"element": (symbol, name), "symbol": (name, symbol), "atomic": (name, str(number)),
                "numbered": (str(number), name)}.get(operation)  # fmt: skip
        if pair is not None and pair[0] == x:
            return pair[1]
    for one, two in OPPOSITES:
        if operation == "opposite" and x in (one, two):
            return two if x == one else one
    return _date(operation, x) or _table(operation, x)


def _date(operation: str, x: str) -> str | None:
    kind, _, what = operation.partition("_")
    names = {"month": MONTHS, "day": WEEKDAYS}.get(kind, ())
    if what == "numbered":
        return names[int(x) - 1] if x.isdecimal() and 0 < int(x) <= len(names) else None
    if x not in names:
        return None
    at = names.index(x)
    return str(at + 1) if what == "number" else names[(at + (1 if what == "after" else -1)) % len(names)]


def _table(operation: str, x: str) -> str | None:
    tables = {"capital": CAPITALS, "spanish": SPANISH, "colour": COLOURS}
    turned = {"country": CAPITALS, "english": SPANISH}
    if operation in turned:
        return next((key for key, value in turned[operation].items() if value == x), None)
    return tables.get(operation, {}).get(x)
