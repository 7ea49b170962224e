"""What ships with this tool besides providers: pools such as the published one, and capability cards. Pure.

Pools are in `presets.toml`. Cards are in `cards.toml`: they were not measured here, and each names its source. A
worker's own card and a measured one are used before them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.presets import PRESETS, is_own_address, price_name, shipped

CARDS_FILE: Final = Path(__file__).with_name("cards.toml")

_THINKING_OPTIONS: Final = {"reasoning_effort", "thinking_budget"}
"""How hard a model thinks: a card that was measured with one setting says nothing about another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedWorker:
    """A worker of a pool that ships. `table` is its entry as a settings file would have it.

    `replaces` is the published model that it stands in for, empty if it is that model; `source` says where its model
    and settings are from.
    """

    name: str
    table: Mapping[str, Any]
    replaces: str = ""
    source: str = ""

    @property
    def worker(self) -> Worker:
        options = {key: value for key, value in self.table.items() if key not in ("kind", "model")}
        return Worker(name=self.name, kind=self.table["kind"], model=self.table["model"], options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPool:
    """A pool that ships, in the order in which its workers are offered, and where it is from."""

    name: str
    about: str
    source: str
    workers: tuple[ShippedWorker, ...]


def shipped_pools() -> Mapping[str, ShippedPool]:
    """Every pool that ships with this tool, by name."""
    return {
        name: ShippedPool(
            name=name, about=pool["about"], source=pool["source"], workers=tuple(map(_parse_worker, pool["workers"]))
        )
        for name, pool in shipped()["pools"].items()
    }


def _parse_worker(line: Mapping[str, Any]) -> ShippedWorker:
    table = {key: value for key, value in line.items() if key not in ("name", "replaces", "source")}
    return ShippedWorker(name=line["name"], table=table, replaces=line.get("replaces", ""), source=line["source"])


def builtin_card(worker: Worker) -> Card:
    """The card of a worker's model, empty if there is none. At another address a name may be any model's."""
    if worker.kind not in PRESETS or not is_own_address(worker):
        return Card()
    name = price_name(worker) or f"{worker.kind}/{worker.model}"
    options = {name: worker.options[name] for name in _THINKING_OPTIONS if worker.options.get(name) is not None}
    for line in _cards_by_model().get(name, ()):
        measured_with = {name: line[name] for name in _THINKING_OPTIONS if name in line}
        # A `default` card also holds for a worker that sets none of these options.
        if options == measured_with or (not options and "default" in line):
            return Card(strengths=line["strengths"], measured=False, source=line["source"])
    return Card()


@cache
def _cards_by_model() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    cards = tomllib.loads(CARDS_FILE.read_text(encoding="utf-8"))["cards"]
    names = dict.fromkeys(name for line in cards for name in line["models"])
    return {name: tuple(line for line in cards if name in line["models"]) for name in names}
