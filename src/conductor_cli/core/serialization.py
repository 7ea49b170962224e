"""Convert frozen dataclasses to and from JSON values, by their annotations.

Unknown keys are ignored, and a missing key takes the field's default. A union of dataclasses is
told apart by the keys that each requires.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import escape_json

T = TypeVar("T")


MAX_WHOLE: Final = 2**63 - 1
MAX_NUMBER: Final = 1e30
MIN_MONEY: Final = 1e-30
"""The bounds of whole and of other numbers, and the least amount of money that is not 0.

Nothing in a run is beyond them, and `1E+999999999` is a short text for a number with as many
digits.
"""


class DecodeError(ValueError):
    """A JSON value that does not have the shape its reader expects.

    `str()` says where and what was expected.
    """


MAX_PIECE_CHARACTERS: Final = 64 << 10
"""Characters of JSON that are written at once, about: as many take a tenth of a millisecond.

A call of the encoder holds up all other threads of the process until it has ended.
"""
_ITEM_CHARACTERS: Final = 8  # What a name or a value counts besides its text
_GROUP_ITEMS: Final = 64  # Entries of a long list that are written at once if they are short


def encode_json(value: Any, encoder: json.JSONEncoder) -> str:  # noqa: ANN401 - any JSON value
    """Return what `encoder` makes of a JSON value, by as many short calls as it takes.

    So other threads go on while megabytes are written. Names of fields are texts.
    """
    if not _is_long(value):  # as most are
        return encoder.encode(value)
    return "".join(json_pieces(value, encoder))


def json_pieces(value: Any, encoder: json.JSONEncoder) -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield the same in pieces of about `MAX_PIECE_CHARACTERS` at most."""
    if not _is_long(value):
        yield encoder.encode(value)
    elif isinstance(value, str):
        yield from _text_pieces(value, encoder)
    elif isinstance(value, dict):
        names: Iterable[Any] = value
        if encoder.sort_keys:
            names = sorted(names)
        separator = "{"
        for name in names:
            yield separator
            yield from json_pieces(name, encoder)
            yield encoder.key_separator
            yield from json_pieces(value[name], encoder)
            separator = encoder.item_separator
        yield "}"
    else:
        yield from _list_pieces(value, encoder)


def _text_pieces(text: str, encoder: json.JSONEncoder) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), MAX_PIECE_CHARACTERS):
        yield encoder.encode(text[start : start + MAX_PIECE_CHARACTERS])[1:-1]
    yield '"'


def _list_pieces(items: Sequence[Any], encoder: json.JSONEncoder) -> Iterator[str]:
    separator = "["
    for start in range(0, len(items), _GROUP_ITEMS):
        group = items[start : start + _GROUP_ITEMS]
        if not _is_long(group):
            yield separator
            yield encoder.encode(group)[1:-1]
            separator = encoder.item_separator
            continue
        for item in group:
            yield separator
            yield from json_pieces(item, encoder)
            separator = encoder.item_separator
    yield "]"


def _is_long(value: object) -> bool:
    """Return whether a JSON value may be longer than one piece. It is looked at only so far.

    Names of fields are taken for short ones: this runs for every line of a trace.
    """
    left: list[Any] = [value]
    size = 0
    for item in left:  # which grows meanwhile
        kind = type(item)  # what is of any other kind is short
        if kind is str:
            size += len(item)
        elif kind is dict:
            size += _ITEM_CHARACTERS * len(item)
            left += item.values()
        elif kind is list or kind is tuple:
            size += _ITEM_CHARACTERS * len(item)
            if size <= MAX_PIECE_CHARACTERS:
                left += item
        if size > MAX_PIECE_CHARACTERS:
            return True
    return False


