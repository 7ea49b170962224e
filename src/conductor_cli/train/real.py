"""One call of `conductor train`: a stage of practice for a real conductor. Imports torch and trl."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Pool
from conductor_cli.models.kept import Book, Kept, who_is
from conductor_cli.models.machine import memory
from conductor_cli.models.port import Model
from conductor_cli.models.weights.disk import free
from conductor_cli.train import sampling, together
from conductor_cli.train.base import Base, loaded
from conductor_cli.train.checkpoints import last_checkpoint, step_of
from conductor_cli.train.extra import needs
from conductor_cli.train.grpo import School, learn
from conductor_cli.train.memory import Place
from conductor_cli.train.presets import Recipe
from conductor_cli.train.purse import Metered, Purse
from conductor_cli.train.rollouts import Outcome
from conductor_cli.train.tasks import Tasks
from conductor_cli.train.trials import Trials

with needs("torch"):
    import torch
    from safetensors import SafetensorError

FULL: Final = 16 << 20
"""Bytes that a disk has left at the most where writing failed for lack of room."""

WAIT: Final = 4 * 3600
"""Seconds that the other processes wait for the first, which asks the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a stage is made of. `prompt` is how many tokens the longest prompt has; `ending` runs coroutines."""

    base: Base
    tasks: Tasks
    trials: Trials
    prompt: int
    directory: Path
    seconds: float
    say: Callable[[str], None]
    ending: Callable[[Coroutine[Any, Any, list[Outcome]]], list[Outcome]]


def train(stage: Stage) -> bool:
    """Practise for at most so many seconds; True when the course is over. Raises as `grpo.learn`."""
    recipe = stage.tasks.recipe
    if step_of(last_checkpoint(stage.directory)) >= recipe.steps:
        return True
    school = School(
        practice=stage.tasks, rollouts=stage.trials, directory=stage.directory, seconds=stage.seconds, say=stage.say,
        ending=stage.ending, cost_weight=recipe.cost_weight, more=stage.trials.figures,
    )  # fmt: skip
    with _told(stage):
        model, adapter = loaded(stage.base, lora=recipe.lora)
        return learn(model, stage.base.reader, school, arguments(recipe, stage.prompt), adapter)


@contextmanager
def _told(stage: Stage) -> Iterator[None]:
    """What a machine runs out of, as an error that says so. What was kept so far is gone on from."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        said = "the memory is not enough for a step"
        raise ConfigError(said, hint="--lora, more GPUs, or vLLM elsewhere: see docs/train.md") from error
    except ConnectionError as error:
        raise ConfigError(
            f"the vLLM server {stage.tasks.recipe.vllm} does not answer: {error}", hint="see docs/train.md"
        ) from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if free(stage.directory) > FULL:
            raise
        said = f"the disk of {stage.directory} is full, so a checkpoint could not be kept"
        raise ConfigError(said, hint="make room, then run the same command again") from error


def arguments(recipe: Recipe, prompt: int) -> dict[str, Any]:
    """TRL's arguments. Raises `ConfigError` where a step cannot be divided over the processes."""
    each, rest = divmod(recipe.samples, together.processes())
    rows = min(recipe.rows, each)
    if rest or not rows or each % rows:
        said = f"{recipe.samples} plans a step cannot be divided over {together.processes()} processes"
        raise ConfigError(f"{said} of {recipe.rows} at once", hint="start as many as divide them")
    gpu = torch.cuda.is_available()
    return {
        "per_device_train_batch_size": rows, "gradient_accumulation_steps": each // rows,
        "temperature": recipe.temperature, "loss_type": recipe.loss, "lr_scheduler_type": "cosine",
        "learning_rate": recipe.rate if recipe.lora is None else recipe.lora.rate, "warmup_steps": recipe.warmup,
        "adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1], "save_steps": recipe.keep,
        "use_cpu": not gpu, "bf16": gpu, "activation_checkpointing": gpu, "ddp_timeout": WAIT,
        **sampling.arguments(recipe, prompt + recipe.longest),
    }  # fmt: skip


def place() -> Place:
    """What there is to train on, as `accelerate launch` divides it. Raises `ConfigError` where GPUs would be idle."""
    shares = "true" in (os.environ.get("ACCELERATE_USE_FSDP"), os.environ.get("ACCELERATE_USE_DEEPSPEED"))
    count = together.processes()
    if not torch.cuda.is_available():
        return Place(total=memory().total // count, processes=count, shares=shares)
    if torch.cuda.device_count() > 1 and count == 1:
        said = f"{torch.cuda.device_count()} GPUs are there, and one process cannot train on several"
        launch = f"accelerate launch --num_processes {torch.cuda.device_count()} -m conductor_cli.train …"
        raise ConfigError(said, hint=f"{launch}, or show it one: CUDA_VISIBLE_DEVICES=0")
    least = min(torch.cuda.get_device_properties(index).total_memory for index in range(torch.cuda.device_count()))
    return Place(total=least, processes=count, gpu=True, shares=shares)


@contextmanager
def desk(directory: Path, pool: Pool, models: Mapping[str, Model], purse: Purse) -> Iterator[tuple[Book, Any]]:
    """The book of answers, and the workers' models around it: what it knows is not asked again. Raises `OSError`.

    Workers on one model stay on one.
    """
    book = Book(directory / "answers.jsonl")
    around: dict[int, Kept] = {}
    for worker in pool:
        model = models[worker.name]
        around.setdefault(id(model), Kept(Metered(model, worker, purse), book, who_is(worker)))
    try:
        yield book, {worker.name: around[id(models[worker.name])] for worker in pool}
    finally:
        book.close()
