"""The JSON value that an answer holds, where a model wrote a fence or words around it. Pure.

And the numbers that Python's own reader takes for JSON although no other program does.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

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


class NumberTooLarge(ValueError):
    """A number in a JSON text is beyond all that programs hold, such as `1e999`."""


def read_strictly(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON text.

    Raises `ValueError`, also for `NaN` and `Infinity`, and `NumberTooLarge`.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_read_finite)


def _refuse_constant(name: str) -> None:
    """Refuse `NaN` and `Infinity`, which Python reads and no other reader of JSON."""
    raise ValueError(f"{name} is not JSON")


def _read_finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NumberTooLarge(f"{text:.40} is larger than any number that programs hold")
    return value


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
