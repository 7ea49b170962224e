"""Reading the fields of a request: each has the right type, or the error names it. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from conductor_cli.core.sanitize import one_line
from conductor_cli.server.api.request import RequestError

T = TypeVar("T")

_TYPES: Final[Mapping[type, str]] = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false", list: "an array",
    dict: "an object",
}  # fmt: skip

_MOST_IGNORED: Final = 20


def refused(param: str, message: str, code: str = "invalid_value") -> RequestError:
    """The error for a field that cannot be served. `message` goes on after its name."""
    return RequestError(400, code, f"{param} {message}", param=param)


def quoted(value: str) -> str:
    """The beginning of a client's own word, fit for an error message."""
    return f"'{one_line(value)[:60]}'"


def optional(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T | None:
    """The field of this type; None where it is left out or null. Raises `RequestError`."""
    value = body.get(name)
    return None if value is None else typed(value, kind, f"{where}.{name}" if where else name)


def required(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T:
    """The field of this type, which must be there. Raises `RequestError`."""
    value = optional(body, name, kind, where)
    if value is None:
        raise refused(f"{where}.{name}" if where else name, "is missing", "missing_required_parameter")
    return value


def typed(value: object, kind: type[T], param: str) -> T:
    """A value that is of this type as JSON has it: true is no number, and 1 is a float. Raises `RequestError`."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**53 else math.inf
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise refused(param, f"must be {_TYPES[kind]}", "invalid_type")
    return value


def whole_number(body: Mapping[str, Any], name: str, least: int, most: int = 2**63 - 1) -> int | None:
    """The field as a whole number within its bounds. Raises `RequestError`."""
    value = optional(body, name, int)
    if value is not None and not least <= value <= most:
        raise refused(name, f"must be a whole number from {least} to {most}")
    return value


def number(body: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    """The field as a number within its bounds. Raises `RequestError`."""
    value = optional(body, name, float)
    if value is not None and not least <= value <= most:
        raise refused(name, f"must be a number from {least:g} to {most:g}")
    return value


def read_stop(body: Mapping[str, Any], name: str = "stop", most: int = 16) -> tuple[str, ...]:
    """Stop sequences: one string or several. Raises `RequestError`."""
    value = body.get(name)
    values = [value] if isinstance(value, str) else optional(body, name, list) or []
    if len(values) > most:
        raise refused(name, f"must have at most {most} entries")
    return tuple(dict.fromkeys(text for n, each in enumerate(values) if (text := typed(each, str, f"{name}[{n}]"))))


def read_max_cost(body: Mapping[str, Any]) -> Decimal | None:
    """`conductor.max_cost`: a number of dollars, or a string of one. Raises `RequestError`.

    The object is this server's own, so a field that it does not have is refused: a misspelt limit would be none.
    """
    own = optional(body, "conductor", dict) or {}
    if unknown := sorted(set(map(str, own)) - {"max_cost"}):
        raise refused("conductor", f"has no field {quoted(unknown[0])}; it has max_cost", "unknown_parameter")
    value = own.get("max_cost")
    if value is None:
        return None
    try:
        cost = Decimal(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except InvalidOperation:
        cost = None
    if cost is None or not cost.is_finite() or cost <= 0:
        raise refused("conductor.max_cost", "must be an amount of US dollars above 0")
    return cost


def ignored_fields(body: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """The names of the fields that are not read, for the log."""
    return tuple(one_line(name)[:60] for name in sorted(set(map(str, body)) - set(known))[:_MOST_IGNORED])
