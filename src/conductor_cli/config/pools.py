"""Pools by name: `[pools.NAME]` tables in the files, and whom a run may choose from.

A pool holds names of workers, in the order in which they are offered. Files are merged as those of workers are: a later
file's `workers` stands in the place of an earlier one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, read_toml
from conductor_cli.config.workers import WORKER_NAME, ConfiguredWorker, own_value, set_value
from conductor_cli.core.errors import ConfigError, PolicyError
from conductor_cli.core.pool import Worker

_KEYS: Final = ("workers", "about")
_NAMED: Final = 'for example: workers = ["a", "b"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPool:
    """A pool as the files have it. `source` is the file that says who is in it, `where` that and the line."""

    name: str
    workers: tuple[str, ...]
    about: str = ""
    source: str = ""
    where: str = ""


def pools_of(sources: Sequence[Source]) -> tuple[NamedPool, ...]:
    """The pools of all files, later files over earlier ones by name. Raises `ConfigError` with file and line."""
    found: dict[str, NamedPool] = {}
    for source in sources:
        listed = source.values.get("pools", {})
        if not isinstance(listed, Mapping):
            raise ConfigError(f"{source.where('pools')}: pools must be tables [pools.NAME]")
        for name, table in listed.items():
            found[name] = _pool(source, name, table, found.get(name))
    return tuple(found.values())


def _pool(source: Source, name: str, table: object, before: NamedPool | None) -> NamedPool:
    section = f"pools.{name}"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source.where('pools', name)}: {name!r} must be a table [{section}]", hint=_NAMED)
    if not WORKER_NAME.fullmatch(name):
        hint = "letters, digits, dots and dashes, at most 40"
        raise ConfigError(f"{source.where(section)}: {name!r} is no name of a pool", hint=hint)
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        said = f"{source.where(section, unknown)}: a pool has no key {unknown!r:.40}"
        raise ConfigError(said, hint=f"known: {', '.join(_KEYS)}")
    if not isinstance(table.get("about", ""), str):
        raise ConfigError(f"{source.where(section, 'about')}: about is {table['about']!r:.60}; expected text in quotes")
    about = str(table.get("about", before.about if before else ""))
    if "workers" not in table and before is not None:
        return NamedPool(name=name, workers=before.workers, about=about, source=before.source, where=before.where)
    where = source.where(section, "workers")
    return NamedPool(
        name=name,
        workers=_workers(where, name, table.get("workers")),
        about=about,
        source=str(source.path),
        where=where,
    )


def _workers(where: str, name: str, value: object) -> tuple[str, ...]:
    """The names in a pool. Raises `ConfigError` for none, for what is no list of names, and for one named twice."""
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        said = "names no workers" if value is None else f"has workers = {value!r:.60}; expected a list of names"
        raise ConfigError(f"{where}: pool {name!r} {said}", hint=_NAMED)
    if not value:
        raise ConfigError(f"{where}: pool {name!r} is empty", hint=f"name its workers, {_NAMED}, or take it out")
    twice = next((item for item in value if value.count(item) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}: pool {name!r} names {twice!r:.60} twice", hint="once is enough")
    return tuple(value)


def find_pool(pools: Iterable[NamedPool], name: str) -> NamedPool:
    """The pool of this name. Raises `ConfigError` where there is none."""
    listed = {pool.name: pool for pool in pools}
    if name not in listed:
        from conductor_cli.models.builtin_pools import shipped_pools  # only for the hint

        if name in shipped_pools():
            raise ConfigError(f"pool {name!r} is not added yet", hint=f"conductor pools add {name}")
        hint = f"known: {', '.join(listed)}" if listed else f"conductor pools add {name:.60} WORKER…"
        raise ConfigError(f"no pool is named {name!r:.60}", hint=hint)
    return listed[name]


def pool_members(pool: NamedPool, workers: Sequence[ConfiguredWorker]) -> tuple[ConfiguredWorker, ...]:
    """The workers of a pool, in its order. Raises `ConfigError` for a name that no worker has."""
    listed = {item.worker.name: item for item in workers}
    lost = [name for name in pool.workers if name not in listed]
    if lost:
        hint = f"known: {', '.join(listed)}" if listed else "no workers are configured: conductor workers add"
        raise ConfigError(f"{pool.where}: pool {pool.name!r} names {lost[0]!r:.60}, which is no worker", hint=hint)
    return tuple(listed[name] for name in pool.workers)


def enabled_members(pool: NamedPool, workers: Sequence[ConfiguredWorker]) -> tuple[Worker, ...]:
    """The workers of a pool that are enabled. Raises `ConfigError`, and `PolicyError` where none of them is."""
    found = tuple(item.worker for item in pool_members(pool, workers) if item.enabled)
    if not found:
        hint = f"conductor workers enable --pool {pool.name}"
        raise PolicyError(f"all workers of pool {pool.name!r} are disabled", hint=hint)
    return found


def own_pools(where: AppPaths) -> Mapping[str, Any]:
    """The tables in the tool's own file, whether what stands there can be used or not. Raises `ConfigError`."""
    listed = read_toml(where.own_file).values.get("pools", {})
    return listed if isinstance(listed, Mapping) else {}


def update_pool(where: AppPaths, name: str, table: Mapping[str, Any] | None) -> None:
    """Put a pool into the tool's own file, or with None take it out. Raises `ConfigError`, before it writes."""
    if table is not None:
        pools_of([Source(path=where.own_file, values={"pools": {name: table}})])
    with edit_settings_file(where.own_file) as values:
        pools = values.setdefault("pools", {})
        if table is None:
            pools.pop(name, None)
        else:
            pools[name] = dict(table)


def remove_from_pools(where: AppPaths, worker: str) -> tuple[str, ...]:
    """Take a worker that is gone out of the tool's own pools; the names of those, a pool left empty goes too."""
    left = [name for name, table in own_pools(where).items() if worker in _listed(table)]
    if left:
        with edit_settings_file(where.own_file) as values:
            for name in left:
                table = values["pools"].pop(name)
                kept = [item for item in table["workers"] if item != worker]
                values["pools"] |= {name: {**table, "workers": kept}} if kept else {}
    return tuple(left)


def stop_using_pool(where: AppPaths, name: str) -> bool:
    """Have runs no longer use a pool that is out of the tool's own file; whether they did. Raises `ConfigError`."""
    if name in own_pools(where) or own_value(where, "conductor.pool") != name:
        return False
    set_value(where, "conductor.pool", None)
    return True


def _listed(table: object) -> list[Any]:
    value = table.get("workers") if isinstance(table, Mapping) else None
    return value if isinstance(value, list) else []
