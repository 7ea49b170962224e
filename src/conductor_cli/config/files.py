"""Where conductor's files are, and reading and writing its TOML files.

Two files hold settings: `config.toml` belongs to the user and is never written; `settings.toml` is
written by `conductor config set`, `workers add` and `model use`. The user's file wins.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.schema import PREFIX, RENAMED
from conductor_cli.core.bounded_parsing import MAX_TOML, parse_toml
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.mappings import without_empty
from conductor_cli.core.media import conversion_command, describe_encoding, guess_encoding
from conductor_cli.system.disk import editing, open_finite, write_atomically

APP: Final = "conductor-llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPaths:
    """The directories of this user."""

    config: Path
    state: Path
    data: Path
    cache: Path
    database: str = field(default="", repr=False)
    """The URL of the PostgreSQL database that has the state, maybe with a password; empty where
    files have it.
    """

    @property
    def traces(self) -> Path:
        return self.state / "traces"

    @property
    def messages(self) -> Path:
        """The messages to runs that take place on this machine."""
        return self.state / "messages"

    @property
    def ratings(self) -> Path:
        return self.state / "ratings.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.state / "evals"

    @property
    def attachments(self) -> Path:
        """The bytes of the images and documents that traces name."""
        return self.state / "attachments"

    @property
    def models(self) -> Path:
        """The model store: manifests, and the files that were converted."""
        return self.data / "models"

    @property
    def spending(self) -> Path:
        """The directory of what was spent."""
        return self.state / "spending"

    @property
    def prefixes(self) -> Path:
        """Remembered prompt states of local models."""
        return self.cache / "prefixes"

    @property
    def user_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def own_file(self) -> Path:
        return self.config / "settings.toml"


def app_paths(environ: Mapping[str, str]) -> AppPaths:
    """Return the directories of this user.

    `CONDUCTOR_LLM_CONFIG_DIR` and so on, else what is usual on the system. Raises `ConfigError`
    where the user has no home directory.
    """
    import platformdirs  # a command that reads no settings starts without it

    dirs = platformdirs.PlatformDirs(APP, appauthor=False)
    try:
        paths = AppPaths(
            config=_named_directory(environ, "CONFIG_DIR") or Path(dirs.user_config_dir),
            state=_named_directory(environ, "STATE_DIR") or Path(dirs.user_state_dir),
            data=_named_directory(environ, "DATA_DIR") or Path(dirs.user_data_dir),
            cache=_named_directory(environ, "CACHE_DIR") or Path(dirs.user_cache_dir),
        )
    except RuntimeError as error:
        hint = f"set HOME, or all of {PREFIX}CONFIG_DIR, …STATE_DIR, …DATA_DIR and …CACHE_DIR"
        raise ConfigError(f"this user has no home directory: {error}", hint=hint) from None
    return replace(paths, database=_find_database(environ, paths))


def _named_directory(environ: Mapping[str, str], name: str) -> Path | None:
    """Return the directory that a variable names; None where it names none.

    A file of variables has no shell that replaces `~`.
    """
    named = environ.get(f"{PREFIX}{name}")
    if not named:
        return None
    return Path(named).expanduser()


def _find_database(environ: Mapping[str, str], paths: AppPaths) -> str:
    """Return the setting `state`: of the environment, else of the user's file, else of the tool's.

    Raises `ConfigError`.

    It says where everything else is, so it is read also where other settings are broken.
    """
    if url := environ.get(f"{PREFIX}STATE"):
        return check_database_url(url, f"{PREFIX}STATE")
    for path in (chosen_file(environ) or paths.user_file, paths.own_file):
        with suppress(OSError, UnicodeDecodeError):
            if not path.is_file():
                continue
            state = _STATE.search(path.read_text("utf-8").partition("\n[")[0])
            if state is not None:
                return check_database_url(state[1], str(path))
    return ""


def chosen_file(environ: Mapping[str, str], file: str | None = None) -> Path | None:
    """Return what is read in the place of the user's file.

    The `file` of a command, or what a variable names. Raises `ConfigError` for an empty name of a
    command, which would else mean other settings than its user has in mind.
    """
    if file == "":
        hint = 'a variable may be empty, as in --config "$FILE"; without the option: config.toml'
        raise ConfigError("--config names no file", hint=hint)
    chosen = file or environ.get(f"{PREFIX}CONFIG")
    if not chosen:
        return None
    return Path(chosen).expanduser()


def check_database_url(url: object, where: str) -> str:
    """Return a URL of a PostgreSQL database; `where` it stands.

    Raises `ConfigError`, which does not show it.
    """
    if isinstance(url, str) and url.startswith(("postgresql://", "postgres://")):
        return url
    raise ConfigError(
        f"{where}: state is not a URL of PostgreSQL",
        hint='state = "postgresql://USER@HOST/DATABASE"',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A TOML file: its values, and its text for messages that name a line."""

    path: Path
    values: Mapping[str, Any]
    text: str = ""

    def where(self, section: str, key: str = "") -> str:
        """`FILE, line N`, for messages.

        The line of a key or table, else that of the innermost table around it.

        `tomllib` keeps no line numbers, so the text is searched. What TOML allows beyond plain
        tables and keys only makes the line less exact.
        """
        name = section
        if key:
            name = f"{section}.{key}"
        best = 0
        depth = 0
        table = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := _TABLE.match(line):
                path = _unquote(header[1])
                table = path
            elif entry := _ENTRY.match(line):
                path = _unquote(entry[1])
                if table:
                    path = f"{table}.{path}"
            else:
                continue
            if path == name:
                best = number
                break
            if name.startswith(f"{path}.") and len(path) > depth:
                best = number
                depth = len(path)
        if best:
            return f"{self.path}, line {best}"
        return str(self.path)


