"""The training of a planner by rewards, and the arms that it is compared with.

    python -m training.planner.world.rewarded --base DIR --model FILE.gguf --adapter START.gguf
        --world DIR --out DIR --arm grpo --seconds 36000

Each step draws a few questions over one pool. For each, llama.cpp samples eight plans with the
adapter as it is now, on the published file and under the product's grammar; they are run in the
world and rewarded.

    grpo        advantage: the reward minus the mean of the group; groups whose plans all earn the
                same are left out of numerator and denominator; of the tokens of the whole step, the
                least certain ones are learned
    shuffled    the same with the rewards dealt anew within each group: it must not gain
    best-of-8   the right plans of groups with a signal are lessons, with a rate of its own that
                falls over lessons
    supervised  the lessons of the start, on

Arms are compared at equal `--seconds` of the processor, those of the workers included. The ratio of
torch's probability of a learned token to llama.cpp's is logged, and cut at 3. Sampled are
plans of the weights as they are; exported is their moving average. `log.jsonl` has a line for each
step, `rewards.jsonl` one for each plan. The same command goes on from `state.pt`.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

import torch

from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.sampling import SampledReply
from conductor_cli.train.base_model import find_base_model
from training.planner.packing import Row, WeighedReplies, pack_replies, plan_states
from training.planner.supervised import (
    AVERAGE,
    DONE,
    KEEP_SECONDS,
    UNFINISHED,
    WARMUP,
    Head,
    Training,
    begin,
    draw_row,
    learn,
    trained,
)
from training.planner.world.cases import World, draw_cases, open_world
from training.planner.world.groups import (
    PLANS,
    Group,
    advantages,
    reward_lines,
    sample_group,
    shuffled,
)

ARMS: Final = ("grpo", "shuffled", "best-of-8", "supervised")
MAX_RATIO: Final = 3.0
PART_TOKENS: Final = 64  # Tokens whose logits over the whole vocabulary are in memory at once
RATES: Final = {"grpo": 1e-4, "shuffled": 1e-4, "best-of-8": 1e-4, "supervised": 2e-4}
LOWEST_RATE: Final = 0.1  # The share of the rate that stays at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sampled plans of a step as a row, with what llama.cpp had for each of their tokens.

    `corrected` says that the ratio of the probabilities weighs each token; a lesson has no such.
    """

    row: Row
    logprobs: Any
    entropies: Any
    corrected: bool


def batch_of(groups: Sequence[Group], arm: str, seed: str) -> Batch | None:
    """What an arm learns from the groups of a step; None where none of them has a signal."""
    rows = list[WeighedReplies]()
    logprobs = list[float]()
    entropies = list[float]()
    for number, group in enumerate(groups):
        if not group.has_signal:
            continue
        replies, weights = _lessons_of(group, arm, f"{seed} {number}")
        tokens = [reply.tokens for reply in replies]
        rows.append(WeighedReplies(prompt=group.prompt, replies=tokens, weights=weights))
        for reply in replies:
            logprobs += reply.logprobs
            entropies += reply.entropies
    if not rows:
        return None
    return Batch(
        row=pack_replies(rows),
        logprobs=torch.tensor(logprobs),
        entropies=torch.tensor(entropies),
        corrected=arm != "best-of-8",
    )


def _lessons_of(group: Group, arm: str, seed: str) -> tuple[list[SampledReply], list[float]]:
    """The plans of a group that an arm learns, and what each counts."""
    replies = [attempt.reply for attempt in group.attempts]
    if arm == "best-of-8":
        rewarded = zip(replies, group.rewards, strict=True)
        right = [reply for reply, reward in rewarded if reward > 0]
        return right, [1.0] * len(right)
    if arm == "shuffled":
        return replies, advantages(shuffled(group.rewards, seed))
    return replies, advantages(group.rewards)


