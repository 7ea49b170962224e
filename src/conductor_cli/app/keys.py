"""API keys of providers: where they come from, and whether their providers accept them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.check_results import CheckResult
from conductor_cli.core.errors import KeyMissing, UsageError
from conductor_cli.core.formatting import format_list
from conductor_cli.models.addresses import base_url_of, is_own_address
from conductor_cli.models.discovery import KeyVerdict, check_key
from conductor_cli.models.presets import PRESETS
from conductor_cli.state.key_store import (
    SERVICES,
    KeyEntry,
    KeyStore,
    StoredKey,
    checked_key,
    same_address,
)
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from conductor_cli.config.settings import Settings
    from conductor_cli.core.pool import Worker

CHECK_SECONDS: Final = 15.0  # How long a provider may take to say whether it accepts a key

_EXIT_CODES: Final = {"wrong": 4, "unreadable": 4, "unreachable": 8, "failed": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """A key: whose it is, the address it is sent to, and whether another one is used instead.

    `source` is a variable, `keyring` or `file`; `workers` use the key. A stored key has the time
    since when it is there; `key` is filled in only for a variable, because a stored key stays where
    it is until it is needed.
    """

    provider: str
    source: str
    base_url: str
    state: str
    since: str = ""
    workers: tuple[str, ...] = ()
    ca_file: str = ""
    key: str = field(default="", repr=False)

    def to_json(self) -> dict[str, Any]:
        """For `--json`: everything but the key."""
        return {
            "provider": self.provider,
            "source": self.source,
            "workers": list(self.workers),
            "base_url": self.base_url,
            "state": self.state,
            "since": self.since or None,
        }


def open_key_store(settings: Settings) -> KeyStore:
    """Return the stored keys of this user."""
    return KeyStore(settings.paths.data, settings.environ)


def providers_with_stored_key(store: KeyStore) -> tuple[str, ...]:
    """Return the providers with a key that is stored for their own address."""
    names = []
    for name, preset in PRESETS.items():
        if preset.base_url and store.entry(name, preset.base_url):
            names.append(name)
    return tuple(names)


SERVICE_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "github": ("GITHUB_TOKEN", "GH_TOKEN"),
    "brave": ("BRAVE_API_KEY",),
    "tavily": ("TAVILY_API_KEY",),
}
"""The variables that may hold the key of a service; the first that is set is used."""


def service_key(settings: Settings, service: str, url: str) -> str | None:
    """Return the key of a service at an address: of a variable, else the one that is stored.

    A variable holds the key for the service's own address, and is sent to no other. None where
    there is no key. Raises `KeyMissing` where a stored one cannot be read.
    """
    key = None
    if same_address(url, SERVICES[service]):
        names = set_variables(service, settings.environ)
        key = None
        if names:
            key = checked_key(settings.environ[names[0]])
    key = key or open_key_store(settings)(service, url)
    if key:
        KNOWN_SECRETS.add(key)
    return key


def set_variables(provider: str, environ: Mapping[str, str]) -> list[str]:
    """Return the provider's own variables that are set, the one that is used first."""
    names = SERVICE_VARIABLES.get(provider, ())
    if provider in PRESETS:
        names = PRESETS[provider].keys
    return [name for name in names if environ.get(name, "").strip()]


def find_keys(settings: Settings, store: KeyStore) -> list[FoundKey]:
    """Return every key once, those that are used first. The keyring is not asked.

    Raises `ConfigError`.
    """
    enabled = []
    for item in settings.workers:
        if item.enabled and item.worker.kind in PRESETS:
            enabled.append(item.worker)
    keys = _keys_of_variables(settings.environ)
    for worker in enabled:
        key = _own_key(worker, settings.environ)
        if key is None:
            continue
        if not any(_is_key_of(worker, other, key.source) for other in keys):
            keys.append(key)
    keys += [_stored_key(entry, settings.environ) for entry in store.entries().values()]
    sources = {worker.name: key_state(worker, settings.environ, store) for worker in enabled}
    keys_with_workers = []
    for key in keys:
        users = [worker.name for worker in enabled if _is_key_of(worker, key, sources[worker.name])]
        keys_with_workers.append(replace(key, workers=tuple(users)))
    return keys_with_workers


def _keys_of_variables(environ: Mapping[str, str]) -> list[FoundKey]:
    """Return the keys in the own variables of providers and services.

    Of two variables, the first one is used.
    """
    keys: list[FoundKey] = []
    addresses = {name: preset.base_url for name, preset in PRESETS.items()} | {**SERVICES}
    for provider, base_url in addresses.items():
        names = set_variables(provider, environ)
        for name in names:
            state = "set"
            if name != names[0]:
                state = f"overridden by {names[0]}"
            keys.append(
                FoundKey(
                    provider=provider,
                    source=name,
                    base_url=base_url,
                    state=state,
                    key=environ[name],
                )
            )
    return keys


