"""Pages that describe no command.

Settings and events, as values for the Markdown and the man pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from conductor_cli.config.schema import PREFIX, RENAMED, SETTINGS, Setting
from conductor_cli.config.settings import format_value
from conductor_cli.config.tables import WORKER_FIELDS
from conductor_cli.core.events import FORMAT, KINDS, Event
from conductor_cli.models.worker_options import LOCAL_OPTIONS, REMOTE_OPTIONS
from scripts.reference.commands import TEXTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table under a title. Each row has a cell for each column, the first of them a name."""

    title: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Text, its paragraphs apart by an empty line, and parts. Names stand between backticks."""

    title: str
    text: str = ""
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A page: docs/NAME.md and conductor-NAME.SECTION. `see` are man pages with their sections.

    An example is what its lines do, and the lines, which are of this `language`.
    """

    name: str
    section: int
    title: str
    summary: str
    text: str
    chapters: Sequence[Chapter]
    language: str
    examples: Sequence[tuple[str, str]]
    see: Sequence[str]


def topics() -> tuple[Topic, ...]:
    """Every such page."""
    return settings(), events()


def _topic(name: str, chapters: Sequence[Chapter], **values: object) -> Topic:
    """A page whose text stands in `texts.toml`, with `values` in it."""
    texts = {key: text for key, text in TEXTS[name].items() if key not in {"workers", "variables"}}
    return Topic(name=name, chapters=chapters, **texts | {"text": texts["text"].format(**values)})


def settings() -> Topic:
    """The settings, by section."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    for item in SETTINGS:
        sections.setdefault(item.name.partition(".")[0], []).append(_setting(item))
    columns = ("Setting", "Default", "Variable", "Meaning")
    parts = tuple(
        Part(title=f"[{name}]", columns=columns, rows=tuple(rows))
        for name, rows in sections.items()
    )
    keys = {"every": WORKER_FIELDS, "remote": REMOTE_OPTIONS, "local": LOCAL_OPTIONS}
    workers = TEXTS["config"]["workers"].format(
        **{name: ", ".join(f"`{key}`" for key in names) for name, names in keys.items()}
    )
    variables = tuple(
        (f"{PREFIX}{name}", text) for name, text in TEXTS["config"]["variables"].items()
    )
    return _topic(
        "config",
        (
            Chapter(title="Sections", parts=parts),
            Chapter(
                title="Earlier names",
                text="They work on, also as variables, and a line says the present one.",
                parts=(Part(title="", columns=("Earlier", "Now"), rows=tuple(RENAMED.items())),),
            ),
            Chapter(title="Workers and pools", text=workers),
            Chapter(
                title="Environment",
                text="In addition to the variable of each setting:",
                parts=(Part(title="", columns=("Variable", "Meaning"), rows=variables),),
            ),
        ),
    )


def _setting(item: Setting) -> tuple[str, ...]:
    meaning = f"{item.help} ({', '.join(item.choices)})" if item.choices else item.help
    default = f"`{format_value(item.default)}`" if item.default not in ("", None, ()) else "none"
    return item.name, default, f"`{item.variable}`", meaning


def events() -> Topic:
    """The events, and the values in them."""
    kinds = tuple(_object(name, kind) for name, kind in KINDS.items())
    values = tuple(
        _object(kind.__name__, kind)
        for kind in sorted(_inside(KINDS.values()), key=lambda k: k.__name__)
    )
    chapters = (
        Chapter(title="Kinds", parts=kinds),
        Chapter(title="Values", text="Objects inside events.", parts=values),
    )
    return _topic("events", chapters, format=FORMAT)


def _object(name: str, kind: Any) -> Part:
    hints = get_type_hints(kind)
    keys = [field for field in fields(kind) if field.name != "at"]
    rows = tuple((key.name, _called(hints[key.name]) + _optional(key)) for key in keys)
    return Part(
        title=name, text=" ".join((kind.__doc__ or "").split()), columns=("Key", "Value"), rows=rows
    )


def _optional(field: Any) -> str:
    return "" if field.default is MISSING and field.default_factory is MISSING else "; optional"


_CALLED: Final[dict[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Decimal: "an amount, as text",
    NoneType: "null",
    Any: "any value",
    Event: "an event of any kind",
}


def _called(hint: Any) -> str:
    """What the value of a field is in JSON."""
    if hint in _CALLED:
        return _CALLED[hint]
    origin = get_origin(hint)
    inner = get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in inner)
    if origin in (Union, UnionType):
        return " or ".join(_called(part) for part in inner)
    if origin is tuple:
        return f"a list, each {_called(inner[0])}"
    return (
        f"an object, each value {_called(inner[1])}" if origin is Mapping else f"`{hint.__name__}`"
    )


def _inside(kinds: Any, seen_kinds: frozenset[Any] = frozenset()) -> frozenset[Any]:
    """The dataclasses that stand in the fields of these, at any depth; events apart."""
    for kind in kinds:
        for part in _parts_of(get_type_hints(kind).values() if is_dataclass(kind) else ()):
            if part not in seen_kinds and part not in KINDS.values():
                seen_kinds = _inside((part,), seen_kinds | {part})
    return seen_kinds


def _parts_of(hints: Any) -> Iterator[Any]:
    for hint in hints:
        if is_dataclass(hint):
            yield hint
        elif get_origin(hint) is not Literal:
            yield from _parts_of(get_args(hint))
