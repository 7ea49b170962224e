"""What the user has named or seen: one small JSON file of names and values, readable by the owner only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.disk import exclusive_lock, make_private_directory, open_finite, write_atomically

MAX_NAMES: Final = 1000
"""Names that are kept; the one that was set first is forgotten first."""


class Names:
    """The names in one file, each with its value: of a conversation its last run, of a text that was seen its path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, str]:
        """Return the names with their values, the newest first; none where the file is damaged."""
        try:
            with open_finite(self._path) as file:
                names = json.loads(file.read())
            return {str(name): str(value) for name, value in reversed(names.items())}
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}

    def set(self, name: str, value: str) -> None:
        """Set a name, which is the newest then. Raises `ConfigError` where the disk refuses."""
        try:
            make_private_directory(self._path.parent)
            with exclusive_lock(self._path.with_name(f".{self._path.name}.lock")):
                newest = {name: value} | {key: old for key, old in self.read().items() if key != name}
                kept = dict(reversed([*newest.items()][:MAX_NAMES]))
                write_atomically(self._path, json.dumps(kept, ensure_ascii=False, indent=1) + "\n", mode=0o600)
        except OSError as error:
            hint = "check the disk and the file permissions"
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint=hint) from None
