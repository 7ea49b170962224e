"""The list of stored keys: `keys.json` in the data directory, readable by its owner only.

For a key in the keyring it holds the address and the date. A key that its user wants in a file stands in it too.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.keys.entry import KeyEntry
from conductor_cli.models import disk
from conductor_cli.models.known_secrets import KNOWN_SECRETS

NAME: Final = "keys.json"
_FIELDS: Final = ("base_url", "since", "where", "backend", "key")


def index_path(data: Path) -> Path:
    """Where the list is, in the data directory."""
    return data / NAME


def read_index(path: Path) -> dict[str, KeyEntry]:
    """Every stored key by its provider. Raises `ConfigError` for a list that is damaged or that others can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            listed = json.loads(file.read())["keys"]
        entries = {str(name): _parse_entry(str(name), item) for name, item in listed.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="fix its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = f"remove {path}, then store the keys again: conductor keys set PROVIDER"
        raise ConfigError(f"{path} is damaged", hint=hint) from None
    keys = [entry.key for entry in entries.values() if entry.key]
    if keys and os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        message = f"{path} holds keys, and other users can read it"
        raise ConfigError(message, hint=f"chmod 600 {path}; then replace the keys by new ones")
    KNOWN_SECRETS.add(*keys)
    return entries


def _parse_entry(provider: str, item: Mapping[str, Any]) -> KeyEntry:
    fields = {name: item[name] for name in _FIELDS if name in item}
    if not all(isinstance(value, str) for value in fields.values()) or fields["where"] not in ("keyring", "file"):
        raise ValueError(provider)
    return KeyEntry(provider=provider, **fields)


@contextmanager
def edit_index(path: Path) -> Iterator[dict[str, KeyEntry]]:
    """The entries, to be changed in place; one process at a time. Raises `ConfigError`."""
    with ExitStack() as stack:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(disk.exclusive_lock(path.with_name(f".{NAME}.lock")))
        except OSError as error:
            raise _write_error(path, error) from None
        entries = read_index(path)
        before = dict(entries)
        yield entries
        if entries == before:
            return
        listed = {
            name: {field: value for field in _FIELDS if (value := getattr(entry, field))}
            for name, entry in entries.items()
        }
        try:
            disk.write_atomically(path, json.dumps({"keys": listed}, indent=1), mode=0o600)
        except OSError as error:
            raise _write_error(path, error) from None


def _write_error(path: Path, error: OSError) -> ConfigError:
    message = f"{path} cannot be written: {error.strerror}"
    return ConfigError(message, hint="check the disk and the file's permissions")
