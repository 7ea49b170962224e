"""What a router learns in this world: `python -m training.rewards.routing --encoder smollm2.gguf`.

A pool is drawn for each seed, and stays: a router knows its workers by name. A third of them have cards that overstate
them. The head of `conductor tune` is fitted to how all of them did at 200 questions, or at 200 steps, which the small
model has read; it knows no card. The rule that it is compared with knows the subject of each question and takes the
best by card, one of the best where several claim it; the true strengths give the most that can be had.

`questions`: of one fact, given whole to one worker, as a router does it; those that some worker understands.
`steps`: questions of all shapes along their true steps, each to the worker that the head chooses by the step's text.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, stdev
from typing import Any, Final

import numpy as np

from conductor_cli.app.tuning import fit_head
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.llama.engine import Encoder
from training.rewards import world
from training.rewards.world import SUBJECTS, Task, by_card, truth
from training.stages import print_line

TAUGHT: Final = 200
ASKED: Final = 300
LUCK: Final = 1_000_000  # So many draws of luck apart are those of two seeds

Read = Callable[[str], Any]
"""Returns the hidden state of a text."""


def draw_tasks(random: Random, *, steps: bool) -> list[Task]:
    """Different questions. A pool needs a subject that nobody asks for, which for steps is the held-out one."""
    found = dict[str, Task]()
    while len(found) < TAUGHT + ASKED:
        task = world.draw_task(random, "train", held_out=False if steps else None)
        if steps or world.understand(task.case.question) is not None:
            found.setdefault(task.case.question, task)
    return list(found.values())


def rights(random: Random, seed: int, read: Read, *, steps: bool) -> list[tuple[bool, bool, bool]]:
    """For each of some new questions, whether it is answered: by the head, by the cards, by the true strengths."""
    tasks = draw_tasks(random, steps=steps)
    subjects = dict.fromkeys(step.skill for task in tasks for step in task.case.steps)
    pool, luck = world.draw_pool(random, tuple(subjects)), seed * LUCK
    taught = [example for task in tasks[:TAUGHT] for example in along(task, steps=steps)]
    taught = random.sample(taught, TAUGHT)
    states = np.array([read(text) for text, _, _ in taught])
    scores = np.array([
        [float(world.answer(worker, text, seen, luck + number) == right) for worker in pool]
        for number, (text, seen, right) in enumerate(taught)
    ])  # fmt: skip
    head = fit_head(states, scores, seed)

    def plan(task: Task, choose: Callable[[str, str], str]) -> Plan:
        parts = [(step.subtask, step.skill, step.access) for step in task.case.steps]
        parts = parts if steps else [(task.case.question, parts[0][1], ())]
        return Plan(steps=tuple(Step(worker=choose(text, skill), subtask=text, access=it) for text, skill, it in parts))

    def by_head(text: str, _: str) -> str:
        return pool.names[int((head[:, 1:] @ read(text) + head[:, 0]).argmax())]

    def by(strength: Callable[[Worker, str], float]) -> Callable[[str, str], str]:
        return lambda _, skill: random.choice(world.best_workers(pool, skill, strength))

    ways = (by_head, by(by_card), by(truth))
    return [
        tuple(world.run(plan(task, way), pool, luck + number) == task.case.answer for way in ways)  # type: ignore[misc]
        for number, task in enumerate(tasks[TAUGHT:], start=TAUGHT)
    ]


def along(task: Task, *, steps: bool) -> list[tuple[str, list[str], str]]:
    """What a worker is measured on: the question; or each true step, with the true answers that it sees."""
    if not steps:
        return [(task.case.question, [], task.case.answer)]
    known = Worker(name="all", kind="scripted", card=Card(strengths=dict.fromkeys(SUBJECTS, 1.0)))
    found, answers = list[tuple[str, list[str], str]](), dict[int, str]()
    for number, step in enumerate(task.case.steps, start=1):
        seen = [answers[at] for at in step.access]
        answers[number] = world.answer(known, step.subtask, seen, 0)
        found.append((step.subtask, seen, answers[number]))
    return found


def report(name: str, seeds: Sequence[list[tuple[bool, bool, bool]]]) -> str:
    """One line: the means, and the difference to the cards with its 95 % interval over the pools."""
    head, card, most = (fmean(fmean(row[way] for row in rows) for rows in seeds) for way in range(3))
    gains = [fmean(row[0] - row[1] for row in rows) for rows in seeds]
    error = NormalDist().inv_cdf(0.975) * stdev(gains) / len(gains) ** 0.5
    return (
        f"{name}: head {head:.3f}, best by card {card:.3f}, true strengths {most:.3f}; head - card "
        f"{fmean(gains):+.3f} ({fmean(gains) - error:+.3f} to {fmean(gains) + error:+.3f}; {len(seeds)} pools: "
        f"{', '.join(f'{gain:+.2f}' for gain in gains)})"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m training.rewards.routing")
    parser.add_argument("--encoder", type=Path, required=True, help="a GGUF file that reads the texts")
    parser.add_argument("--seeds", type=int, default=8)
    given, states = parser.parse_args(), dict[str, Any]()
    with closing(Encoder(given.encoder)) as model:

        def read(text: str) -> Any:
            if text not in states:
                states[text] = model.encode(text)
            return states[text]

        for name, steps in (("questions", False), ("steps", True)):
            began, found = time.monotonic(), list[list[tuple[bool, bool, bool]]]()
            for seed in range(1, given.seeds + 1):
                found.append(rights(Random(seed), seed, read, steps=steps))
                print_line(f"{name} {seed}: {time.monotonic() - began:.0f} s, {len(states):,} texts read")
            print_line(report(name, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
