"""What is known beforehand of well-known models: cards that were not measured here, each with its source. Pure.

They stand in `cards.toml`. A worker's own card and a measured one come before them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.presets import PRESETS, is_own_address, price_name

DATA: Final = Path(__file__).with_name("cards.toml")

_CONDITIONS: Final = {"reasoning_effort", "thinking_budget"}
"""The settings of how hard a model thinks: figures with one say nothing of another."""


def builtin_card(worker: Worker) -> Card:
    """The card of a worker's model, empty where none is known. Behind another address a name may be any model's."""
    if worker.kind not in PRESETS or not is_own_address(worker):
        return Card()
    name = price_name(worker) or f"{worker.kind}/{worker.model}"
    line = next((line for line in _lines().get(name, ()) if _is_for(line, worker)), None)
    return Card() if line is None else Card(strengths=line["strengths"], measured=False, source=line["source"])


def _is_for(line: Mapping[str, Any], worker: Worker) -> bool:
    """Whether a card speaks of a model as this worker is set; a `default` one also where it is not set at all."""
    said = {name: worker.options[name] for name in _CONDITIONS if worker.options.get(name) is not None}
    return said == {name: line[name] for name in _CONDITIONS if name in line} or (not said and "default" in line)


@cache
def _lines() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """The cards by the names of their models."""
    listed = tomllib.loads(DATA.read_text(encoding="utf-8"))["cards"]
    names = dict.fromkeys(name for line in listed for name in line["models"])
    return {name: tuple(line for line in listed if name in line["models"]) for name in names}
