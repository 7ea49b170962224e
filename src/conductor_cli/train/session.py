"""A real conductor learns from reward: a stage of practice, and at the end the file. Imports torch and trl."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.models.disk import check_room
from conductor_cli.models.machine import read_memory
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run.conductor import Conductor
from conductor_cli.train import distributed, sampler
from conductor_cli.train.base_model import BaseModel, load_model, quiet
from conductor_cli.train.budget import BudgetedModel, TrainingBudget
from conductor_cli.train.checkpoints import last_checkpoint, step_of
from conductor_cli.train.dependencies import require
from conductor_cli.train.grpo import TrainingJob, train
from conductor_cli.train.memory_estimate import Hardware
from conductor_cli.train.recipe import Recipe
from conductor_cli.train.rollouts import Outcome, Rollouts
from conductor_cli.train.tasks import TaskCurriculum, bare_conductor

with require("torch"):
    import torch

WAIT: Final = 4 * 3600
"""Seconds that the other processes wait for the first, which asks the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSession:
    """What a stage is made of. `prompt` is how many tokens the longest prompt has; `ending` runs coroutines."""

    base: BaseModel
    tasks: TaskCurriculum
    rollouts: Rollouts
    prompt: int
    directory: Path
    seconds: float
    say: Callable[[str], None]
    ending: Callable[[Coroutine[Any, Any, list[Outcome]]], list[Outcome]]


def run_session(stage: TrainingSession) -> bool:
    """Practise for at most so many seconds; True when the course is over. Raises as `grpo.learn`."""
    recipe = stage.tasks.recipe
    if step_of(last_checkpoint(stage.directory)) >= recipe.steps:
        return True
    school = TrainingJob(
        practice=stage.tasks, rollouts=stage.rollouts, directory=stage.directory, seconds=stage.seconds, say=stage.say,
        ending=stage.ending, cost_weight=recipe.cost_weight,
    )  # fmt: skip
    with _told(stage):
        model, adapter = load_model(stage.base, lora=recipe.lora)
        return train(model, stage.base.reader, school, trl_arguments(recipe, stage.prompt), adapter)


@contextmanager
def _told(stage: TrainingSession) -> Iterator[None]:
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


def trl_arguments(recipe: Recipe, prompt: int) -> dict[str, Any]:
    """TRL's arguments. Raises `ConfigError` where a step cannot be divided over the processes."""
    each, rest = divmod(recipe.samples, distributed.process_count())
    rows = min(recipe.rows, each)
    if rest or not rows or each % rows:
        said = f"{recipe.samples} plans a step cannot be divided over {distributed.process_count()} processes"
        raise ConfigError(f"{said} of {recipe.rows} at once", hint="start as many as divide them")
    gpu = torch.cuda.is_available()
    return {
        "per_device_train_batch_size": rows, "gradient_accumulation_steps": each // rows,
        "temperature": recipe.temperature, "loss_type": recipe.loss, "lr_scheduler_type": "cosine",
        "learning_rate": recipe.rate if recipe.lora is None else recipe.lora.rate, "warmup_steps": recipe.warmup,
        "adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1], "save_steps": recipe.keep,
        "use_cpu": not gpu, "bf16": gpu, "activation_checkpointing": gpu, "ddp_timeout": WAIT,
        **sampler.sampler_arguments(recipe, prompt + recipe.longest),
    }  # fmt: skip


