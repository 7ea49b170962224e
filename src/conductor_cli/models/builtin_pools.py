"""Pools of workers that ship with this tool, such as the published one. They stand in `presets.toml`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import shipped

_TOLD: Final = ("name", "replaces", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedWorker:
    """A worker of such a pool. `table` is it as a settings file would have it.

    `replaces` is the published model that it stands in for, empty where it is the published one; `source` says where
    its model and settings are from.
    """

    name: str
    table: Mapping[str, Any]
    replaces: str = ""
    source: str = ""

    @property
    def worker(self) -> Worker:
        """As a worker that can be asked for its key, price and card."""
        options = {key: value for key, value in self.table.items() if key not in ("kind", "model")}
        return Worker(name=self.name, kind=self.table["kind"], model=self.table["model"], options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPool:
    """A pool, in the order in which its workers are offered, and where it is from."""

    name: str
    about: str
    source: str
    workers: tuple[ShippedWorker, ...]


def shipped_pools() -> Mapping[str, ShippedPool]:
    """Every pool that ships with this tool, by name."""
    return {
        name: ShippedPool(
            name=name, about=pool["about"], source=pool["source"], workers=tuple(map(_worker, pool["workers"]))
        )
        for name, pool in shipped()["pools"].items()
    }


def _worker(line: Mapping[str, Any]) -> ShippedWorker:
    table = {key: value for key, value in line.items() if key not in _TOLD}
    return ShippedWorker(name=line["name"], table=table, replaces=line.get("replaces", ""), source=line["source"])
