"""Named pools: `[pools.NAME]` tables in the files.

A pool holds names of workers, in the order in which they are offered. Files are merged as for workers: the `workers` of
a later file replace those of an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, own_section
from conductor_cli.config.workers import WORKER_NAME, ConfiguredWorker, set_value
from conductor_cli.core.errors import ConfigError, PolicyError
from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import shipped_pools

_KEYS: Final = ("workers", "about")
_EXAMPLE: Final = 'for example: workers = ["a", "b"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPool:
    """A pool as the files have it. `source` is the file that lists its workers, `where` that and the line."""

    name: str
    workers: tuple[str, ...]
    about: str = ""
    source: str = ""
    where: str = ""


def pools_of(sources: Sequence[Source]) -> tuple[NamedPool, ...]:
    """The pools of all files, later files over earlier ones by name. Raises `ConfigError` with file and line."""
    found: dict[str, NamedPool] = {}
    for source in sources:
        tables = source.values.get("pools", {})
        if not isinstance(tables, Mapping):
            raise ConfigError(f"{source.where('pools')}: pools must be tables [pools.NAME]")
        for name, table in tables.items():
            found[name] = _parse_pool(source, name, table, found.get(name))
    return tuple(found.values())


def _parse_pool(source: Source, name: str, table: object, before: NamedPool | None) -> NamedPool:
    section = f"pools.{name}"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source.where('pools', name)}: {name!r} must be a table [{section}]", hint=_EXAMPLE)
    if not WORKER_NAME.fullmatch(name):
        hint = "letters, digits, dots and dashes, at most 40"
        raise ConfigError(f"{source.where(section)}: {name!r} is not a valid pool name", hint=hint)
    for key in table:
        if key not in _KEYS:
            message = f"{source.where(section, key)}: a pool has no key {key!r:.40}"
            raise ConfigError(message, hint=f"known: {', '.join(_KEYS)}")
    about = table.get("about", before.about if before else "")
    if not isinstance(about, str):
        raise ConfigError(f"{source.where(section, 'about')}: about is {about!r:.60}; expected text in quotes")
    # A later file may change only the description.
    if "workers" not in table and before is not None:
        return replace(before, about=about)
    where = source.where(section, "workers")
    workers = _parse_workers(where, name, table.get("workers"))
    return NamedPool(name=name, workers=workers, about=about, source=str(source.path), where=where)


def _parse_workers(where: str, name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        problem = "names no workers" if value is None else f"has workers = {value!r:.60}; expected a list of names"
        raise ConfigError(f"{where}: pool {name!r} {problem}", hint=_EXAMPLE)
    if not value:
        raise ConfigError(f"{where}: pool {name!r} is empty", hint=f"name its workers, {_EXAMPLE}, or remove it")
    for worker in value:
        if value.count(worker) > 1:
            raise ConfigError(f"{where}: pool {name!r} names {worker!r:.60} twice", hint="once is enough")
    return tuple(value)


def find_pool(pools: Iterable[NamedPool], name: str) -> NamedPool:
    """The pool of this name. Raises `ConfigError`."""
    known = {pool.name: pool for pool in pools}
    if name in known:
        return known[name]
    if name in shipped_pools():
        raise ConfigError(f"pool {name!r} is not added yet", hint=f"conductor pools add {name}")
    hint = f"known: {', '.join(known)}" if known else f"conductor pools add {name:.60} WORKER…"
    raise ConfigError(f"no pool is named {name!r:.60}", hint=hint)


def pool_members(pool: NamedPool, workers: Sequence[ConfiguredWorker]) -> tuple[ConfiguredWorker, ...]:
    """The workers of a pool, in its order. Raises `ConfigError` for a name that no worker has."""
    known = {item.worker.name: item for item in workers}
    for name in pool.workers:
        if name not in known:
            hint = f"known: {', '.join(known)}" if known else "no workers are configured: conductor workers add"
            raise ConfigError(f"{pool.where}: pool {pool.name!r} names {name!r:.60}, which is not a worker", hint=hint)
    return tuple(known[name] for name in pool.workers)


def enabled_members(pool: NamedPool, workers: Sequence[ConfiguredWorker]) -> tuple[Worker, ...]:
    """The workers of a pool that are enabled. Raises `ConfigError`, and `PolicyError` where none of them is."""
    enabled = tuple(item.worker for item in pool_members(pool, workers) if item.enabled)
    if not enabled:
        hint = f"conductor workers enable --pool {pool.name}"
        raise PolicyError(f"all workers of pool {pool.name!r} are disabled", hint=hint)
    return enabled


def update_pool(where: AppPaths, name: str, table: Mapping[str, Any] | None) -> None:
    """Put a pool into the tool's own file, or with None remove it. Raises `ConfigError` before anything is written."""
    # Checked first with the parser of the files, so that nothing invalid is ever written.
    if table is not None:
        pools_of([Source(path=where.own_file, values={"pools": {name: table}})])
    with edit_settings_file(where.own_file) as values:
        pools = values.setdefault("pools", {})
        if table is None:
            pools.pop(name, None)
        else:
            pools[name] = dict(table)


def remove_from_pools(where: AppPaths, worker: str) -> tuple[str, ...]:
    """Remove a deleted worker from the tool's own pools, and a pool that this leaves empty; returns their names."""
    names = [
        name
        for name, table in own_section(where, "pools").items()
        if isinstance(table, Mapping) and isinstance(table.get("workers"), list) and worker in table["workers"]
    ]
    if names:
        with edit_settings_file(where.own_file) as values:
            for name in names:
                table = values["pools"].pop(name)
                left = [item for item in table["workers"] if item != worker]
                if left:
                    values["pools"][name] = {**table, "workers": left}
    return tuple(names)


def stop_using_pool(where: AppPaths, name: str) -> bool:
    """Clear `conductor.pool` where it names a pool that was removed; returns whether it did. Raises `ConfigError`."""
    if name in own_section(where, "pools") or own_section(where, "conductor").get("pool") != name:
        return False
    set_value(where, "conductor.pool", None)
    return True
