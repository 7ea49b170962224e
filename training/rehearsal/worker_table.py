"""What the finished workers reach on held-out questions, through the very adapter that runs use, beside the bounds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from conductor_cli.core.profile import SeenStep
from conductor_cli.rehearsal.players import ANYTHING, CHECKER, CHECKING, NAMES, REFUSAL
from training.rehearsal.asking import Bank, Reply
from training.rehearsal.exercises import GENERALIST
from training.rehearsal.lessons import EVERY, near_miss, prompt_of
from training.rehearsal.operations import OPERATIONS
from training.rehearsal.world import Hop, Problem, draw_problems

MEGABYTES: Final = 24.0  # the most that all files may take

Split = Literal["train", "test"]


class Row(NamedTuple):
    """One figure and its bounds."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def passes(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def __str__(self) -> str:
        ends = (("at least", self.least), ("at most", self.most))
        bound = ", ".join(f"{word} {end:g}" for word, end in ends if end is not None)
        result = "" if not bound else "pass" if self.passes else "MISSED"
        return f"{self.what:<46} {self.value:6.3f}  {bound:<26} {result:<6} {self.note}".rstrip()


class Step(NamedTuple):
    """A step of a held-out question, as its worker reads it with the right answers before it."""

    hop: Hop
    prompt: str
    seen: tuple[SeenStep, ...]


@dataclass(slots=True)
class Tally:
    """How a worker did at one kind of steps."""

    right: int = 0
    refused: int = 0
    asked: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, hop: Hop, answer: str) -> None:
        self.asked += 1
        self.right += answer == hop.answer
        self.refused += answer == REFUSAL
        if answer != hop.answer:
            self.wrong[hop.op] += 1

    def share(self, count: int) -> float:
        return count / max(self.asked, 1)


def rows(directory: Path, *, count: int, seed: int) -> tuple[Row, ...]:
    """The whole table, from the files in `directory`, with `count` questions for each row. Needs no torch."""
    return asyncio.run(_rows(directory, count, seed))


async def _rows(directory: Path, count: int, seed: int) -> tuple[Row, ...]:
    async with Bank(directory) as bank:
        return (
            *await _skills(bank, count, seed), await _foreign(bank, count, seed), *await _generalist(bank, count, seed),
            *await _checker(bank, count, seed),
            Row("all files, MB", sum(file.stat().st_size for file in files_of(directory)) / 1e6, most=MEGABYTES),
        )  # fmt: skip


def files_of(directory: Path) -> list[Path]:
    """The files of the workers."""
    return [directory / f"{name}.gguf" for name in NAMES]


def steps_of(problems: Iterable[Problem]) -> list[Step]:
    """The steps of problems with the right answers before them. A question of one step is its own subtask."""
    each = ((hop, problem.seen_by(hop)) for problem in problems for hop in problem.hops if hop.skill != CHECKING)
    return [Step(hop, prompt_of(hop.subtask, seen), seen) for hop, seen in each]


def strengths(directory: Path, *, count: int, seed: int) -> dict[str, dict[str, float]]:
    """What stands on the workers' cards: the share that each does rightly of the steps of training questions."""
    return asyncio.run(_strengths(directory, count, seed))


async def _strengths(directory: Path, count: int, seed: int) -> dict[str, dict[str, float]]:
    async with Bank(directory) as bank:
        own = [row.value for row in await _skills(bank, count, seed, "train")]
        verdicts = [row.value for row in await _checker(bank, count, seed, "train")]
        anything = (await _generalist(bank, count, seed, "train"))[0].value
    return {
        **{skill: {skill: round(share, 3)} for skill, share in zip(EVERY, own, strict=True)},
        CHECKER: {CHECKING: round(sum(verdicts) / len(verdicts), 3)},
        GENERALIST: {ANYTHING: round(anything, 3)},
    }


async def _skills(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    found = []
    for skill in EVERY:
        tally = Tally()
        problems = draw_problems(count, seed, split=split, skills=EVERY, needs=skill, checked=0.0)
        for step in [step for step in steps_of(problems) if step.hop.skill == skill][:count]:
            tally.add(step.hop, (await bank.ask(skill, step.prompt)).text)
        wrong = ", ".join(f"{op} {number}" for op, number in tally.wrong.most_common(4))
        note = f"refused {tally.share(tally.refused):.3f}; wrong: {wrong}"
        found.append(Row(f"{skill} at its own steps", tally.share(tally.right), least=0.95, note=note))
    return found


async def _foreign(bank: Bank, count: int, seed: int) -> Row:
    """How often a specialist refuses a step of another skill."""
    random, tally = Random(seed), Tally()
    for step in steps_of(draw_problems(count, seed, split="test", skills=EVERY, checked=0.0))[:count]:
        name = random.choice([skill for skill in EVERY if skill != step.hop.skill])
        tally.add(step.hop, (await bank.ask(name, step.prompt)).text)
    return Row("specialists refuse other skills", tally.share(tally.refused), least=0.95)


async def _generalist(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    problems = draw_problems(count, seed, split=split, skills=EVERY, checked=0.0)
    tallies: dict[str, Tally] = {}
    whole = Tally()
    for problem in problems:
        answer = await bank.ask(GENERALIST, prompt_of(problem.question, ()))
        whole.add(problem.hops[-1], answer.text)
        for step in steps_of([problem]):
            answer = await bank.ask(GENERALIST, step.prompt)
            tallies.setdefault(step.hop.skill, Tally()).add(step.hop, answer.text)
    every = [tally.share(tally.right) for tally in tallies.values()]
    note = ", ".join(f"{skill} {tally.share(tally.right):.2f}" for skill, tally in sorted(tallies.items()))
    return [
        Row("generalist at all steps, mean of skills", sum(every) / len(every), least=0.20, most=0.75, note=note),
        Row("generalist alone on whole questions", whole.share(whole.right), most=0.60),
    ]


async def _checker(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    """The checker's verdicts on right answers and on near misses."""
    random = Random(seed)
    steps = steps_of(draw_problems(count, seed, split=split, skills=EVERY, checked=0.0))[:count]
    yes = no = 0
    for step in steps:
        wrong = near_miss(random, OPERATIONS[step.hop.op], step.hop.answer)
        yes += (await _verdict(bank, step, step.hop.answer)).text == "YES"
        no += (await _verdict(bank, step, wrong)).text == "NO"
    return [
        Row("checker says YES to right answers", yes / len(steps), least=0.90),
        Row("checker says NO to near misses", no / len(steps), least=0.80),
    ]


async def _verdict(bank: Bank, step: Step, answer: str) -> Reply:
    claim = SeenStep(number=len(step.seen) + 1, worker="", subtask=step.hop.subtask, answer=answer)
    return await bank.ask(CHECKER, prompt_of("check it", (*step.seen, claim)))
