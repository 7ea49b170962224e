"""Named pools: `[pools.NAME]` tables in the files. A pool holds names of workers, in the order they are offered in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conductor_cli.config.files import AppPaths, Source
from conductor_cli.config.tables import Table, changed_table, tables_of, update_table
from conductor_cli.config.workers import ConfiguredWorker
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.suggest import suggest
from conductor_cli.models.presets import shipped_pools


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPool:
    """A pool as the files have it. `source` is the file that lists its workers, `where` that and the line.

    `tools` are servers whose tools each of its workers gets while the pool is in use.
    """

    name: str
    workers: tuple[str, ...]
    about: str = ""
    tools: tuple[str, ...] = ()
    source: str = ""
    where: str = ""


def pools_of(sources: Sequence[Source]) -> tuple[NamedPool, ...]:
    """The pools of all files, later files over earlier ones by name. Raises `ConfigError` with file and line."""
    return tuple(_parse_pool(table) for table in tables_of(sources, "pools"))


def _parse_pool(table: Table) -> NamedPool:
    table.refuse_unknown("", ("workers", "about", "tools"), table.values)
    pool = table.read(NamedPool, {"workers": (), **table.values, "name": table.name})
    if not pool.workers or len(set(pool.workers)) < len(pool.workers):
        message = f"pool {table.name!r} needs the names of its workers, each once"
        raise table.error("workers", message, 'for example: workers = ["a", "b"]')
    return replace(pool, source=table.file_of("workers"), where=table.where("workers"))


def find_pool(pools: Iterable[NamedPool], name: str) -> NamedPool:
    """The pool of this name. Raises `UsageError`."""
    known = {pool.name: pool for pool in pools}
    if name in known:
        return known[name]
    if name in shipped_pools():
        raise UsageError(f"pool {name!r} is not added yet", hint=f"conductor pools add {name}")
    hint = suggest(name, known) if known else "conductor pools add NAME WORKER…"
    raise UsageError(f"no pool is named {name!r:.60}", hint=hint)


def pool_members(pool: NamedPool, workers: Sequence[ConfiguredWorker]) -> tuple[ConfiguredWorker, ...]:
    """The workers of a pool, in its order. Raises `ConfigError` for a name that no worker has."""
    known = {item.worker.name: item for item in workers}
    for name in pool.workers:
        if name not in known:
            message = f"{pool.where}: pool {pool.name!r} names {name!r:.60}, which is not a worker"
            raise ConfigError(message, hint=f"known: {', '.join(known) or 'none'}")
    return tuple(known[name] for name in pool.workers)


def update_pool(paths: AppPaths, name: str, changes: Mapping[str, Any]) -> None:
    """Put a pool into the tool's own file. Raises `ConfigError` before anything is written."""
    _parse_pool(changed_table(paths, "pools", name, changes))
    update_table(paths, "pools", name, changes)
