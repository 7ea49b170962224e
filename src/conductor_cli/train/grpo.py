"""GRPO: TRL samples the plans and updates the weights, the rewards come from runs. Imports trl.

The same code trains a user's conductor and the demo conductor; `TrainingJob` holds what differs. A training that is
stopped leaves a checkpoint and continues from it to the same result: exercises are drawn by their number, and TRL
stores the optimizer and the state of its random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.models.disk import DISK_FULL_ERRORS, free_bytes
from conductor_cli.train.base_model import quiet_libraries
from conductor_cli.train.checkpoints import last_checkpoint, step_of, write_settings
from conductor_cli.train.dependencies import require
from conductor_cli.train.job import TrainingJob, add_metrics, is_first, keep_metrics

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

EVALUATE_EVERY: Final = 25
"""Steps between two evaluations on held-out exercises."""

STORED: Final = (
    "loss", "grad_norm", "learning_rate", "entropy", "completions/mean_length", "completions/clipped_ratio",
)  # fmt: skip
"""TRL's own figures that are stored beside ours."""

PRINTED: Final = ("reward", "valid", "right_given_valid", "steps", "calls", "routing_entropy", "signal", "entropy")
PRINTED_IF_ANY: Final = ("failed", "spent")

FULL: Final = 16 << 20
"""A disk with less free space, in bytes, is taken to be full after a failed write."""

WRITE_ERRORS: Final = ("PytorchStreamWriter", "unexpected pos", "Error while serializing")
"""In messages of torch and safetensors about a failed write: an exceeded quota does not show as a full disk."""

READ_ERRORS: Final = ("PytorchStreamReader", "Error while deserializing")
"""In their messages about a damaged file."""

NAN_ERROR: Final = "probability tensor contains"
"""In torch's message if it cannot sample because the logits are not finite, even though the weights may be."""


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer without its network access: by default it reports each training to the Hugging Face hub."""

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write no model card."""


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
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except ConductorError:
            if good := last_checkpoint(job.directory):
                job.log(f"the last good checkpoint is {good}")
            raise
        except (OSError, RuntimeError, EOFError, SafetensorError, UnpicklingError) as error:
            if explained := _explain(error, job.directory, checkpoint, trainer.state.global_step):
                raise explained from error
            raise
    if callback.broken_step:
        raise _not_finite("the weights", callback.broken_step, job.directory)
    return bool(trainer.state.global_step >= job.curriculum.steps)


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
    """One row for each exercise: its prompt and its number."""
    count = job.curriculum.steps * job.curriculum.prompts
    prompts: list[Any] = [job.rollouts.prompt(job.curriculum.exercise(number)) for number in range(count)]
    if not tokenizer.chat_template:
        prompts = ["".join(message["content"] for message in prompt) for prompt in prompts]
    return Dataset.from_dict({"prompt": prompts, "number": list(range(count))})


def _explain(error: Exception, directory: Path, checkpoint: Path | None, step: int) -> ConfigError | None:
    """The cause of an error of torch or of the system, None if it is a fault in this program."""
    message = str(error)
    if NAN_ERROR in message:
        return _not_finite("the logits", step, directory)
    unreadable = isinstance(error, EOFError | UnpicklingError) or any(words in message for words in READ_ERRORS)
    if checkpoint is not None and unreadable:
        return ConfigError(
            f"the checkpoint {checkpoint} is damaged",
            hint="remove it, then run the same command again: it resumes from the one before",
        )
    is_full = isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS
    if is_full or any(words in message for words in WRITE_ERRORS) or free_bytes(directory) <= FULL:
        return ConfigError(
            f"a checkpoint could not be written: the disk of {directory} is full",
            hint="free some space, then run the same command again",
        )
    return None


def _not_finite(what: str, step: int, directory: Path) -> ConfigError:
    good = last_checkpoint(directory)
    when = f"after step {step}" if step else "from the first step on"
    advice = "there is no checkpoint yet; lower the learning rate" if step else "check the base model"
    return ConfigError(
        f"{what} are not finite numbers {when}: training stopped",
        hint=f"the last good checkpoint is {good}" if good else advice,
    )


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, evaluates on held-out exercises, stops in time, and stops at numbers that are not finite.

    `broken_step` is the step at which that happened, 0 if it did not.
    """

    def __init__(self, job: TrainingJob, *, step: int) -> None:
        self.broken_step = 0
        self._job = job
        self._began = job.clock()
        self._path = job.directory / "curve.jsonl"
        if is_first():
            keep_metrics(self._path, step)

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
        add_metrics(self._path, {**line, "seconds": job.clock() - self._began})
        job.log(_format_line(line))


def _is_finite(model: Any) -> bool:  # noqa: ANN401
    """Whether all trained weights are finite."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters() if weight.requires_grad)


def _format_line(line: Mapping[str, Any]) -> str:
    parts = [f"{name} {line[name]:.3f}" for name in PRINTED if name in line]
    parts += [f"{name} {line[name]:.3g}" for name in PRINTED_IF_ANY if line.get(name)]
    held = f"; held out {line['held']['right']:.3f} {line['held']['by_hops']}" if "held" in line else ""
    return f"step {line['step']}: {', '.join(parts)}{held}"
