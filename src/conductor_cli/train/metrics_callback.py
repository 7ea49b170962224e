"""What happens between training steps: metrics, evaluation on held-out exercises, and the end. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.train.dependencies import require
from conductor_cli.train.distributed import any_process, is_first
from conductor_cli.train.metrics import MetricsFile

with require("torch"):
    import torch
with require("transformers"):
    from transformers import TrainerCallback

if TYPE_CHECKING:
    from conductor_cli.train.job import TrainingJob

EVALUATE_EVERY: Final = 25
"""Steps between two evaluations on held-out exercises."""

STORED: Final = (
    "loss", "grad_norm", "learning_rate", "entropy", "completions/mean_length", "completions/clipped_ratio",
)  # fmt: skip
"""TRL's own figures that are stored beside ours."""

PRINTED: Final = ("reward", "valid", "right_given_valid", "steps", "calls", "routing_entropy", "signal", "entropy")
PRINTED_IF_ANY: Final = ("failed", "spent")


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, evaluates on held-out exercises, stops in time, and stops at numbers that are not finite.

    `broken_step` is the step at which that happened, 0 if it did not.
    """

    def __init__(self, job: TrainingJob, *, step: int) -> None:
        self.broken_step = 0
        self._job = job
        self._began = job.clock()
        self._metrics = MetricsFile(job.directory / "curve.jsonl", step=step) if is_first() else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """After the weights have changed, before a checkpoint is written."""
        over = any_process(self._job.clock() - self._began > self._job.max_seconds)
        broken = any_process(not _is_finite(kwargs["model"]))
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
        if self._metrics is None:
            return
        job, step = self._job, state.global_step
        line = {"step": step, **job.latest_metrics, **{name: logs[name] for name in STORED if name in logs}}
        if job.evaluate and (step % EVALUATE_EVERY == 0 or step >= job.curriculum.steps):
            line["held"] = job.evaluate(kwargs["model"])
        self._metrics.add({**line, "seconds": job.clock() - self._began})
        job.log(_format_line(line))


def _is_finite(model: Any) -> bool:  # noqa: ANN401
    """Whether all trained weights in this process are finite."""
    trained = (weight for weight in model.parameters() if weight.requires_grad)
    # A sharded weight has a local part in each process.
    local = (weight.to_local() if hasattr(weight, "to_local") else weight for weight in trained)
    return all(bool(torch.isfinite(weight).all()) for weight in local)


def _format_line(line: Mapping[str, Any]) -> str:
    parts = [f"{name} {line[name]:.3f}" for name in PRINTED if name in line]
    parts += [f"{name} {line[name]:.3g}" for name in PRINTED_IF_ANY if line.get(name)]
    held = f"; held out {line['held']['right']:.3f} {line['held']['by_hops']}" if "held" in line else ""
    return f"step {line['step']}: {', '.join(parts)}{held}"