_LINE_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode_line(value: Any, secrets: Secrets | None = None) -> str:  # noqa: ANN401 - any JSON value
    """Return a JSON value as one line, without the newline and without any of `secrets`.

    Whatever breaks lines or terminals is an escape in it.
    """
    line = escape_json(encode_json(value, _LINE_ENCODER))
    # Searching the finished line is cheap. Redacting value by value, which keeps the JSON valid, is
    # done only on a hit.
    if secrets is None or not secrets.holds(line):
        return line
    return escape_json(encode_json(secrets.redact_data(value), _LINE_ENCODER))


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
    kind: Any = type(value)
    if _is_dataclass(kind):
        values = {}
        for name, default in _defaults(kind):
            item = getattr(value, name)
            # `1 == True`, so the types are compared too.
            if brief and (item is default or (type(item) is type(default) and item == default)):
                continue
            # Tested here too: a call for each field took a sixth of the time.
            values[name] = item if type(item) in _PLAIN else dump(item, brief=brief)
        return values
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [dump(item, brief=brief) for item in value]
    if isinstance(value, Mapping):
        return {str(key): dump(item) for key, item in value.items()}
    return value


_is_dataclass = cache(is_dataclass)


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:  # noqa: ANN401 - a dataclass
    return tuple((field.name, _default(field)) for field in fields(kind))


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - of any kind
    """Return the default of a field, `MISSING` where it has none."""
    if field.default_factory is MISSING:
        return field.default
    return field.default_factory()


def load(kind: type[T], json_value: Any, where: str = "") -> T:  # noqa: ANN401 - any JSON value
    """Return an instance of the dataclass `kind` from a JSON object. Raises `DecodeError`."""
    value: T = _reader(cast("Any", kind))(json_value, where)
    return value


_Reader = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands, and returns the value in Python. Raises `DecodeError`."""


@cache
def _reader(hint: Any) -> _Reader:  # noqa: ANN401 - any annotation
    """Return how to read a value of this annotation.

    It is made once: a list of runs reads hundreds of thousands.
    """
    if is_dataclass(hint):
        return _object_reader(hint)
    if hint in _FIXED_READERS:
        return _FIXED_READERS[hint]
    origin = get_origin(hint)
    if origin in _READER_MAKERS:
        return _READER_MAKERS[origin](get_args(hint))
    return _instance_reader(hint)


def _object_reader(kind: Any) -> _Reader:  # noqa: ANN401 - a dataclass
    def read_object(json_value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(json_value, dict | Mapping):
            raise _unexpected(where or kind.__name__, "an object", json_value)
        values = {}
        for name, is_text, reader, required in _object_fields(kind):
            if name in json_value:
                value = json_value[name]
                # Most fields are text, and most objects are not in another one.
                if not (is_text and type(value) is str):
                    path = f"{where}.{name}" if where else name
                    value = reader(value, path)
                values[name] = value
            elif required:
                raise DecodeError(f"{where or kind.__name__}: {name!r} is missing")
        try:
            return kind(**values)
        except (ConfigError, ValueError) as error:
            raise DecodeError(f"{where or kind.__name__}: {error}") from None

    return read_object


class _ObjectField(NamedTuple):
    name: str
    is_text: bool
    reader: _Reader
    required: bool


@cache
def _object_fields(kind: Any) -> tuple[_ObjectField, ...]:  # noqa: ANN401 - a dataclass
    """Return the fields of a dataclass: asked for when reading, as it may hold others of itself."""
    hints = get_type_hints(kind)
    object_fields = []
    for name, default in _defaults(kind):
        object_fields.append(
            _ObjectField(name, hints[name] is str, _reader(hints[name]), default is MISSING)
        )
    return tuple(object_fields)


def _union_reader(options: tuple[Any, ...]) -> _Reader:
    kinds = [option for option in options if option is not type(None)]
    may_be_none = len(kinds) < len(options)

    def read_union(json_value: Any, where: str) -> Any:  # noqa: ANN401
        if json_value is None and may_be_none:
            return None
        kind = kinds[0]
        if len(kinds) > 1 and isinstance(json_value, Mapping):
            kind = _fitting_kind(kinds, json_value)
        return _reader(kind)(json_value, where)

    return read_union


def _fitting_kind(kinds: Sequence[Any], json_value: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the first of several dataclasses whose required keys an object has.

    The first of all where none fits: its reader says what is missing.
    """
    for kind in kinds:
        if all(name in json_value for name in _required_names(kind)):
            return kind
    return kinds[0]


