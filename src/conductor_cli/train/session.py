"""One run of the trainer for a user's conductor, and the export of the result. Imports torch and trl."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.formatting import format_size
from conductor_cli.models.llama.lora import ARCHITECTURES, convert_adapter
from conductor_cli.models.machine import read_memory
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run.conductor import Conductor
from conductor_cli.train import grpo
from conductor_cli.train.base_model import BaseModel, has_fast_bfloat16, load_model
from conductor_cli.train.budget import BudgetedModel, TrainingBudget
from conductor_cli.train.checkpoints import best_checkpoint, last_checkpoint, step_of
from conductor_cli.train.dependencies import require
from conductor_cli.train.job import TrainingJob, Validation
from conductor_cli.train.recipe import Recipe
from conductor_cli.train.rollouts import Rollouts
from conductor_cli.train.tasks import TaskCurriculum, bare_conductor, tells_answer
from conductor_cli.train.validation import Validator

with require("torch"):
    import torch

PROCESS_TIMEOUT: Final = 4 * 3600
"""Seconds that the other processes wait for the first one, which asks the workers."""

ZERO_WITH_SHARDED_WEIGHTS: Final = 3
"""The stage of DeepSpeed ZeRO that divides the weights themselves over the processes."""

TRAINED_BYTES: Final = 16
"""Bytes for a weight that is trained: the weight, its gradient and Adam's two moments, each in 32 bits."""


def run_session(base: BaseModel, recipe: Recipe, job: TrainingJob) -> bool:
    """Train until all steps are done (True) or the time is up (False). Raises as `grpo.train`."""
    if step_of(last_checkpoint(job.directory)) >= recipe.steps:
        return True
    try:
        model, adapter = load_model(base, lora=recipe.lora)
        return grpo.train(model, base.tokenizer, _with_validation(job, base, recipe), trl_arguments(recipe), adapter)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ConfigError(
            "not enough memory for a training step", hint="use --lora, or more GPUs: see docs/train.md"
        ) from error


def _with_validation(job: TrainingJob, base: BaseModel, recipe: Recipe) -> TrainingJob:
    tasks = job.curriculum.validation_tasks() if isinstance(job.curriculum, TaskCurriculum) else []
    if not tasks:
        return job
    measure = Validator(
        tokenizer=base.tokenizer, rollouts=job.rollouts, exercises=tasks, longest=recipe.max_plan_tokens,
        run_async=job.run_async,
    )  # fmt: skip
    return replace(job, validation=Validation(measure=measure, every=recipe.checkpoint_every))


def trl_arguments(recipe: Recipe) -> dict[str, Any]:
    """TRL's arguments. Raises `ConfigError` if a step cannot be divided over the processes."""
    processes = _process_count()
    batch = min(recipe.batch_size, recipe.samples // processes)
    if not batch or recipe.samples % (batch * processes):
        raise ConfigError(
            f"{recipe.samples} plans a step cannot be divided over {processes} processes in batches of "
            f"{recipe.batch_size}",
            hint="choose other numbers: --prompts, --group",
        )
    gpu = torch.cuda.is_available()
    return {
        "per_device_train_batch_size": batch, "gradient_accumulation_steps": recipe.samples // (batch * processes),
        "temperature": recipe.temperature, "loss_type": recipe.loss, "lr_scheduler_type": "cosine",
        "learning_rate": recipe.rate if recipe.lora is None else recipe.lora.rate, "warmup_steps": recipe.warmup,
        "adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1], "save_steps": recipe.checkpoint_every,
        "use_cpu": not gpu, "bf16": has_fast_bfloat16(), "activation_checkpointing": gpu,
        "ddp_timeout": PROCESS_TIMEOUT, "use_vllm": recipe.vllm, "vllm_mode": "colocate",
    }  # fmt: skip


def check_sharding(recipe: Recipe) -> None:
    """Raise `ConfigError` where an adapter would be trained in 16 bits, in which its small steps are rounded away.

    With DeepSpeed ZeRO-3, TRL keeps an adapter in the 16 bits of the frozen weights (`GRPOTrainer.__init__`,
    trl pull request 6091), because DeepSpeed cannot gather weights of two kinds (DeepSpeed issue 8072).
    """
    if recipe.lora is not None and torch.cuda.is_available() and _zero_stage() == ZERO_WITH_SHARDED_WEIGHTS:
        raise ConfigError(
            "with DeepSpeed ZeRO-3, an adapter would be kept in 16 bits, in which steps as small as these are lost",
            hint="leave DeepSpeed out, as each GPU can hold the frozen weights of a 7B: accelerate launch "
            "--multi_gpu; or use FSDP 2, or --full",
        )


def _zero_stage() -> int:
    """The stage of DeepSpeed ZeRO that `accelerate launch` was told, 0 without DeepSpeed."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() != "true":
        return 0
    path = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if path != "none":
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(Path(path).read_text())["zero_optimization"]["stage"])
    return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))


def check_memory(base: BaseModel, recipe: Recipe) -> str:
    """What the weights and the optimizer need, and what there is. Raises `ConfigError` if they do not fit.

    What the layers keep for the backward pass comes on top. It depends on kernels and batches too much to be estimated.
    Several processes may share the weights, so nothing is refused for them.
    """
    gpu, processes = torch.cuda.is_available(), _process_count()
    if gpu and processes == 1 and (gpus := torch.cuda.device_count()) > 1:
        raise ConfigError(
            f"there are {gpus} GPUs, and one process cannot train on several",
            hint="use accelerate launch (see docs/train.md), or only one of them: CUDA_VISIBLE_DEVICES=0",
        )
    # The base model of an adapter is frozen: in 16 bits where these are fast, else in 32.
    frozen = (2 if has_fast_bfloat16() else 4) * base.weights if base.adapter_weights else 0
    needed = frozen + TRAINED_BYTES * (base.adapter_weights or base.weights)
    there = torch.cuda.get_device_properties(0).total_memory if gpu else read_memory().total
    where = "a GPU" if gpu else "this machine"
    found = f"{format_size(needed)} of the {format_size(there)} of {where}, and activations"
    if needed > there and processes == 1:
        advice = "" if recipe.lora else "train an adapter (--lora), or "
        raise ConfigError(f"it needs {found}", hint=f"{advice}use more GPUs: see docs/train.md")
    return found


def _process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


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
            concurrency=recipe.concurrency, tells=tells_answer,
        )  # fmt: skip
    finally:
        cache.close()
        budget.close()


def check_exportable(base: BaseModel) -> None:
    """Raise `ConfigError` if an adapter of a model like this cannot be exported."""
    if base.architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{base.directory.name} is a {base.architecture} model, and the export supports {', '.join(ARCHITECTURES)}",
            hint="leave out --export, and convert the last checkpoint with llama.cpp's convert_lora_to_gguf.py",
        )


def export_adapter(directory: Path, base: BaseModel) -> Path:
    """Write the adapter of the best checkpoint as GGUF, of the last one without a validation set.

    Raises `ConfigError` without a checkpoint, `ModelError`.
    """
    checkpoint = best_checkpoint(directory) or last_checkpoint(directory)
    if checkpoint is None:
        raise ConfigError(f"there is no checkpoint in {directory}", hint="train first")
    path = directory / "adapter.gguf"
    convert_adapter(checkpoint, path, architecture=base.architecture, layers=base.layers, heads=base.heads)
    return path
