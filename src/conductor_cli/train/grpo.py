"""A conductor learns from reward: TRL samples the plans and takes the steps, the reward comes from runs. Imports trl.

The rehearsal's conductor and a real one are trained by this same script: `School` holds what differs. A stage of
minutes leaves a checkpoint; the next stage goes on from it to the same curve, since exercises are drawn by their number
and TRL keeps the optimizer and the state of its random numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, Protocol

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.models.disk import DISK_FULL_ERRORS, free_bytes
from conductor_cli.train import distributed
from conductor_cli.train.base_model import quiet
from conductor_cli.train.checkpoints import last_checkpoint, step_of, write_course
from conductor_cli.train.dependencies import require
from conductor_cli.train.metrics import compute_metrics
from conductor_cli.train.rewards import subtract_cost
from conductor_cli.train.rollouts import Exercise, Outcome, Rollouts, SampledPlan

with require("transformers"):
    from safetensors import SafetensorError
    from transformers import PrinterCallback
with require("trl"):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from conductor_cli.train.metrics_callback import MetricsCallback, plain

KEEP: Final = 20
"""Steps between two checkpoints."""

FULL: Final = 16 << 20
"""Bytes that a disk has left at the most where writing failed for lack of room."""

UNWRITTEN: Final = ("PytorchStreamWriter", "unexpected pos", "Error while serializing")
"""What torch and safetensors say where a file could not be written: a quota does not show in the room of a disk."""

UNREAD: Final = ("PytorchStreamReader", "Error while deserializing")
"""What they say where a file of a checkpoint could not be read."""

NO_NUMBERS: Final = "probability tensor contains"
"""What torch says where nothing can be drawn: the scores of the tokens are no numbers, though the weights may be."""

Sampled = tuple[str, int, int]
"""A text, how many tokens it has, and the number of the exercise that it was written for."""


class Curriculum(Protocol):
    """What is practised: `prompts` exercises a step, `group` plans for each, of at most `longest` tokens."""

    @property
    def steps(self) -> int: ...
    @property
    def prompts(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def seed(self) -> int: ...

    def exercise(self, number: int) -> Exercise:
        """The exercise of a number, the same whenever it is asked for."""

    def described(self) -> dict[str, Any]:
        """All of it as plain values, to tell one training from another."""


@dataclass(slots=True, kw_only=True)
class TrainingJob:
    """All that a training needs beside the model: the course, the runs, where it is kept, and how long it may take.

    `looks` are exercises that training never sees. `ending` runs what is asynchronous to its end. `cost_weight` is
    what the dearest right plan of a group pays.
    """

    practice: Curriculum
    rollouts: Rollouts
    directory: Path
    seconds: float
    say: Callable[[str], None]
    looks: Sequence[Exercise] = ()
    clock: Callable[[], float] = time.monotonic
    ending: Callable[[Coroutine[Any, Any, list[Outcome]]], list[Outcome]] = asyncio.run
    cost_weight: float = 0.0
    latest: dict[str, Any] = field(default_factory=dict)

    def rewards(
        self, completions: list[Any], completion_ids: list[list[int]], number: list[int], **_: object
    ) -> list[float | None]:
        """TRL's reward function: the worth of each sampled plan; None, which TRL leaves out, where a worker failed."""
        sampled = [
            (text if isinstance(text, str) else text[-1].get("content") or "", len(ids), at)
            for at, text, ids in zip(number, completions, completion_ids, strict=True)
        ]
        return distributed.run_on_first(sampled, self._worth)

    def _worth(self, sampled: list[Sampled]) -> list[float | None]:
        began = self.clock()
        asked = {at: self.practice.exercise(at) for _, _, at in sampled}
        written = [
            SampledPlan(exercise=asked[at], text=text, whole=length < self.practice.longest)
            for text, length, at in sampled
        ]
        outcomes = self.ending(self.rollouts.outcomes(written))
        found = compute_metrics(outcomes, self.practice.group)
        self.latest = {**found, **self.rollouts.bill(outcomes), "run_seconds": self.clock() - began}
        return self._paid(outcomes)

    def _paid(self, outcomes: Sequence[Outcome]) -> list[float | None]:
        """The rewards, group by group, less what the right answers took where that counts."""
        worth = [outcome.reward for outcome in outcomes]
        if not self.cost_weight:
            return worth
        costs = [outcome.cost for outcome in outcomes]
        group = self.practice.group
        ends = [slice(at, at + group) for at in range(0, len(outcomes), group)]
        return [paid for some in ends for paid in subtract_cost(worth[some], costs[some], self.cost_weight)]


