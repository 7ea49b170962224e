"""What a shell offers at a tab, from the generated table of commands and the user's files.

The completion scripts call `conductor complete :CURRENT WORD…`, with the word at the cursor and
those before it. It is no command for people: `__main__` answers it before anything else is loaded.
Whether what a name stands for can be used is not checked: the commands report that. Names with
characters that a shell could interpret are left out.
"""
# Importing pathlib, dataclasses or typer takes as long as all of this may.
# ruff: noqa: PTH100, PTH109, PTH110, PTH111, PTH118, PTH120, PTH208, PTH123

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conductor_cli.state.opening import State

Table = Mapping[str, Any]
"""The `commands`, `options` and `arguments` of each command, by its words.

At `*` are the options of every command. Commands have a description. An option has its description
and what its value may be, as an argument has it: `words`, `names` to look up, `paths` (files or
directories), `many` for names with commas between them, `several` for more paths after the first;
nothing for a flag.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_EDITOR_SESSION = re.compile(r"acp-[0-9a-f]{16}")  # Nobody types the name of an editor's session
_DEFAULTS = {"config": "~/.config", "data": "~/.local/share", "state": "~/.local/state"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODELS = os.path.join(_PACKAGE, "models")

COMPLETION_DIRECTORIES = (
    os.path.join(_PACKAGE, "completions"),
    os.path.join(_PACKAGE, "..", "..", "completions"),
)
"""Where the completion scripts and the table may be.

In a wheel they are inside the package, in a checkout at the top level.
"""


def print_offers(current: str, before: Sequence[str]) -> None:
    """Print what may stand in the place of `current`, a line each.

    A line has the word, a tab, and its description.
    """
    table = _read_table()
    text = ""
    for word, about in offers(current, before, table, os.environ):
        text += f"{word}\t{about}\n"
    with suppress(OSError, AttributeError):  # nobody reads them, or there is no output
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()


def _read_table() -> Table:
    paths = [os.path.join(directory, "words.json") for directory in COMPLETION_DIRECTORIES]
    path = next(filter(os.path.exists, paths))
    with open(path, "rb") as file:
        table: Table = json.load(file)
    return table


def offers(
    current: str, before: Sequence[str], table: Table, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield each word that may stand next with its description.

    `:files` and `:directories` stand for paths.
    """
    line = _read_words(before, table)
    options = line.command["options"] | table["*"]
    value = line.value
    head = ""
    if current.startswith("-"):
        name, equals, rest = current.partition("=")
        if not equals:
            for word, (about, _) in options.items():
                if word.startswith(current):
                    yield word, about
            return
        value = options.get(name, ("", None))[1]
        head = f"{name}="
        current = rest
    elif value is None and line.command["commands"]:
        for word, about in line.command["commands"].items():
            if word.startswith(current):
                yield word, about
        return
    elif value is None:
        value = _next_argument(line)
    yield from _values(head, current, value or {}, environ)


class _Line:
    """What the words before the cursor say of the next one."""

    def __init__(self, command: Mapping[str, Any]) -> None:
        self.command = command
        self.value: Mapping[str, Any] | None = None
        """What the next word is, behind an option."""
        self.arguments = 0
        """How many arguments there are already."""
        self.takes_more_paths = False


def _read_words(words: Sequence[str], table: Table) -> _Line:
    path = list[str]()
    line = _Line(table[""])
    for word in words:
        if word == "=":  # bash makes `--option=value` three words
            continue
        if line.value is not None and not word.startswith("-"):
            line.value = None
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            options = line.command["options"] | table["*"]
            value = options.get(name, ("", None))[1]
            if value and value.get("several"):
                line.takes_more_paths = True
            line.value = None if equals else value
        elif word in line.command["commands"]:
            path.append(word)
            line.command = table[" ".join(path)]
        else:
            line.arguments += 1
    return line


def _next_argument(line: _Line) -> Mapping[str, Any]:
    arguments = line.command["arguments"]
    argument: Mapping[str, Any] = {}
    if line.arguments < len(arguments):
        argument = arguments[line.arguments]
    elif arguments and arguments[-1].get("repeats"):
        argument = arguments[-1]
    if line.takes_more_paths:
        return {**argument, "paths": "files"}
    return argument