def find_hardware() -> Hardware:
    """What there is to train on, as `accelerate launch` divides it. Raises `ConfigError` where GPUs would be idle."""
    shares = "true" in (os.environ.get("ACCELERATE_USE_FSDP"), os.environ.get("ACCELERATE_USE_DEEPSPEED"))
    count = distributed.process_count()
    if not torch.cuda.is_available():
        return Hardware(total=read_memory().total // count, processes=count, shares=shares)
    if torch.cuda.device_count() > 1 and count == 1:
        said = f"{torch.cuda.device_count()} GPUs are there, and one process cannot train on several"
        launch = f"accelerate launch --num_processes {torch.cuda.device_count()} -m conductor_cli train …"
        raise ConfigError(said, hint=f"{launch}, or show it one: CUDA_VISIBLE_DEVICES=0")
    least = min(torch.cuda.get_device_properties(index).total_memory for index in range(torch.cuda.device_count()))
    return Hardware(total=least, processes=count, gpu=True, shares=shares)


@contextmanager
def open_rollouts(
    directory: Path, recipe: Recipe, opened: Conductor, limit: Decimal | None = None
) -> Iterator[Rollouts]:
    """The runs of a training over the workers of an opened conductor. Raises `OSError`.

    What the book of answers knows is not asked again, what is asked is paid from a purse of `limit` US dollars, and
    held to the rules on data and the limits of a day, as with any run. Workers on one model stay on one.
    """
    purse, book = TrainingBudget(directory / "spent.jsonl", limit), ResponseCache(directory / "answers.jsonl")
    models = opened.workers
    around: dict[int, CachedModel] = {}
    for worker in opened.pool:
        model = models[worker.name]
        around.setdefault(id(model), CachedModel(BudgetedModel(model, worker, purse), book, model_identity(worker)))
    conductor = replace(
        bare_conductor(recipe, opened.pool, opened.limits), timeouts=opened.timeouts, pool_policy=opened.pool_policy,
        daily_spend=opened.daily_spend,
        workers={worker.name: around[id(models[worker.name])] for worker in opened.pool},
    )  # fmt: skip
    try:
        yield Rollouts(
            conductor=conductor, book=book, purse=purse, format_bonus=recipe.format_bonus, at_once=recipe.at_once
        )
    finally:
        book.close()
        purse.close()


# The end

KINDS: Final = ("qwen2",)
"""The architectures that can be exported."""


def check_exportable(base: BaseModel) -> None:
    """Raise `ConfigError` where a model like this cannot be exported."""
    if base.kind not in KINDS:
        said = f"the export knows {', '.join(KINDS)}, and {base.directory.name} is {base.kind}"
        raise ConfigError(said, hint="leave out --export, and convert the last checkpoint with llama.cpp's own script")


def export_result(directory: Path, base: BaseModel, recipe: Recipe, *, merged: bool) -> Path:
    """The GGUF file of the last checkpoint: an adapter, or with `merged` (and where there is none) a whole model.

    Raises `ConductorUnusable` where the disk has no room for it, `ConfigError` without a checkpoint, `ModelError`.
    """
    from conductor_cli.train.gguf_export import export_adapter, export_model

    check_exportable(base)
    checkpoint = last_checkpoint(directory)
    if checkpoint is None:
        raise ConfigError(f"there is no checkpoint in {directory}", hint="train first")
    if recipe.lora is not None and not merged:
        check_room(directory, 4 * base.shape.adapter, "--out")
        return export_adapter(checkpoint, base.directory, directory / "adapter.gguf")
    check_room(directory, (6 if merged else 2) * base.shape.weights, "--out")
    path = directory / "conductor.gguf"
    if recipe.lora is None:
        return export_model(checkpoint, path, name=directory.absolute().name)
    whole = directory / "merged"
    try:
        _merge(checkpoint, base, whole)
        return export_model(whole, path, name=directory.absolute().name)
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def _merge(checkpoint: Path, base: BaseModel, whole: Path) -> None:
    """Lay the adapter into the weights of its base."""
    with require("peft"):
        from peft import PeftModel
    model, _ = load_model(base, lora=None)
    try:
        with quiet():
            PeftModel.from_pretrained(model, checkpoint).merge_and_unload().save_pretrained(whole)
            base.reader.save_pretrained(whole)
    except (OSError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:160]
        raise ModelError("file", f"{checkpoint} cannot be merged: {said}", hint="export the adapter instead") from error
