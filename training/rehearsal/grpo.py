"""GRPO training of the demo conductor: one stage of it, and the GGUF file at the end.

Imports torch and trl.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.formatting import format_size
from conductor_cli.rehearsal.players import CHECKED, PROFILE, SHIPPED, model_path
from conductor_cli.train import grpo
from conductor_cli.train.checkpoints import exclusive_directory
from conductor_cli.train.job import TrainingJob
from conductor_cli.train.recipe import require
from conductor_cli.train.rollouts import Exercise
from training.rehearsal.asking import END, PAD, Bank, build
from training.rehearsal.exercises import (
    LEGS,
    STRONG,
    RehearsalCurriculum,
    draw_exercises,
    rehearsal,
)
from training.rehearsal.plan_lessons import COURSE
from training.rehearsal.rollouts import build_rollouts
from training.rehearsal.supervised import export, loaded, rounded
from training.rehearsal.world import draw_problems

with require("torch"):
    import torch
with require("transformers"):
    from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HELD_OUT: Final = 120  # held-out questions for each evaluation during training
EVALUATE_EVERY: Final = 25  # steps between two evaluations


def train_seed(
    out: Path,
    seed: int,
    *,
    minutes: float,
    say: Callable[[str], None],
    steps: int | None,
    start: Path | None,
    workers: Path | None,
) -> bool:
    """The whole course of a seed, leg by leg, or its first `steps`. True if it is done.

    Without `start` and `workers`, the shipped files are used. Raises `ConfigError` or `ModelError`.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    model_file = start or SHIPPED / "cold.gguf"
    tokenizer = build()
    for leg in range(1, 2 if steps else LEGS + 1):
        practice = rehearsal(steps=steps, seed=seed, leg=leg)
        last = steps or leg == LEGS
        directory = out / (f"grpo-{seed}-{practice.steps}" if last else f"leg-{leg}")
        left = 60 * minutes + began - time.monotonic()
        made = directory / "conductor.gguf"
        if not made.exists():
            model = loaded(model_file, COURSE)
            held_out = draw_exercises(
                draw_problems(HELD_OUT, practice.seed, split="test"), STRONG, practice.seed
            )
            bank = Bank(workers or model_path("spelling").parent)
            profile = PROFILE
            if practice.refuses_faults:
                profile = CHECKED
            rollouts = build_rollouts(bank, profile)
            rollouts.demands_checks = practice.demands_checks
            with exclusive_directory(directory):
                try:
                    job = TrainingJob(
                        curriculum=practice,
                        rollouts=rollouts,
                        directory=directory,
                        max_seconds=left,
                        log=say,
                    )
                    if not train_conductor(model, tokenizer, job, held_out):
                        return False
                finally:
                    asyncio.run(bank.__aexit__())
                export(rounded(model.cpu()), tokenizer, made, name="conductor")
            say(f"conductor: {made}, {format_size(made.stat().st_size)}")
        model_file = made
    return True


def train_conductor(
    model: Any, tokenizer: Tokenizer, job: TrainingJob, held_out: Sequence[Exercise] = ()
) -> bool:
    """Train `model` until all steps are done (True) or the time is up (False).

    Raises as `train_model`.
    """
    practice = job.curriculum
    assert isinstance(practice, RehearsalCurriculum)
    reader = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left"
    )
    job.validation = held_out
    job.validate_every = EVALUATE_EVERY
    # A whole step in one batch on the CPU; only the least certain tokens take part in the gradient.
    arguments = {
        "per_device_train_batch_size": practice.prompts * practice.group,
        "learning_rate": practice.rate,
        "warmup_steps": practice.warmup,
        "lr_scheduler_type": "linear" if practice.falling else "constant_with_warmup",
        "adam_beta1": practice.betas[0],
        "adam_beta2": practice.betas[1],
        "top_entropy_quantile": practice.quantile,
        "entropy_coef": practice.entropy,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "fp16": False,
        "activation_checkpointing": False,
    }
    return grpo.train_model(model, reader, job, arguments)
