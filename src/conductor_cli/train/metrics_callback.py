"""What happens beside the steps of a training: its curve, looks at held-out exercises, and its end. Imports torch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.train import distributed
from conductor_cli.train.dependencies import require
from conductor_cli.train.metrics import MetricsFile, compute_metrics
from conductor_cli.train.rollouts import Exercise, Rollouts, SampledPlan

with require("torch"):
    import torch
with require("transformers"):
    from transformers import TrainerCallback

if TYPE_CHECKING:
    from conductor_cli.train.grpo import TrainingJob

LOOK: Final = 25
"""Steps between two looks at what the conductor plans without chance."""

_KEPT: Final = ("loss", "grad_norm", "learning_rate", "entropy", "completions/mean_length", "completions/clipped_ratio")
_FINITE: Final = ("loss", "grad_norm")
_TOLD: Final = ("reward", "valid", "right_given_valid", "steps", "calls", "routing_entropy", "signal", "entropy")
_WORTH_TELLING: Final = ("failed", "spent")


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the curve, looks at held-out exercises, ends a stage in time, and stops where the numbers break."""

    def __init__(self, school: TrainingJob, reader: Any, *, step: int) -> None:  # noqa: ANN401
        self.broken = 0
        self._school = school
        self._reader = reader
        self._began = school.clock()
        self._curve = MetricsFile(school.directory / "curve.jsonl", step=step) if distributed.is_first() else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """After the weights have changed, before anything is kept."""
        over = distributed.any_process(self._school.clock() - self._began > self._school.seconds)
        broken = distributed.any_process(not _is_finite(kwargs["model"]))
        if broken:
            self.broken = state.global_step
        if over or broken:
            control.should_training_stop = True
            control.should_save = not broken

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Once a step: TRL's figures and ours. Weights that are spread over processes break in these figures first."""
        if "loss" not in (logs or {}):
            return
        if not all(math.isfinite(logs.get(name, 0.0)) for name in _FINITE):
            self.broken = self.broken or state.global_step
            control.should_training_stop, control.should_save = True, False
        if self._curve is None:
            return
        line = {
            "step": state.global_step,
            **self._school.latest,
            **{name: logs[name] for name in _KEPT if name in logs},
        }
        looks = state.global_step % LOOK == 0 or state.global_step >= self._school.practice.steps
        if looks and self._school.looks:
            line["held"] = self._look(kwargs["model"])
        self._curve.add({**line, "seconds": self._school.clock() - self._began})
        self._school.say(_told(line))

    def _look(self, model: Any) -> dict[str, Any]:  # noqa: ANN401
        return look(model, self._reader, self._school.rollouts, self._school.looks, self._school.practice.longest)


def _is_finite(model: Any) -> bool:  # noqa: ANN401
    """Whether all that is trained, and lies in this process, is made of numbers."""
    trained = (weight for weight in model.parameters() if weight.requires_grad)
    return all(bool(torch.isfinite(_here(weight)).all()) for weight in trained)


def _here(weight: Any) -> Any:  # noqa: ANN401
    """A weight, or of one that is spread over processes the part of this one."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


def look(model: Any, reader: Any, rollouts: Rollouts, exercises: Sequence[Exercise], longest: int) -> dict[str, Any]:  # noqa: ANN401
    """The figures of the likeliest plans for some exercises; by the number of hops, how many are right."""
    written = greedy_plans(model, reader, rollouts, exercises, longest)
    outcomes = asyncio.run(rollouts.outcomes(written))
    found = compute_metrics(outcomes, 1)
    by_hops: dict[str, list[bool]] = {}
    for item, outcome in zip(exercises, outcomes, strict=True):
        by_hops.setdefault(str(len(item.skills)), []).append(outcome.right)
    return {**found, "by_hops": {hops: sum(right) / len(right) for hops, right in sorted(by_hops.items())}}


def plain(messages: Sequence[Mapping[str, str]]) -> str:
    """Messages as a reader without a chat template has them: their text."""
    return "".join(message["content"] for message in messages)


def greedy_plans(
    model: Any,  # noqa: ANN401
    reader: Any,  # noqa: ANN401
    rollouts: Rollouts,
    exercises: Sequence[Exercise],
    longest: int,
) -> list[SampledPlan]:
    """What the model writes for each, always the likeliest token."""
    batch = reader([plain(rollouts.prompt(item)) for item in exercises], return_tensors="pt", padding=True)
    training = model.training
    model.eval()
    with torch.inference_mode():
        tokens = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=longest,
            do_sample=False, eos_token_id=reader.eos_token_id, pad_token_id=reader.pad_token_id, use_cache=True,
        )  # fmt: skip
    model.train(training)
    new = tokens[:, batch["input_ids"].shape[1] :]
    return [
        SampledPlan(
            exercise=item,
            text=reader.decode(row, skip_special_tokens=True),
            whole=bool((row == reader.eos_token_id).any()),
        )
        for item, row in zip(exercises, new, strict=True)
    ]


def _told(line: dict[str, Any]) -> str:
    parts = [f"{name} {line[name]:.3f}" for name in _TOLD if name in line]
    parts += [f"{name} {line[name]:.3g}" for name in _WORTH_TELLING if line.get(name)]
    held = f"; held out {line['held']['right']:.3f} {line['held']['by_hops']}" if "held" in line else ""
    return f"step {line['step']}: {', '.join(parts)}{held}"
