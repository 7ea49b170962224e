"""The rehearsal's conductor learns from reward: a stage of practice, and at its end the file."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Final

from conductor_cli.config.cards import read_cards
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import speciality
from conductor_cli.models.catalog import open_model
from conductor_cli.models.kept import Book, Kept, who_is
from conductor_cli.models.port import Model
from conductor_cli.rehearsal import conducting, workers
from conductor_cli.rehearsal.world import problems
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.checkpoints import alone
from conductor_cli.train.cold import COURSE
from conductor_cli.train.practice import EVERYBODY, Practice, on_offer, rehearsal
from conductor_cli.train.rollouts import Rollouts

LOOKS: Final = 120
"""Held-out questions for each look."""

NOTHING: Final = "?"


class Worded:
    """A worker that says `NOTHING` where it would end without a word.

    A run would give the step to another worker. Here whoever asks a worker for what it cannot do shall hear of it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """What the worker says, and a word at the end where that is none."""
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


def carded(directory: Path | None = None, cards: Path | None = None) -> Pool:
    """The workers with their measured cards. Raises `ConfigError` where one has none: its label would say nothing."""
    source = cards or Path(conducting.__file__).with_name("cards.json")
    known = read_cards(source)
    pool = Pool(workers=tuple(known.on(worker) for worker in workers.pool(directory=directory)))
    missing = [worker.name for worker in pool if not worker.card.measured]
    if missing:
        raise ConfigError(
            known.problem or f"{source} has no card of {', '.join(missing)} as they are now",
            hint=f"conductor workers calibrate --rehearsal --out {source}",
        )
    return pool


def rehearsed(pool: Pool, models: Mapping[str, Model], book: Book | None = None) -> Rollouts:
    """Runs of the rehearsal's conductor over workers with their cards; a way is what a worker is good at."""
    conductor = Conductor(
        model=None, pool=pool, workers=models, profile=conducting.PROFILE, worker_profile=workers.PROFILE,
        limits=Limits(attempts=1), exact=False,
    )  # fmt: skip
    return Rollouts(conductor=conductor, book=book, route=lambda worker: speciality(worker.card))


@contextmanager
def over_workers(pool: Pool, path: Path) -> Iterator[Rollouts]:
    """Runs over the real workers, whose answers are kept at `path` by what they were asked. Raises `OSError`."""
    book = Book(path)
    try:
        models = {worker.name: Kept(Worded(open_model(worker, environ={})), book, who_is(worker)) for worker in pool}
        yield rehearsed(pool, models, book)
    finally:
        book.close()


def practise(  # noqa: PLR0913 - one for each option
    out: Path,
    *,
    minutes: float,
    threads: int,
    say: Callable[[str], None],
    seed: int | None = None,
    steps: int | None = None,
    start: Path | None = None,
    pool: Pool | None = None,
) -> bool:
    """A stage in a directory of its own for each seed and length, over the models of the package or others."""
    practice = rehearsal(steps=steps, seed=1 if seed is None else seed)
    return grpo_stage(
        practice, out / f"grpo-{practice.seed}-{practice.steps}", start=start or conducting.path_of("cold"),
        pool=pool or carded(), minutes=minutes, threads=threads, say=say,
    )  # fmt: skip


def grpo_stage(  # noqa: PLR0913 - what a stage is made of
    practice: Practice,
    directory: Path,
    *,
    start: Path,
    pool: Pool,
    minutes: float,
    threads: int,
    say: Callable[[str], None],
) -> bool:
    """Practise for at most so many minutes, from the cold start in the file `start`; True when the course is over.

    Then `conductor.gguf` stands in the directory. Raises `ConfigError` or `ModelError`.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here is anybody else's
    from conductor_cli.train import grpo
    from conductor_cli.train.export import export, loaded, rounded
    from conductor_cli.train.stage import use_threads
    from conductor_cli.train.tokenizer import build

    use_threads(threads)
    model, tokenizer = loaded(start, COURSE), build()
    looks = on_offer(problems(LOOKS, practice.seed, split="test", phrasings="known"), EVERYBODY, practice.seed)
    with alone(directory), over_workers(pool, directory / "answers.jsonl") as rollouts:
        school = grpo.School(
            practice=practice, rollouts=rollouts, directory=directory, seconds=60 * minutes, say=say, looks=looks
        )
        if not grpo.train(model, tokenizer, school):
            return False
        path = directory / "conductor.gguf"
        export(rounded(model), tokenizer, COURSE.size, path, name="conductor")
    say(f"conductor: {path}, {path.stat().st_size / 1e6:.2f} MB")
    return True
