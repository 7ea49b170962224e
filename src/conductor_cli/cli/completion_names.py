"""The names that a shell asks for at a tab, read from the files before anything else is loaded.

`conductor workers names`, `pools names` and `model names`; whether what stands behind a name can be used is said by the
commands. Only names that no shell can take for anything else are told: bash expands what it is offered.
"""
# pathlib, dataclasses and typer each take as long as all of this may.
# ruff: noqa: PTH110, PTH111, PTH118, PTH120, PTH208, PTH123

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_HOMES = {"config": "~/.config", "data": "~/.local/share"}
_MODELS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "models")


def print_names(words: Sequence[str]) -> bool:
    """Print the names that a command line asks for, if it asks for some. Returns whether it is done."""
    found = names(words, os.environ) if sys.stdout is not None else None
    if found is None:
        return False
    try:
        sys.stdout.buffer.write("".join(f"{name}\n" for name in found).encode())
        sys.stdout.buffer.flush()
    except OSError:  # the command itself says what is wrong
        return False
    return True


def names(words: Sequence[str], environ: Mapping[str, str], file: str | None = None) -> list[str] | None:
    """The names that `words` ask for, such as `workers names --own`; None where they ask for something else.

    `file` stands in the place of `config.toml`. What cannot be read is left out.
    """
    match list(words):
        case ["workers" | "pools" as section, "names"]:
            found = _listed(section, environ, file)
        case ["workers" | "pools" as section, "names", "--own"]:
            found = _own(section, environ)
        case ["pools", "names", "--known"]:
            found = [*_listed("pools", environ, file), *_table(os.path.join(_MODELS, "presets.toml"), "pools")]
        case ["model", "names"] | ["model", "names", "--here"]:
            found = _stored_models(environ)
        case ["model", "names", "--known"]:
            found = [*_registry(environ), *_stored_models(environ)]
        case _:
            return None
    return [name for name in dict.fromkeys(found) if _NAME.fullmatch(name)]


def _listed(section: str, environ: Mapping[str, str], file: str | None) -> list[str]:
    """The names in the tool's own file, then those that the user's adds."""
    chosen = file or environ.get("CONDUCTOR_LLM_CONFIG")
    user = os.path.expanduser(chosen) if chosen else os.path.join(_directory("config", environ), "config.toml")
    return [*_own(section, environ), *_table(user, section)]


def _own(section: str, environ: Mapping[str, str]) -> list[str]:
    return _table(os.path.join(_directory("config", environ), "settings.toml"), section)


def _stored_models(environ: Mapping[str, str]) -> list[str]:
    """The models that are here: those with a manifest, be it damaged."""
    store = os.path.join(_directory("data", environ), "models")
    try:
        return sorted(name for name in os.listdir(store) if os.path.exists(os.path.join(store, name, "manifest.toml")))
    except OSError:
        return []


def _registry(environ: Mapping[str, str]) -> Iterator[str]:
    """The models that can be pulled, the default first."""
    chosen = environ.get("CONDUCTOR_LLM_REGISTRY")
    path = os.path.expanduser(chosen) if chosen else os.path.join(_MODELS, "weights", "registry.toml")
    entries = _read(path).get("models")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield str(entry.get("name", ""))


def _table(path: str, section: str) -> list[str]:
    """The names of the tables `[section.NAME]` of a file."""
    tables = _read(path).get(section)
    return list(tables) if isinstance(tables, Mapping) else []


def _read(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.loads(file.read().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _directory(kind: str, environ: Mapping[str, str]) -> str:
    """A directory as `config.places` finds it; on Linux by the same rule in short, since platformdirs takes long."""
    if chosen := environ.get(f"CONDUCTOR_LLM_{kind.upper()}_DIR"):
        return chosen
    if sys.platform == "linux":
        home = environ.get(f"XDG_{kind.upper()}_HOME", "").strip() or os.path.expanduser(_HOMES[kind])
        return f"{home}/conductor-llm"
    from conductor_cli.config import app_paths

    return str(getattr(app_paths(environ), kind))
