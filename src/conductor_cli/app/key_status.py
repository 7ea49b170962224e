"""Where keys are: variables of the environment, the system's keyring, a file; and giving workers the stored ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from conductor_cli.core.errors import ConductorError, KeyMissing
from conductor_cli.keys.entry import KeyEntry, same_address
from conductor_cli.keys.key_store import KeyStore, State
from conductor_cli.models.presets import PRESETS, base_url_of, is_own_address

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker

Kind = Literal["environment", "keyring", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key: of whom, where it is, since when, what it is sent to. `key` is known only for a variable."""

    provider: str
    kind: Kind
    source: str
    base_url: str
    state: str
    since: str = ""
    worker: str = ""
    ca_file: str = ""
    key: str = field(default="", repr=False)

    @property
    def age(self) -> str:
        """Its age in words; of a variable nobody knows it."""
        return age_text(self.seconds) if self.seconds is not None else "-"

    @property
    def seconds(self) -> float | None:
        try:
            since = datetime.fromisoformat(self.since)
            return max(0.0, (datetime.now(UTC) - since).total_seconds())
        except (ValueError, TypeError):  # no time, or one without a zone
            return None

    def data(self) -> dict[str, Any]:
        """For `--json`: everything but the key."""
        return {
            "provider": self.provider, "kind": self.kind, "source": self.source, "worker": self.worker or None,
            "base_url": self.base_url, "state": self.state, "since": self.since or None,
            "age_seconds": None if self.seconds is None else round(self.seconds),
        }  # fmt: skip


def list_keys(settings: Settings, safe: KeyStore) -> tuple[list[KeyRow], ConductorError | None]:
    """Every key at hand, those that win first; and why the keyring could not be asked. Raises `ConfigError`."""
    entries = safe.entries()
    states, fault = safe.states()
    stored = [stored_row(entry, safe.path, _said(entry, states[name], settings)) for name, entry in entries.items()]
    order = list(PRESETS)
    rows = [*keys_in_variables(settings), *keys_of_workers(settings), *stored]
    return sorted(rows, key=lambda row: order.index(row.provider) if row.provider in order else len(order)), fault


def _said(entry: KeyEntry, state: State, settings: Settings) -> str:
    """What to say of a stored key: whether it is there, and which variable wins over it."""
    if state != "kept":
        return "gone" if state == "gone" else "not known"
    own = entry.provider in PRESETS and same_address(entry.base_url, PRESETS[entry.provider].base_url)
    winner = variables_set(entry.provider, settings.environ)[:1] if own else []
    return f"{winner[0]} wins" if winner else "stored"


def keys_in_variables(settings: Settings) -> Iterator[KeyRow]:
    """The keys in the providers' own variables; of two for one provider the first wins."""
    for provider, preset in PRESETS.items():
        names = variables_set(provider, settings.environ)
        for name in names:
            state = "set" if name == names[0] else f"{names[0]} wins"
            yield KeyRow(
                provider=provider, kind="environment", source=name, base_url=preset.base_url, state=state,
                key=settings.environ[name],
            )  # fmt: skip


def keys_of_workers(settings: Settings) -> Iterator[KeyRow]:
    """The keys in variables that workers name."""
    for worker in (item.worker for item in settings.workers if item.enabled):
        name = str(worker.options.get("key_env") or "")
        if name and worker.kind in PRESETS and settings.environ.get(name, "").strip():
            yield KeyRow(
                provider=worker.kind, kind="environment", source=name, base_url=base_url_of(worker), state="set",
                worker=worker.name, ca_file=str(worker.options.get("ca_file") or ""), key=settings.environ[name],
            )  # fmt: skip


def stored_row(entry: KeyEntry, path: Path, state: str) -> KeyRow:
    """The row of a stored key."""
    return KeyRow(
        provider=entry.provider, kind=entry.where, source=kept_in(entry, path).removeprefix("the "),
        base_url=entry.base_url, state=state, since=entry.since,
    )  # fmt: skip


def kept_in(entry: KeyEntry, path: Path) -> str:
    """Where a stored key is, in words."""
    if entry.where == "file":
        return f"{path}, not encrypted"
    return f"the keyring ({entry.backend})" if entry.backend else "the keyring"


def variables_set(provider: str, environ: Mapping[str, str]) -> list[str]:
    """The provider's own variables that hold something."""
    return [name for name in PRESETS[provider].keys if environ.get(name, "").strip()] if provider in PRESETS else []


def key_state(worker: Worker, environ: Mapping[str, str], safe: KeyStore) -> str:
    """`not needed`, the name of the variable that holds the key, where it is stored, or `missing`. Never the key."""
    from conductor_cli.models.catalog import api_key_of

    if worker.kind not in PRESETS:
        return "not needed"
    entry = None if worker.options.get("key_env") else safe.entry(worker.kind, base_url_of(worker))
    try:
        key = api_key_of(worker, environ, lambda _kind, _url: entry.where if entry else None)
    except KeyMissing:
        return "missing"
    if entry is not None and key == entry.where:
        return entry.where
    names = (str(worker.options.get("key_env") or ""), *PRESETS[worker.kind].keys)
    return next((name for name in names if key and environ.get(name, "").strip() == key), "not needed")


def stored_keys(settings: Settings) -> KeyStore:
    """What gives the workers of these settings their stored keys; all that they may need with the first one."""
    workers = [item.worker for item in settings.workers if item.enabled]

    def wanted() -> Collection[str]:
        if not workers:
            return stored_at_hand(safe)
        return {worker.kind for worker in workers if _asks(worker, settings.environ)}

    safe = KeyStore(settings.paths.data, settings.environ, wanted)
    return safe


def stored_at_hand(safe: KeyStore) -> tuple[str, ...]:
    """The providers with a key that is stored for their own address."""
    return tuple(name for name, preset in PRESETS.items() if preset.base_url and safe.entry(name, preset.base_url))


def _asks(worker: Worker, environ: Mapping[str, str]) -> bool:
    """Whether no variable gives a worker its key."""
    if worker.kind not in PRESETS or worker.options.get("key_env"):
        return False
    return not (is_own_address(worker) and variables_set(worker.kind, environ))


def age_text(seconds: float) -> str:
    """`new`, `5 min`, `3 h`, `12 days`."""
    for size, word in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size * (2 if word == "days" else 1):
            return f"{seconds / size:.0f} {word}"
    return "new"
