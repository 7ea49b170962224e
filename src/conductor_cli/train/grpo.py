"""GRPO: TRL samples the plans and updates the weights, the rewards come from runs. Imports trl.

The same code trains a user's conductor and the demo conductor; `TrainingJob` holds what differs. A training that is
stopped leaves a checkpoint and continues from it to the same result: exercises are drawn by their number, and TRL
stores the optimizer and the state of its random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pickle import UnpicklingError
from typing import Any, Final

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.core.formatting import format_duration, format_money
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.train.base_model import quiet_libraries, render_prompt
from conductor_cli.train.checkpoints import keep_best, last_checkpoint, mark_last, step_of, write_settings
from conductor_cli.train.curve import best_line, describe_validation
from conductor_cli.train.dependencies import require
from conductor_cli.train.job import TrainingJob, add_metrics, is_first, keep_metrics, read_metrics

with require("torch"):
    import torch
with require("transformers"):
    from accelerate.utils import gather_object
    from safetensors import SafetensorError
    from transformers import PrinterCallback, TrainerCallback
with require("trl"):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

CHECKPOINT_EVERY: Final = 20
"""Steps between two checkpoints."""

TOGETHER: Final = 32
"""Texts of a batch that are computed together."""

EVALUATE_EVERY: Final = 25
"""Steps between two evaluations on held-out exercises."""

STORED: Final = (
    "loss", "grad_norm", "learning_rate", "entropy", "completions/mean_length", "completions/clipped_ratio",
)  # fmt: skip
"""TRL's own figures that are stored beside ours."""

PRINTED: Final = ("reward", "valid", "right_given_valid", "steps", "calls", "routing_entropy", "signal", "entropy")


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer without its network access: by default it reports each training to the Hugging Face hub."""

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write no model card."""

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,  # noqa: ANN401
        input_ids: Any,  # noqa: ANN401
        attention_mask: Any,  # noqa: ANN401
        logits_to_keep: int,
        **others: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any]:
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


def train(
    model: Any,  # noqa: ANN401 - a model of transformers
    tokenizer: Any,  # noqa: ANN401 - a tokenizer of transformers
    job: TrainingJob,
    arguments: Mapping[str, Any],
    adapter: Any = None,  # noqa: ANN401 - the settings of an adapter, of peft
) -> bool:
    """Train until all steps are done (True) or the time is up (False). `arguments` are further ones for TRL.

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
        if job.validation is not None and _is_sharded(trainer):
            job.validation = None
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


def _is_sharded(trainer: Any) -> bool:  # noqa: ANN401
    """Whether no process has all weights, so that the first one cannot write plans alone."""
    plugin = trainer.accelerator.state.deepspeed_plugin
    return trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3)


def _check_precision(model: Any) -> None:  # noqa: ANN401
    """Raise `ConfigError` unless all trained weights have 32 bits: a library may have made them smaller."""
    found = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad} - {"torch.float32"}
    if found:
        raise ConfigError(
            f"the trained weights are {', '.join(sorted(found))}, in which steps as small as these are rounded away",
            hint="use another accelerate configuration: see docs/train.md",
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


def _build_dataset(job: TrainingJob, tokenizer: Any) -> Any:  # noqa: ANN401
    """One row for each exercise: its prompt and its number.

    Prompts are texts, because TRL would begin a new reply after a message of the assistant.
    """
    count = job.curriculum.steps * job.curriculum.prompts
    exercises = (job.curriculum.exercise(number) for number in range(count))
    prompts = [render_prompt(tokenizer, job.rollouts.prompt(exercise)) for exercise in exercises]
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
        if state.global_step or self._job.validation is None or not is_first() or read_metrics(self._path):
            return
        line = {"step": 0, "validation": self._job.validation.measure(kwargs["model"])}
        add_metrics(self._path, line)
        self._job.log(f"before training: {describe_validation(line)}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """A checkpoint has been written."""
        if not is_first():
            return
        directory, checkpoint = self._job.directory, self._job.directory / f"checkpoint-{state.global_step}"
        mark_last(directory, checkpoint)
        best = best_line(read_metrics(self._path))
        if best is not None and best["step"] == state.global_step:
            keep_best(directory, checkpoint)

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
        if not self.broken_step and job.validation is not None and job.validation.is_due(step, job.curriculum.steps):
            line["validation"] = job.validation.measure(kwargs["model"])
        seconds = job.clock() - self._began
        add_metrics(self._path, {**line, "seconds": seconds})
        left = seconds / (step - self._first) * (job.curriculum.steps - step) if step > self._first else 0
        job.log(_format_line(line) + (f"; {format_duration(left, tenths=False)} left" if left >= 1 else ""))


def _is_finite(model: Any) -> bool:  # noqa: ANN401
    """Whether all trained weights are finite."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters() if weight.requires_grad)


def _format_line(line: Mapping[str, Any]) -> str:
    parts = [f"{name} {line[name]:.3f}" for name in PRINTED if name in line]
    parts += [f"{name} {line[name]}" for name in ("failed", "told") if line.get(name)]
    parts += [f"spent {format_money(line['spent'])}"] if line.get("spent") else []
    held = f"; held out {line['held']['right']:.3f} {line['held']['by_hops']}" if "held" in line else ""
    validation = f"; validation: {describe_validation(line)}" if "validation" in line else ""
    return f"step {line['step']}: {', '.join(parts)}{held}{validation}"
