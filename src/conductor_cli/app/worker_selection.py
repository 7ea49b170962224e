"""Whom a run may choose from: a pool by name, every worker that is enabled, or those at hand where none is set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import ConfiguredWorker, Settings
    from conductor_cli.core.pool import Worker

POOL_SETTING: Final = "conductor.pool"

POOL_GONE: Final = "it was in use; every enabled worker is on offer now"
"""What is said when the pool of runs that name none is gone."""


def offered_workers(settings: Settings) -> tuple[Worker, ...]:
    """The workers that are enabled, those of the chosen pool in its order, else all.

    Raises `UsageError` where a command line names no pool that there is, `ConfigError` where the settings do, and
    `PolicyError` where all workers of the pool are disabled.
    """
    from conductor_cli.config.pools import enabled_members, pool_named

    name = settings[POOL_SETTING]
    if not name:
        return tuple(item.worker for item in settings.workers if item.enabled)
    try:
        pool = pool_named(settings.pools, name)
    except ConfigError as error:
        if is_given(settings):
            raise UsageError(error.message, hint=error.hint) from None
        hint = f"{error.hint}; {POOL_SETTING} is from {settings.origins[POOL_SETTING]}"
        raise ConfigError(error.message, hint=hint) from None
    return enabled_members(pool, settings.workers)


def discovered_workers(settings: Settings, *, offline: bool = False) -> tuple[ConfiguredWorker, ...]:
    """The workers that are found where the settings name none; `offline` those of keys only, and nobody is asked."""
    import asyncio

    from conductor_cli.cli.keys.rows import stored_at_hand, stored_keys
    from conductor_cli.config import ConfiguredWorker
    from conductor_cli.models.discovery import discover, workers_with_keys

    stored = stored_at_hand(stored_keys(settings))
    found = workers_with_keys(settings.environ, stored) if offline else asyncio.run(discover(settings.environ, stored))
    return tuple(ConfiguredWorker(worker=worker, enabled=True, source="found at hand") for worker in found)


def is_given(settings: Settings) -> bool:
    """Whether a command line names the pool."""
    return settings.origins[POOL_SETTING] == "command line"


def without_pool(settings: Settings) -> Settings:
    """The settings to finish a stored run with: its own workers count, unless a command line names a pool."""
    return settings if is_given(settings) else replace(settings, values={**settings.values, POOL_SETTING: ""})


def check_rehearsal(settings: Settings) -> None:
    """That nobody names a pool for the rehearsal. Raises `UsageError`."""
    if is_given(settings) and settings[POOL_SETTING]:
        raise UsageError("--rehearsal brings its own workers", hint="leave out --pool; --workers chooses among them")


def check_workers_in_pool(settings: Settings, only: Sequence[str]) -> None:
    """That the workers which a command line names are in the chosen pool, as far as they exist. Raises `UsageError`."""
    name = settings[POOL_SETTING]
    inside = next((pool.workers for pool in settings.pools if pool.name == name), None)
    if inside is None:
        return
    known = [item.worker.name for item in settings.workers]
    outside = next((worker for worker in only if worker in known and worker not in inside), None)
    if outside is not None:
        said = f"worker {outside!r} is not in pool {name!r}"
        raise UsageError(said, hint=f"in it: {', '.join(inside)}; or choose no pool: --pool ''")


def select_workers(settings: Settings, names: Sequence[str], pool: str | None) -> tuple[ConfiguredWorker, ...]:
    """The workers that a command is to do something with: those named, those of a pool, or both.

    Raises `UsageError` for a name that there is not, `ConfigError` for a pool with such a name.
    """
    from conductor_cli.config.pools import pool_members, pool_named

    listed = {item.worker.name: item for item in settings.workers}
    wrong = next((name for name in names if name not in listed), None)
    if wrong is not None:
        raise UsageError(f"no worker is named {wrong!r}", hint=f"known: {', '.join(listed) or 'none'}")
    try:
        of_pool = () if pool is None else pool_members(pool_named(settings.pools, pool), settings.workers)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    found = {item.worker.name: item for item in (*(listed[name] for name in names), *of_pool)}
    return tuple(found.values())
