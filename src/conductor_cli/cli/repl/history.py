"""The history of what was typed: a file that only its owner may read, in prompt_toolkit's format."""

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
"""Bytes of the file that are kept from one chat to the next."""
LONGEST: Final = 100_000
"""Characters of an entry. Longer text was pasted, and is in the trace."""


def history_directory() -> Path:
    """The state directory. On Linux it is found without loading the settings."""
    if sys.platform == "linux":
        from conductor_cli.store.fast_list import state_directory

        return Path(state_directory(os.environ))
    from conductor_cli.config import app_paths

    return app_paths(os.environ).state


def open_history(place: Path) -> History:
    """The history in a directory; where that cannot be used, one in memory, with a notice."""
    path = place / NAME
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _prepare(path)
    except OSError as error:
        print_notice(f"the history is not saved: {path}: {error.strerror}")
        return InMemoryHistory()
    return _RedactedHistory(str(path))


def _prepare(path: Path) -> None:
    """Make the file, for its owner only, and drop its oldest entries where it is too large."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        # The file may be older than this rule, or have been copied with another mode.
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o600)
        data = file.read()
        if len(data) > LARGEST:
            # Keep from the first whole entry on: each begins with an empty line, `# ` and its time.
            kept = data[-LARGEST:].partition(b"\n\n# ")[2]
            file.seek(0)
            file.write(b"\n# " + kept if kept else b"")
            file.truncate()


class _RedactedHistory(FileHistory):
    """Entries without API keys. A full disk costs the history, not the chat."""

    def store_string(self, string: str) -> None:
        if len(string) > LONGEST:
            return
        try:
            super().store_string(KNOWN_SECRETS.redact(string))
        except (OSError, UnicodeError):
            return
