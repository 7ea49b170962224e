"""Where conductor's files are, and reading and writing its TOML.

Two files hold settings: `config.toml` is the user's and is never written; `settings.toml` is the tool's own, written by
`conductor config set`, `workers add` and `model use`. The user's file wins.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.schema import PREFIX
from conductor_cli.core.errors import ConfigError
from conductor_cli.models.disk import exclusive_lock

APP: Final = "conductor-llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPaths:
    """The directories, by platformdirs unless an environment variable says otherwise."""

    config: Path
    state: Path
    data: Path
    cache: Path

    @property
    def traces(self) -> Path:
        return self.state / "traces"

    @property
    def models(self) -> Path:
        """What is known of the model files that were pulled or imported; the adapters that were converted."""
        return self.data / "models"

    @property
    def spending(self) -> Path:
        """What was spent, a file for each day."""
        return self.state / "spending"

    @property
    def prefixes(self) -> Path:
        """The remembered states of local conductors."""
        return self.cache / "prefixes"

    @property
    def user_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def own_file(self) -> Path:
        return self.config / "settings.toml"


def app_paths(environ: Mapping[str, str]) -> AppPaths:
    """The directories for this user: `CONDUCTOR_LLM_CONFIG_DIR` and its likes, else the system's custom."""
    import platformdirs

    dirs = platformdirs.PlatformDirs(APP, appauthor=False)
    return AppPaths(
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

    def line(self, name: str) -> int | None:
        """The line of a table or of a key, by its dotted name; else that of the innermost table it is in."""
        best, depth, head = None, 0, ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            table = _TABLE.match(line)
            entry = None if table else _ENTRY.match(line)
            if table is not None:
                found = head = _plain(table[1])
            elif entry is not None:
                found = f"{head}.{_plain(entry[1])}" if head else _plain(entry[1])
            else:
                continue
            if found == name or (name.startswith(f"{found}.") and len(found) > depth):
                best, depth = number, len(found)
            if found == name:
                break
        return best

    def where(self, section: str, key: str = "") -> str:
        """`FILE, line N`, for messages."""
        number = self.line(f"{section}.{key}" if key else section)
        return f"{self.path}, line {number}" if number else str(self.path)


_TABLE: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ENTRY: Final = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w\-. ])+?)\s*=""")
_TWICE: Final = re.compile(r"""Cannot declare \('(workers|pools)', ['"]([^'"]*)['"]\) twice \(at line (\d+)""")
"""How Python's reader of TOML tells a table that is there already."""

_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def _plain(name: str) -> str:
    """A dotted name without its quotes and the spaces around its dots."""
    return ".".join("".join(part) for part in _PART.findall(name))


def read_toml(path: Path, *, required: bool = False) -> Source:
    """A TOML file; an empty source when it does not exist and need not. Raises `ConfigError`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path} does not exist", hint="name an existing file with --config") from None
        return Source(path=path, values={})
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="it must be a TOML file") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text", hint="a TOML file is in UTF-8") from None
    try:
        return Source(path=path, values=tomllib.loads(text), text=text)
    except (ValueError, RecursionError) as error:  # also numbers without end, and tables in tables in tables
        if twice := _TWICE.search(str(error)):
            raise _named_twice(path, twice[1], twice[2], twice[3]) from None
        raise ConfigError(f"{path} is no valid TOML: {error}", hint="mend the line, or move the file away") from None


def _named_twice(path: Path, section: str, name: str, line: str) -> ConfigError:
    kind = section.removesuffix("s")
    hint = f"write one table [{section}.{name}]; in another file the same name changes what this one says"
    return ConfigError(f"{path}, line {line}: {kind} {name!r} is named twice", hint=hint)


@contextmanager
def edit_settings_file(path: Path) -> Iterator[dict[str, Any]]:
    """The values of the tool's own file, to be changed in place; written whole or not at all. Raises `ConfigError`.

    One process at a time, so that two that change something both do.
    """
    with _alone(path):
        source = read_toml(path)
        for section, content in source.values.items():
            if not isinstance(content, Mapping):
                raise ConfigError(f"{source.where(section)}: {section!r} is no section", hint="take the line out")
        values = {section: dict(content) for section, content in source.values.items()}
        yield values
        _write(path, {section: content for section, content in values.items() if content})


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the right to change `path`. Raises `ConfigError`."""
    with ExitStack() as held:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(exclusive_lock(path.with_name(f".{path.name}.lock")))
        except OSError as error:
            raise _cannot_write(path, error) from None
        yield


def _write(path: Path, values: Mapping[str, Any]) -> None:
    import tomli_w  # only where something is written

    from conductor_cli.models import disk

    head = "# Written by conductor. Your own settings belong in config.toml beside this file; they win.\n\n"
    try:
        disk.write_atomically(path, head + tomli_w.dumps(values), mode=0o600)
    except UnicodeEncodeError:
        raise ConfigError(f"{path} holds UTF-8 text, and what was given is none", hint="type it again") from None
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror}", hint="check the disk and its rights")