def _values(
    head: str, current: str, value: Mapping[str, Any], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what a value may be that begins with `current`, each with `head` before it."""
    earlier = ""
    comma = ""
    last = current
    if value.get("many"):
        earlier, comma, last = current.rpartition(",")
    words = [*value.get("words", ()), *_names(value.get("names", ""), environ)]
    for word in dict.fromkeys(words):
        if word.startswith(last) and word not in earlier.split(","):
            yield f"{head}{earlier}{comma}{word}", ""
    if value.get("paths"):
        yield f":{value['paths']}", ""


def _names(wanted: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names of one kind, such as `models --known`.

    Files that cannot be read are left out.
    """
    kind, _, flag = wanted.partition(" ")
    names: list[str] = []
    if kind in ("workers", "pools", "tools"):
        names = _tables(kind, environ)
    elif kind == "models":
        names = _stored_models(environ)
        if flag == "--planners":  # a worker may plan, too
            names += _tables("workers", environ)
        elif flag == "--known":
            names = [*_registry_names(environ), *names]
    elif kind == "runs":
        names = _runs(environ)
    elif kind == "conversations":
        names = _conversations(environ)
    elif kind == "templates":
        names = _templates(environ)
    return [name for name in names if _NAME.fullmatch(name)]


def _settings_files(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the tool's own settings and the user's file."""
    directory = _directory("config", environ)
    user_file = os.path.join(directory, "config.toml")
    chosen = environ.get("CONDUCTOR_LLM_CONFIG")
    if chosen:
        user_file = os.path.expanduser(chosen)
    return os.path.join(directory, "settings.toml"), user_file


def _stored_models(environ: Mapping[str, str]) -> list[str]:
    """Return the models of the store, also those whose manifest is damaged."""
    store = os.path.join(_directory("data", environ), "models")
    try:
        names = sorted(os.listdir(store))
    except OSError:
        return []
    return [name for name in names if os.path.exists(f"{store}/{name}/manifest.toml")]


def _registry_names(environ: Mapping[str, str]) -> list[str]:
    path = os.path.join(_MODELS, "weights", "registry.toml")
    chosen = environ.get("CONDUCTOR_LLM_REGISTRY")
    if chosen:
        path = os.path.expanduser(chosen)
    entries = _read_toml(path).get("models")
    if not isinstance(entries, list):
        return []
    return [str(entry.get("name", "")) for entry in entries if isinstance(entry, dict)]


def _templates(environ: Mapping[str, str]) -> list[str]:
    """Return the templates of the user, of the directories above this one, and those that ship."""
    directories = [os.path.join(_directory("config", environ), "templates")]
    with suppress(OSError):
        parent = os.getcwd()
        while parent != os.path.dirname(parent):
            directories.append(os.path.join(parent, ".conductor", "templates"))
            parent = os.path.dirname(parent)
    directories.append(os.path.join(_PACKAGE, "recipes"))
    names: list[str] = []
    for directory in directories:
        with suppress(OSError):
            files = sorted(os.listdir(directory))
            names += [file[: -len(".toml")] for file in files if file.endswith(".toml")]
    return names


def _conversations(environ: Mapping[str, str]) -> list[str]:
    """Return the names that persons gave, the newest first."""
    names: Sequence[str] = []
    if _is_state_shared(environ):
        names = _read_shared(environ, lambda state: [*state.conversations.read()])
    else:
        path = os.path.join(_directory("state", environ), "conversations.json")
        with (
            suppress(OSError, ValueError, AttributeError, RecursionError),
            open(path, "rb") as file,
        ):
            names = [*reversed(json.load(file).keys())]
    return [name for name in names if not _EDITOR_SESSION.fullmatch(name)]


def _runs(environ: Mapping[str, str]) -> list[str]:
    # Other names need no index
    from conductor_cli.state.stored_run import OFFERED_NAMES, run_names

    if _is_state_shared(environ):
        return _read_shared(
            environ,
            lambda state: [
                "last",
                *(row.run for row in state.traces.newest(count=OFFERED_NAMES)[0]),
            ],
        )
    with suppress(OSError):
        return run_names(os.path.join(_directory("state", environ), "traces"))
    return []


def _is_state_shared(environ: Mapping[str, str]) -> bool:
    if environ.get("CONDUCTOR_LLM_STATE"):
        return True
    return any("state" in _read_toml(path) for path in _settings_files(environ))


def _read_shared(environ: Mapping[str, str], read: Callable[[State], list[str]]) -> list[str]:
    """Return what is read of a state in a database; nothing where that is away."""
    # These take long to load, and so does a connection
    from conductor_cli.config.files import app_paths
    from conductor_cli.core.errors import ConductorError
    from conductor_cli.state.opening import open_state

    with suppress(ConductorError, OSError):
        return read(open_state(app_paths(environ)))
    return []


def _tables(section: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names of the tables `[section.NAME]` of both settings files."""
    names: list[str] = []
    for path in _settings_files(environ):
        tables = _read_toml(path).get(section)
        if isinstance(tables, Mapping):
            names += tables
    return names


def _read_toml(path: str) -> dict[str, Any]:
    # Words of the table need none
    from conductor_cli.core.bounded_parsing import MAX_TOML, parse_toml

    try:
        with open(path, "rb") as file:
            return parse_toml(file.read(MAX_TOML + 1))
    except (OSError, ValueError):
        return {}


def _directory(kind: str, environ: Mapping[str, str]) -> str:
    """Return a directory as `config.app_paths` finds it.

    On Linux it is found without platformdirs, which takes long to import.
    """
    chosen = environ.get(f"CONDUCTOR_LLM_{kind.upper()}_DIR")
    if chosen:
        return chosen
    if sys.platform == "linux":
        parent = environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
        parent = parent or os.path.expanduser(_DEFAULTS[kind])
        return f"{parent}/conductor-llm"
    from conductor_cli.config.settings import app_paths

    return str(getattr(app_paths(environ), kind))
