"""Runs of the rehearsal's conductor over its workers, as training and evaluation need them. Does not import torch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Final

from conductor_cli.config.cards import read_cards
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import speciality
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.models.features import Features
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.rehearsal import conductor_model, workers
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.rollouts import Rollouts

NOTHING: Final = "?"


class PlaceholderModel:
    """A worker that says `NOTHING` where it would end without a word.

    A run would give the step to another worker. In training, asking a worker for what it cannot do has to cost reward.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def features(self) -> Features:
        return self._model.features

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The worker's reply, with the placeholder if it is empty."""
        silent = True
        async with aclosing(self._model.stream(request)) as chunks:
            async for chunk in chunks:
                silent = silent and not chunk.text.strip()
                if chunk.finish is not None and silent:
                    yield Chunk(text=NOTHING)
                yield chunk

    async def close(self) -> None:
        """Close the worker's model."""
        await self._model.close()


def load_workers(directory: Path | None = None, cards: Path | None = None) -> Pool:
    """The workers with their measured cards. Raises `ConfigError` where one has none: its label would say nothing."""
    source = cards or Path(conductor_model.__file__).with_name("cards.json")
    known = read_cards(source)
    pool = Pool(workers=tuple(known.on(worker) for worker in workers.rehearsal_workers(directory=directory)))
    missing = [worker.name for worker in pool if not worker.card.measured]
    if missing:
        raise ConfigError(
            known.problem or f"{source} has no card of {', '.join(missing)} as they are now",
            hint=f"conductor workers calibrate --rehearsal --out {source}",
        )
    return pool


def build_rollouts(pool: Pool, models: Mapping[str, Model], book: ResponseCache | None = None) -> Rollouts:
    """Runs of the rehearsal's conductor over workers with their cards; a way is what a worker is good at."""
    conductor = Conductor(
        model=None, pool=pool, workers=models, profile=conductor_model.PROFILE, worker_profile=workers.PROFILE,
        limits=Limits(attempts=1), constrained=False,
    )  # fmt: skip
    return Rollouts(conductor=conductor, cache=book, name_route=lambda worker: speciality(worker.card))


@contextmanager
def open_rollouts(pool: Pool, path: Path) -> Iterator[Rollouts]:
    """Runs over the real workers, whose answers are kept at `path` by what they were asked. Raises `OSError`."""
    book = ResponseCache(path)
    try:
        models = {
            worker.name: CachedModel(PlaceholderModel(open_model(worker, environ={})), book, model_identity(worker))
            for worker in pool
        }
        yield build_rollouts(pool, models, book)
    finally:
        book.close()
