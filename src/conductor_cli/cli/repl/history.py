"""What was typed before: a file that only its owner may read, with prompt_toolkit's own reading and writing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from conductor_cli.cli.output import print_notice
from conductor_cli.models.known_secrets import KNOWN_SECRETS

NAME: Final = "history"
"""The file, in the state directory."""
LARGEST: Final = 1 << 20
"""Bytes that are kept of the file from one chat to the next."""
LONGEST: Final = 100_000
"""Characters of an entry. What is longer was pasted, and lies in the trace."""


def home() -> Path:
    """The state directory; where it is known without them, the settings are not loaded for it."""
    if sys.platform == "linux":
        from conductor_cli.store.fast_list import state_directory

        return Path(state_directory(os.environ))
    from conductor_cli.config import app_paths

    return app_paths(os.environ).state


def history_at(place: Path) -> History:
    """The history in a directory; where it cannot be there, one that is forgotten, and a line that says so."""
    path = place / NAME
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _prepare(path)
    except OSError as error:
        print_notice(f"nothing typed here is remembered: {path}: {error.strerror}")
        return InMemoryHistory()
    return Kept(str(path))


def _prepare(path: Path) -> None:
    """Make the file, for its owner only, and drop what has become too much of it."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o600)
        data = file.read()
        if len(data) > LARGEST:
            kept = data[-LARGEST:].partition(b"\n\n# ")[2]
            file.seek(0)
            file.write(b"\n# " + kept if kept else b"")
            file.truncate()


class Kept(FileHistory):
    """Entries without keys. A disk that takes none costs the memory, not the chat."""

    def store_string(self, string: str) -> None:
        if len(string) > LONGEST:
            return
        try:
            super().store_string(KNOWN_SECRETS.redact(string))
        except (OSError, UnicodeError):
            return