@dataclass(slots=True)
class Ratios:
    """The ratios of torch's probability to llama.cpp's over the learned tokens of a step."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, ratios: Any) -> None:
        self.count += len(ratios)
        self.total += float(ratios.sum())
        self.largest = max(self.largest, float(ratios.max()))

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)


def learn_batch(
    model: Any,
    matrix: Any,
    optimizer: Any,
    batch: Batch,
    *,
    uncertain: float,
    temperature: float = 1.0,
) -> Ratios:
    """One step of the optimizer by the plans of a step, which were sampled at `temperature`.

    Of all their tokens, the share `uncertain` of those with the highest entropy is learned.
    `matrix` is that of the output, whole, because llama.cpp's probabilities are over the whole
    vocabulary.
    """
    lowest = batch.entropies.quantile(1 - uncertain)
    learned = (batch.entropies >= lowest).nonzero()[:, 0]
    ratios = _add_gradient(model, matrix, batch, learned, temperature)
    torch.nn.utils.clip_grad_norm_(trained(model).values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return ratios


def _add_gradient(
    model: Any, matrix: Any, batch: Batch, learned: Any, temperature: float
) -> Ratios:
    """Add the gradient of the mean over the learned tokens, which are named by their numbers.

    Their logits over the whole vocabulary would take a gigabyte, so the gradient of the hidden
    states is summed up part by part, and goes back through the model once.
    """
    row = batch.row
    states = plan_states(model, row)[learned]
    leaf = states.detach().requires_grad_()
    ratios = Ratios()
    for start in range(0, len(learned), PART_TOKENS):
        part = learned[start : start + PART_TOKENS]
        logits = leaf[start : start + PART_TOKENS] @ matrix.T / temperature
        chosen = logits.float().log_softmax(-1).gather(1, row.targets[part, None])[:, 0]
        ratio = torch.exp(chosen.detach() - batch.logprobs[part])
        ratios.add(ratio)
        weights = row.weights[part] / len(learned)
        if batch.corrected:
            weights = weights * ratio.clamp(max=MAX_RATIO)
        (-(weights * chosen).sum()).backward()
    states.backward(leaf.grad)
    return ratios


def processor_seconds() -> float:
    """The seconds of the processor that this process used, those of the workers included."""
    return time.process_time() + worker_seconds()


def worker_seconds() -> float:
    """The seconds of the processor of the programs that this process ran, and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


@dataclass(slots=True)
class Arm:
    """A training by rewards, or its control, as its options have it."""

    name: str
    training: Training
    tokenizer: Any
    model: Any
    matrix: Any
    head: Head | None
    world: World
    given: argparse.Namespace

    def rate(self) -> float:
        """The learning rate of this step: it rises at first, and falls to a tenth."""
        progress = self.training.used / self.given.seconds
        if self.name == "best-of-8":
            progress = self.training.lessons / self.given.lessons
        rise = min(1.0, (self.training.step + 1) / self.given.warmup)
        highest = self.given.rate or RATES[self.name]
        return float(highest * rise * max(LOWEST_RATE, 1 - progress))

    def take_step(self) -> dict[str, Any]:
        """One step; its figures for the log."""
        rate = self.rate()
        for parameters in self.training.optimizer.param_groups:
            parameters["lr"] = rate
        if self.head is not None:
            row = draw_row(
                self.tokenizer,
                self.world,
                self.given.seed,
                self.training.step,
                world_every=self.given.world_every,
                word=self.given.word,
            )
            loss = learn(self.model, self.head, self.training.optimizer, row)
            return {"rate": rate, "loss": round(loss, 4)}
        groups, figures = self._sample()
        began = time.monotonic()
        figures |= self._learn(groups)
        return {"rate": rate, **figures, "learning": round(time.monotonic() - began, 1)}

    def _sample(self) -> tuple[list[Group], dict[str, Any]]:
        """The groups of this step, and how they came about; `opening` and `sampling` in seconds."""
        step = self.training.step
        began = time.monotonic()
        adapter = self.training.write_weights(self.given.out / "now")
        options = LlamaOptions(adapter=adapter, threads=self.given.threads)
        groups = list[Group]()
        with closing(LlamaEngine(self.given.model, options, CancelToken())) as engine:
            opened = time.monotonic()
            seed = f"rewarded {self.given.seed} {step}"
            for number, case in enumerate(draw_cases(self.world, seed, self.given.questions)):
                group = sample_group(
                    engine,
                    self.world,
                    case,
                    f"{seed} {number}",
                    count=self.given.plans,
                    temperature=self.given.temperature,
                )
                groups.append(group)
        with (self.given.out / "rewards.jsonl").open("a") as log:
            for number, group in enumerate(groups):
                for line in reward_lines(group, step, number):
                    log.write(json.dumps(line, ensure_ascii=False) + "\n")
        attempts = list(chain.from_iterable(group.attempts for group in groups))
        return groups, {
            "reward": _mean([attempt.outcome.reward for attempt in attempts]),
            "signal": _mean([float(group.has_signal) for group in groups]),
            "valid": _mean([float(bool(attempt.steps)) for attempt in attempts]),
            "plans": len(attempts),
            "sampled": sum(len(attempt.reply.tokens) for attempt in attempts),
            "computed": sum(group.computed_tokens for group in groups),
            "opening": round(opened - began, 1),
            "sampling": round(time.monotonic() - opened, 1),
        }

    def _learn(self, groups: Sequence[Group]) -> dict[str, Any]:
        """Learn from groups. The ratios are missing from the figures where none has a signal."""
        seed = f"shuffled {self.given.seed} {self.training.step}"
        batch = batch_of(groups, self.name, seed)
        if batch is None:
            return {"tokens": 0}
        uncertain = self.given.uncertain
        temperature = self.given.temperature
        if self.name == "best-of-8":
            uncertain = 1.0
            temperature = 1.0  # a lesson is learned as the lessons of the start are
        ratios = learn_batch(
            self.model,
            self.matrix,
            self.training.optimizer,
            batch,
            uncertain=uncertain,
            temperature=temperature,
        )
        self.training.lessons += int(batch.row.lessons.max()) + 1
        return {
            "read": len(batch.row.tokens),
            "tokens": ratios.count,
            "ratio_mean": round(ratios.mean, 4),
            "ratio_largest": round(ratios.largest, 3),
        }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.rewarded")
    parser.add_argument("--model", type=Path, required=True, help="the published GGUF file")
    parser.add_argument(
        "--base", help="the same weights as a directory; without it --model is dequantised"
    )
    parser.add_argument(
        "--adapter", type=Path, required=True, help="the start: an exported adapter"
    )
    parser.add_argument("--world", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--out", type=Path, required=True, help="the directory of all that is made")
    parser.add_argument("--arm", choices=ARMS, default="grpo")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--questions", type=int, default=4, help="groups of a step")
    parser.add_argument(
        "--seconds", type=float, default=36_000.0, help="seconds of the processor, workers included"
    )
    parser.add_argument("--steps", type=int, default=10**6, help="the most steps")
    parser.add_argument("--rate", type=float, help="the highest rate; each arm has one of its own")
    parser.add_argument(
        "--lessons", type=int, default=2000, help="lessons over which the rate of best-of-8 falls"
    )
    parser.add_argument(
        "--uncertain", type=float, default=0.2, help="the share of a step's tokens that is learned"
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="of the plans, as sampled and as learned"
    )
    parser.add_argument("--plans", type=int, default=PLANS, help="plans of a group")
    parser.add_argument(
        "--warmup", type=int, default=WARMUP, help="steps over which the rate rises at first"
    )
    parser.add_argument(
        "--average",
        type=float,
        default=AVERAGE,
        help="how much of the mean of earlier steps' weights, which is exported, stays after one",
    )
    parser.add_argument(
        "--world-every", type=int, default=2, help="supervised: 1 learns lessons of the world alone"
    )
    parser.add_argument("--word", type=float, help="supervised: what a token of a subtask counts")
    parser.add_argument("--no-dates", action="store_true", help="no questions of the world on days")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=20, help="steps between two kept adapters")
    return parser.parse_args()


