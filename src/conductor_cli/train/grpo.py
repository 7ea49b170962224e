"""GRPO: TRL samples the plans and updates the weights, the rewards come from runs. Imports torch and trl.

The same code trains a user's conductor and the demo conductor; `TrainingJob` holds what differs. A training that is
stopped leaves a checkpoint and continues from it to the same result: exercises are drawn by their number, and TRL
stores the optimizer and the state of its random numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.core.formatting import format_duration, format_money, format_size
from conductor_cli.models.hardware import read_memory
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.models.llama.lora import ARCHITECTURES, convert_adapter
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.base_model import BaseModel, has_fast_bfloat16, load_model, quiet_libraries, render_chat
from conductor_cli.train.budget import BudgetedModel, TrainingBudget
from conductor_cli.train.checkpoints import (
    best_checkpoint,
    best_line,
    describe_validation,
    keep_best,
    last_checkpoint,
    step_of,
    write_settings,
)
from conductor_cli.train.job import (
    TaskCurriculum,
    TrainingJob,
    add_metrics,
    bare_conductor,
    compute_metrics,
    is_first,
    keep_metrics,
    read_metrics,
    tells_answer,
)
from conductor_cli.train.recipe import Recipe, require
from conductor_cli.train.rollouts import Exercise, PlanOutcome, Rollouts, SampledPlan

with require("torch"):
    import torch
with require("transformers"):
    from accelerate.utils import gather_object
    from safetensors import SafetensorError
    from transformers import PrinterCallback, TrainerCallback
with require("trl"):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

CHECKPOINT_EVERY: Final = 20  # Steps between two checkpoints
TOGETHER: Final = 32  # Texts of a batch that are computed together
EVALUATE_EVERY: Final = 25  # Steps between two evaluations on held-out exercises

STORED: Final = (
    "loss", "grad_norm", "learning_rate", "entropy", "completions/mean_length", "completions/clipped_ratio",
)  # fmt: skip
"""TRL's own figures that are stored beside ours."""

PRINTED: Final = ("reward", "valid", "right_given_valid", "steps", "calls", "routing_entropy", "signal", "entropy")


Torch = Any
"""An object of torch, transformers, TRL or peft, whose types this project does not check."""


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer without its network access: by default it reports each training to the Hugging Face hub."""

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write no model card."""

    def _get_per_token_logps_and_entropies(
        self, model: Torch, input_ids: Torch, attention_mask: Torch, logits_to_keep: int, **others: Torch
    ) -> tuple[Torch, Torch, Torch]:
        """As TRL computes them, but equal texts once, and those of like length together, without needless padding.

        The shapes are (texts, tokens); prompts are padded on the left, plans on the right.
        """
        compute = partial(super()._get_per_token_logps_and_entropies, model, **others)
        if self.accelerator.num_processes > 1 or self.aux_loss_enabled or others.get("pixel_values") is not None:
            return compute(input_ids, attention_mask, logits_to_keep)  # type: ignore[no-any-return]
        texts, back = torch.unique(2 * input_ids + attention_mask, dim=0, return_inverse=True)
        tokens, mask = texts // 2, texts % 2
        begin = input_ids.size(1) - logits_to_keep
        before, after = mask[:, :begin].sum(1), mask[:, begin:].sum(1)
        order = torch.argsort(before + after)
        logps, entropies = list[Any](), list[Any]()
        for rows in order.split(TOGETHER):
            kept = max(int(after[rows].max()), 1)
            columns = slice(begin - int(before[rows].max()), begin + kept)
            found = compute(tokens[rows, columns], mask[rows, columns], kept)
            unread = (0, logits_to_keep - kept)
            logps.append(torch.nn.functional.pad(found[0], unread))
            entropies += [torch.nn.functional.pad(found[1], unread)] if found[1] is not None else []
        back = torch.argsort(order)[back]
        return torch.cat(logps)[back], torch.cat(entropies)[back] if entropies else None, None


