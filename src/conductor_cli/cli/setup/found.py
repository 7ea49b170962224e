"""What `conductor setup` finds: the machine, a keyring, keys, model servers, and what is set up already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.app.keys import KeyRow
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker
    from conductor_cli.models.machine import Gpu, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is here. Memory and `free` (the disk of `downloads`) in bytes, 0 where not known.

    `keyring` is the name of one that works, empty where there is none. `at_hand` are the workers that would be taken
    where none are set up; `planner` is the model that plans, in words, empty where none can.
    """

    memory: Memory
    cores: int
    gpus: tuple[Gpu, ...]
    downloads: Path
    free: int
    keyring: str
    keys: tuple[KeyRow, ...]
    at_hand: tuple[Worker, ...]
    planner: str

    def lines(self) -> Iterator[str]:
        """For people."""
        gpus = ", ".join(gpu.name for gpu in self.gpus) or "no GPU"
        memory = f"{format_size(self.memory.total)}, {format_size(self.memory.available)} free"
        yield f"memory   {memory if self.memory.total else 'not known'}"
        yield f"cores    {self.cores}, {gpus}"
        yield f"disk     {format_size(self.free)} free for models in {self.downloads}"
        yield f"keyring  {self.keyring or 'none that works here'}"
        keys = [f"{row.provider} in {row.source}" for row in self.keys]
        yield f"keys     {', '.join(keys) or 'none'}"
        servers = [f"{worker.model} ({worker.kind})" for worker in self.at_hand if is_here(worker)]
        yield f"servers  {', '.join(servers) or 'none on this machine'}"

    def data(self) -> dict[str, Any]:
        """For `--json`; no key is in it."""
        return {
            "memory": {"total": self.memory.total or None, "available": self.memory.available or None},
            "cores": self.cores,
            "gpus": [{"kind": gpu.kind, "name": gpu.name} for gpu in self.gpus],
            "downloads": {"path": str(self.downloads), "free": self.free},
            "keyring": self.keyring or None,
            "keys": [row.data() for row in self.keys],
            "servers": [{"kind": w.kind, "model": w.model} for w in self.at_hand if is_here(w)],
            "conductor": self.planner or None,
            "workers_at_hand": [worker.name for worker in self.at_hand],
        }


def look(settings: Settings) -> Found:
    """Look at this machine; takes no longer than its keyring is allowed. Raises `ConfigError`."""
    from conductor_cli.models import disk
    from conductor_cli.models.machine import find_gpus, physical_cores, read_memory
    from conductor_cli.models.weights.cache import Cache

    ring = _Ring(settings)
    keys, discovered_workers = keys_of(settings), workers_at_hand(settings)
    downloads = Cache.from_environment(settings.environ).directory
    try:
        free = disk.free_bytes(downloads)
    except OSError:
        free = 0
    return Found(
        memory=read_memory(), cores=physical_cores(), gpus=find_gpus(settings.environ), downloads=downloads, free=free,
        keyring=ring.name(), keys=keys, at_hand=discovered_workers, planner=planner_name(settings),
    )  # fmt: skip


class _Ring:
    """The question whether a keyring works, put while everything else is looked at."""

    def __init__(self, settings: Settings) -> None:
        self._environ = settings.environ
        self._name = ""
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from conductor_cli.keys.keyring import probe_keyring

        try:
            self._name = probe_keyring(self._environ).backend
        except ConductorError:
            self._name = ""

    def name(self) -> str:
        self._thread.join()
        return self._name


def keys_of(settings: Settings) -> tuple[KeyRow, ...]:
    """The keys that would be used, by the list of those that are stored; no keyring is asked. Raises `ConfigError`."""
    from conductor_cli.app.keys import keys_in_variables, keys_of_workers, open_key_store, stored_row

    safe = open_key_store(settings)
    rows = [*keys_in_variables(settings), *keys_of_workers(settings)]
    rows += [stored_row(entry, safe.path, "stored") for entry in safe.entries().values()]
    return tuple({row.provider: row for row in reversed(rows)}.values())[::-1]


def workers_at_hand(settings: Settings) -> tuple[Worker, ...]:
    """A worker for each provider whose key is here, and for the models of servers on this machine."""
    from conductor_cli.app.worker_selection import discovered_workers

    return tuple(item.worker for item in discovered_workers(settings))


def planner_name(settings: Settings) -> str:
    """The model that plans, in words; empty where none is chosen or it cannot be used."""
    from conductor_cli.app.planner_resolution import describe_planner, open_model_store, resolve_planner

    try:
        return describe_planner(resolve_planner(settings), open_model_store(settings))
    except ConductorError:
        return ""


def is_here(worker: Worker) -> bool:
    """Whether a worker is a model of this machine."""
    from conductor_cli.models.presets import is_local

    return is_local(worker)
