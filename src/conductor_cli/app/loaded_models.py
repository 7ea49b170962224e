"""Open models, each opened once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import StoredKeys, open_model


class LoadedModels:
    """Whoever opens the same worker again is given the model that is open. Close it."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    @property
    def models(self) -> tuple[Model, ...]:
        """Every model that is open, in the order of opening."""
        return tuple(self._models.values())

    def open(self, worker: Worker, *, environ: Mapping[str, str], stored: StoredKeys) -> Model:
        """The model of a worker. Raises as `catalog.open_model`."""
        identity = _identity(worker)
        if identity not in self._models:
            self._models[identity] = open_model(worker, environ=environ, stored=stored)
        return self._models[identity]

    async def close(self) -> None:
        """Close every model. One that fails to close must not hide the answer."""
        models, self._models = self._models, {}
        await asyncio.gather(*(model.close() for model in models.values()), return_exceptions=True)


def _identity(worker: Worker) -> str:
    """What of a worker its model depends on.

    Of a local model these are its files alone, so that weights are in memory once: the model that plans and the
    workers that use the same file take turns on it. Of another worker it is all but what is said or measured of it.
    """
    if worker.kind == "llama":
        files = (worker.model, str(worker.options.get("adapter") or ""))
        return repr(["llama", *(str(Path(file).expanduser().resolve()) if file else "" for file in files)])
    return repr(replace(worker, about="", card=Card(), price=None, tags=()))
