"""What a server of tools asks a person, as fields, and what they type for them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from conductor_cli.core.events import InputAsked, from_line, to_line
from conductor_cli.core.input_requests import (
    InputField,
    NoForm,
    WrongValue,
    form_request,
    read_value,
    visit_request,
)


def field_of(schema: dict[str, Any]) -> InputField:
    request = form_request("t", "?", {"properties": {"x": schema}, "required": ["x"]})
    [field] = request.fields
    assert field.required
    return field


TITLED = [{"const": "a", "title": "Anna"}, {"const": "b", "title": "Ben"}]


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "Ann ", "Ann "),
        ({"type": "string", "format": "email"}, "ann@example.com", "ann@example.com"),
        ({"type": "string", "format": "date"}, "2026-11-29", "2026-11-29"),
        ({"type": "string", "format": "date-time"}, "2026-11-29T12:30:00Z", "2026-11-29T12:30:00Z"),
        ({"type": "integer"}, " 7 ", 7),
        ({"type": "number"}, "2.5e1", 25.0),
        ({"type": "number"}, "-3", -3),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["s", "d"], "enumNames": ["single", "double"]}, "double", "d"),
        ({"type": "string", "enum": ["10", "2"]}, "2", "2"),  # a value before a place
        ({"type": "string", "oneOf": TITLED}, "2", "b"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "3, a", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, "Ben", ["b"]),
    ],
)
def test_what_a_person_types_becomes_a_value_of_the_type(
    schema: dict[str, Any], typed: str, value: object
) -> None:
    read = read_value(field_of(schema), typed)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("schema", "typed", "problem"),
    [
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "number"}, "nan", "type a number"),
        ({"type": "number"}, "1e999", "type a smaller number"),
        ({"type": "integer", "minimum": 1}, "0", "at least 1"),
        ({"type": "number", "maximum": 2.5}, "3", "at most 2.5"),
        ({"type": "string", "maxLength": 3}, "four", "at most 3"),
        ({"type": "string", "format": "date"}, "29.11.2026", "2026-11-29"),
        ({"type": "string", "format": "uri"}, "example", "https://example.com"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "from 1 to 2"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "at least 2"),
    ],
)
def test_what_is_no_value_of_a_field_is_explained(
    schema: dict[str, Any], typed: str, problem: str
) -> None:
    with pytest.raises(WrongValue, match=problem):
        read_value(field_of(schema), typed)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": ["string", "null"]},
        {"type": "array", "items": {"type": "string"}},
        {"type": "string", "enum": [str(number) for number in range(101)]},
        {"type": "string", "enum": ["x" * 2001]},
        {"type": "string", "default": "x" * 2001},
        "text",
    ],
)
def test_a_form_that_nobody_could_fill_in_is_none(schema: Any) -> None:
    with pytest.raises(NoForm):
        form_request("t", "?", {"properties": {"x": schema}})
    with pytest.raises(NoForm, match="21 fields"):
        form_request("t", "?", {"properties": {str(number): {} for number in range(21)}})


def test_defaults_are_typed_as_a_person_would() -> None:
    assert field_of({"type": "boolean", "default": False}).default == "no"
    assert field_of({"type": "number", "default": 95.5}).default == "95.5"
    chosen = field_of({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "b"]})
    assert read_value(chosen, chosen.default) == ["a", "b"]


@pytest.mark.parametrize(
    "bound",
    [1.7976931348623157e308, math.inf, -math.inf, math.nan, 10**400],
    ids=["largest", "inf", "-inf", "nan", "long"],
)
def test_a_bound_beyond_every_number_is_none(bound: float) -> None:
    """A trace holds no such number, and the whole of it could not be read again."""
    field = field_of({"type": "number", "minimum": bound, "maximum": bound})
    asked = InputAsked(at=0.0, step=1, attempt=1, turn=1, server="t", message="?", fields=(field,))
    assert (field.minimum, field.maximum) == (None, None)
    assert from_line(to_line(asked)) == asked


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://", "x" * 9])
def test_only_an_address_of_the_web_is_shown(url: str) -> None:
    with pytest.raises(NoForm):
        visit_request("t", "?", url)
