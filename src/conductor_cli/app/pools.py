"""Pools: listing, adding and removing them, and adding the ones that ship with this tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.worker_selection import POOL_GONE, POOL_SETTING
from conductor_cli.app.workers import WorkerRow, describe_workers, not_own_error
from conductor_cli.config import AppPaths, NamedPool, Settings
from conductor_cli.config.files import own_section
from conductor_cli.config.pools import find_pool, pool_members, stop_using_pool, update_pool
from conductor_cli.config.workers import set_value, update_worker
from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import dump
from conductor_cli.models.presets import ShippedPool, ShippedWorker, builtin_card, shipped_pools


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A pool of the settings, or one that ships and is not added yet: then it has no source."""

    name: str
    about: str
    workers: tuple[str, ...]
    in_use: bool = False
    source: str = ""
    where: str = ""
    disabled: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name, "about": self.about, "workers": list(self.workers), "in_use": self.in_use,
            "source": self.source or None, "disabled": list(self.disabled), "unknown": list(self.unknown),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPoolWorker:
    """One worker of a pool that ships: with its built-in card, and whether its key was found."""

    shipped: ShippedWorker
    worker: Worker
    key: str

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.shipped.name, **self.shipped.table, "replaces": self.shipped.replaces or None,
            "published": not self.shipped.replaces, "source": self.shipped.source, "card": dump(self.worker.card),
            "key": self.key,
        }  # fmt: skip


def list_pools(settings: Settings) -> list[PoolRow]:
    """The pools of the settings, then those that ship and are not added yet."""
    enabled = {item.worker.name: item.enabled for item in settings.workers}
    rows = [
        PoolRow(
            name=pool.name, about=pool.about, workers=pool.workers, in_use=settings[POOL_SETTING] == pool.name,
            source=pool.source, where=pool.where,
            disabled=tuple(name for name in pool.workers if not enabled.get(name, True)),
            unknown=tuple(name for name in pool.workers if name not in enabled),
        )
        for pool in settings.pools
    ]  # fmt: skip
    taken = {row.name for row in rows}
    for name, pool in shipped_pools().items():
        if name not in taken:
            members = tuple(worker.name for worker in pool.workers)
            rows.append(PoolRow(name=name, about=pool.about, workers=members))
    return rows


def find_shipped_pool(settings: Settings, name: str) -> ShippedPool | None:
    """A pool that ships with this tool, unless the settings have one of this name."""
    return None if name in {pool.name for pool in settings.pools} else shipped_pools().get(name)


def pool_workers(settings: Settings, name: str) -> tuple[NamedPool, list[WorkerRow]]:
    """A pool of the settings. Raises `UsageError` for an unknown pool, `ConfigError` for one with an unknown worker."""
    try:
        pool = find_pool(settings.pools, name)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    return pool, describe_workers(pool_members(pool, settings.workers), settings)


def shipped_pool_workers(settings: Settings, pool: ShippedPool) -> list[ShippedPoolWorker]:
    """What adding a pool that ships would add."""
    store = open_key_store(settings)
    return [
        ShippedPoolWorker(
            shipped=item, worker=replace(item.worker, card=builtin_card(item.worker)),
            key=key_state(item.worker, settings.environ, store),
        )
        for item in pool.workers
    ]  # fmt: skip


def add_pool(
    settings: Settings, name: str, workers: Sequence[str], *, about: str | None, without_keys: bool
) -> tuple[int, list[str]]:
    """Make a pool of these workers, or add one that ships when none is named.

    Returns the number of its workers and notices. Raises `UsageError`, `KeyMissing` or `ConfigError`.
    """
    notices: list[str] = []
    if workers:
        known = [item.worker.name for item in settings.workers]
        for worker in workers:
            if worker not in known:
                hint = f"known: {', '.join(known)}" if known else "conductor workers add NAME --kind KIND"
                raise UsageError(f"no worker is named {worker!r}", hint=hint)
        table: dict[str, Any] = {"workers": list(workers)}
    else:
        table, notices = _add_shipped_workers(settings, name, without_keys=without_keys)
    if about:
        table["about"] = about
    try:
        update_pool(settings.paths, name, table)
    except ConfigError as error:
        raise UsageError(error.message.removeprefix(f"{settings.paths.own_file}: "), hint=error.hint) from None
    return len(table["workers"]), notices


def _add_shipped_workers(settings: Settings, name: str, *, without_keys: bool) -> tuple[dict[str, Any], list[str]]:
    """Add the workers of a pool that ships; the pool as a table for the settings file, and notices.

    A worker whose name is taken stays as it is. One without a key is left out, unless `without_keys`.
    """
    pools = shipped_pools()
    if name not in pools:
        hint = f"name its workers; pools that ship with workers: {', '.join(pools)}"
        raise UsageError(f"pool {name!r} needs at least one worker", hint=hint)
    pool, store = pools[name], open_key_store(settings)
    existing = {item.worker.name: item for item in settings.workers}
    left_out = [
        item for item in pool.workers
        if not without_keys and item.name not in existing
        and key_state(item.worker, settings.environ, store) == "missing"
    ]  # fmt: skip
    added = [item for item in pool.workers if item not in left_out]
    kinds = sorted({item.table["kind"] for item in left_out})
    if not added:
        hint = f"conductor keys set {kinds[0]} (needed: {', '.join(kinds)}), or --all to add them without keys"
        raise KeyMissing(f"no key was found for any worker of pool {name!r}", hint=hint)
    notices = []
    for item in added:
        if item.name in existing:
            notices.append(f"{item.name} exists already and is unchanged in {existing[item.name].source}")
        else:
            update_worker(settings.paths, item.name, item.table)
            replaced = f", replacing {item.replaces}" if item.replaces else ""
            notices.append(f"added {item.name}{replaced}")
    for kind in kinds:
        names = ", ".join(item.name for item in left_out if item.table["kind"] == kind)
        notices.append(f"left out, no key for {kind}: {names}; conductor keys set {kind}, then pools add {name} again")
    return {"workers": [item.name for item in added], "about": pool.about}, notices


def remove_pool(paths: AppPaths, name: str, load: Callable[[], Settings]) -> tuple[str, ...]:
    """Remove a pool that was added; its workers stay. Returns notices. Raises `UsageError` and `ConfigError`.

    The settings are loaded only for an error: the pool that is to be removed may be why they cannot be loaded.
    """
    if name not in own_section(paths, "pools"):
        raise not_own_error("pool", name, {pool.name: pool.source for pool in load().pools})
    update_pool(paths, name, None)
    return (POOL_GONE,) if stop_using_pool(paths, name) else ()


def use_pool(settings: Settings, name: str | None) -> None:
    """Choose the pool that runs use by default; None for every enabled worker. Raises `UsageError`, `ConfigError`."""
    if name is not None:
        try:
            pool_members(find_pool(settings.pools, name), settings.workers)
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from None
    set_value(settings.paths, POOL_SETTING, name)
