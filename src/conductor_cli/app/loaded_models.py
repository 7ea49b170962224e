"""Models that stay open from one question to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.core.pool import Card, Worker

if TYPE_CHECKING:
    from conductor_cli.models.base import Model
    from conductor_cli.models.catalog import StoredKeys


class LoadedModels:
    """Each model once: whoever opens the same worker again is given the model that is open. Close it."""

    def __init__(self) -> None:
        self._models: list[tuple[Worker, Model]] = []

    def open(self, worker: Worker, *, environ: Mapping[str, str], stored: StoredKeys) -> Model:
        """The model of a worker, as `catalog.open_model` opens it."""
        from conductor_cli.models.catalog import open_model

        same = _essence(worker)
        known = next((model for other, model in self._models if other == same), None)
        if known is not None:
            return known
        model = open_model(worker, environ=environ, stored=stored)
        self._models.append((same, model))
        return model

    async def close(self) -> None:
        """Close every model. One that fails to close is passed over."""
        models, self._models = self._models, []
        await asyncio.gather(*(model.close() for _, model in models), return_exceptions=True)


def _essence(worker: Worker) -> Worker:
    """What of a worker its model depends on: not what is said or measured of it."""
    return replace(worker, about="", card=Card(), price=None, tags=())
