"""Pages that describe no command: settings and events, as values for the Markdown and the man pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from conductor_cli.config import format_value
from conductor_cli.config.schema import PREFIX, SETTINGS, Setting
from conductor_cli.config.tables import WORKER_FIELDS
from conductor_cli.core.events import FORMAT, KINDS, Event
from conductor_cli.models.worker_options import LOCAL_OPTIONS, REMOTE_OPTIONS


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
    chapters: tuple[Chapter, ...]
    language: str
    examples: tuple[tuple[str, str], ...]
    see: tuple[str, ...]


def topics() -> tuple[Topic, ...]:
    """Every such page."""
    return settings(), events()


_SETTINGS: Final = """\
A later source takes precedence: defaults, `settings.toml` (written by `conductor config set`, `workers add`, `model
use`), your own `config.toml` (never written; `--config FILE` names another one), the environment, flags. Both files are
TOML. `conductor config show` prints every value and its source, and where they are.

In a file, `limits.steps` is the key `steps` in the section `[limits]`. An invalid value is an error that names the
file, the line and what was expected. A project's `.conductor.toml`, found from the working directory upwards, and the
policy flags can only narrow what the other sources allow."""

_WORKERS: Final = """\
A worker is a table `[workers.NAME]` with a `kind` and, for most kinds, a `model`; `conductor workers add` writes one.
The same name in both files is the same worker; `config.toml` takes precedence key by key. Every worker has these keys:
{every}. A worker at a provider also has: {remote}. A worker that is a GGUF file (`llama`) also has: {local}.

These files never hold an API key: `key_env` names the variable that holds it, and `conductor keys` stores keys in the
system's keyring.

