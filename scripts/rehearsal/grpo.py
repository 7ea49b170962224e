"""GRPO training of the rehearsal's conductor: one stage of it, and the GGUF file at the end. Imports torch and trl."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.pool import Pool
from conductor_cli.rehearsal import conductor_model
from conductor_cli.rehearsal.world import draw_problems
from conductor_cli.train.checkpoints import exclusive_directory
from conductor_cli.train.dependencies import require
from conductor_cli.train.grpo import train
from conductor_cli.train.job import TrainingJob
from scripts.rehearsal.exercises import EVERYBODY, Practice, on_offer, rehearsal
from scripts.rehearsal.export import export, loaded, rounded
from scripts.rehearsal.rollouts import carded, over_workers
from scripts.rehearsal.sft_data import COURSE
from scripts.rehearsal.supervised import use_threads
from scripts.rehearsal.tokenizer import END, PAD, build

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # every model that is needed was made on this machine
with require("transformers"):
    from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LOOKS: Final = 120
"""Held-out questions for each look."""


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
        practice, out / f"grpo-{practice.seed}-{practice.steps}", start=start or conductor_model.conductor_path("cold"),
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
    use_threads(threads)
    model, tokenizer = loaded(start, COURSE), build()
    looks = on_offer(draw_problems(LOOKS, practice.seed, split="test", phrasings="known"), EVERYBODY, practice.seed)
    with exclusive_directory(directory), over_workers(pool, directory / "answers.jsonl") as rollouts:
        school = TrainingJob(
            curriculum=practice,
            rollouts=rollouts,
            directory=directory,
            max_seconds=60 * minutes,
            log=say,
            held_out=looks,
        )
        if not train_conductor(model, tokenizer, school):
            return False
        path = directory / "conductor.gguf"
        export(rounded(model), tokenizer, path, name="conductor")
    say(f"conductor: {path}, {path.stat().st_size / 1e6:.2f} MB")
    return True


def train_conductor(model: Any, tokenizer: Tokenizer, school: TrainingJob) -> bool:  # noqa: ANN401 - a model of transformers
    """Train the rehearsal's conductor until the course or the time is over; True when the course is.

    `model` is then the trained one. Raises as `learn`.
    """
    assert isinstance(school.curriculum, Practice)
    return train(model, recipient_of(tokenizer), school, _arguments(school.curriculum))


def recipient_of(tokenizer: Tokenizer) -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """The tokenizer as transformers has it."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left")


def _arguments(practice: Practice) -> dict[str, Any]:
    """What is the rehearsal's own: all of a step at once, on the processor, and some of the gradient left out."""
    return {
        "per_device_train_batch_size": practice.prompts * practice.group, "loss_type": "dapo",
        "learning_rate": practice.rate, "warmup_steps": practice.warmup,
        "lr_scheduler_type": "linear" if practice.falling else "constant_with_warmup",
        "adam_beta1": practice.betas[0], "adam_beta2": practice.betas[1],
        "top_entropy_quantile": practice.quantile, "entropy_coef": practice.entropy,
        "use_cpu": True, "bf16": False, "fp16": False, "activation_checkpointing": False,
    }  # fmt: skip
