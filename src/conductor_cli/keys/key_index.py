"""The list of kept keys, `keys.json` in the data directory, readable by its owner only.

Of a key in the keyring it says that there is one, for which address and since when. A key that its user wants in a file
stands in it too. It is changed by one process at a time, and written whole or not at all.
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
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.lock import exclusive_lock

NAME: Final = "keys.json"
_FIELDS: Final = ("base_url", "since", "where", "backend", "key")


def book_of(data: Path) -> Path:
    """Where the list is, in the data directory."""
    return data / NAME


def read(path: Path) -> dict[str, KeyEntry]:
    """Every kept key by its provider. Raises `ConfigError` for a list that is damaged or that others can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            kept = json.loads(file.read())["keys"]
        entries = {str(name): _entry(str(name), item) for name, item in kept.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="mend its rights") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = f"remove {path}, then set the keys again: conductor keys set PROVIDER"
        raise ConfigError(f"{path} is damaged", hint=hint) from None
    keys = [entry.key for entry in entries.values() if entry.key]
    if keys and os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path} holds keys, and others can read it", hint=f"chmod 600 {path}; then renew the keys")
    KNOWN_SECRETS.add(*keys)
    return entries


def _entry(provider: str, item: Mapping[str, Any]) -> KeyEntry:
    fields = {name: item[name] for name in _FIELDS if name in item}
    if not all(isinstance(value, str) for value in fields.values()) or fields["where"] not in ("keyring", "file"):
        raise ValueError(provider)
    return KeyEntry(provider=provider, **fields)


@contextmanager
def changing(path: Path) -> Iterator[dict[str, KeyEntry]]:
    """The entries, to be changed in place; one process at a time. Raises `ConfigError`."""
    with ExitStack() as held:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(exclusive_lock(path.with_name(f".{NAME}.lock")))
        except OSError as error:
            raise _cannot_write(path, error) from None
        entries = read(path)
        before = dict(entries)
        yield entries
        if entries != before:
            _write(path, entries)


def _write(path: Path, entries: Mapping[str, KeyEntry]) -> None:
    from conductor_cli.models import disk  # only where something is written

    kept = {
        name: {field: value for field in _FIELDS if (value := getattr(entry, field))} for name, entry in entries.items()
    }
    try:
        disk.write_atomically(path, json.dumps({"keys": kept}, indent=1), mode=0o600)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror}", hint="check the disk and its rights")