A pool is a table `[pools.NAME]` with `workers`, a list of names, and `about`. A provider is a table `[providers.NAME]`
with `parallel`, the calls that all its workers together make at the same time; NAME is a provider, a host or a kind."""

_VARIABLES: Final = (
    ("CONFIG", "A file to use instead of `config.toml`."),
    ("CONFIG_DIR", "The directory of `config.toml` and `settings.toml`."),
    ("DATA_DIR", "The directory of models."),
    ("STATE", "The URL of a PostgreSQL database (docs/scale.md); stands before `state` of the files."),
    ("STATE_DIR", "The directory of traces and of the daily spend."),
    ("CACHE_DIR", "The directory of caches."),
    ("REGISTRY", "A TOML file to use instead of the built-in table of models for `conductor model pull`."),
    ("KEYRING_SECONDS", "How many seconds one command may wait for the keyring. Default: 5."),
)


_SETTINGS_EXAMPLES: Final = (
    ("Limit what a run and all runs of a day may cost, in US dollars", "[limits]\ncost = 0.50\ncost_day = 5"),
    ("Let only workers on this machine see attached files", '[policy]\nfiles_only = ["provider:local"]'),
    (
        "A worker at an address of your own",
        '[workers.reviewer]\nkind = "openai-compatible"\nmodel = "qwen3-32b"\nbase_url = "http://127.0.0.1:8000/v1"',
    ),
)


def settings() -> Topic:
    """The settings, by section."""
    sections = dict.fromkeys(item.name.partition(".")[0] for item in SETTINGS)
    every, remote, local = (
        ", ".join(f"`{key}`" for key in keys) for keys in (WORKER_FIELDS, REMOTE_OPTIONS, LOCAL_OPTIONS)
    )
    variables = tuple((f"{PREFIX}{name}", text) for name, text in _VARIABLES)
    return Topic(
        name="config", section=5, title="Settings", summary="the settings of conductor and where they are stored",
        text=_SETTINGS,
        chapters=(
            Chapter(title="Sections", parts=tuple(_section(name) for name in sections)),
            Chapter(title="Workers and pools", text=_WORKERS.format(every=every, remote=remote, local=local)),
            Chapter(
                title="Environment", text="In addition to the variable of each setting:",
                parts=(Part(title="", columns=("Variable", "Meaning"), rows=variables),),
            ),
        ),
        language="toml", examples=_SETTINGS_EXAMPLES,
        see=("conductor(1)", "conductor-config(1)", "conductor-workers(1)", "conductor-pools(1)"),
    )  # fmt: skip


def _section(name: str) -> Part:
    rows = tuple(_setting(item) for item in SETTINGS if item.name.startswith(f"{name}."))
    return Part(title=f"[{name}]", columns=("Setting", "Default", "Variable", "Meaning"), rows=rows)


def _setting(item: Setting) -> tuple[str, ...]:
    meaning = f"{item.help} ({', '.join(item.choices)})" if item.choices else item.help
    default = f"`{format_value(item.default)}`" if item.default not in ("", None, ()) else "none"
    return item.name, default, f"`{item.variable}`", meaning


_EVENTS: Final = f"""\
Everything that happens in a run is an event. `--format jsonl` prints one event per line, as a JSON object with its
`kind` and `at`, the seconds since the run began. The first event is `run_started`; the last is `run_finished` or
`run_failed`, also after Ctrl-C or a limit. A trace without a last event was interrupted. A trace file has the same
events, but pieces of text share a line, and a text that it has already is named by its hash
([traces.md](traces.md#format)).

This is format {FORMAT}. Within a format, keys are only added: ignore keys that you do not know. An optional key that
has its default is left out of a trace file, whose lines also have a `hash`; `--format jsonl` writes all keys. Money is
text, so that it stays exact."""


_EVENTS_EXAMPLES: Final = (
    (
        "Print each step of a run as it is planned",
        'conductor ask "..." --format jsonl |\n  jq -r \'select(.kind == "step_planned") | .subtask\'',
    ),
    (
        "Count the lines of the last trace by kind",
        "conductor trace replay --speed 0 --format jsonl |\n  jq -r .kind | sort | uniq -c",
    ),
)


def events() -> Topic:
    """The events, and the values in them."""
    kinds = tuple(_object(name, kind) for name, kind in KINDS.items())
    values = tuple(_object(kind.__name__, kind) for kind in sorted(_inside(KINDS.values()), key=lambda k: k.__name__))
    return Topic(
        name="events", section=7, title="Events", summary="what conductor writes to traces and to --format jsonl",
        text=_EVENTS,
        chapters=(
            Chapter(title="Kinds", parts=kinds),
            Chapter(title="Values", text="Objects inside events.", parts=values),
        ),
        language="sh", examples=_EVENTS_EXAMPLES,
        see=("conductor(1)", "conductor-trace(1)", "conductor-ask(1)"),
    )  # fmt: skip


def _object(name: str, kind: Any) -> Part:
    hints = get_type_hints(kind)
    keys = [field for field in fields(kind) if field.name != "at"]
    rows = tuple((key.name, _called(hints[key.name]) + _optional(key)) for key in keys)
    return Part(title=name, text=" ".join((kind.__doc__ or "").split()), columns=("Key", "Value"), rows=rows)


def _optional(field: Any) -> str:
    return "" if field.default is MISSING and field.default_factory is MISSING else "; optional"


_CALLED: Final[dict[Any, str]] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", Decimal: "an amount, as text",
    NoneType: "null", Any: "any value", Event: "an event of any kind",
}  # fmt: skip


def _called(hint: Any) -> str:
    """What the value of a field is in JSON."""
    if hint in _CALLED:
        return _CALLED[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in inner)
    if origin in (Union, UnionType):
        return " or ".join(_called(each) for each in inner)
    if origin is tuple:
        return f"a list, each {_called(inner[0])}"
    return f"an object, each value {_called(inner[1])}" if origin is Mapping else f"`{hint.__name__}`"


def _inside(kinds: Any, known: frozenset[Any] = frozenset()) -> frozenset[Any]:
    """The dataclasses that stand in the fields of these, at any depth; events apart."""
    for kind in kinds:
        for each in _parts_of(get_type_hints(kind).values() if is_dataclass(kind) else ()):
            if each not in known and each not in KINDS.values():
                known = _inside((each,), known | {each})
    return known


def _parts_of(hints: Any) -> Iterator[Any]:
    for hint in hints:
        if is_dataclass(hint):
            yield hint
        elif get_origin(hint) is not Literal:
            yield from _parts_of(get_args(hint))
