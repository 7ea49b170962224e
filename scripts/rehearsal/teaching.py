"""Supervised training of a worker, or of the conductor before GRPO: one stage, and the file. Imports torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.players import WORKER_CONTEXT as CONTEXT
from conductor_cli.rehearsal.players import WORKER_MAX_TOKENS as MOST_TOKENS
from scripts.rehearsal import lessons
from scripts.rehearsal.asking import reply
from scripts.rehearsal.courses import Course
from scripts.rehearsal.export import export, rounded
from scripts.rehearsal.lessons import Lesson
from scripts.rehearsal.model import Batches, greedy
from scripts.rehearsal.supervised import Training, advance, resume, use_threads
from scripts.rehearsal.tokenizer import build

SAMPLE: Final = 50
"""Texts on which torch and llama.cpp are compared."""


class Comparison(NamedTuple):
    """How many texts were compared, and the prompts for which they differ."""

    texts: int
    different: tuple[str, ...]


def train_worker(course: Course, directory: Path, *, minutes: float, threads: int, say: Callable[[str], None]) -> bool:
    """Train a worker for at most `minutes`. True if all steps are done and the file is written.

    Raises `ConfigError` for a state that cannot be resumed, `ModelError` if the file cannot be written.
    """
    training = _train(course, lessons.chunk, directory, minutes=minutes, threads=threads, say=say)
    if training.ended:
        finish(training, directory / f"{course.name}.gguf", say=say)
    return training.ended


def train_sft_conductor(
    directory: Path, *, minutes: float, threads: int, say: Callable[[str], None], course: Course | None = None
) -> bool:
    """The same for the conductor, whose lessons are plans."""
    from scripts.rehearsal import sft_data

    course = course or sft_data.COURSE
    training = _train(course, sft_data.chunk, directory, minutes=minutes, threads=threads, say=say)
    if training.ended:
        _export(training, directory / f"{course.name}.gguf", "conductor, cold start", say)
    return training.ended


def _train(  # noqa: PLR0913 - what a stage is made of
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
        say(f"{course.name}: resuming after step {training.step}")
    advance(training, state, seconds=60 * minutes, say=say, batches=Batches(course, tokenizer, draw))
    return training


def finish(training: Training, path: Path, *, say: Callable[[str], None]) -> Comparison:
    """Write a worker's file, and report whether llama.cpp generates the same texts with it as torch."""
    name = training.course.name
    compared = asyncio.run(compare(_export(training, path, name, say), path))
    same = compared.texts - len(compared.different)
    say(f"{name}: torch and llama.cpp write the same text {same} of {compared.texts} times")
    return compared


def _export(training: Training, path: Path, title: str, say: Callable[[str], None]) -> Training:
    """Write the file, and return the training with the rounded model that it contains."""
    course, finished = training.course, replace(training, model=rounded(training.model))
    export(finished.model, training.tokenizer, path, name=title)
    count = sum(weight.numel() for weight in finished.model.parameters())
    say(f"{course.name}: {path}, {count / 1e6:.2f} million parameters, {path.stat().st_size / 1e6:.2f} MB")
    return finished


async def compare(training: Training, path: Path, count: int = SAMPLE) -> Comparison:
    """Compare the greedy texts of torch and of llama.cpp for the same prompts."""
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
