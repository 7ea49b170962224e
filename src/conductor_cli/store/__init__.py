"""Traces on disk, and what is known of all of them without reading them again.

    tracefile  one JSON Lines file a run: writing and reading it
    files      the directory of them: finding, removing
    reading    a trace file as one row of the list
    index      those rows kept in SQLite: derived, and made again when it is gone
    listing    rows as lines of text
    rows       what such a row is
    quick      `trace list`, `search` and `names` for a process that has loaded nothing

The first three load the events. The others do not, so that a list takes hardly longer than a start; what this room
exports is loaded on first use for the same reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conductor_cli.store.files import Store as Store
    from conductor_cli.store.rows import Row as Row
    from conductor_cli.store.tracefile import Writer as Writer
    from conductor_cli.store.tracefile import read as read

_HOMES = {"Row": "rows", "Store": "files", "Writer": "tracefile", "read": "tracefile"}

__all__ = ["Row", "Store", "Writer", "read"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
