"""The arms: ways to go on from one supervised start, for equal processor time of one thread.

Imports torch.

    start        questions with their true steps; a worker is one of those that are best by the card
    supervised   the same, on
    best-of-8    two rounds of self-training: 8 plans for a question, and lessons of the best that
                 was right
    grpo         rewards of groups of 8 plans: the share of four draws of luck in which a plan
                 answers the question

Every draw depends on the seed and the number of its step, and the state holds everything else, so a
training that was stopped goes on as if it had not been. The weights that count are those that did
best on the validation questions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from conductor_cli.system.disk import temporary_path, write_atomically
from conductor_cli.train.job import mean
from conductor_cli.train.recipe import require
from training.rewards.planner import Planner, SmallPlanner, plan_logits, sample
from training.rewards.world import (
    HELD_OUT,
    MARK,
    Task,
    by_card,
    draw_task,
    routed,
    share_right,
    understand,
)
from training.stages import DONE, UNFINISHED, print_line

with require("torch"):
    import torch
    from torch.nn.functional import cross_entropy

ARMS: Final = ("start", "supervised", "best-of-8", "grpo")
GROUP: Final = 8
LUCK: Final = 4  # draws of luck for a reward, and for an answer that is measured
ROUNDS: Final = 2
# Batches of questions that a step of GRPO draws until it has enough groups with a signal
MAX_TRIES: Final = 3
# Of a validation, of the test; those with the held-out subject are as many as the first
QUESTIONS: Final = (200, 600)
KEEP_SECONDS: Final = 60.0  # seconds between two writings of the state


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How long and how fast an arm is trained.

    `seconds` are of the processor; the rate falls to a tenth.

    `questions` are those of a step, `warmup` the steps in which the rate rises, `entropy` the
    weight of the bonus for uncertain tokens, `share` how many of the tokens of a step are: the
    least certain ones, of which alone the weights learn.
    """

    seconds: float
    rate: float
    questions: int
    warmup: int
    entropy: float = 0.0
    share: float = 1.0


@dataclass(slots=True)
class Training:
    """An arm as it is: what its state on disk has."""

    arm: str
    seed: int
    model: Any
    planner: Planner
    optimizer: Any
    step: int = 0
    used: float = 0.0
    validated: int = 0
    best: float = -1.0
    best_weights: Any = None
    lessons: list[tuple[list[int], list[int]]] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)

    def random(self) -> Random:
        """The chance of this step."""
        return Random(f"{self.arm} {self.seed} {self.step}")


T = TypeVar("T")
Move = Callable[[Training, Course], dict[str, float]]


def learn(training: Training, lessons: Sequence[tuple[list[int], list[int]]]) -> float:
    """One step on lessons, prompts with their plans; the mean loss of a token of a plan."""
    count = sum(len(plan) for _, plan in lessons)
    total = 0.0
    for part in parts(training, lessons, lambda lesson: len(lesson[1])):
        logits, tokens, mask = plan_logits(
            training.model, [prompt for prompt, _ in part], [[plan] for _, plan in part]
        )
        loss = cross_entropy(logits[mask].float(), tokens[mask], reduction="sum") / count
        loss.backward()
        total += float(loss.detach())
    descend(training)
    return total


def parts(
    training: Training, items: Sequence[T], length: Callable[[T], int]
) -> Iterator[Sequence[T]]:
    """Items by as many as one backward pass has, equally long ones together.

    Padding takes as long as tokens.
    """
    size = training.planner.at_once
    ordered = sorted(items, key=length)
    return (ordered[at : at + size] for at in range(0, len(items), size))


def descend(training: Training) -> None:
    """One step of the optimizer by the gradients that were added up."""
    torch.nn.utils.clip_grad_norm_(trained(training.model).values(), 1.0)
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)


