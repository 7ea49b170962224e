"""Where conductor's files are, and reading and writing its TOML.

Two files hold settings: `config.toml` is the user's and is never written; `settings.toml` is the tool's own, written by
`conductor config set`, `workers add` and `model use`. The user's file wins.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.table import PREFIX
from conductor_cli.core.errors import ConfigError

APP: Final = "conductor-llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories, by platformdirs unless an environment variable says otherwise."""

    config: Path
    state: Path
    data: Path
    cache: Path

    @property
    def traces(self) -> Path:
        return self.state / "traces"

    @property
    def user_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def own_file(self) -> Path:
        return self.config / "settings.toml"


def places(environ: Mapping[str, str]) -> Places:
    """The directories for this user: `CONDUCTOR_LLM_CONFIG_DIR` and its likes, else the system's custom."""
    import platformdirs  # noqa: PLC0415 - costs a start of every command

    dirs = platformdirs.PlatformDirs(APP, appauthor=False)
    return Places(
        config=Path(environ.get(f"{PREFIX}CONFIG_DIR") or dirs.user_config_dir),
        state=Path(environ.get(f"{PREFIX}STATE_DIR") or dirs.user_state_dir),
        data=Path(environ.get(f"{PREFIX}DATA_DIR") or dirs.user_data_dir),
        cache=Path(environ.get(f"{PREFIX}CACHE_DIR") or dirs.user_cache_dir),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One TOML file as read: its values, and its text for saying where something stands."""

    path: Path
    values: Mapping[str, Any]
    text: str = ""

    def line(self, section: str, key: str = "") -> int | None:
        """The line of a key of a section, or of the section's head. `section` may be dotted."""
        inside = False
        for number, line in enumerate(self.text.splitlines(), start=1):
            head = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
            if head is not None:
                inside = head[1].replace('"', "") == section
                if inside and not key:
                    return number
            elif inside and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
                return number
        return None

    def where(self, section: str, key: str = "") -> str:
        """`FILE, line N`, for messages."""
        number = self.line(section, key) or (self.line(section) if key else None)
        return f"{self.path}, line {number}" if number else str(self.path)


def read(path: Path, *, required: bool = False) -> Source:
    """A TOML file; an empty source when it does not exist and need not. Raises `ConfigError`."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path} does not exist", hint="name an existing file with --config") from None
        return Source(path=path, values={})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be a TOML file in UTF-8") from None
    try:
        return Source(path=path, values=tomllib.loads(text), text=text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no valid TOML: {error}", hint="mend the line, or move the file away") from None


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write the tool's own file, whole or not at all, readable by the owner only. Raises `ConfigError`."""
    import tomli_w  # noqa: PLC0415 - only where something is written

    head = "# Written by conductor. Your own settings belong in config.toml beside this file; they win.\n\n"
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(head + tomli_w.dumps(values))
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="check the disk and its rights") from None
