"""Convert frozen dataclasses to and from JSON values, by their annotations.

Unknown keys are ignored, and a missing key takes the field's default. A union of dataclasses is
told apart by the keys that each requires.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import escape_json

T = TypeVar("T")


MAX_WHOLE: Final = 2**63 - 1
LARGEST: Final = 1e30
LEAST: Final = 1e-30
"""The bounds of whole and of other numbers, and the least amount of money that is not 0. Nothing in
a run is beyond them, and `1E+999999999` is a short text for a number with as many digits.
"""


class DecodeError(ValueError):
    """A JSON value that does not have the shape its reader expects.

    `str()` says where and what was expected.
    """


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_line(value: Any, secrets: Secrets | None = None) -> str:  # noqa: ANN401 - any JSON value
    """Return a JSON value as one line, without the newline and without any of `secrets`.

    Whatever breaks lines or terminals is an escape in it.
    """
    line = escape_json(_ENCODE(value))
    # Searching the finished line is cheap. Redacting value by value, which keeps the JSON valid, is
    # done only on a hit.
    if secrets is None or not secrets.holds(line):
        return line
    return escape_json(_ENCODE(secrets.redact_data(value)))


def decode_line(line: str, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the JSON value in a line.

    Raises `DecodeError`, also for text that is not JSON.
    """
    try:
        return read(json.loads(line))
    except DecodeError:
        raise  # it is a `ValueError` too, and says more than the next line would
    except ValueError as error:
        raise DecodeError(f"not JSON: {error}") from None
    except RecursionError:
        raise DecodeError("not an event: nested too deep") from None


_PLAIN = frozenset({str, int, float, bool, type(None)})


def dump(value: Any, *, brief: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value of anything.

    A `brief` one has no fields that have their default: `load` adds them.
    """
    # Most values are plain, and this runs for every field of every event.
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        found = {}
        for name, default in _defaults(type(value)):
            item = getattr(value, name)
            # `1 == True`, so the types are compared too.
            if brief and (item is default or (type(item) is type(default) and item == default)):
                continue
            found[name] = dump(item, brief=brief)
        return found
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [dump(item, brief=brief) for item in value]
    if isinstance(value, Mapping):
        return {str(key): dump(item) for key, item in value.items()}
    return value


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:  # noqa: ANN401 - a dataclass
    return tuple(
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(kind)
    )


def load(kind: type[T], data: Any, where: str = "") -> T:  # noqa: ANN401 - any JSON value
    """Return an instance of the dataclass `kind` from a JSON object. Raises `DecodeError`."""
    value: T = _reader(cast("Any", kind))(data, where)
    return value


_Reader = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands, and returns the value in Python. Raises `DecodeError`."""


@cache
def _reader(hint: Any) -> _Reader:  # noqa: ANN401 - any annotation
    """Return how to read a value of this annotation.

    It is made once: a list of runs reads hundreds of thousands.
    """
    origin = get_origin(hint)
    options = get_args(hint)
    # A class may hold others of itself, so the readers of its fields are made when the first object
    # is read.
    known: list[tuple[str, Any, _Reader, bool]] = []
    others = [option for option in options if option is not type(None)]  # of a union

    def read_items(data: Any, where: str) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(data, list | tuple):
            raise DecodeError(f"{where}: expected a list, found {_describe_value(data)}")
        reader = _reader(options[0])
        return tuple([reader(value, f"{where}[{index}]") for index, value in enumerate(data)])

    def read_mapping(data: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(data, Mapping):
            raise DecodeError(f"{where}: expected an object, found {_describe_value(data)}")
        reader = _reader(options[1])
        return {str(key): reader(value, f"{where}.{key}") for key, value in data.items()}

    def read_literal(data: Any, where: str) -> Any:  # noqa: ANN401
        if data not in options:
            raise DecodeError(
                f"{where}: expected one of {', '.join(map(str, options))}, found {data!r:.40}"
            )
        return data

    def read_scalar(data: Any, where: str) -> Any:  # noqa: ANN401
        # In Python true is an int, in JSON it is not.
        is_it = isinstance(data, hint) and (hint is bool or not isinstance(data, bool))
        if is_it and (hint is not int or abs(data) <= MAX_WHOLE):
            return data
        raise DecodeError(f"{where}: expected {_type_name(hint)}, found {_describe_value(data)}")

    def read_number(data: Any, where: str) -> Decimal | float:  # noqa: ANN401
        """Return a finite number. Money is text in JSON, so that no digit is lost."""
        if type(data) is float and hint is float and -LARGEST <= data <= LARGEST:
            return data
        allowed = (str, int, float) if hint is Decimal else (int, float)
        if isinstance(data, allowed) and not isinstance(data, bool):
            with suppress(InvalidOperation, OverflowError, ValueError):
                value = Decimal(str(data)) if hint is Decimal else float(data)
                size = abs(float(value))
                if size <= LARGEST and (size >= LEAST or not value or hint is float):
                    return value
        raise DecodeError(f"{where}: expected {_type_name(hint)}, found {_describe_value(data)}")

    def read_union(data: Any, where: str) -> Any:  # noqa: ANN401
        if data is None and len(others) < len(options):
            return None
        # Several dataclasses fit an object only by the keys they require; the first whose keys are
        # all there is taken.
        if isinstance(data, Mapping) and len(others) > 1:
            for option in others:
                if all(name in data for name, default in _defaults(option) if default is MISSING):
                    return _reader(option)(data, where)
        return _reader(others[0])(data, where)

    def read_object(data: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(data, dict | Mapping):
            raise DecodeError(
                f"{where or hint.__name__}: expected an object, found {_describe_value(data)}"
            )
        if not known:
            hints = get_type_hints(hint)
            # At once: another thread must not find a part of them.
            known[:] = [
                (name, hints[name], _reader(hints[name]), it is MISSING)
                for name, it in _defaults(hint)
            ]
        values = {}
        for name, kind, reader, required in known:
            if name in data:
                value = data[name]
                plain = kind is str and type(value) is str
                values[name] = (
                    value if plain else reader(value, f"{where}.{name}" if where else name)
                )
            elif required:
                raise DecodeError(f"{where or hint.__name__}: {name!r} is missing")
        try:
            return hint(**values)
        except (ConfigError, ValueError) as error:
            raise DecodeError(f"{where or hint.__name__}: {error}") from None

    if origin in (Union, types.UnionType):
        return read_union
    if is_dataclass(hint):
        return read_object
    if hint in (Decimal, float):
        return read_number
    readers: dict[Any, _Reader] = {tuple: read_items, Mapping: read_mapping, Literal: read_literal}
    return (lambda data, _where: data) if hint is Any else readers.get(origin, read_scalar)


def _type_name(hint: Any) -> str:  # noqa: ANN401
    return {
        str: "text",
        int: "a whole number",
        float: "a number",
        Decimal: "a number",
        bool: "true or false",
    }.get(hint, str(hint))


def _describe_value(data: Any) -> str:  # noqa: ANN401
    if data is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    shown = f" ({data!r:.40})" if isinstance(data, (str, int, float)) else ""
    return names.get(type(data), type(data).__name__) + shown