def trained(model: Any) -> dict[str, Any]:
    """The weights of a model that are trained: all of it, or its adapter."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def supervised(training: Training, course: Course) -> dict[str, float]:
    """True steps, and any of the workers that are best by the card.

    The start alone has the held-out subject.
    """
    random = training.random()
    held_out: bool | None = False
    if training.arm == "start":
        held_out = None
    tasks = [draw_task(random, "train", held_out=held_out) for _ in range(course.questions)]
    planner = training.planner
    lessons = [
        (planner.prompt(task), planner.written(routed(task, random, by_card), task))
        for task in tasks
    ]
    return {"loss": learn(training, lessons)}


def sampled(training: Training, count: int) -> list[tuple[Task, list[list[int]], list[float]]]:
    """Questions with the plans that the planner writes for each, and their rewards."""
    random = training.random()
    tasks = [draw_task(random, "train") for _ in range(count)]
    prompts = [training.planner.prompt(task) for task in tasks]
    generator = torch.Generator().manual_seed(random.getrandbits(62))
    plans = sample(training.model, training.planner, prompts, GROUP, generator)
    luck = [random.getrandbits(40) for _ in range(LUCK)]
    samples = []
    for number, task in enumerate(tasks):
        own = plans[GROUP * number : GROUP * (number + 1)]
        earned = {plan: reward(training.planner, task, plan, luck) for plan in set(map(tuple, own))}
        samples.append((task, own, [earned[tuple(plan)] for plan in own]))
    return samples


def reward(planner: Planner, task: Task, tokens: Sequence[int], luck: Sequence[int]) -> float:
    """The share of the draws of luck in which a plan answers the question.

    0 for what is no plan.
    """
    plan = planner.read(tokens, task)
    if plan is None:
        return 0.0
    return share_right(plan, task, luck)


def best_of_8(training: Training, course: Course) -> dict[str, float]:
    """Half the time of a round draws plans and keeps the best that was right.

    The other half learns from all kept.
    """
    if ROUNDS * training.used / course.seconds % 1 < 0.5 or not training.lessons:
        groups = sampled(training, 2 * course.questions)
        for task, plans, rewards in groups:
            if max(rewards) > 0:
                best = plans[rewards.index(max(rewards))]
                training.lessons.append((training.planner.prompt(task), best))
        return {
            "reward": mean(list(chain.from_iterable(rewards for _, _, rewards in groups))),
            "kept": len(training.lessons),
        }
    lessons = training.random().sample(
        training.lessons, min(course.questions, len(training.lessons))
    )
    return {"loss": learn(training, lessons)}


def _for_each_token(values: Sequence[Mapping[tuple[int, ...], float]], mask: Any) -> Any:
    """The values of plans, one for each token of each plan."""
    column = torch.tensor(list(chain.from_iterable(table.values() for table in values)))
    return column[:, None].expand_as(mask)[mask]


def grpo(training: Training, course: Course) -> dict[str, float]:
    """One step from rewards.

    Groups in which all plans earn the same teach nothing, and other questions are drawn.
    """
    kept = list[tuple[Task, list[list[int]], list[float]]]()
    tried = list[list[float]]()
    for _ in range(MAX_TRIES):
        groups = sampled(training, course.questions - len(kept))
        tried += [rewards for _, _, rewards in groups]
        kept += [group for group in groups if max(group[2]) > min(group[2])]
        training.step += 1
        if len(kept) == course.questions:
            break
    training.step -= 1  # `train` counts the last one
    metrics = {
        "reward": mean(list(chain.from_iterable(tried))),
        "signal": len(kept) / len(tried),
        "tried": float(len(tried)),
    }
    if not kept:
        return metrics
    count = sum(map(len, chain.from_iterable(plans for _, plans, _ in kept)))
    spreads = list[float]()
    entropies = list[float]()
    for part in parts(training, kept, lambda group: max(map(len, group[1]))):
        prompts = [training.planner.prompt(task) for task, _, _ in part]
        plans = [own for _, own, _ in part]
        rewards = torch.tensor([rewards for _, _, rewards in part])
        better = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        # Equal plans of a group earned the same and have the same gradient: they are read once and
        # count as often.
        counts = [Counter(tuple(plan) for plan in own) for own in plans]
        logits, tokens, mask = plan_logits(
            training.model, prompts, [list(sequence) for sequence in counts]
        )
        earned = [
            {tuple(plan): gain for plan, gain in zip(own, row, strict=True)}
            for own, row in zip(plans, better.tolist(), strict=True)
        ]
        times = _for_each_token(counts, mask)
        worth = _for_each_token(earned, mask)
        logs = logits[mask].float().log_softmax(-1)
        entropy = -(logs.exp() * logs).sum(-1)
        chosen = logs.gather(-1, tokens[mask][:, None])[:, 0]
        every_entropy = entropy.detach().repeat_interleave(times)
        uncertain = entropy.detach() >= every_entropy.quantile(1 - course.share)
        gain = worth * torch.exp(chosen - chosen.detach()) + course.entropy * entropy
        # DAPO: by the tokens of the whole step
        (-(gain * times * uncertain).sum() / count).backward()
        spreads += rewards.std(1).tolist()
        entropies += every_entropy.tolist()
    descend(training)
    return {**metrics, "spread": mean(spreads), "entropy": mean(entropies)}


# Measuring


def examine(model: Any, planner: Planner, tasks: Sequence[Task], seed: int) -> list[dict[str, Any]]:
    """What comes of the likeliest plan for each question, with the same luck for every planner."""
    prompts = [planner.prompt(task) for task in tasks]
    plans = dict[int, list[int]]()
    ordered = sorted(range(len(tasks)), key=lambda number: len(prompts[number]))  # little padding
    for at in range(0, len(tasks), 50):
        part = ordered[at : at + 50]
        plans |= zip(
            part, sample(model, planner, [prompts[number] for number in part], 1), strict=True
        )
    rows = []
    for number, task in enumerate(tasks):
        tokens = plans[number]
        plan = planner.read(tokens, task)
        luck = [1000 * seed + LUCK * number + draw for draw in range(LUCK)]
        steps = [(understand(step.subtask), step.access) for step in plan.steps] if plan else []
        wanted = [(understand(step.subtask), step.access) for step in task.case.steps]
        marks = [task.pool[step.worker].about == MARK for step in plan.steps] if plan else []
        rows.append(
            {
                "shape": task.shape,
                "right": share_right(plan, task, luck) if plan else 0.0,
                "valid": plan is not None,
                "right_steps": steps == wanted,
                "marked": sum(marks),
                "steps": len(marks),
                "text": planner.text(tokens),
            }
        )
    return rows


def questions(split: Any, count: int, *, held_out: bool = False) -> list[Task]:
    """The questions that an arm is measured on: the same ones for every arm and every seed."""
    random = Random(f"{split} {held_out}")
    return [draw_task(random, split, held_out=held_out) for _ in range(count)]


def validate(training: Training, count: int) -> None:
    """Measure by `count` questions, and keep the weights if they are the best so far."""
    rows = examine(training.model, training.planner, questions("validation", count), 0)
    right = mean([row["right"] for row in rows])
    shapes = {
        shape: [row["right"] for row in rows if row["shape"] == shape]
        for shape in {e["shape"] for e in rows}
    }
    by_shape = {shape: round(mean(own), 3) for shape, own in sorted(shapes.items())}
    marked = sum(row["marked"] for row in rows) / max(1, sum(row["steps"] for row in rows))
    steps = mean([row["right_steps"] for row in rows])
    training.log.append(
        {
            "validation": right,
            "shapes": by_shape,
            "marked": marked,
            "right_steps": steps,
            "step": training.step,
            "used": round(training.used, 1),
        }
    )
    print_line(
        f"validation {right:.3f} {by_shape}, right steps {steps:.3f}, marked workers {marked:.3f}"
    )
    if right > training.best:
        training.best = right
        training.best_weights = {
            name: row.detach().clone() for name, row in trained(training.model).items()
        }


# Training


MOVES: Final[dict[str, Move]] = {
    "start": supervised,
    "supervised": supervised,
    "best-of-8": best_of_8,
    "grpo": grpo,
}


def courses(planner: Planner, start: float, arm: float) -> dict[str, Course]:
    """The course of each arm, for so many seconds."""
    rates = planner.rates
    warmup = planner.warmup
    return {
        "start": Course(seconds=start, rate=rates["start"], questions=16, warmup=warmup),
        "supervised": Course(seconds=arm, rate=rates["supervised"], questions=16, warmup=warmup),
        "best-of-8": Course(seconds=arm, rate=rates["best-of-8"], questions=16, warmup=warmup),
        "grpo": Course(
            seconds=arm,
            rate=rates["grpo"],
            questions=planner.groups,
            warmup=warmup,
            entropy=0.01,
            share=0.2,
        ),
    }


def train(
    training: Training, course: Course, state: Path, *, minutes: float, validation: int
) -> bool:
    """Train until the time of the arm is used up, and take its best weights.

    False if the minutes are over before.
    """
    began = time.monotonic()
    kept = began
    while training.used < course.seconds:
        at = time.process_time()
        if training.used >= training.validated * course.seconds / training.planner.validations:
            training.validated += 1
            validate(training, validation)
        rise = min(1.0, (training.step + 1) / course.warmup)
        fall = max(0.1, 1 - training.used / course.seconds)
        for group in training.optimizer.param_groups:
            group["lr"] = course.rate * fall * rise
        figures = MOVES[training.arm](training, course)
        training.step += 1
        training.used += time.process_time() - at
        training.log.append({"step": training.step, "used": round(training.used, 1), **figures})
        if training.step % 50 == 0:
            shown = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print_line(f"step {training.step}, {training.used:.0f} s: {shown}")
        ended = time.monotonic() - began > 60 * minutes
        if ended or time.monotonic() - kept > KEEP_SECONDS:
            store(training, state)
            kept = time.monotonic()
        if ended and training.used < course.seconds:
            return False
    validate(training, validation)
    training.model.load_state_dict(training.best_weights, strict=False)
    return True


def opened(
    arm: str, seed: int, course: Course, planner: Planner, out: Path, start: int = 0
) -> Training:
    """The arm as its state has it, or at its beginning.

    New weights for the start, else those of the start.
    """
    model = planner.open(seed)
    if arm != "start":
        model.load_state_dict(
            torch.load(out / f"start-{start}.pt", weights_only=True), strict=False
        )
    optimizer = torch.optim.AdamW(
        trained(model).values(), lr=course.rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    training = Training(arm, seed, model, planner, optimizer)
    if (path := out / f"{arm}-{seed}.state").exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state.pop("model"), strict=False)
        optimizer.load_state_dict(state.pop("optimizer"))
        for name, value in state.items():
            setattr(training, name, value)
    return training


STORED: Final = ("step", "used", "validated", "best", "best_weights", "lessons", "log")


def store(training: Training, path: Path) -> None:
    """Write the state, whole or not at all."""
    state = {name: getattr(training, name) for name in STORED}
    with temporary_path(path) as new:
        torch.save(
            {
                **state,
                "model": trained(training.model),
                "optimizer": training.optimizer.state_dict(),
            },
            new,
        )
        new.replace(path)


def open_planner(out: Path, *, pretrained: bool) -> Planner:
    """The planner that is trained: a pretrained one, or one from nothing."""
    if not pretrained:
        return SmallPlanner()
    from training.rewards.smollm2 import SmolLM2

    return SmolLM2(out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.rewards.arms", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start",
        type=int,
        default=0,
        help="the seed of the start whose weights an arm begins with",
    )
    parser.add_argument("--out", type=Path, required=True, help="the directory of all files")
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(100.0, 100.0), metavar=("START", "ARM")
    )
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument(
        "--questions", type=int, nargs=2, default=QUESTIONS, metavar=("VALIDATION", "TEST")
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="train SmolLM2-135M in place of a model from nothing",
    )
    return parser.parse_args()


def main() -> int:
    """Train one arm of one seed for some minutes; measure it once it is done."""
    given = _arguments()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    planner = open_planner(given.out, pretrained=given.pretrained)
    began = time.monotonic()
    course = courses(planner, *given.seconds)[given.arm]
    name = f"{given.arm}-{given.seed}"
    done = opened(given.arm, given.seed, course, planner, given.out, given.start)
    state = given.out / f"{name}.state"
    validation = given.questions[0]
    if not train(done, course, state, minutes=given.minutes, validation=validation):
        return UNFINISHED
    torch.save(trained(done.model), given.out / f"{name}.pt")
    planner.save(done.model, given.out / name)
    tasks = {
        "test": questions("test", given.questions[1]),
        HELD_OUT: questions("test", given.questions[0], held_out=True),
    }
    rows_by_task = {
        task_name: examine(done.model, planner, own, 1) for task_name, own in tasks.items()
    }
    figures = {
        "arm": given.arm,
        "seed": given.seed,
        "steps": done.step,
        "seconds": done.used,
        "log": done.log,
        **rows_by_task,
    }
    write_atomically(given.out / f"{name}.json", json.dumps(figures))
    print_line(
        f"{name}: {mean([row['right'] for row in rows_by_task['test']]):.3f} right, "
        f"{time.monotonic() - began:.0f} s"
    )
    return DONE


if __name__ == "__main__":
    sys.exit(main())