def _own_key(worker: Worker, environ: Mapping[str, str]) -> FoundKey | None:
    """Return the key in the variable that a worker names; None where it names none that is set."""
    name = str(worker.options.get("key_env") or "")
    if not name or not environ.get(name, "").strip():
        return None
    return FoundKey(
        provider=worker.kind,
        source=name,
        base_url=base_url_of(worker),
        state="set",
        ca_file=str(worker.options.get("ca_file") or ""),
        key=environ[name],
    )


def _stored_key(entry: KeyEntry, environ: Mapping[str, str]) -> FoundKey:
    """Return a stored key, which a variable of its provider may override."""
    state = "stored"
    own_address = SERVICES.get(entry.provider, "")
    if entry.provider in PRESETS:
        own_address = PRESETS[entry.provider].base_url
    if own_address and same_address(entry.base_url, own_address):
        names = set_variables(entry.provider, environ)
        if names:
            state = f"overridden by {names[0]}"
    return FoundKey(
        provider=entry.provider,
        source=entry.where,
        base_url=entry.base_url,
        since=entry.since,
        state=state,
    )


def _is_key_of(worker: Worker, key: FoundKey, source: str) -> bool:
    """Return whether a worker that takes its key from `source` uses this one."""
    is_same_source = worker.kind == key.provider and source == key.source
    return is_same_source and same_address(base_url_of(worker), key.base_url)


def key_state(worker: Worker, environ: Mapping[str, str], store: KeyStore) -> str:
    """Return where a worker's key is: its variable, `keyring` or `file`.

    Else it is `missing` or `not needed`. The places are those of `api_key_of`, in its order, but no
    key is read: listing workers must not ask the keyring.
    """
    if worker.kind not in PRESETS:
        return "not needed"
    named = str(worker.options.get("key_env") or "")
    names: Sequence[str] = ()
    if named:
        names = (named,)
    elif is_own_address(worker):
        names = PRESETS[worker.kind].keys
    for name in names:
        if environ.get(name, "").strip():
            return name
    entry = None
    if not named:
        entry = store.entry(worker.kind, base_url_of(worker))
    if entry is not None:
        return entry.where
    if names:
        return "missing"
    return "not needed"


def check_keys(settings: Settings, store: KeyStore, providers: Sequence[str]) -> list[CheckResult]:
    """Ask each provider about its key, all at once.

    Raises `KeyMissing` when there is no key, and `ConfigError`.
    """
    keys: list[FoundKey] = []
    for key in find_keys(settings, store):
        is_wanted = not providers or key.provider in providers
        # `conductor state check` tries a key that is of no provider
        if is_wanted and key.provider in PRESETS:
            keys.append(key)
    with_key = {key.provider for key in keys}
    for name in providers:
        if name not in with_key:
            message = f"no key of {name} was found"
            raise KeyMissing(message, hint=f"conductor keys set {name}")
    if not keys:
        hint = "conductor keys set PROVIDER"
        raise KeyMissing("no key of a provider of models was found", hint=hint)
    stored: Mapping[str, StoredKey] = {}
    if any(key.since for key in keys):
        stored = store.read()

    async def check_all() -> list[CheckResult]:
        checks = []
        for key in keys:
            stored_key = stored[key.provider] if key.since else None
            checks.append(_check_key(key, stored_key))
        return list(await asyncio.gather(*checks))

    return run_async(check_all())


async def _check_key(found_key: FoundKey, stored: StoredKey | None) -> CheckResult:
    """Ask a provider about a key, and return its verdict with what to do next."""
    verdict = await _verdict_on(found_key, stored)
    parts = [found_key.source]
    if found_key.workers:
        parts.append(f"of {format_list(found_key.workers)}")
    if verdict.message:
        parts.append(verdict.message)
    hint = verdict.hint.partition("\n")[0]
    if verdict.state == "wrong":
        hint = f"replace this key ({found_key.source})"
    message = "; ".join(filter(None, (verdict.message, hint)))
    return CheckResult(
        name=found_key.provider,
        state=verdict.state,
        text=", ".join(parts),
        hint=hint,
        code=_EXIT_CODES.get(verdict.state, 0),
        seconds=verdict.seconds,
        fields={**found_key.to_json(), "state": verdict.state, "message": message},
    )


async def _verdict_on(found_key: FoundKey, stored: StoredKey | None) -> KeyVerdict:
    """Return what a provider says of a key, or why it was not asked."""
    text = found_key.key
    base_url = found_key.base_url
    if stored is not None:
        if stored.fault is not None:
            fault = stored.fault
            return KeyVerdict(state="unreadable", message=fault.message, hint=fault.hint)
        # The address in the keyring's item counts, as when a worker is asked.
        text = stored.key
        base_url = stored.entry.base_url
    KNOWN_SECRETS.add(text.strip())
    try:
        key = checked_key(text)
    except UsageError as error:
        return KeyVerdict(state="wrong", message=error.message)
    return await check_key(
        found_key.provider, base_url, key, seconds=CHECK_SECONDS, ca_file=found_key.ca_file
    )
