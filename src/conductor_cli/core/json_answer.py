"""The JSON value that an answer holds, where a model wrote a fence or words around it. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

MAX_CANDIDATES: Final = 5  # Values of one answer that are looked at
MAX_ATTEMPTS: Final = 200  # Brackets at which a value is looked for

_FENCE: Final = re.compile(r"^[ \t]*```[\w+-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_BRACKET: Final = re.compile(r"[{\[]")


def json_values_in(answer: str) -> tuple[str, ...]:
    """Return the texts of the JSON values that an answer may mean, at most `MAX_CANDIDATES`.

    They are the whole answer, if it is JSON; else what its fences hold; else the objects and arrays
    in its words.
    """
    if _is_json(answer):
        return (answer,)
    fenced = [block.strip() for block in _FENCE.findall(answer) if _is_json(block)]
    if fenced:
        return tuple(fenced[:MAX_CANDIDATES])
    return tuple(_embedded(answer))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _embedded(answer: str) -> list[str]:
    """Return the objects and arrays in a text, none within another."""
    decoder = json.JSONDecoder()
    values = list[str]()
    position = 0
    for _ in range(MAX_ATTEMPTS):
        bracket = _BRACKET.search(answer, position)
        if bracket is None or len(values) == MAX_CANDIDATES:
            break
        start = bracket.start()
        position = start + 1
        try:
            _, position = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            continue
        values.append(answer[start:position])
    return values
