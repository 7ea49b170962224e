"""API keys of providers: where each one is, storing and removing them, and whether their providers accept them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from conductor_cli.core.errors import ConductorError, KeyMissing, UsageError
from conductor_cli.core.redact import SHORTEST
from conductor_cli.keys.entry import KeyEntry, checked_key, same_address
from conductor_cli.keys.key_store import KeyState, KeyStore
from conductor_cli.models.catalog import api_key_of
from conductor_cli.models.key_check import KeyVerdict, check_key
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS, base_url_of, is_loopback, is_own_address

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker

CHECK_SECONDS: Final = 15.0
"""How long a provider may take to say whether it accepts a key."""

_EXIT_CODES: Final = {
    "wrong": 4, "expired": 4, "unreadable": 4, "unreachable": 8, "failed": 1, "no credit": 1, "rate-limited": 1,
}  # fmt: skip

REFUSED: Final = frozenset({"wrong", "expired"})
"""Verdicts on a key that is not worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key: whose it is, where it is, since when, and the address it is sent to.

    `key` is filled in only for a variable; a stored key stays where it is until it is needed.
    """

    provider: str
    kind: Literal["environment", "keyring", "file"]
    source: str
    base_url: str
    state: str
    since: str = ""
    worker: str = ""
    ca_file: str = ""
    key: str = field(default="", repr=False)

    def age_seconds(self) -> float | None:
        """How long ago the key was stored; None for a variable, whose age nobody knows."""
        try:
            since = datetime.fromisoformat(self.since)
            return max(0.0, (datetime.now(UTC) - since).total_seconds())
        except (ValueError, TypeError):  # not a time, or a time without a zone
            return None

    def data(self) -> dict[str, Any]:
        """For `--json`: everything but the key."""
        age = self.age_seconds()
        return {
            "provider": self.provider, "kind": self.kind, "source": self.source, "worker": self.worker or None,
            "base_url": self.base_url, "state": self.state, "since": self.since or None,
            "age_seconds": None if age is None else round(age),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedKey:
    """A key that was stored or removed: where, and what the user should know about it."""

    provider: str
    base_url: str
    place: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheck:
    """One key and what its provider said about it. `left` is what the key may still spend, in words."""

    row: KeyRow
    state: str
    seconds: float | None = None
    message: str = ""
    left: str = ""

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "provider": self.row.provider, "kind": self.row.kind, "source": self.row.source,
            "worker": self.row.worker or None, "base_url": self.row.base_url, "state": self.state,
            "seconds": None if self.seconds is None else round(self.seconds, 3), "left": self.left or None,
            "message": self.message,
        }  # fmt: skip


def open_key_store(settings: Settings) -> KeyStore:
    """The stored keys for the workers of these settings.

    The first key that is needed reads all that the workers may need, so that a keyring is asked once.
    """
    workers = [item.worker for item in settings.workers if item.enabled]

    def wanted() -> Collection[str]:
        if not workers:
            return providers_with_stored_key(store)
        return {worker.kind for worker in workers if _needs_stored_key(worker, settings.environ)}

    store = KeyStore(settings.paths.data, settings.environ, wanted)
    return store


def _needs_stored_key(worker: Worker, environ: Mapping[str, str]) -> bool:
    if worker.kind not in PRESETS or worker.options.get("key_env"):
        return False
    return not (is_own_address(worker) and set_variables(worker.kind, environ))


def providers_with_stored_key(store: KeyStore) -> tuple[str, ...]:
    """The providers with a key that is stored for their own address."""
    return tuple(name for name, preset in PRESETS.items() if preset.base_url and store.entry(name, preset.base_url))


def set_variables(provider: str, environ: Mapping[str, str]) -> list[str]:
    """The provider's own variables that are set, the one that is used first."""
    return [name for name in PRESETS[provider].keys if environ.get(name, "").strip()] if provider in PRESETS else []


def describe_place(entry: KeyEntry, path: Path) -> str:
    """Where a stored key is, in words."""
    if entry.where == "file":
        return f"{path}, not encrypted"
    return f"the keyring ({entry.backend})" if entry.backend else "the keyring"


