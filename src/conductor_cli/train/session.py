"""One run of the trainer for a user's conductor, and the export of the result. Imports torch and trl."""

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
from conductor_cli.train import grpo
from conductor_cli.train.base_model import BaseModel, load_model, quiet_libraries
from conductor_cli.train.budget import BudgetedModel, TrainingBudget
from conductor_cli.train.checkpoints import last_checkpoint, step_of
from conductor_cli.train.dependencies import require
from conductor_cli.train.distributed import process_count
from conductor_cli.train.gguf_export import export_adapter, export_model
from conductor_cli.train.hardware import Hardware
from conductor_cli.train.job import TrainingJob
from conductor_cli.train.recipe import COLOCATE, OFF, Recipe
from conductor_cli.train.rollouts import Outcome, Rollouts
from conductor_cli.train.tasks import TaskCurriculum, bare_conductor

with require("torch"):
    import torch

PROCESS_TIMEOUT: Final = 4 * 3600
"""Seconds that the other processes wait for the first one, which asks the workers."""

EXPORTABLE: Final = ("qwen2",)
"""The architectures that can be exported to GGUF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSession:
    """What one run of the trainer needs. `prompt` is the length of the longest prompt in tokens."""

    base: BaseModel
    curriculum: TaskCurriculum
    rollouts: Rollouts
    prompt: int
    directory: Path
    max_seconds: float
    log: Callable[[str], None]
    run_async: Callable[[Coroutine[Any, Any, list[Outcome]]], list[Outcome]]


def run_session(session: TrainingSession) -> bool:
    """Train for at most `max_seconds`; True if all steps are done. Raises as `grpo.train`."""
    recipe = session.curriculum.recipe
    if step_of(last_checkpoint(session.directory)) >= recipe.steps:
        return True
    job = TrainingJob(
        curriculum=session.curriculum, rollouts=session.rollouts, directory=session.directory,
        max_seconds=session.max_seconds, log=session.log, run_async=session.run_async, cost_weight=recipe.cost_weight,
    )  # fmt: skip
    try:
        model, adapter = load_model(session.base, lora=recipe.lora)
        return grpo.train(model, session.base.tokenizer, job, trl_arguments(recipe, session.prompt), adapter)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ConfigError(
            "not enough memory for a training step", hint="use --lora, more GPUs, or a vLLM server: see docs/train.md"
        ) from error
    except ConnectionError as error:
        raise ConfigError(
            f"the vLLM server {recipe.vllm} does not answer: {error}", hint="see docs/train.md"
        ) from error


def trl_arguments(recipe: Recipe, prompt: int) -> dict[str, Any]:
    """TRL's arguments. Raises `ConfigError` if a step cannot be divided over the processes."""
    each, rest = divmod(recipe.samples, process_count())
    batch = min(recipe.batch_size, each)
    if rest or not batch or each % batch:
        raise ConfigError(
            f"{recipe.samples} plans a step cannot be divided over {process_count()} processes in batches of "
            f"{recipe.batch_size}",
            hint="start a number of processes that divides them",
        )
    gpu = torch.cuda.is_available()
    return {
        "per_device_train_batch_size": batch, "gradient_accumulation_steps": each // batch,
        "temperature": recipe.temperature, "loss_type": recipe.loss, "lr_scheduler_type": "cosine",
        "learning_rate": recipe.rate if recipe.lora is None else recipe.lora.rate, "warmup_steps": recipe.warmup,
        "adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1], "save_steps": recipe.checkpoint_every,
        "use_cpu": not gpu, "bf16": gpu, "activation_checkpointing": gpu, "ddp_timeout": PROCESS_TIMEOUT,
        **_sampler_arguments(recipe, prompt + recipe.max_plan_tokens),
    }  # fmt: skip


def _sampler_arguments(recipe: Recipe, context: int) -> dict[str, Any]:
    if recipe.vllm == OFF:
        return {"use_vllm": False}
    if recipe.vllm != COLOCATE:  # a server, which has its own limit on the context
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": recipe.vllm}
    return {
        "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": recipe.vllm_memory,
        "vllm_max_model_length": context, "vllm_enable_sleep_mode": True,
    }  # fmt: skip