def open_arm(given: argparse.Namespace) -> Arm:
    """The arm as its state has it, or at the start. Raises `ConfigError`."""
    base = find_base_model(given.base or str(given.model))
    training = begin(base, given.rate or RATES[given.arm], given.seed, given.adapter)
    training.average = given.average
    state = given.out / "state.pt"
    if state.exists():
        training.resume(state)
    world = open_world(given.world, dates=not given.no_dates)
    inner = training.model.base_model.model
    matrix = inner.lm_head.weight.detach()
    inner.lm_head = torch.nn.Identity()  # the hidden states are what is wanted of the model
    head = None
    if given.arm == "supervised":
        head = Head(matrix, base.tokenizer, world)
    return Arm(
        name=given.arm,
        training=training,
        tokenizer=base.tokenizer,
        model=inner.model,
        matrix=matrix,
        head=head,
        world=world,
        given=given,
    )


def main() -> int:
    """Train an arm until its time of the processor or its steps are over, or it is told to stop."""
    given = _read_arguments()
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    arm = open_arm(given)
    training = arm.training
    stopped = list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.append(number))
    kept = time.monotonic()
    while not _is_done(training, given) and not stopped:
        line = _timed_step(arm)
        with (given.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        if training.step % given.every == 0:
            copyfile(training.export(given.out), given.out / f"adapter-{training.step}.gguf")
        if time.monotonic() - kept > KEEP_SECONDS:
            training.store(given.out / "state.pt")
            kept = time.monotonic()
    training.store(given.out / "state.pt")
    training.export(given.out)
    if _is_done(training, given):
        return DONE
    return UNFINISHED


def _is_done(training: Training, given: argparse.Namespace) -> bool:
    return bool(training.used >= given.seconds or training.step >= given.steps)


def _timed_step(arm: Arm) -> Mapping[str, Any]:
    """Take a step; its line of the log. `processor` has the seconds of the `workers` in it."""
    began = time.monotonic()
    used = processor_seconds()
    workers = worker_seconds()
    figures = arm.take_step()
    spent = processor_seconds() - used
    arm.training.used += spent
    arm.training.count()
    return {
        "step": arm.training.step,
        "arm": arm.name,
        **figures,
        "seconds": round(time.monotonic() - began, 1),
        "processor": round(spent, 1),
        "workers": round(worker_seconds() - workers, 2),
        "used": round(arm.training.used, 1),
        "lessons": arm.training.lessons,
    }


if __name__ == "__main__":
    sys.exit(main())
