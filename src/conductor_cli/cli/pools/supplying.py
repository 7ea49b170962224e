"""Adding the workers of a pool that ships with this tool: those whose key is at hand, and a word on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conductor_cli.core.errors import KeyMissing, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.builtin_pools import ShippedPool, ShippedWorker


def supply(name: str, settings: Settings, *, everyone: bool) -> dict[str, Any]:
    """Write the workers of the pool `name` into the tool's own file; the pool as a table for that file.

    A worker whose name the settings know already stays as it is. One without a key is left out and named, unless
    `everyone`. Raises `UsageError` where no such pool ships, `KeyMissing` where nobody is left.
    """
    from conductor_cli.cli.output import print_notice
    from conductor_cli.config.workers import update_worker

    pool = _shipped(name)
    known = {item.worker.name: item for item in settings.workers}
    missing = {} if everyone else {worker.name: worker for worker in pool.workers if _lacks_key(worker, settings)}
    taken = [worker for worker in pool.workers if worker.name in known or worker.name not in missing]
    if not taken:
        kinds = sorted({worker.table["kind"] for worker in missing.values()})
        hint = f"conductor keys set {kinds[0]} (needed: {', '.join(kinds)}), or --all to add them without"
        raise KeyMissing(f"no worker of pool {name!r} has a key at hand", hint=hint)
    for worker in taken:
        if worker.name in known:
            print_notice(f"{worker.name} is there already, and stays as it is in {known[worker.name].source}")
        else:
            update_worker(settings.paths, worker.name, worker.table)
            print_notice(f"added {worker.name}{_stands_for(worker)}")
    left = [worker for worker in pool.workers if worker not in taken]
    for kind in dict.fromkeys(worker.table["kind"] for worker in left):
        names = ", ".join(worker.name for worker in left if worker.table["kind"] == kind)
        print_notice(f"left out, no key of {kind}: {names}; conductor keys set {kind}, then pools add {name} again")
    return {"workers": [worker.name for worker in taken], "about": pool.about}


def _stands_for(worker: ShippedWorker) -> str:
    return f", which stands in for {worker.replaces}" if worker.replaces else ""


def _shipped(name: str) -> ShippedPool:
    from conductor_cli.models.builtin_pools import shipped_pools

    pools = shipped_pools()
    if name not in pools:
        said = f"pool {name!r} would be empty: no worker is named"
        raise UsageError(said, hint=f"name its workers; the pools that come with theirs: {', '.join(pools)}")
    return pools[name]


def _lacks_key(worker: ShippedWorker, settings: Settings) -> bool:
    from conductor_cli.app.keys import key_state, open_key_store

    return key_state(worker.worker, settings.environ, open_key_store(settings)) == "missing"