def train_model(
    model: Torch, tokenizer: Torch, job: TrainingJob, arguments: Mapping[str, Any], adapter: Torch = None
) -> bool:
    """Train until all steps are done (True) or the time is up (False). `arguments` are further ones for TRL.

    `model` and `tokenizer` are those of transformers, `adapter` are the settings of peft.

    Raises `ConfigError` if numbers are not finite, the disk is full, or the directory holds another training; and what
    the runs raise, such as `LimitReached`. The last good checkpoint stays, and the next call resumes from it.
    """
    # Without the cache, every sampled token would cost a pass over the whole text.
    model.config.use_cache = model.generation_config.use_cache = True
    if is_first():
        write_settings(job.directory, job.curriculum.as_dict())
    checkpoint = last_checkpoint(job.directory)
    callback = MetricsCallback(job, step=step_of(checkpoint))
    with quiet_libraries():
        trainer = _Trainer(
            model=model, args=_trainer_config(job, arguments), train_dataset=_build_dataset(job, tokenizer),
            processing_class=tokenizer, reward_funcs=job.rewards, callbacks=[callback], peft_config=adapter,
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        _check_precision(trainer.model)
        plugin = trainer.accelerator.state.deepspeed_plugin
        # No process has all weights then, so the first one cannot write plans alone.
        if job.validate is not None and (trainer.is_fsdp_enabled or (plugin and plugin.zero_stage == 3)):
            job.validate = None
            job.log("there is no validation: the weights are divided over the processes")
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except ConductorError:
            if good := last_checkpoint(job.directory):
                job.log(f"the last good checkpoint is {good}")
            raise
        except torch.OutOfMemoryError:
            raise
        except (OSError, RuntimeError, EOFError, SafetensorError, UnpicklingError) as error:
            # The libraries raise any of these for a full disk, a damaged checkpoint, and logits that are not finite.
            damaged = f"remove {checkpoint} if it is damaged, " if checkpoint else ""
            # What torch says of a file that it cannot read is advice to load it without protection.
            unreadable = isinstance(error, EOFError | UnpicklingError)
            problem = "its checkpoint cannot be read" if unreadable else short_line(str(error))
            raise ConfigError(
                f"training stopped after step {trainer.state.global_step}: {problem}",
                hint=f"check the free space of {job.directory}, {damaged}and run the same command again to resume",
            ) from error
    if callback.broken_step:
        good = last_checkpoint(job.directory)
        raise ConfigError(
            f"the weights are not finite numbers after step {callback.broken_step}: training stopped",
            hint=f"the last good checkpoint is {good}" if good else "check the base model",
        )
    return bool(trainer.state.global_step >= job.curriculum.steps)


def _check_precision(model: Torch) -> None:
    """Raise `ConfigError` unless all trained weights have 32 bits: a library may have made them smaller.

    With DeepSpeed ZeRO-3, TRL keeps an adapter in the 16 bits of the frozen weights (`GRPOTrainer.__init__`,
    trl pull request 6091), because DeepSpeed cannot gather weights of two kinds (DeepSpeed issue 8072).
    """
    found = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad} - {"torch.float32"}
    if found:
        raise ConfigError(
            f"the trained weights are {', '.join(sorted(found))}, in which steps as small as these are rounded away",
            hint="use another accelerate configuration, without DeepSpeed ZeRO-3 for --lora: see docs/train.md",
        )


