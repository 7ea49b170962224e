"""Storing, removing and reading keys, over the index and the system's keyring.

An item of the keyring holds `{"key": …, "base_url": …, "since": …}`. Only the address in the item decides where the key
may be sent: the index is a plain file, and changing it must not send a key elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError
from conductor_cli.keys.entry import KeyEntry, same_address
from conductor_cli.keys.key_index import edit_index, index_path, read_index
from conductor_cli.keys.keyring import ABSENT, KeyringError, ask_keyring
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS

KeyState = Literal["stored", "missing", "unknown"]
"""Whether the keyring has a key that the index names: yes, no, or the keyring cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A stored key that was read; `fault` says why one could not be."""

    entry: KeyEntry
    key: str = field(default="", repr=False)
    fault: KeyMissing | None = None


class KeyStore:
    """The stored keys of one user. The index is read when it is first needed, the keyring only for a key in it.

    `wanted` gives the providers whose keys may be needed: all of them are read together with the first one, because
    asking a keyring is slow.
    """

    def __init__(self, data: Path, environ: Mapping[str, str], wanted: Callable[[], Iterable[str]] = tuple) -> None:
        self.path = index_path(data)
        self.environ = environ
        self._wanted = wanted
        self._entries: dict[str, KeyEntry] | None = None
        self._read: dict[str, StoredKey] = {}

    def entries(self) -> dict[str, KeyEntry]:
        """What is stored, by provider, according to the index. Raises `ConfigError`."""
        if self._entries is None:
            self._entries = read_index(self.path)
        return self._entries

    def entry(self, provider: str, base_url: str) -> KeyEntry | None:
        """The entry of a provider's key, if there is one for this address. Raises `ConfigError`."""
        entry = self.entries().get(provider)
        return entry if entry is not None and same_address(entry.base_url, base_url) else None

    def __call__(self, provider: str, base_url: str) -> str | None:
        """The key stored for a provider at this address, or None. Raises `KeyMissing` and `ConfigError`."""
        if self.entry(provider, base_url) is None:
            return None
        stored = self.read(provider, *self._wanted())[provider]
        if stored.fault is not None:
            raise stored.fault
        # The address in the keyring's item counts: the index, a plain file, may say anything.
        return stored.key if same_address(stored.entry.base_url, base_url) else None

    def read(self, *providers: str) -> dict[str, StoredKey]:
        """The stored keys of these providers, as far as there are any; those in the keyring in one request.

        A key that cannot be read is no error here: its `fault` says why. Raises `ConfigError` for the index.
        """
        entries = {name: entry for name, entry in self.entries().items() if name in providers}
        new = [entry for name, entry in entries.items() if name not in self._read]
        self._read |= {entry.provider: StoredKey(entry=entry, key=entry.key) for entry in new if entry.where == "file"}
        in_keyring = [entry for entry in new if entry.where == "keyring"]
        if in_keyring:
            self._read |= {stored.entry.provider: stored for stored in self._read_keyring(in_keyring)}
        return {name: self._read[name] for name in entries}

    def _read_keyring(self, entries: list[KeyEntry]) -> Iterator[StoredKey]:
        orders = [("get", entry.provider) for entry in entries]
        try:
            results = ask_keyring(orders, self.environ, _variables_of(entry.provider for entry in entries)).results
        except (KeyringError, ConfigError) as fault:
            missing = fault if isinstance(fault, KeyMissing) else KeyMissing(fault.message, hint=fault.hint)
            yield from (StoredKey(entry=entry, fault=missing) for entry in entries)
        else:
            yield from map(_parse_item, entries, results)

    def states(self) -> tuple[dict[str, KeyState], KeyringError | None]:
        """Whether each key of the index is still there, and why the keyring cannot say so."""
        entries = self.entries()
        states: dict[str, KeyState] = dict.fromkeys(entries, "stored")
        names = [name for name, entry in entries.items() if entry.where == "keyring"]
        if not names:
            return states, None
        try:
            results = ask_keyring([("has", name) for name in names], self.environ, _variables_of(names)).results
        except KeyringError as fault:
            return states | dict.fromkeys(names, "unknown"), fault
        return states | {name: "stored" if has else "missing" for name, has in zip(names, results, strict=True)}, None

    def set(self, provider: str, base_url: str, key: str, *, plaintext: bool = False) -> KeyEntry:
        """Store a key in the keyring, or as `plaintext` in the index. Raises `KeyMissing` or `ConfigError`."""
        KNOWN_SECRETS.add(key)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        entry = KeyEntry(provider=provider, base_url=base_url, since=since, where="file" if plaintext else "keyring")
        with self._edit() as entries:
            before = entries.get(provider)
            if not plaintext:
                entry = replace(entry, backend=self._write_item(entry, key))
            else:
                entry = replace(entry, key=key)
                if before is not None and before.where == "keyring":
                    with suppress(KeyringError):  # a broken keyring may be why the user wants a file
                        ask_keyring([("rm", provider)], self.environ, variable_of(provider))
            entries[provider] = entry
        return entry

    def remove(self, provider: str) -> tuple[KeyEntry, KeyringError | None]:
        """Forget a stored key; the fault says that there is no keyring any more to remove it from.

        Raises `UsageError` when no key is stored, and `KeyMissing` when a keyring that is there does not remove it.
        """
        absent = None
        with self._edit() as entries:
            entry = entries.pop(provider, None)
            if entry is None:
                names = ", ".join(entries) or "none"
                hint = f"stored: {names}; a variable has to be unset in your shell"
                raise UsageError(f"no key of {provider} is stored", hint=hint)
            if entry.where == "keyring":
                try:
                    ask_keyring([("rm", provider)], self.environ, variable_of(provider))
                except KeyringError as fault:
                    if fault.state not in ABSENT:
                        raise _keep_listed(provider, fault) from None
                    absent = fault
        return entry, absent

    @contextmanager
    def _edit(self) -> Iterator[dict[str, KeyEntry]]:
        self._entries, self._read = None, {}
        with edit_index(self.path) as entries:
            yield entries

    def _write_item(self, entry: KeyEntry, key: str) -> str:
        """Write an item of the keyring and read it back; returns the keyring's name."""
        payload = json.dumps({"key": key, "base_url": entry.base_url, "since": entry.since})
        variable = variable_of(entry.provider)
        answer = ask_keyring([("set", entry.provider, payload)], self.environ, variable)
        if answer.results != (True,):
            hint = f"set {variable} in the environment, or store the key in a file: --insecure-storage"
            raise KeyMissing(f"the keyring ({answer.backend}) accepted the key and does not give it back", hint=hint)
        return answer.backend


