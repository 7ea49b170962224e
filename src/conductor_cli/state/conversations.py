"""The names of conversations, and the run that each ended with: one small file, readable by the owner only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.disk import exclusive_lock, make_private_directory, open_finite, write_atomically

MAX_NAMES: Final = 1000
"""Names that are kept; the one that was used least recently is forgotten first."""


class ConversationNames:
    """The names in one file. A name is all that is kept here; what was said is in the traces."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, str]:
        """Return the last run of each conversation by its name, the newest conversation first; none where damaged."""
        try:
            with open_finite(self._path) as file:
                names = json.loads(file.read())
            return {str(name): str(run) for name, run in reversed(names.items())}
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}

    def set(self, name: str, run: str) -> None:
        """Let a name stand for the conversation that ends with this run. Raises `ConfigError`."""
        try:
            make_private_directory(self._path.parent)
            with exclusive_lock(self._path.with_name(f".{self._path.name}.lock")):
                newest = {name: run} | {other: end for other, end in self.read().items() if other != name}
                kept = dict(reversed([*newest.items()][:MAX_NAMES]))
                write_atomically(self._path, json.dumps(kept, ensure_ascii=False, indent=1) + "\n", mode=0o600)
        except OSError as error:
            hint = "check the disk and the file permissions"
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint=hint) from None
