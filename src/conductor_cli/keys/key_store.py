"""Keeping keys: setting, removing and reading them, over the list and the system's keyring.

An item of the keyring holds `{"key": …, "base_url": …, "since": …}`. The address in it is what counts: the list is a
plain file, and changing it must not send a key elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError
from conductor_cli.keys import key_index
from conductor_cli.keys.entry import KeyEntry, same_address
from conductor_cli.keys.keyring import ABSENT, KeyringError, ask
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS

State = Literal["kept", "gone", "unknown"]
"""Whether the keyring has what the list says: it has, it has not, or it cannot be asked."""

_AGAIN: Final = "conductor keys set {provider}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A kept key that was read; `fault` says why one could not be."""

    entry: KeyEntry
    key: str = ""
    fault: KeyMissing | None = None

    def __repr__(self) -> str:
        return f"Held({self.entry.provider})"


class KeyStore:
    """The kept keys of one user. Nothing is read before it is asked for, and the keyring only where the list says so.

    `wanted` gives the providers whose keys may be asked for: they are read with the first, in one go.
    """

    def __init__(self, data: Path, environ: Mapping[str, str], wanted: Callable[[], Iterable[str]] = tuple) -> None:
        self.path = key_index.book_of(data)
        self._environ = environ
        self._wanted = wanted
        self._entries: dict[str, KeyEntry] | None = None
        self._held: dict[str, StoredKey] = {}

    def entries(self) -> dict[str, KeyEntry]:
        """What is kept, by provider, as the list says. Raises `ConfigError`."""
        if self._entries is None:
            self._entries = key_index.read(self.path)
        return self._entries

    def entry(self, provider: str, base_url: str) -> KeyEntry | None:
        """The entry of a provider's key, if there is one for this address. Raises `ConfigError`."""
        found = self.entries().get(provider)
        return found if found is not None and same_address(found.base_url, base_url) else None

    def __call__(self, provider: str, base_url: str) -> str | None:
        """The key kept for a provider at this address, none where there is none. Raises `KeyMissing`, `ConfigError`."""
        if self.entry(provider, base_url) is None:
            return None
        held = self.read(provider, *self._wanted())[provider]
        if held.fault is not None:
            raise held.fault
        if not same_address(held.entry.base_url, base_url):
            return None
        return held.key

    def read(self, *providers: str) -> dict[str, StoredKey]:
        """The kept keys of these providers, as far as there are any; those in the keyring in one go.

        That one cannot be read is no error here: its `fault` says so. Raises `ConfigError` for the list.
        """
        kept = {name: entry for name, entry in self.entries().items() if name in providers}
        new = [entry for name, entry in kept.items() if name not in self._held]
        self._held |= {entry.provider: StoredKey(entry=entry, key=entry.key) for entry in new if entry.where == "file"}
        ringed = [entry for entry in new if entry.where == "keyring"]
        if ringed:
            self._held |= {held.entry.provider: held for held in self._from_keyring(ringed)}
        return {name: self._held[name] for name in kept}

    def states(self) -> tuple[dict[str, State], KeyringError | None]:
        """Whether each key of the list is still there, and why the keyring cannot say so. No key leaves the keyring."""
        entries = self.entries()
        states: dict[str, State] = dict.fromkeys(entries, "kept")
        ringed = [name for name, entry in entries.items() if entry.where == "keyring"]
        if not ringed:
            return states, None
        try:
            results = ask([("has", name) for name in ringed], self._environ, _variables_of(ringed)).results
        except KeyringError as fault:
            return states | dict.fromkeys(ringed, "unknown"), fault
        return states | {name: "kept" if has else "gone" for name, has in zip(ringed, results, strict=True)}, None

    def set(self, provider: str, base_url: str, key: str, *, plaintext: bool = False) -> KeyEntry:
        """Keep a key in the keyring, read back, or in the list itself. Raises `KeyMissing` or `ConfigError`."""
        KNOWN_SECRETS.add(key)
        entry = KeyEntry(provider=provider, base_url=base_url, since=_now(), where="file" if plaintext else "keyring")
        with self._changing() as entries:
            before = entries.get(provider)
            entry = replace(entry, key=key) if plaintext else replace(entry, backend=self._put(entry, key))
            if plaintext and before is not None and before.where == "keyring":
                with suppress(KeyringError):  # it may be why a file is wanted
                    ask([("rm", provider)], self._environ, variable_of(provider))
            entries[provider] = entry
        return entry

    def remove(self, provider: str) -> tuple[KeyEntry, KeyringError | None]:
        """Forget a kept key, also one that the keyring lost, or whose keyring is not there: then the fault says so.

        Raises `UsageError` where no key is kept, and `KeyMissing` for a keyring that is there and does not remove it.
        """
        absent = None
        with self._changing() as entries:
            entry = entries.pop(provider, None)
            if entry is None:
                names = ", ".join(entries) or "none"
                raise UsageError(
                    f"no key of {provider} is stored", hint=f"stored: {names}; variables are not ours to unset"
                )
            if entry.where == "keyring":
                absent = self._take_out(provider)
        return entry, absent

    def _take_out(self, provider: str) -> KeyringError | None:
        """Remove an item of the keyring; why that cannot be where there is no keyring to remove it from."""
        try:
            ask([("rm", provider)], self._environ, variable_of(provider))
        except KeyringError as fault:
            if fault.state in ABSENT:
                return fault
            mend = fault.hint.partition("\n")[0] if fault.state in ("locked", "no answer") else "mend the keyring"
            hint = f"{mend}; then again: conductor keys rm {provider}\nthe key of {provider} is still in the list"
            raise KeyringError(fault.message, hint=hint, state=fault.state) from None
        return None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, KeyEntry]]:
        self._entries, self._held = None, {}
        with key_index.changing(self.path) as entries:
            yield entries

    def _put(self, entry: KeyEntry, key: str) -> str:
        """Write an item of the keyring and read it back; the keyring's name."""
        payload = json.dumps({"key": key, "base_url": entry.base_url, "since": entry.since})
        answer = ask([("set", entry.provider, payload)], self._environ, variable_of(entry.provider))
        if answer.results != (True,):
            hint = (
                f"set {variable_of(entry.provider)} in the environment, or store the key in a file: --insecure-storage"
            )
            raise KeyMissing(f"the keyring ({answer.backend}) took the key and does not give it back", hint=hint)
        return answer.backend

    def _from_keyring(self, entries: list[KeyEntry]) -> Iterable[StoredKey]:
        orders = [("get", entry.provider) for entry in entries]
        try:
            results = ask(orders, self._environ, _variables_of(entry.provider for entry in entries)).results
        except (KeyringError, ConfigError) as fault:
            missing = fault if isinstance(fault, KeyMissing) else KeyMissing(fault.message, hint=fault.hint)
            return [StoredKey(entry=entry, fault=missing) for entry in entries]
        return [_held(entry, result) for entry, result in zip(entries, results, strict=True)]


def _held(entry: KeyEntry, text: object) -> StoredKey:
    """What an item of the keyring holds."""
    if text is None:
        return StoredKey(entry=entry, fault=_missing(entry, "the keyring no longer holds"))
    with suppress(ValueError, KeyError, TypeError):
        item = json.loads(str(text))
        key, base_url, since = (str(item[name]) for name in ("key", "base_url", "since"))
        KNOWN_SECRETS.add(key)
        return StoredKey(entry=replace(entry, base_url=base_url, since=since), key=key)
    return StoredKey(entry=entry, fault=_missing(entry, "the keyring holds something else than"))


def _missing(entry: KeyEntry, how: str) -> KeyMissing:
    return KeyMissing(f"{how} the key of {entry.provider}", hint=_AGAIN.format(provider=entry.provider))


def variable_of(provider: str) -> str:
    """The environment variable that may hold a provider's key instead."""
    keys = PRESETS[provider].keys if provider in PRESETS else ()
    return keys[0] if keys else "one of your own, named by the worker's key_env"


def _variables_of(providers: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(map(variable_of, providers)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
