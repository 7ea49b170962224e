"""Which texts of others the user was shown, by their SHA-256: an append-only file, readable by the owner only."""

from __future__ import annotations

from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.disk import AppendLog, read_lines


class SeenTexts:
    """The texts whose hashes are in one file. A text that has changed was not seen."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __contains__(self, text: str) -> bool:
        with suppress(OSError):
            return sha256(text.encode()).hexdigest() in map(str.strip, read_lines(self._path))
        return False

    def add(self, text: str) -> None:
        """Remember that a text was shown. Raises `ConfigError` where the disk refuses."""
        try:
            with closing(AppendLog(self._path)) as log:
                log.append(sha256(text.encode()).hexdigest() + "\n")
        except OSError as error:
            hint = "check the disk and the file permissions"
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint=hint) from None