def _keep_listed(provider: str, fault: KeyringError) -> KeyringError:
    """The error for a keyring that is there and does not remove a key, which so stays in the index."""
    fix = fault.hint.partition("\n")[0] if fault.state in ("locked", "no answer") else "fix the keyring"
    hint = f"{fix}; then again: conductor keys rm {provider}\nthe key of {provider} is still in the list"
    return KeyringError(fault.message, hint=hint, state=fault.state)


def _parse_item(entry: KeyEntry, text: object) -> StoredKey:
    """What an item of the keyring holds."""
    problem = "the keyring no longer holds"
    if text is not None:
        with suppress(ValueError, KeyError, TypeError):
            item = json.loads(str(text))
            key, base_url, since = (str(item[name]) for name in ("key", "base_url", "since"))
            KNOWN_SECRETS.add(key)
            return StoredKey(entry=replace(entry, base_url=base_url, since=since), key=key)
        problem = "the keyring holds something other than"
    hint = f"conductor keys set {entry.provider}"
    return StoredKey(entry=entry, fault=KeyMissing(f"{problem} the key of {entry.provider}", hint=hint))


def variable_of(provider: str) -> str:
    """The environment variable that may hold a provider's key instead."""
    keys = PRESETS[provider].keys if provider in PRESETS else ()
    return keys[0] if keys else "any variable that the worker's key_env names"


def _variables_of(providers: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(map(variable_of, providers)))
