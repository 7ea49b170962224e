"""A worker, or the conductor's cold start, learns from lessons: a stage, and at the end the file. Imports torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.workers import CONTEXT, MOST_TOKENS
from scripts.rehearsal import lessons, sft_data
from scripts.rehearsal.courses import Course
from scripts.rehearsal.export import export, rounded
from scripts.rehearsal.lessons import Lesson
from scripts.rehearsal.model import Batches, greedy
from scripts.rehearsal.supervised import Training, advance, resume, use_threads
from scripts.rehearsal.tokenizer import build
from scripts.rehearsal.worker_table import reply

SAMPLE: Final = 50
"""Texts on which torch and llama.cpp are compared."""


class Comparison(NamedTuple):
    """How many texts were compared, and the prompts after which they differ."""

    texts: int
    different: tuple[str, ...]


def stage(course: Course, directory: Path, *, minutes: float, threads: int, say: Callable[[str], None]) -> bool:
    """Train a worker for at most so many minutes; True when the course is over and its file is written.

    Raises `ConfigError` for a state that cannot be gone on from, `ModelError` where the disk refuses the file.
    """
    training = _taught(course, lessons.chunk, directory, minutes=minutes, threads=threads, say=say)
    if training.ended:
        finish(training, directory / f"{course.name}.gguf", say=say)
    return training.ended


def cold_stage(
    directory: Path, *, minutes: float, threads: int, say: Callable[[str], None], course: Course = sft_data.COURSE
) -> bool:
    """The same for the conductor's cold start, whose lessons are plans."""
    training = _taught(course, sft_data.chunk, directory, minutes=minutes, threads=threads, say=say)
    if training.ended:
        _written(training, directory / f"{course.name}.gguf", "conductor, cold start", say)
    return training.ended


def _taught(  # noqa: PLR0913 - what a stage is made of
    course: Course,
    draw: Callable[[Course, int], Sequence[Lesson]],
    directory: Path,
    *,
    minutes: float,
    threads: int,
    say: Callable[[str], None],
) -> Training:
    use_threads(threads)
    state, tokenizer = directory / f"{course.name}.state", build()
    training = resume(course, tokenizer, state)
    if training.step:
        say(f"{course.name}: going on from step {training.step}")
    advance(training, state, seconds=60 * minutes, say=say, batches=Batches(course, tokenizer, draw))
    return training


def finish(training: Training, path: Path, *, say: Callable[[str], None]) -> Comparison:
    """Write a worker's file, and say whether llama.cpp writes with it what torch does."""
    name = training.course.name
    compared = asyncio.run(compare(_written(training, path, name, say), path))
    same = compared.texts - len(compared.different)
    say(f"{name}: torch and llama.cpp write the same text {same} of {compared.texts} times")
    return compared


def _written(training: Training, path: Path, title: str, say: Callable[[str], None]) -> Training:
    """Write the file; the training with the model that is in it."""
    course, finished = training.course, replace(training, model=rounded(training.model))
    export(finished.model, training.tokenizer, path, name=title)
    count = sum(weight.numel() for weight in finished.model.parameters())
    say(f"{course.name}: {path}, {count / 1e6:.2f} million parameters, {path.stat().st_size / 1e6:.2f} MB")
    return finished


async def compare(training: Training, path: Path, count: int = SAMPLE) -> Comparison:
    """Greedy texts of torch and of llama.cpp after the same prompts."""
    random = Random("compare")  # noqa: S311 - reproducible, no secret
    prompts = [lessons.lesson(random, training.course).prompt for _ in range(count)]
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0}
    model = open_model(Worker(name="compared", kind="llama", model=str(path), options=options), environ={})
    try:
        theirs = [await reply(model, prompt) for prompt in prompts]
    finally:
        await model.close()
    ours = [greedy(training.model, training.tokenizer, prompt, MOST_TOKENS) for prompt in prompts]
    return Comparison(
        count, tuple(prompt for prompt, one, two in zip(prompts, ours, theirs, strict=True) if one != two)
    )