@cache
def _required_names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass
    return tuple(name for name, default in _defaults(kind) if default is MISSING)


def _list_reader(options: tuple[Any, ...]) -> _Reader:
    item_hint = options[0]

    def read_list(json_value: Any, where: str) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(json_value, list | tuple):
            raise _unexpected(where, "a list", json_value)
        reader = _reader(item_hint)
        return tuple([reader(value, f"{where}[{index}]") for index, value in enumerate(json_value)])

    return read_list


def _mapping_reader(options: tuple[Any, ...]) -> _Reader:
    _, value_hint = options

    def read_mapping(json_value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(json_value, Mapping):
            raise _unexpected(where, "an object", json_value)
        reader = _reader(value_hint)
        return {str(key): reader(value, f"{where}.{key}") for key, value in json_value.items()}

    return read_mapping


def _literal_reader(options: tuple[Any, ...]) -> _Reader:
    def read_literal(json_value: Any, where: str) -> Any:  # noqa: ANN401
        if json_value not in options:
            names = ", ".join(map(str, options))
            raise DecodeError(f"{where}: expected one of {names}, found {json_value!r:.40}")
        return json_value

    return read_literal


def _instance_reader(kind: Any) -> _Reader:  # noqa: ANN401 - a class, such as str
    def read_instance(json_value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(json_value, kind):
            raise _unexpected(where, _type_name(kind), json_value)
        return json_value

    return read_instance


def _read_anything(json_value: Any, _where: str) -> Any:  # noqa: ANN401
    return json_value


def _read_whole(json_value: Any, where: str) -> int:  # noqa: ANN401
    # In Python true is an int, in JSON it is not.
    if (
        isinstance(json_value, int)
        and not isinstance(json_value, bool)
        and abs(json_value) <= MAX_WHOLE
    ):
        return json_value
    raise _unexpected(where, _type_name(int), json_value)


def _read_float(json_value: Any, where: str) -> float:  # noqa: ANN401
    """Return a finite number."""
    if type(json_value) is float and -MAX_NUMBER <= json_value <= MAX_NUMBER:
        return json_value
    if isinstance(json_value, (int, float)) and not isinstance(json_value, bool):
        with suppress(OverflowError):
            value = float(json_value)
            if abs(value) <= MAX_NUMBER:
                return value
    raise _unexpected(where, _type_name(float), json_value)


def _read_decimal(json_value: Any, where: str) -> Decimal:  # noqa: ANN401
    """Return an amount of money, which is text in JSON, so that no digit is lost."""
    if isinstance(json_value, (str, int, float)) and not isinstance(json_value, bool):
        with suppress(InvalidOperation, OverflowError, ValueError):
            value = Decimal(str(json_value))
            size = abs(float(value))
            if value == 0 or MIN_MONEY <= size <= MAX_NUMBER:
                return value
    raise _unexpected(where, _type_name(Decimal), json_value)


_FIXED_READERS: Final[dict[Any, _Reader]] = {
    Any: _read_anything,
    int: _read_whole,
    float: _read_float,
    Decimal: _read_decimal,
}
"""How to read what needs no more than the value itself."""

_READER_MAKERS: Final[dict[Any, Callable[[tuple[Any, ...]], _Reader]]] = {
    Union: _union_reader,
    types.UnionType: _union_reader,
    tuple: _list_reader,
    Mapping: _mapping_reader,
    Literal: _literal_reader,
}
"""What makes a reader from the arguments of an annotation, by its origin."""


def _unexpected(where: str, expected: str, value: Any) -> DecodeError:  # noqa: ANN401
    return DecodeError(f"{where}: expected {expected}, found {_describe_value(value)}")


def _type_name(hint: Any) -> str:  # noqa: ANN401
    return {
        str: "text",
        int: "a whole number",
        float: "a number",
        Decimal: "a number",
        bool: "true or false",
    }.get(hint, str(hint))


def _describe_value(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    name = names.get(type(value), type(value).__name__)
    if isinstance(value, (str, int, float)):
        return f"{name} ({value!r:.40})"
    return name