def _trainer_config(job: TrainingJob, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    curriculum = job.curriculum
    common = {
        "output_dir": str(job.directory), "max_steps": curriculum.steps, "seed": curriculum.seed,
        "num_generations": curriculum.group, "max_completion_length": curriculum.max_plan_tokens, "temperature": 1.0,
        "beta": 0.0, "max_grad_norm": 1.0, "weight_decay": 0.0, "shuffle_dataset": False,
        "logging_steps": 1, "logging_nan_inf_filter": False, "report_to": [], "disable_tqdm": True,
        "save_strategy": "steps", "save_steps": CHECKPOINT_EVERY, "save_total_limit": 2,
    }  # fmt: skip
    return GRPOConfig(**{**common, **arguments})


def _build_dataset(job: TrainingJob, tokenizer: Torch) -> Torch:
    """One row for each exercise: its prompt and its number.

    Prompts are texts, because TRL would begin a new reply after a message of the assistant.
    """
    count = job.curriculum.steps * job.curriculum.prompts
    exercises = (job.curriculum.exercise(number) for number in range(count))
    prompts = [render_chat(tokenizer, job.rollouts.prompt(exercise)) for exercise in exercises]
    return Dataset.from_dict({"prompt": prompts, "number": list(range(count))})


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, evaluates on held-out exercises, stops in time, and stops at numbers that are not finite.

    `broken_step` is the step at which that happened, 0 if it did not.
    """

    def __init__(self, job: TrainingJob, *, step: int) -> None:
        self.broken_step = 0
        self._job = job
        self._began, self._first = job.clock(), step
        self._path = job.directory / "curve.jsonl"
        if is_first():
            keep_metrics(self._path, step)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """The model before its first step is what the others are compared with."""
        if state.global_step or self._job.validate is None or not is_first() or read_metrics(self._path):
            return
        line = {"step": 0, "validation": self._job.validate(kwargs["model"])}
        add_metrics(self._path, line)
        self._job.log(f"before training: {describe_validation(line)}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """A checkpoint has been written."""
        if not is_first():
            return
        best = best_line(read_metrics(self._path))
        if best is not None and best["step"] == state.global_step:
            keep_best(self._job.directory, self._job.directory / f"checkpoint-{state.global_step}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """After the weights have changed, before a checkpoint is written."""
        over = self._job.clock() - self._began > self._job.max_seconds
        # All processes have to stop at the same step.
        over, broken = (any(gather_object([vote])) for vote in (over, not _is_finite(kwargs["model"])))
        if broken:
            self.broken_step = state.global_step
        if over or broken:
            control.should_training_stop = True
            control.should_save = not broken

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Once a step. If the weights are sharded over processes, broken numbers show here first."""
        if "loss" not in (logs or {}):
            return
        if not all(math.isfinite(logs.get(name, 0.0)) for name in ("loss", "grad_norm")):
            self.broken_step = self.broken_step or state.global_step
            control.should_training_stop, control.should_save = True, False
        if not is_first():
            return
        job, step = self._job, state.global_step
        line = {"step": step, **job.latest_metrics, **{name: logs[name] for name in STORED if name in logs}}
        if job.evaluate and (step % EVALUATE_EVERY == 0 or step >= job.curriculum.steps):
            line["held"] = job.evaluate(kwargs["model"])
        is_due = step % job.validate_every == 0 or step >= job.curriculum.steps  # then there is a checkpoint, too
        if not self.broken_step and job.validate is not None and is_due:
            line["validation"] = job.validate(kwargs["model"])
        seconds = job.clock() - self._began
        add_metrics(self._path, {**line, "seconds": seconds})
        left = seconds / (step - self._first) * (job.curriculum.steps - step) if step > self._first else 0
        job.log(_format_line(line) + (f"; {format_duration(left, tenths=False)} left" if left >= 1 else ""))


def _is_finite(model: Torch) -> bool:
    """Whether all trained weights are finite."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters() if weight.requires_grad)


def _format_line(line: Mapping[str, Any]) -> str:
    parts = [f"{name} {line[name]:.3f}" for name in PRINTED if name in line]
    parts += [f"{name} {line[name]}" for name in ("failed", "told") if line.get(name)]
    parts += [f"spent {format_money(line['spent'])}"] if line.get("spent") else []
    held = f"; held out {line['held']['right']:.3f} {line['held']['by_hops']}" if "held" in line else ""
    validation = f"; validation: {describe_validation(line)}" if "validation" in line else ""
    return f"step {line['step']}: {', '.join(parts)}{held}{validation}"


BATCH: Final = 8  # Prompts that are read at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """Measures a model on `exercises`, cases that it is never trained on. A plan may have `longest` tokens.

    Plans are written without chance, and requests of workers have the seed of the recipe. So equal plans get the
    answers that they got before, and a curve shows what the model has learnt, not the luck of its workers.
    """

    tokenizer: Any
    rollouts: Rollouts
    exercises: Sequence[Exercise]
    longest: int
    run_async: Callable[[Coroutine[Any, Any, list[PlanOutcome]]], list[PlanOutcome]]

    def __call__(self, model: Any) -> dict[str, Any]:  # noqa: ANN401 - a model of transformers
        """The figures of a step (`job.compute_metrics`), and `cases`, how many there are. Raises as `Rollouts`."""
        parts = [self.exercises[at : at + BATCH] for at in range(0, len(self.exercises), BATCH)]
        plans = [plan for part in parts for plan in self._plans(model, part)]
        return {**compute_metrics(self.run_async(self.rollouts.outcomes(plans)), 1), "cases": len(plans)}

    def _plans(self, model: Any, exercises: Sequence[Exercise]) -> Iterator[SampledPlan]:  # noqa: ANN401
        texts = [render_chat(self.tokenizer, self.rollouts.prompt(exercise)) for exercise in exercises]
        batch = self.tokenizer(texts, return_tensors="pt", padding=True)
        # Every token that ends a reply: of the model's own settings, and the tokenizer's.
        own = model.generation_config.eos_token_id
        more = own if isinstance(own, list) else [] if own is None else [own]
        ends = sorted({*more, self.tokenizer.eos_token_id})
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad():
                tokens = model.generate(
                    input_ids=batch["input_ids"].to(model.device),
                    attention_mask=batch["attention_mask"].to(model.device), max_new_tokens=self.longest,
                    do_sample=False, eos_token_id=ends, pad_token_id=self.tokenizer.pad_token_id, use_cache=True,
                )  # fmt: skip
        finally:
            model.train(was_training)
        for exercise, row in zip(exercises, tokens[:, batch["input_ids"].shape[1] :].tolist(), strict=True):
            text = self.tokenizer.decode(row, skip_special_tokens=True)
            yield SampledPlan(exercise=exercise, text=text, complete=not set(ends).isdisjoint(row))


PROCESS_TIMEOUT: Final = 4 * 3600  # Seconds that the other processes wait for the first one, which asks the workers
TRAINED_BYTES: Final = 16
"""Bytes for a weight that is trained: the weight, its gradient and Adam's two moments, each in 32 bits."""


def run_session(base: BaseModel, recipe: Recipe, job: TrainingJob) -> bool:
    """Train until all steps are done (True) or the time is up (False). Raises as `train_model`."""
    if step_of(last_checkpoint(job.directory)) >= recipe.steps:
        return True
    try:
        model, adapter = load_model(base, lora=recipe.lora)
        if tasks := job.curriculum.validation_tasks() if isinstance(job.curriculum, TaskCurriculum) else []:
            measure = Validator(
                tokenizer=base.tokenizer, rollouts=job.rollouts, exercises=tasks, longest=recipe.max_plan_tokens,
                run_async=job.run_async,
            )  # fmt: skip
            job = replace(job, validate=measure, validate_every=recipe.checkpoint_every)
        return train_model(model, base.tokenizer, job, trl_arguments(recipe), adapter)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ConfigError(
            "not enough memory for a training step", hint="use --lora, or more GPUs: see docs/train.md"
        ) from error


def trl_arguments(recipe: Recipe) -> dict[str, Any]:
    """TRL's arguments. Raises `ConfigError` if a step cannot be divided over the processes."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    batch = min(recipe.batch_size, recipe.samples // processes)
    if not batch or recipe.samples % (batch * processes):
        raise ConfigError(
            f"{recipe.samples} plans a step cannot be divided over {processes} processes in batches of "
            f"{recipe.batch_size}",
            hint="choose other numbers: --prompts, --set group=N",
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


def check_memory(base: BaseModel, recipe: Recipe) -> str:
    """What the weights and the optimizer need, and what there is. Raises `ConfigError` if they do not fit.

    What the layers keep for the backward pass comes on top. It depends on kernels and batches too much to be estimated.
    Several processes may share the weights, so nothing is refused for them.
    """
    gpu, processes = torch.cuda.is_available(), int(os.environ.get("WORLD_SIZE", "1"))
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
