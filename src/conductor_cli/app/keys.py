"""API keys of providers.

Which ones there are, where they come from, and whether their providers accept them.
"""

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
from conductor_cli.state.key_store import KeyStore, StoredKey, checked_key, same_address
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from conductor_cli.config.settings import Settings
    from conductor_cli.core.pool import Worker

CHECK_SECONDS: Final = 15.0  # How long a provider may take to say whether it accepts a key

_EXIT_CODES: Final = {"wrong": 4, "unreadable": 4, "unreachable": 8, "failed": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """One key: whose it is, the address it is sent to, and whether another one is used instead.

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

    def data(self) -> dict[str, Any]:
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
    """The stored keys of this user."""
    return KeyStore(settings.paths.data, settings.environ)


def providers_with_stored_key(store: KeyStore) -> tuple[str, ...]:
    """The providers with a key that is stored for their own address."""
    return tuple(
        name
        for name, preset in PRESETS.items()
        if preset.base_url and store.entry(name, preset.base_url)
    )


def set_variables(provider: str, environ: Mapping[str, str]) -> list[str]:
    """The provider's own variables that are set, the one that is used first."""
    return (
        [name for name in PRESETS[provider].keys if environ.get(name, "").strip()]
        if provider in PRESETS
        else []
    )


def find_keys(settings: Settings, store: KeyStore) -> list[FoundKey]:
    """Every key once, those that are used first. The keyring is not asked. Raises `ConfigError`."""
    environ = settings.environ
    found = list[FoundKey]()
    enabled = [
        item.worker for item in settings.workers if item.enabled and item.worker.kind in PRESETS
    ]
    for provider, preset in PRESETS.items():
        names = set_variables(provider, environ)  # of two variables, the first one is used
        for name in names:
            state = "set" if name == names[0] else f"overridden by {names[0]}"
            found.append(
                FoundKey(
                    provider=provider,
                    source=name,
                    base_url=preset.base_url,
                    state=state,
                    key=environ[name],
                )
            )
    for worker in enabled:
        name = str(worker.options.get("key_env") or "")
        known = any(_is_key_of(worker, key, name) for key in found)
        if name and not known and environ.get(name, "").strip():
            found.append(
                FoundKey(
                    provider=worker.kind,
                    source=name,
                    base_url=base_url_of(worker),
                    state="set",
                    ca_file=str(worker.options.get("ca_file") or ""),
                    key=environ[name],
                )
            )
    for entry in store.entries().values():
        own = entry.provider in PRESETS and same_address(
            entry.base_url, PRESETS[entry.provider].base_url
        )
        used = set_variables(entry.provider, environ)[:1] if own else []
        found.append(
            FoundKey(
                provider=entry.provider,
                source=entry.where,
                base_url=entry.base_url,
                since=entry.since,
                state=f"overridden by {used[0]}" if used else "stored",
            )
        )
    sources = {worker.name: key_state(worker, environ, store) for worker in enabled}
    return [
        replace(
            key,
            workers=tuple(
                each.name for each in enabled if _is_key_of(each, key, sources[each.name])
            ),
        )
        for key in found
    ]


def _is_key_of(worker: Worker, key: FoundKey, source: str) -> bool:
    """Return whether a worker that takes its key from `source` uses this one."""
    same = worker.kind == key.provider and source == key.source
    return same and same_address(base_url_of(worker), key.base_url)


def key_state(worker: Worker, environ: Mapping[str, str], store: KeyStore) -> str:
    """`not needed`, the variable that holds a worker's key, `keyring`, `file`, or `missing`.

    The places are those of `api_key_of`, in its order, but no key is read: listing workers must not
    ask the keyring.
    """
    if worker.kind not in PRESETS:
        return "not needed"
    named = str(worker.options.get("key_env") or "")
    own = PRESETS[worker.kind].keys if is_own_address(worker) else ()
    names = (named,) if named else own
    used = next((name for name in names if environ.get(name, "").strip()), "")
    if used:
        return used
    entry = None if named else store.entry(worker.kind, base_url_of(worker))
    if entry is not None:
        return entry.where
    return "missing" if names else "not needed"


def check_keys(settings: Settings, store: KeyStore, providers: Sequence[str]) -> list[CheckResult]:
    """Ask each provider about its key, all at once.

    Raises `KeyMissing` when there is no key, and `ConfigError`.
    """
    found = [
        key for key in find_keys(settings, store) if not providers or key.provider in providers
    ]
    # Conductor state check tries the other one
    found = [key for key in found if key.provider in PRESETS]
    missing = [name for name in providers if name not in {key.provider for key in found}]
    if missing or not found:
        name = missing[0] if missing else "PROVIDER"
        message = f"no key of {name} was found" if missing else "no key was found"
        raise KeyMissing(message, hint=f"conductor keys set {name}")
    stored = store.read() if any(key.since for key in found) else {}

    async def check_all() -> list[CheckResult]:
        checks = [_check_one(key, stored[key.provider] if key.since else None) for key in found]
        return list(await asyncio.gather(*checks))

    return asyncio.run(check_all())


async def _check_one(found: FoundKey, stored: StoredKey | None) -> CheckResult:
    if stored is not None and stored.fault is not None:
        verdict = KeyVerdict(
            state="unreadable", message=stored.fault.message, hint=stored.fault.hint
        )
    else:
        # The address in the keyring's item counts, as when a worker is asked.
        text, base_url = (
            (found.key, found.base_url) if stored is None else (stored.key, stored.entry.base_url)
        )
        KNOWN_SECRETS.add(text.strip())
        try:
            key = checked_key(text)
        except UsageError as error:
            verdict = KeyVerdict(state="wrong", message=error.message)
        else:
            verdict = await check_key(
                found.provider, base_url, key, seconds=CHECK_SECONDS, ca_file=found.ca_file
            )
    refused = verdict.state == "wrong"
    who = [f"of {format_list(found.workers)}"] if found.workers else []
    checked = CheckResult(
        name=found.provider,
        state=verdict.state,
        text=", ".join((found.source, *who, verdict.message)),
        hint=f"replace this key ({found.source})" if refused else verdict.hint.partition("\n")[0],
        code=_EXIT_CODES.get(verdict.state, 0),
        seconds=verdict.seconds,
    )
    message = "; ".join(filter(None, (verdict.message, checked.hint)))
    return replace(checked, data={**found.data(), "state": checked.state, "message": message})