def list_keys(settings: Settings, store: KeyStore) -> tuple[list[KeyRow], ConductorError | None]:
    """Every key, the ones that are used first; and why the keyring could not be asked. Raises `ConfigError`."""
    entries = store.entries()
    states, fault = store.states()
    stored = [
        stored_row(entry, store.path, _describe_state(entry, states[name], settings)) for name, entry in entries.items()
    ]
    order = list(PRESETS)
    rows = [*keys_in_variables(settings), *keys_of_workers(settings), *stored]
    return sorted(rows, key=lambda row: order.index(row.provider) if row.provider in order else len(order)), fault


def _describe_state(entry: KeyEntry, state: KeyState, settings: Settings) -> str:
    if state != "stored":
        return state
    own = entry.provider in PRESETS and same_address(entry.base_url, PRESETS[entry.provider].base_url)
    used = set_variables(entry.provider, settings.environ)[:1] if own else []
    return f"overridden by {used[0]}" if used else state


def keys_in_variables(settings: Settings) -> Iterator[KeyRow]:
    """The keys in the providers' own variables. When a provider has two variables, the first one is used."""
    for provider, preset in PRESETS.items():
        names = set_variables(provider, settings.environ)
        for name in names:
            state = "set" if name == names[0] else f"overridden by {names[0]}"
            yield KeyRow(
                provider=provider, kind="environment", source=name, base_url=preset.base_url, state=state,
                key=settings.environ[name],
            )  # fmt: skip


def keys_of_workers(settings: Settings) -> Iterator[KeyRow]:
    """The keys in variables that a worker names in its `key_env`."""
    for worker in (item.worker for item in settings.workers if item.enabled):
        name = str(worker.options.get("key_env") or "")
        if name and worker.kind in PRESETS and settings.environ.get(name, "").strip():
            yield KeyRow(
                provider=worker.kind, kind="environment", source=name, base_url=base_url_of(worker), state="set",
                worker=worker.name, ca_file=str(worker.options.get("ca_file") or ""), key=settings.environ[name],
            )  # fmt: skip


def stored_row(entry: KeyEntry, path: Path, state: str = "stored") -> KeyRow:
    """The row of a stored key."""
    return KeyRow(
        provider=entry.provider, kind=entry.where, source=describe_place(entry, path).removeprefix("the "),
        base_url=entry.base_url, state=state, since=entry.since,
    )  # fmt: skip


def key_state(worker: Worker, environ: Mapping[str, str], store: KeyStore) -> str:
    """`not needed`, the variable that holds a worker's key, `keyring`, `file`, or `missing`. Never the key."""
    if worker.kind not in PRESETS:
        return "not needed"
    entry = None if worker.options.get("key_env") else store.entry(worker.kind, base_url_of(worker))
    try:
        # The place of a stored key stands in for the key: listing workers must not ask the keyring.
        key = api_key_of(worker, environ, lambda _kind, _url: entry.where if entry else None)
    except KeyMissing:
        return "missing"
    if entry is not None and key == entry.where:
        return entry.where
    names = (str(worker.options.get("key_env") or ""), *PRESETS[worker.kind].keys)
    return next((name for name in names if key and environ.get(name, "").strip() == key), "not needed")


def store_key(store: KeyStore, provider: str, base_url: str, key: str, *, plaintext: bool) -> ChangedKey:
    """Store a key that was checked, in the keyring or as `plaintext` in a file. Raises `KeyMissing`, `ConfigError`."""
    before = store.entries().get(provider)
    entry = store.set(provider, base_url, key, plaintext=plaintext)
    notices = []
    if before is not None and not same_address(before.base_url, base_url):
        notices.append(f"this replaces the key for {before.base_url}")
    if len(key) < SHORTEST:
        notices.append(f"a key of fewer than {SHORTEST} characters cannot be hidden in output and traces")
    notices += [
        f"{name} is also set, and is used instead of the stored key" for name in set_variables(provider, store.environ)
    ]
    return ChangedKey(
        provider=provider, base_url=base_url, place=describe_place(entry, store.path), notices=tuple(notices)
    )


