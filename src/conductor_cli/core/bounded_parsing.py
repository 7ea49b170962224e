"""Reading TOML and JSON that somebody else may have written.

Refused before parsing where it would take too much.

The parsers of the standard library take time and memory that grow with the square of the parts of a
TOML key, and some hundred bytes for each value. So size, parts and values are counted first, in one
pass that ends early. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_TOML: Final = 256 << 10
"""Bytes of a TOML file. The worst file of that size takes less than 100 MB."""

# Parts of a TOML key, as `a.b.c` has three; no setting has more than four
MAX_KEY_PARTS: Final = 16
MAX_JSON_VALUES: Final = 50_000  # Values and names in a JSON file, whatever the length of its texts

# Backslashes in a JSON text: each takes a parser longer than a plain character
MAX_ESCAPES: Final = 2_000_000

_PART: Final = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY: Final = re.compile(rf"{_PART}(?:\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}}")

# What is between the values is found in pieces, so that other threads go on.
_JSON_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]|[^"\[{,]{1,65536}+', re.DOTALL)


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises `ValueError` with a reason for one that is not valid or takes too much.
    """
    import tomllib  # completions that need no file start without it

    if len(content) > MAX_TOML:
        raise ValueError(f"it is larger than {MAX_TOML >> 10} KiB")
    text = content.decode("utf-8-sig")
    if text.count(".") >= MAX_KEY_PARTS and (long_key := _LONG_KEY.search(text)):
        line = text.count("\n", 0, long_key.start()) + 1
        raise ValueError(f"a key of more than {MAX_KEY_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables or lists are nested too deeply") from None


def parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON file.

    Raises `ValueError` with a reason for one that is not valid or takes too much.
    """
    if has_more_values(text.encode("utf-8", "replace"), MAX_JSON_VALUES):
        raise ValueError(f"it has more than {MAX_JSON_VALUES:,} values or {MAX_ESCAPES:,} escapes")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("objects or lists are nested too deeply") from None


MAX_DIGITS: Final = 18  # Of a whole number that somebody wrote; so many fit into 64 bits


def parse_whole_number(text: str) -> int | None:
    """Return the whole number from 0 that a text of digits means.

    None for any other text, and for more digits than any count, limit or number of a step has:
    Python refuses to convert thousands of them.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        return None
    return int(text)


def has_more_values(content: bytes | bytearray, most: int) -> bool:
    """Return whether a JSON text has more than `most` values or very many escapes.

    Names count as values, and so does what stands between them.
    """
    if content.count(b"\\") > MAX_ESCAPES:
        return True
    # First with what is inside of texts, which takes no time; one by one, so that other threads go
    # on.
    if sum(content.count(mark) for mark in (b'"', b",", b"[", b"{")) <= most:
        return False
    return any(number >= most for number, _ in enumerate(_JSON_TOKEN.finditer(content)))
