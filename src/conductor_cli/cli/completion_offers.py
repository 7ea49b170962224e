"""What a shell offers at a tab, from the generated table of commands and the user's files.

The completion scripts call `conductor complete :CURRENT WORD…`, with the word at the cursor and
those before it. It is no command for people: `__main__` answers it before anything else is loaded.
Whether what a name stands for can be used is not checked: the commands report that. Names with
characters that a shell could interpret are left out.
"""
# Importing pathlib, dataclasses or typer takes as long as all of this may.
# ruff: noqa: PTH100, PTH110, PTH111, PTH118, PTH120, PTH208, PTH123

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Table = Mapping[str, Any]
"""By the words of a command its `commands`, `options` and `arguments`; at `*` the options of every
command.

Commands have a description. An option has its description and what its value may be, as an argument
has it: `words`, `names` to look up, `paths` (files or directories), `many` for names with commas
between them, `several` for more paths after the first; nothing for a flag.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DEFAULTS = {"config": "~/.config", "data": "~/.local/share", "state": "~/.local/state"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODELS = os.path.join(_PACKAGE, "models")

PLACES = (os.path.join(_PACKAGE, "completions"), os.path.join(_PACKAGE, "..", "..", "completions"))
"""Where the completion scripts and the table are: in a wheel inside the package, in a checkout at
the top level.
"""


def print_offers(current: str, before: Sequence[str]) -> None:
    """Print what may stand in the place of `current`, a line each.

    The word, a tab, and its description.
    """
    path = next(
        path for place in PLACES if os.path.exists(path := os.path.join(place, "words.json"))
    )
    with open(path, "rb") as file:
        table = json.load(file)
    text = "".join(
        f"{word}\t{about}\n" for word, about in offers(current, before, table, os.environ)
    )
    with suppress(OSError, AttributeError):  # nobody reads them, or there is no output
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()


def offers(
    current: str, before: Sequence[str], table: Table, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield each word that may stand next with its description.

    `:files` and `:directories` stand for paths.
    """
    path = list[str]()
    command = table[""]
    value: Mapping[str, Any] | None = None  # what the next word is, behind an option
    place = 0
    more_files = False
    for word in before:
        options = command["options"] | table["*"]
        if word == "=":  # bash makes `--option=value` three words
            continue
        if value is not None and not word.startswith("-"):
            value = None
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            takes = options.get(name, ("", None))[1]
            value = takes if not equals else None
            more_files = more_files or bool(takes and takes.get("several"))
        elif word in command["commands"]:
            path.append(word)
            command = table[" ".join(path)]
        else:
            place += 1
    options = command["options"] | table["*"]
    head = ""
    if current.startswith("-"):
        name, equals, rest = current.partition("=")
        if not equals:
            yield from (
                (word, about) for word, (about, _) in options.items() if word.startswith(current)
            )
            return
        value = options.get(name, ("", None))[1]
        head = f"{name}="
        current = rest
    elif value is None and command["commands"]:
        yield from (
            (word, about) for word, about in command["commands"].items() if word.startswith(current)
        )
        return
    elif value is None:
        arguments = command["arguments"]
        value = next(
            iter(
                arguments[place : place + 1]
                or [each for each in arguments[-1:] if each.get("repeats")]
            ),
            {},
        )
        value = value | {"paths": "files"} if more_files else value
    value = value or {}
    named, comma, last = current.rpartition(",") if value.get("many") else ("", "", current)
    found = [*value.get("words", ()), *_names(value.get("names", ""), environ)]
    for word in dict.fromkeys(found):
        if word.startswith(last) and word not in named.split(","):
            yield f"{head}{named}{comma}{word}", ""
    if paths := value.get("paths"):
        yield f":{paths}", ""


def _names(asked: str, environ: Mapping[str, str]) -> list[str]:
    """The names of one kind, such as `models --known`. Files that cannot be read are left out."""
    own_file = os.path.join(_directory("config", environ), "settings.toml")
    chosen = environ.get("CONDUCTOR_LLM_CONFIG")
    user_file = (
        os.path.expanduser(chosen)
        if chosen
        else os.path.join(_directory("config", environ), "config.toml")
    )
    kind, _, which = asked.partition(" ")
    found: list[str] = []
    if kind in ("workers", "pools", "tools"):
        found = [name for path in (own_file, user_file) for name in _tables(path, kind)]
    elif kind == "models":
        store = os.path.join(_directory("data", environ), "models")
        with suppress(OSError):  # also those whose manifest is damaged
            found = sorted(
                name
                for name in os.listdir(store)
                if os.path.exists(f"{store}/{name}/manifest.toml")
            )
        if which == "--planners":  # a worker may plan, too
            found += [*_tables(own_file, "workers"), *_tables(user_file, "workers")]
        elif which == "--known":
            chosen = environ.get("CONDUCTOR_LLM_REGISTRY")
            path = (
                os.path.expanduser(chosen)
                if chosen
                else os.path.join(_MODELS, "weights", "registry.toml")
            )
            entries = _read_toml(path).get("models")
            known = (
                [each for each in entries if isinstance(each, dict)]
                if isinstance(entries, list)
                else []
            )
            found = [*(str(each.get("name", "")) for each in known), *found]
    elif kind == "runs":
        # Other names need no index
        from conductor_cli.state.stored_run import OFFERED_NAMES, run_names

        files = [each for each in (user_file, own_file) if "state" in _read_toml(each)]
        if files or environ.get("CONDUCTOR_LLM_STATE"):
            # These take long to load, and so does a connection
            from conductor_cli.config.files import app_paths
            from conductor_cli.core.errors import ConductorError
            from conductor_cli.state.opening import open_state

            with suppress(ConductorError, OSError):
                newest, _ = open_state(app_paths(environ)).traces.newest(count=OFFERED_NAMES)
                found = ["last", *(row.run for row in newest)]
        else:
            with suppress(OSError):
                found = run_names(os.path.join(_directory("state", environ), "traces"))
    return [name for name in found if _NAME.fullmatch(name)]


def _tables(path: str, section: str) -> list[str]:
    """The names of the tables `[section.NAME]` of a file."""
    tables = _read_toml(path).get(section)
    return list(tables) if isinstance(tables, Mapping) else []


def _read_toml(path: str) -> dict[str, Any]:
    # Words of the table need none
    from conductor_cli.core.bounded_parsing import MAX_TOML, parse_toml

    try:
        with open(path, "rb") as file:
            return parse_toml(file.read(MAX_TOML + 1))
    except (OSError, ValueError):
        return {}


def _directory(kind: str, environ: Mapping[str, str]) -> str:
    """A directory as `config.app_paths` finds it.

    On Linux without platformdirs, which takes long to import.
    """
    if chosen := environ.get(f"CONDUCTOR_LLM_{kind.upper()}_DIR"):
        return chosen
    if sys.platform == "linux":
        home = environ.get(f"XDG_{kind.upper()}_HOME", "").strip() or os.path.expanduser(
            _DEFAULTS[kind]
        )
        return f"{home}/conductor-llm"
    from conductor_cli.config.settings import app_paths

    return str(getattr(app_paths(environ), kind))