def unencrypted_notice(base_url: str) -> str:
    """The warning for an address to which a key would travel in the clear: http to another machine. Else empty."""
    if urlsplit(base_url).scheme == "http" and not is_loopback(base_url):
        return f"{base_url} is not encrypted (http): others on the network can read the key"
    return ""


def remove_key(store: KeyStore, provider: str) -> ChangedKey:
    """Remove a stored key. Raises `UsageError` when none is stored, `KeyMissing` when the keyring refuses."""
    entry, fault = store.remove(provider)
    place = describe_place(entry, store.path)
    notices = [f"{name} is still set" for name in set_variables(provider, store.environ)]
    if fault is not None:
        notices.insert(0, f"{fault.message}: the key may still be in {place}")
        place = "the list of stored keys"
    return ChangedKey(provider=provider, base_url=entry.base_url, place=place, notices=tuple(notices))


def check_keys(settings: Settings, store: KeyStore, providers: Sequence[str]) -> list[KeyCheck]:
    """Ask each provider about its key, all at once. Raises `KeyMissing` when there is no key, and `ConfigError`."""
    rows = [
        row for row in (*keys_in_variables(settings), *keys_of_workers(settings))
        if not providers or row.provider in providers
    ]  # fmt: skip
    names = [name for name in store.entries() if not providers or name in providers]
    unreadable = []
    for stored in store.read(*names).values():
        row = stored_row(stored.entry, store.path)
        if stored.fault is None:
            rows.append(replace(row, key=stored.key))
        else:
            message = f"{stored.fault.message}; {stored.fault.hint.partition(chr(10))[0]}"
            unreadable.append(KeyCheck(row=row, state="unreadable", message=message))
    found = {row.provider for row in rows} | {check.row.provider for check in unreadable}
    missing = [name for name in providers if name not in found]
    if missing or not found:
        raise KeyMissing(
            f"no key of {missing[0]} was found" if missing else "no key was found",
            hint=f"conductor keys set {missing[0] if missing else 'PROVIDER'}",
        )
    # The same key may be in a variable and in the keyring; asking once is enough.
    first = {(row.provider, row.base_url, row.key.strip()): row for row in reversed(rows)}

    async def check_all() -> list[KeyCheck]:
        return list(await asyncio.gather(*map(_check_row, list(first.values())[::-1])))

    return [*asyncio.run(check_all()), *unreadable]


def exit_code_of(checks: Sequence[KeyCheck]) -> int:
    """0 when every key is good; 4 when one is refused or cannot be read; else the code of another failure."""
    codes = {_EXIT_CODES.get(item.state, 0) for item in checks}
    return 4 if 4 in codes else max(codes, default=0)


async def _check_row(row: KeyRow) -> KeyCheck:
    KNOWN_SECRETS.add(row.key.strip())
    try:
        key = checked_key(row.key)
    except UsageError as error:
        return KeyCheck(row=row, state="wrong", message=error.message)
    verdict = await check_key(row.provider, row.base_url, key, seconds=CHECK_SECONDS, ca_file=row.ca_file)
    return KeyCheck(
        row=row, state=verdict.state, seconds=verdict.seconds, message=_describe_verdict(row, verdict),
        left=verdict.left,
    )  # fmt: skip


def _describe_verdict(row: KeyRow, verdict: KeyVerdict) -> str:
    """What the provider said, or what is left to spend; and what to do."""
    if verdict.state == "good":
        return f"{verdict.left} left" if verdict.left else ""
    if verdict.state == "restricted":
        return f"{verdict.message}; it may still work for models: conductor workers test"
    hint = verdict.hint
    if verdict.state in REFUSED:
        own = row.provider in PRESETS and same_address(row.base_url, PRESETS[row.provider].base_url)
        hint = f"conductor keys set {row.provider}{'' if own else f' --base-url {row.base_url}'}"
        if row.kind == "environment":
            hint = f"set {row.source} to a new key"
    return f"{verdict.message}; {hint}" if hint else verdict.message