def train(
    model: Any,  # noqa: ANN401 - a model of transformers
    reader: Any,  # noqa: ANN401 - its tokenizer
    school: TrainingJob,
    arguments: Mapping[str, Any],
    adapter: Any = None,  # noqa: ANN401 - the configuration of one, of peft
) -> bool:
    """Train until the course or the time is over; True when the course is. `arguments` are those of TRL beside ours.

    Raises `ConfigError` where the numbers broke, the disk takes no more, or the directory holds another training; and
    what the runs raise, such as `LimitReached`. The last good checkpoint is kept, and the next call goes on from it.
    """
    # Without a cache each token reads the whole text again.
    model.config.use_cache = model.generation_config.use_cache = True
    if distributed.is_first():
        write_course(school.directory, school.practice.described())
    checkpoint = last_checkpoint(school.directory)
    keeper = MetricsCallback(school, reader, step=step_of(checkpoint))
    with quiet():
        trainer = _Trainer(
            model=model, args=_settings(school, arguments), train_dataset=_dataset(school, reader),
            processing_class=reader, reward_funcs=school.rewards, callbacks=[keeper], peft_config=adapter,
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except ConductorError:
            if good := last_checkpoint(school.directory):
                school.say(f"the last good checkpoint is {good}")
            raise
        except (OSError, RuntimeError, EOFError, SafetensorError, UnpicklingError) as error:
            if told := _explained(error, school.directory, checkpoint, trainer.state.global_step):
                raise told from error
            raise
    if keeper.broken:
        raise _no_numbers("the weights", keeper.broken, school.directory)
    return bool(trainer.state.global_step >= school.practice.steps)


def _explained(error: Exception, directory: Path, checkpoint: Path | None, step: int) -> ConfigError | None:
    """What an error of torch's or of the system's means, None for a fault of ours."""
    if NO_NUMBERS in str(error):
        return _no_numbers("the scores of the tokens", step, directory)
    unread = isinstance(error, EOFError | UnpicklingError) or any(words in str(error) for words in UNREAD)
    if checkpoint is not None and unread:
        said = f"the checkpoint {checkpoint} is damaged and cannot be gone on from"
        return ConfigError(said, hint="remove it, then run the same command again: it goes on from the one before")
    if _lacks_room(error, directory):
        said = f"the disk of {directory} takes no more, so a checkpoint could not be kept"
        return ConfigError(said, hint="make room, then run the same command again")
    return None


def _no_numbers(what: str, step: int, directory: Path) -> ConfigError:
    good = last_checkpoint(directory)
    beginning = "there is no checkpoint yet; lower the rate" if step else "look at the model that it began with"
    when = f"any more after step {step}" if step else "from the first step on"
    hint = f"the last good checkpoint is {good}" if good else beginning
    return ConfigError(f"{what} are no numbers {when}: training stopped", hint=hint)


def _lacks_room(error: Exception, directory: Path) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
        return True
    return any(words in str(error) for words in UNWRITTEN) or free_bytes(directory) <= FULL


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, kept to this machine: by itself it tells the hub of each training, and writes a card for it."""

    def _send_telemetry(self) -> None:
        """Nothing is sent."""

    def create_model_card(self, *_: object, **__: object) -> None:
        """None is made."""


def _settings(school: TrainingJob, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    practice = school.practice
    common = {
        "output_dir": str(school.directory), "max_steps": practice.steps, "seed": practice.seed,
        "num_generations": practice.group, "max_completion_length": practice.longest, "temperature": 1.0, "beta": 0.0,
        "max_grad_norm": 1.0, "weight_decay": 0.0, "shuffle_dataset": False,
        "logging_steps": 1, "logging_nan_inf_filter": False, "report_to": [], "disable_tqdm": True,
        "save_strategy": "steps", "save_steps": KEEP, "save_total_limit": 2,
    }  # fmt: skip
    return GRPOConfig(**{**common, **arguments})


def _dataset(school: TrainingJob, reader: Any) -> Any:  # noqa: ANN401
    """One row for each exercise: what the conductor reads, and the exercise's number."""
    count = school.practice.steps * school.practice.prompts
    prompts: list[Any] = [school.rollouts.prompt(school.practice.exercise(number)) for number in range(count)]
    if not reader.chat_template:
        prompts = list(map(plain, prompts))
    return Dataset.from_dict({"prompt": prompts, "number": list(range(count))})
