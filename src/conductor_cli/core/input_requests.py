"""What a server of tools asks a person: a form of plain fields, or a visit to an address.

The texts of a request are the server's, and nobody has checked them. A pattern is shown and not
run, because a server could send one that never ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from math import isfinite
from typing import Any, Final, Literal

from conductor_cli.core.serialization import MAX_NUMBER

FieldType = Literal["text", "number", "integer", "boolean", "choice", "choices"]
InputAction = Literal["accept", "decline", "cancel"]
FieldValue = str | int | float | bool | list[str]

MAX_FIELDS: Final = 20
MAX_TEXT: Final = 2000  # Characters of one text of the server
MAX_OPTIONS: Final = 100

_NUMBER: Final = re.compile(r"[+-]?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_WEB_ADDRESS: Final = re.compile(r"https?://[^\s/?#@]", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_BOOLEANS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_TYPES: Final[dict[str, FieldType]] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}


class NoForm(ValueError):
    """A request cannot be shown as a form. Its text says why."""


class WrongValue(ValueError):
    """What was typed is no value of its field. Its text says what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOption:
    """One of the values that may be chosen, and what it is called."""

    value: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """One field of a form.

    `default` is a text as a person would type it; empty where there is none. The bounds hold the
    length of a text, the value of a number, or how many options are chosen.
    """

    name: str
    type: FieldType
    title: str = ""
    about: str = ""
    required: bool = False
    default: str = ""
    options: tuple[InputOption, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    format: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """What `server` asks: the `fields` of a form, or with `url` a visit to an address."""

    server: str
    message: str
    fields: tuple[InputField, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReply:
    """What the person did, and the `values` of the fields by name."""

    action: InputAction
    values: Mapping[str, FieldValue] = field(default_factory=dict)


def form_request(server: str, message: str, schema: Mapping[str, Any]) -> InputRequest:
    """Return the request of a form with the fields of a JSON Schema. Raises `NoForm`."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise NoForm("its form has no fields")
    if len(properties) > MAX_FIELDS:
        raise NoForm(f"its form has {len(properties)} fields, and at most {MAX_FIELDS} are asked")
    required = schema.get("required")
    names: Sequence[Any] = ()
    if isinstance(required, list):
        names = required
    fields = []
    for name, listed in properties.items():
        if not isinstance(listed, Mapping):
            raise NoForm(f"the field {str(name)!r:.60} of its form has no type")
        fields.append(_read_field(str(name), listed, required=name in names))
    return InputRequest(server=server, message=message[:MAX_TEXT], fields=tuple(fields))


def visit_request(server: str, message: str, url: str) -> InputRequest:
    """Return the request of a visit to an address. Raises `NoForm`."""
    if not _WEB_ADDRESS.match(url):
        raise NoForm("its address is none of http or https")
    if len(url) > MAX_TEXT:
        raise NoForm(f"its address is longer than {MAX_TEXT} characters")
    return InputRequest(server=server, message=message[:MAX_TEXT], url=url)


def _read_field(name: str, listed: Mapping[str, Any], *, required: bool) -> InputField:
    """Return a field of a property of a schema. Raises `NoForm`."""
    kind = listed.get("type", "string")
    options = _read_options(listed)
    if kind == "array":
        items = listed.get("items")
        if isinstance(items, Mapping):
            options = _read_options(items)
        if not options:
            raise NoForm(f"the field {name!r:.60} of its form is a list without choices")
        field_type: FieldType = "choices"
    elif options:
        field_type = "choice"
    elif isinstance(kind, str) and kind in _TYPES:
        field_type = _TYPES[kind]
    else:
        raise NoForm(f"the field {name!r:.60} of its form has a type that nobody could type")
    default = _typed(listed.get("default"))
    if any(len(text) > MAX_TEXT for text in (name, default, *(item.value for item in options))):
        raise NoForm(
            f"the field {name!r:.60} of its form has a text of more than {MAX_TEXT} characters"
        )
    lowest, highest = _BOUNDS.get(field_type, ("", ""))
    return InputField(
        name=name,
        type=field_type,
        title=_text(listed, "title"),
        about=_text(listed, "description"),
        required=required,
        default=default,
        options=options,
        minimum=_number(listed, lowest),
        maximum=_number(listed, highest),
        format=_text(listed, "format"),
        pattern=_text(listed, "pattern"),
    )


_BOUNDS: Final = {
    "text": ("minLength", "maxLength"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "choices": ("minItems", "maxItems"),
}
"""The words of JSON Schema for the bounds of a field, by its type."""


def _read_options(listed: Mapping[str, Any]) -> tuple[InputOption, ...]:
    """Return the choices of a property: of its `enum`, or of the constants of its `oneOf`."""
    options = []
    values = listed.get("enum")
    titled = listed.get("oneOf") or listed.get("anyOf")
    if isinstance(values, list):
        titles = listed.get("enumNames")
        if not isinstance(titles, list) or len(titles) != len(values):
            titles = values
        for value, title in zip(values, titles, strict=True):
            options.append(InputOption(value=str(value), title=str(title)[:MAX_TEXT]))
    elif isinstance(titled, list):
        for option in titled:
            if isinstance(option, Mapping) and "const" in option:
                title = _text(option, "title")
                options.append(InputOption(value=str(option["const"]), title=title))
    if len(options) > MAX_OPTIONS:
        raise NoForm(f"its form has {len(options)} choices, and at most {MAX_OPTIONS} are shown")
    return tuple(options)


def _text(listed: Mapping[str, Any], name: str) -> str:
    value = listed.get(name)
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return ""


def _number(listed: Mapping[str, Any], name: str) -> float | None:
    """Return a bound; None where there is none, or one beyond every number that a trace holds.

    Programs write the largest number of their language where they mean no bound.
    """
    value = listed.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -MAX_NUMBER <= value <= MAX_NUMBER:
        return None
    return value


def _typed(value: object) -> str:
    """Return a default value as a person would type it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def read_value(field: InputField, text: str) -> FieldValue:
    """Return the value that was typed for a field. Raises `WrongValue`."""
    match field.type:
        case "text":
            return _read_text(field, text)
        case "number" | "integer":
            return _read_number(field, text)
        case "boolean":
            if text.strip().lower() not in _BOOLEANS:
                raise WrongValue("type yes or no")
            return _BOOLEANS[text.strip().lower()]
        case "choice":
            return _chosen(field, text)
        case "choices":
            chosen = [_chosen(field, part) for part in text.split(",") if part.strip()]
            _check_bounds(field, len(chosen), "the number of choices")
            return chosen


def _read_text(field: InputField, text: str) -> str:
    _check_bounds(field, len(text), "the number of characters")
    try:
        if field.format == "date":
            date.fromisoformat(text)
        elif field.format == "date-time":
            datetime.fromisoformat(text)
    except ValueError:
        example = "2026-11-29" if field.format == "date" else "2026-11-29T12:30:00Z"
        raise WrongValue(f"type it as in {example}") from None
    if field.format == "email" and not _EMAIL.fullmatch(text):
        raise WrongValue("type an address as in ann@example.com")
    if field.format == "uri" and not text.partition(":")[2]:
        raise WrongValue("type an address as in https://example.com")
    return text


def _read_number(field: InputField, text: str) -> int | float:
    text = text.strip()
    if _INTEGER.fullmatch(text):
        value: int | float = int(text)
    elif field.type == "integer":
        raise WrongValue("type a whole number")
    elif _NUMBER.fullmatch(text):
        value = float(text)
        if not isfinite(value):
            raise WrongValue("type a smaller number")
    else:
        raise WrongValue("type a number")
    _check_bounds(field, value, "the number")
    return value


def _check_bounds(field: InputField, value: float, measure: str) -> None:
    """Raise `WrongValue` where a value is out of the bounds of its field."""
    if field.minimum is not None and value < field.minimum:
        raise WrongValue(f"{measure} has to be at least {field.minimum:g}")
    if field.maximum is not None and value > field.maximum:
        raise WrongValue(f"{measure} may be at most {field.maximum:g}")


def _chosen(field: InputField, text: str) -> str:
    """Return the value of the option that a text names, by its number, its value or its title."""
    text = text.strip()
    for option in field.options:
        if text in (option.value, option.title):
            return option.value
    if _INTEGER.fullmatch(text) and 1 <= int(text) <= len(field.options):
        return field.options[int(text) - 1].value
    raise WrongValue(f"type a number from 1 to {len(field.options)}")
