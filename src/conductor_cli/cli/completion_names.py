"""The names that a shell asks for at a tab, read from the files before anything else is loaded.

They answer `workers names`, `pools names`, `tools names` and `model names`, which the completion scripts ask for and no
person: so these are no commands. Whether what a name stands for can be used is not checked: the commands report that.
Names with characters that a shell could interpret are left out, since bash expands what it is offered.
"""
# Importing pathlib, dataclasses or typer takes as long as all of this may.
# ruff: noqa: PTH110, PTH111, PTH118, PTH120, PTH208, PTH123

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DEFAULTS = {"config": "~/.config", "data": "~/.local/share"}
_MODELS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "models")


def print_names(words: Sequence[str]) -> bool:
    """Print the names that a command line asks for. Returns whether it asks for some."""
    found = names(words, os.environ)
    if found is None:
        return False
    with suppress(OSError, AttributeError):  # nobody reads them, or there is no output
        sys.stdout.buffer.write("".join(f"{name}\n" for name in found).encode())
        sys.stdout.buffer.flush()
    return True


def names(words: Sequence[str], environ: Mapping[str, str]) -> list[str] | None:
    """The names that `words` ask for, such as `workers names --own`; None where they ask for something else.

    Files that cannot be read are left out.
    """
    own_file = os.path.join(_directory("config", environ), "settings.toml")
    chosen = environ.get("CONDUCTOR_LLM_CONFIG")
    user_file = os.path.expanduser(chosen) if chosen else os.path.join(_directory("config", environ), "config.toml")
    match list(words):
        case ["workers", "names", *flags] if {*flags} <= {"--own", "--enabled", "--disabled"}:
            found = _workers(own_file, user_file, flags)
        case ["pools", "names", "--own"]:
            found = [*_tables(own_file, "pools")]
        case ["pools", "names"]:
            found = [*_tables(own_file, "pools"), *_tables(user_file, "pools")]
        case ["pools", "names", "--known"]:
            shipped = os.path.join(_MODELS, "presets.toml")
            found = [name for path in (own_file, user_file, shipped) for name in _tables(path, "pools")]
        case ["tools", "names", *flags] if {*flags} <= {"--own"}:
            files = (own_file,) if flags else (own_file, user_file)
            found = [name for path in files for name in _tables(path, "tools")]
        case ["model", "names"] | ["model", "names", "--here"]:
            found = _stored_models(environ)
        case ["model", "names", "--planners"]:
            found = [*_stored_models(environ), *_tables(own_file, "workers"), *_tables(user_file, "workers")]
        case ["model", "names", "--known"]:
            found = [*_known_models(environ), *_stored_models(environ)]
        case _:
            return None
    return [name for name in dict.fromkeys(found) if _NAME.fullmatch(name)]


def _workers(own_file: str, user_file: str, flags: Sequence[str]) -> list[str]:
    """Workers of the files: with --own those of conductor's own file, with --enabled or --disabled only such."""
    own, of_user = _tables(own_file, "workers"), _tables(user_file, "workers")
    found = []
    for name in own if "--own" in flags else [*own, *of_user]:
        # The user's file takes precedence key by key.
        enabled = (own.get(name, {}) | of_user.get(name, {})).get("enabled") is not False
        if ("--enabled" if enabled else "--disabled") in flags or not {"--enabled", "--disabled"} & {*flags}:
            found.append(name)
    return found


def _stored_models(environ: Mapping[str, str]) -> list[str]:
    """The models in the model store, also those whose manifest is damaged."""
    store = os.path.join(_directory("data", environ), "models")
    try:
        return sorted(name for name in os.listdir(store) if os.path.exists(os.path.join(store, name, "manifest.toml")))
    except OSError:
        return []


def _known_models(environ: Mapping[str, str]) -> Iterator[str]:
    """The models that can be downloaded, the default first."""
    chosen = environ.get("CONDUCTOR_LLM_REGISTRY")
    path = os.path.expanduser(chosen) if chosen else os.path.join(_MODELS, "weights", "registry.toml")
    entries = _read_toml(path).get("models")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield str(entry.get("name", ""))


def _tables(path: str, section: str) -> dict[str, dict[str, Any]]:
    """The tables `[section.NAME]` of a file, by name."""
    tables = _read_toml(path).get(section)
    found = tables.items() if isinstance(tables, Mapping) else ()
    return {name: table if isinstance(table, dict) else {} for name, table in found}


def _read_toml(path: str) -> dict[str, Any]:
    from conductor_cli.core.bounded import LARGEST_TOML, parse_toml  # names of models need none

    try:
        with open(path, "rb") as file:
            return parse_toml(file.read(LARGEST_TOML + 1))
    except (OSError, ValueError):
        return {}


def _directory(kind: str, environ: Mapping[str, str]) -> str:
    """A directory as `config.app_paths` finds it. On Linux without platformdirs, which takes long to import."""
    if chosen := environ.get(f"CONDUCTOR_LLM_{kind.upper()}_DIR"):
        return chosen
    if sys.platform == "linux":
        home = environ.get(f"XDG_{kind.upper()}_HOME", "").strip() or os.path.expanduser(_DEFAULTS[kind])
        return f"{home}/conductor-llm"
    from conductor_cli.config import app_paths

    return str(getattr(app_paths(environ), kind))
