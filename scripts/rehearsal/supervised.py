"""The training loop: train for some minutes, save the state, resume from it the next time. Imports torch.

The state contains everything that the next step depends on: there is no dropout, and lessons are drawn by their number,
so the step determines every draw. A training that was killed resumes from the last state to the same weights.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.recipe import require
from scripts.rehearsal.courses import Course
from scripts.rehearsal.model import Batches, loss_of, new_model, rate_at
from scripts.rehearsal.tokenizer import fingerprint

with require("torch"):
    import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORM: Final = 2
"""The form of the state file."""

KEEP: Final = 30.0
"""Seconds between two writings of the state."""

REPORT: Final = 100
"""Steps between two lines of the log."""


@dataclass(slots=True, kw_only=True)
class Training:
    """A training in the middle: what changes with every step.

    `seconds` by the clock and `work`, seconds of processor time, count all stages.
    """

    course: Course
    tokenizer: Tokenizer
    model: Any
    optimizer: Any
    step: int = 0
    seconds: float = 0.0
    work: float = 0.0
    losses: list[float] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.step >= self.course.steps


def use_threads(count: int) -> None:
    """How many threads torch may have."""
    torch.set_num_threads(count)


def begin(course: Course, tokenizer: Tokenizer) -> Training:
    """A training before its first step."""
    model = new_model(course, tokenizer.get_vocab_size())
    return Training(course=course, tokenizer=tokenizer, model=model, optimizer=Optimizer(model, course.rate))


class Optimizer:
    """Muon for the matrices of the layers, AdamW for embeddings, norms and biases.

    In a trial with sums, Muon reached in 400 steps a loss of 0.53, where AdamW for all weights had 1.05; a step takes
    a quarter longer.
    """

    def __init__(self, model: Any, rate: float) -> None:  # noqa: ANN401 - a model of transformers, untyped
        matrices, others = list[Any](), list[Any]()
        for name, weight in model.named_parameters():
            (matrices if weight.ndim > 1 and "embed" not in name else others).append(weight)
        self._parts = (
            torch.optim.Muon(matrices, lr=MUON * rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def step(self, rate: float) -> None:
        """Change the weights by their gradients, at a learning rate, and forget the gradients."""
        for part, factor in zip(self._parts, (MUON, 1.0), strict=True):
            for group in part.param_groups:
                group["lr"] = factor * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[Any]:
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, state: list[Any]) -> None:
        for part, kept in zip(self._parts, state, strict=True):
            part.load_state_dict(kept)


MUON: Final = 2.5
"""The learning rate of Muon, in those of AdamW."""


def advance(  # noqa: PLR0913 - what a stage is made of
    training: Training,
    path: Path,
    *,
    seconds: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    batches: Batches | None = None,
) -> None:
    """Train until the course or the time is over; the state is kept at `path` meanwhile and at the end.

    `batches` are other ones than a worker's.
    """
    batches = batches or Batches(training.course, training.tokenizer)
    training.model.train()
    began = kept = before = clock()
    worked = time.process_time()
    while not training.ended and clock() - began < seconds:
        training.losses.append(_step(training, batches))
        training.step += 1
        now = clock()
        training.seconds, before = training.seconds + now - before, now
        training.work, worked = training.work + time.process_time() - worked, time.process_time()
        if training.step % REPORT == 0 or training.ended:
            say(_line(training))
        if now - kept > KEEP:
            keep(training, path)
            kept = clock()
    keep(training, path)


def _step(training: Training, batches: Batches) -> float:
    loss = loss_of(training.model, *batches.at(training.step))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
    training.optimizer.step(rate_at(training.course, training.step))
    return float(loss.detach())


def _line(training: Training) -> str:
    recent = training.losses[-REPORT:]
    course, mean = training.course, sum(recent) / len(recent)
    spent = f"{training.seconds / 60:.1f} min, {training.work / 60:.1f} of processor time"
    return f"{course.name}: step {training.step} of {course.steps}, loss {mean:.4f}, {spent}"


def keep(training: Training, path: Path) -> None:
    """Write the state, whole or not at all."""
    state = {
        "form": FORM,
        "course": training.course.as_dict(),
        "tokenizer": fingerprint(training.tokenizer),
        "step": training.step,
        "seconds": training.seconds,
        "work": training.work,
        "losses": training.losses,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(state, temporary)
    temporary.replace(path)


def resume(course: Course, tokenizer: Tokenizer, path: Path) -> Training:
    """The training whose state is at `path`, or a new one if there is no state.

    Raises `ConfigError` for a file that is damaged or belongs to another course or tokenizer.
    """
    training = begin(course, tokenizer)
    if not path.exists():
        return training
    state = _read(path)
    same = {"form": FORM, "course": course.as_dict(), "tokenizer": fingerprint(tokenizer)}
    for name, value in same.items():
        if state.get(name) != value:
            hint = "remove it to start over, or choose another directory: --out"
            raise ConfigError(f"{path} was made with another {name}", hint=hint)
    try:
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
        training.step, training.losses = state["step"], state["losses"]
        training.seconds, training.work = state["seconds"], state["work"]
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    return training


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises whatever its reader of zip files and pickles does
        raise _damaged(path, error) from error
    if not isinstance(state, dict):
        raise _damaged(path, TypeError("it holds no state"))
    return state


def _damaged(path: Path, error: Exception) -> ConfigError:
    problem = " ".join(str(error).split())[:120]
    return ConfigError(f"{path} is damaged: {problem}", hint="remove it to start over")