# Possessive, since a line of many spaces would else be divided in every way.
_TABLE: Final = re.compile(r"\s*+\[([^\[\]]++)\]")
_ENTRY: Final = re.compile(r"""\s*+((?:"[^"]*"|'[^']*'|[\w\-. ])++)\s*+=""")
_STATE: Final = re.compile(r"""(?m)^\s*state\s*=\s*["']([^"'\n]*)["']""")
_NAME_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def _unquote(name: str) -> str:
    """Return a dotted name without quotes and spaces."""
    return ".".join("".join(part) for part in _NAME_PART.findall(name))


def read_toml(path: Path, *, required: bool = False) -> Source:
    """A TOML file; an empty source where it does not exist and need not. Raises `ConfigError`."""
    try:
        with open_finite(path) as file:
            content = file.read(MAX_TOML + 1)
    except FileNotFoundError:
        if required:
            raise ConfigError(
                f"{path} does not exist", hint="name an existing file with --config"
            ) from None
        return Source(path=path, values={})
    except OSError as error:
        hint = "it must be a TOML file"
        if isinstance(error, PermissionError):
            hint = f"fix its permissions, or use another directory: {PREFIX}CONFIG_DIR=DIR"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    try:
        return Source(path=path, values=parse_toml(content), text=content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _not_utf8(content, f"{path}, line {line}", path) from None
    except ValueError as error:  # also a number without end
        if b"\0" in content:
            raise _not_utf8(content, str(path), path) from None
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="fix the line, or move the file away"
        ) from None


def _not_utf8(content: bytes, location: str, path: Path) -> ConfigError:
    """Return the error of a file that is no text in UTF-8, with the commands that convert it."""
    encoding = guess_encoding(content)
    message = f"{location}: not UTF-8 text; {describe_encoding(encoding)}"
    if not encoding:
        return ConfigError(message, hint="TOML files are UTF-8 text")
    command, converted = conversion_command(str(path), encoding)
    return ConfigError(message, hint=f"{command} && mv {converted} {shlex.quote(str(path))}")


def own_section(paths: AppPaths, name: str) -> Mapping[str, Any]:
    """Return a section of the tool's own file, not checked; empty where there is none.

    Raises `ConfigError`.
    """
    section = read_toml(paths.own_file).values.get(name, {})
    if isinstance(section, Mapping):
        return section
    return {}


@contextmanager
def edit_settings_file(path: Path) -> Iterator[dict[str, Any]]:
    """The values of the tool's own file, to be changed in place; written whole or not at all.

    Raises `ConfigError`.

    A lock makes sure that of two processes that change something, neither undoes what the other
    does.
    """
    import tomli_w  # only where something is written

    note = (
        "# Written by conductor. Your own settings belong in config.toml beside this file; "
        "they "
        "win.\n\n"
    )
    with editing(path):
        source = read_toml(path)
        for section, content in source.values.items():
            if not isinstance(content, Mapping):
                raise ConfigError(
                    f"{source.where(section)}: unknown section {section!r}", hint="remove the line"
                )
        values = {section: dict(content) for section, content in source.values.items()}
        _use_present_names(values)
        yield values
        filled = without_empty(values)
        try:
            write_atomically(path, note, tomli_w.dumps(filled), mode=0o600)
        except UnicodeEncodeError:
            raise ConfigError(
                f"the value for {path} is not UTF-8 text", hint="type it again"
            ) from None


def _use_present_names(values: dict[str, dict[str, Any]]) -> None:
    """Give the settings of the tool's own file the names that they have now."""
    for old_name, new_name in RENAMED.items():
        old_section, _, old_key = old_name.partition(".")
        new_section, _, new_key = new_name.partition(".")
        if old_key in values.get(old_section, {}):
            value = values[old_section].pop(old_key)
            values.setdefault(new_section, {}).setdefault(new_key, value)


def set_value(paths: AppPaths, name: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    """Write one setting into the tool's own file; None removes it. Raises `ConfigError`."""
    section, key = name.split(".")
    if isinstance(value, tuple):
        value = _flat_list(value)
    with edit_settings_file(paths.own_file) as values:
        if value is None:
            values.get(section, {}).pop(key, None)
        else:
            if isinstance(value, Decimal):
                value = str(value)
            values.setdefault(section, {})[key] = value


def _flat_list(values: tuple[Any, ...]) -> list[Any]:
    """Return the values, with those of groups among them: groups are written as one list."""
    items: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            items += value
        else:
            items.append(value)
    return items
