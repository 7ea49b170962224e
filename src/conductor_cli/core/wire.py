"""Frozen dataclasses to and from JSON values, by their annotations.

Unknown keys are ignored, so that an older reader can read a newer trace; a missing key takes the field's default. A
union of dataclasses is told apart by the keys that each requires. Nothing here knows what the classes mean.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class WireError(ValueError):
    """A JSON value that does not have the shape its reader expects. `str()` says where and what was expected."""


def dump(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value of a dataclass, container or scalar."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: dump(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [dump(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): dump(item) for key, item in value.items()}
    return value


def load(kind: type[T], data: Any, where: str = "") -> T:  # noqa: ANN401 - any JSON value
    """An instance of the dataclass `kind` from a JSON object. Raises `WireError`."""
    if not isinstance(data, Mapping):
        raise WireError(f"{where or kind.__name__}: expected an object, found {_called(data)}")
    values = {}
    for name, hint, required in _fields(kind):
        if name in data:
            values[name] = _read(hint, data[name], f"{where}.{name}" if where else name)
        elif required:
            raise WireError(f"{where or kind.__name__}: {name!r} is missing")
    return kind(**values)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    )


def _read(hint: Any, data: Any, where: str) -> Any:  # noqa: ANN401 - any JSON value
    origin = get_origin(hint)
    if hint is Any:
        return data
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), data, where)
    if origin is tuple:
        return _read_items(get_args(hint)[0], data, where)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(get_args(hint)[1], data, where)
    if origin is Literal:
        return _read_literal(get_args(hint), data, where)
    if is_dataclass(hint):
        return load(hint, data, where)
    return _read_scalar(hint, data, where)


def _read_union(options: tuple[Any, ...], data: Any, where: str) -> Any:  # noqa: ANN401
    if data is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if isinstance(data, Mapping) and len(options) > 1:
        for option in options:
            if all(name in data for name, _, required in _fields(option) if required):
                return load(option, data, where)
    return _read(options[0], data, where)


def _read_items(item: Any, data: Any, where: str) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(data, (list, tuple)):
        raise WireError(f"{where}: expected a list, found {_called(data)}")
    return tuple(_read(item, value, f"{where}[{index}]") for index, value in enumerate(data))


def _read_mapping(item: Any, data: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(data, Mapping):
        raise WireError(f"{where}: expected an object, found {_called(data)}")
    return {str(key): _read(item, value, f"{where}.{key}") for key, value in data.items()}


def _read_literal(options: tuple[Any, ...], data: Any, where: str) -> Any:  # noqa: ANN401
    if data not in options:
        raise WireError(f"{where}: expected one of {', '.join(map(str, options))}, found {data!r:.40}")
    return data


def _read_scalar(hint: Any, data: Any, where: str) -> Any:  # noqa: ANN401
    if hint is Decimal and isinstance(data, (str, int, float)) and not isinstance(data, bool):
        try:
            return Decimal(str(data))
        except InvalidOperation:
            pass
    elif hint is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data)
    elif isinstance(data, hint) and (hint is bool or not isinstance(data, bool)):
        return data
    raise WireError(f"{where}: expected {_wanted(hint)}, found {_called(data)}")


def _wanted(hint: Any) -> str:  # noqa: ANN401
    return {str: "text", int: "a whole number", float: "a number", Decimal: "a number", bool: "true or false"}.get(
        hint, str(hint)
    )


def _called(data: Any) -> str:  # noqa: ANN401
    if data is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    shown = f" ({data!r:.40})" if isinstance(data, (str, int, float)) else ""
    return names.get(type(data), type(data).__name__) + shown
