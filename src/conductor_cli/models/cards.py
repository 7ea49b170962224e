"""The capability cards that ship with this tool: `cards.toml` beside this file.

They were not measured here, and each names its source. A worker's own card and a measured one are
used before them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.mappings import only_keys
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.addresses import is_own_address
from conductor_cli.models.command.programs import PROGRAMS
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import price_name
from conductor_cli.models.worker_options import model_of

_THINKING_OPTIONS: Final = ("reasoning_effort", "thinking_budget")
"""How hard a model thinks: a card that was measured with one setting says nothing about another."""


def builtin_card(worker: Worker) -> Card:
    """Return the card of a worker's model, empty if there is none.

    At another address a name may be any model's.
    """
    if worker.kind in PROGRAMS:
        program = PROGRAMS[worker.kind]
        if program.words:
            return Card(words=program.words, source=program.about)
        return Card()
    if worker.kind not in PRESETS or not is_own_address(worker):
        return Card()
    model = price_name(worker) or f"{worker.kind}/{model_of(worker)}"
    for row in _shipped_cards():
        if model in row["models"] and _fits_thinking(row, worker):
            return Card(
                strengths=row.get("strengths", {}),
                words=row.get("words", ""),
                source=row["source"],
            )
    return Card()


def _fits_thinking(row: Mapping[str, Any], worker: Worker) -> bool:
    """Return whether a card was measured with the worker's settings for thinking.

    A `default` card also holds for a worker that sets none of them.
    """
    options: dict[str, object] = {}
    for name in _THINKING_OPTIONS:
        if worker.options.get(name) is not None:
            options[name] = worker.options[name]
    if not options and "default" in row:
        return True
    return options == only_keys(row, _THINKING_OPTIONS)


@cache
def _shipped_cards() -> tuple[Mapping[str, Any], ...]:
    content = tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8"))
    return tuple(content["cards"])