def find_hardware() -> Hardware:
    """What this process trains on, as `accelerate launch` divides it. Raises `ConfigError` if GPUs would be idle."""
    sharded = "true" in (os.environ.get("ACCELERATE_USE_FSDP"), os.environ.get("ACCELERATE_USE_DEEPSPEED"))
    processes = process_count()
    if not torch.cuda.is_available():
        return Hardware(memory=read_memory().total // processes, processes=processes, sharded=sharded)
    gpus = torch.cuda.device_count()
    if gpus > 1 and processes == 1:
        raise ConfigError(
            f"there are {gpus} GPUs, and one process cannot train on several",
            hint=f"accelerate launch --num_processes {gpus} -m conductor_cli train …, or use only one of them: "
            "CUDA_VISIBLE_DEVICES=0",
        )
    least = min(torch.cuda.get_device_properties(index).total_memory for index in range(gpus))
    return Hardware(memory=least, processes=processes, gpu=True, sharded=sharded)


@contextmanager
def open_rollouts(
    directory: Path, recipe: Recipe, opened: Conductor, limit: Decimal | None = None
) -> Iterator[Rollouts]:
    """The rollouts of a training over the workers of an opened conductor. Raises `OSError`.

    Answers in the cache are not asked for again; the others are paid from a budget of `limit` US dollars. The data
    rules and the limits of the day apply as in any run.
    """
    budget, cache = TrainingBudget(directory / "spent.jsonl", limit), ResponseCache(directory / "answers.jsonl")
    # Workers that share a model must share its wrapper too: a model takes one call at a time, by its identity.
    wrapped: dict[int, CachedModel] = {}
    for worker in opened.pool:
        model = opened.workers[worker.name]
        if id(model) not in wrapped:
            wrapped[id(model)] = CachedModel(BudgetedModel(model, worker, budget), cache, model_identity(worker))
    conductor = replace(
        bare_conductor(recipe, opened.pool, opened.limits), timeouts=opened.timeouts, pool_policy=opened.pool_policy,
        daily_spend=opened.daily_spend,
        workers={worker.name: wrapped[id(opened.workers[worker.name])] for worker in opened.pool},
    )  # fmt: skip
    try:
        yield Rollouts(
            conductor=conductor, cache=cache, budget=budget, format_bonus=recipe.format_bonus,
            concurrency=recipe.concurrency,
        )  # fmt: skip
    finally:
        cache.close()
        budget.close()


def check_exportable(base: BaseModel) -> None:
    """Raise `ConfigError` if a model like this cannot be exported."""
    if base.architecture not in EXPORTABLE:
        raise ConfigError(
            f"{base.directory.name} is a {base.architecture} model, and the export supports {', '.join(EXPORTABLE)}",
            hint="leave out --export, and convert the last checkpoint with llama.cpp's own script",
        )


def export_result(directory: Path, base: BaseModel, recipe: Recipe, *, merged: bool) -> Path:
    """Write the last checkpoint as GGUF: an adapter or, with `merged` or without LoRA, a whole model.

    Raises `ConductorUnusable` if the disk has no room for it, `ConfigError` without a checkpoint, `ModelError`.
    """
    check_exportable(base)
    checkpoint = last_checkpoint(directory)
    if checkpoint is None:
        raise ConfigError(f"there is no checkpoint in {directory}", hint="train first")
    if recipe.lora is not None and not merged:
        check_room(directory, 4 * base.adapter_weights, "--out")
        return export_adapter(checkpoint, base.directory, directory / "adapter.gguf")
    # A merged model needs room for its safetensors in 32 bits as well.
    check_room(directory, (6 if merged else 2) * base.weights, "--out")
    path = directory / "conductor.gguf"
    if recipe.lora is None:
        return export_model(checkpoint, path, name=directory.absolute().name)
    temporary = directory / "merged"
    try:
        _merge(checkpoint, base, temporary)
        return export_model(temporary, path, name=directory.absolute().name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _merge(checkpoint: Path, base: BaseModel, directory: Path) -> None:
    """Write the base model with the adapter merged into its weights."""
    with require("peft"):
        from peft import PeftModel
    model, _ = load_model(base, lora=None)
    try:
        with quiet_libraries():
            PeftModel.from_pretrained(model, checkpoint).merge_and_unload().save_pretrained(directory)
            base.tokenizer.save_pretrained(directory)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ModelError(
            "file", f"{checkpoint} cannot be merged: {reason}", hint="export the adapter instead"
        ) from error
