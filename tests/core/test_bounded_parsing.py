"""TOML and JSON of others.

What would take too much is refused before it is parsed, and nothing else is.
"""

from __future__ import annotations

import json
import tracemalloc

import pytest

from conductor_cli.core.bounded_parsing import (
    MAX_JSON_VALUES,
    MAX_KEY_PARTS,
    MAX_TOML,
    parse_json,
    parse_toml,
    parse_whole_number,
)

HOSTILE = {
    "dotted": "a." * 8000 + "b=1",
    "quoted": '"\\"".' * 4000 + "b=1",
    "literal": "'x'." * 4000 + "b=1",
    "spaced": "a . " * 4000 + "b=1",
    "of a table": "[" + "a." * 8000 + "b]",
    "of an inline table": "x={" + "a." * 8000 + "b=1}",
    "after a text": 'x = """\n"""\n' + "a." * 8000 + "b=1",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_key_of_many_parts_is_refused_without_being_read(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"more than {MAX_KEY_PARTS} parts"):
            parse_toml(text.encode())
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_files_hold_is_read() -> None:
    text = (
        '\ufeffa.b."c.d".e = "1.2.3.4.5.6.7.8"\nhost = "w.x.y.example.com"\nn = 1.5\n# and so '
        "on. And on. …\n"
    )
    nested = {"b": {"c.d": {"e": "1.2.3.4.5.6.7.8"}}}
    assert parse_toml(text.encode()) == {"a": nested, "host": "w.x.y.example.com", "n": 1.5}


def test_a_large_file_and_deep_nesting_are_refused() -> None:
    with pytest.raises(ValueError, match="larger than 256 KiB"):
        parse_toml(b"#" * (MAX_TOML + 1))
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(b"a=" + b"[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 40_000)


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 10**6, '"' * 10**6, "[" + '"",' * 10**6, "{" + '"a":1,' * 10**6]
)
def test_json_of_very_many_values_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_JSON_VALUES:,} values"):
        parse_json(text)


def test_a_long_text_with_marks_of_json_in_it_is_read() -> None:
    value = {"text": '[{"a": 1}, \\ "b",' * 60_000, "n": [1, 2.5, None]}
    assert parse_json(json.dumps(value)) == value


def test_a_text_without_an_end_is_read_once() -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        parse_json('{"' + '\\"' * 10**6)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)]
    + [
        (text, None)
        for text in ("", "-1", "+1", "1.0", " 1", "²", "٣", "1_0", "9" * 19, "9" * 5000)
    ],
)
def test_only_digits_of_a_number_that_can_be_meant_are_read(text: str, number: int | None) -> None:
    assert parse_whole_number(text) == number
