"""What the finished workers reach on held-out questions, beside the bounds.

They are asked through the very adapter that runs use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from conductor_cli.core.profile import SeenStep
from conductor_cli.rehearsal.players import ANYTHING, CHECKER, CHECKING, NAMES, REFUSAL
from training.rehearsal.asking import Bank, Reply
from training.rehearsal.exercises import GENERALIST
from training.rehearsal.lessons import ALL_SKILLS, near_miss, prompt_of, seen_steps
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
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )

    def __str__(self) -> str:
        ends = (("at least", self.least), ("at most", self.most))
        bound = ", ".join(f"{word} {end:g}" for word, end in ends if end is not None)
        result = ""
        if bound:
            result = "MISSED"
            if self.passes:
                result = "pass"
        return f"{self.what:<46} {self.value:6.3f}  {bound:<26} {result:<6} {self.note}".rstrip()


def share(right: Sequence[bool]) -> float:
    """The share of right answers."""
    return sum(right) / max(len(right), 1)


class Step(NamedTuple):
    """A step of a held-out question, as its worker reads it with the right answers before it."""

    hop: Hop
    prompt: str
    seen: tuple[SeenStep, ...]


async def rows(directory: Path, *, count: int, seed: int) -> tuple[Row, ...]:
    """The whole table, from the files in `directory`, with `count` questions for each row.

    Needs no torch.
    """
    async with Bank(directory) as bank:
        return (
            *await _skills(bank, count, seed),
            await _foreign(bank, count, seed),
            *await _generalist(bank, count, seed),
            *await _checker(bank, count, seed),
            Row(
                "all files, MB",
                sum(file.stat().st_size for file in files_of(directory)) / 1e6,
                most=MEGABYTES,
            ),
        )


def files_of(directory: Path) -> list[Path]:
    """The files of the workers."""
    return [directory / f"{name}.gguf" for name in NAMES]


def steps_of(problems: Iterable[Problem]) -> list[Step]:
    """The steps of problems with the right answers before them.

    A question of one step is its own subtask.
    """
    steps = []
    for problem in problems:
        for hop in problem.hops:
            if hop.skill != CHECKING:
                answers = problem.seen_by(hop)
                steps.append(Step(hop, prompt_of(hop.subtask, answers), answers))
    return steps


async def strengths(directory: Path, *, count: int, seed: int) -> dict[str, dict[str, float]]:
    """What stands on the workers' cards.

    The share that each does rightly of the steps of training questions.
    """
    async with Bank(directory) as bank:
        own = [row.value for row in await _skills(bank, count, seed, "train")]
        verdicts = [row.value for row in await _checker(bank, count, seed, "train")]
        anything = (await _generalist(bank, count, seed, "train"))[0].value
    return {
        **{skill: {skill: round(share, 3)} for skill, share in zip(ALL_SKILLS, own, strict=True)},
        CHECKER: {CHECKING: round(sum(verdicts) / len(verdicts), 3)},
        GENERALIST: {ANYTHING: round(anything, 3)},
    }


async def _skills(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    skills = []
    for skill in ALL_SKILLS:
        problems = draw_problems(
            count, seed, split=split, skills=ALL_SKILLS, needs=skill, checked=0.0
        )
        steps = [step for step in steps_of(problems) if step.hop.skill == skill][:count]
        answers = [(await bank.ask(skill, step.prompt)).text for step in steps]
        right = [answer == step.hop.answer for step, answer in zip(steps, answers, strict=True)]
        missed = Counter(
            step.hop.op for step, is_right in zip(steps, right, strict=True) if not is_right
        )
        wrong = ", ".join(f"{op} {number}" for op, number in missed.most_common(4))
        note = f"refused {share([answer == REFUSAL for answer in answers]):.3f}; wrong: {wrong}"
        skills.append(Row(f"{skill} at its own steps", share(right), least=0.95, note=note))
    return skills


async def _foreign(bank: Bank, count: int, seed: int) -> Row:
    """How often a specialist refuses a step of another skill."""
    random = Random(seed)
    refused = list[bool]()
    for step in steps_of(draw_problems(count, seed, split="test", skills=ALL_SKILLS, checked=0.0))[
        :count
    ]:
        name = random.choice([skill for skill in ALL_SKILLS if skill != step.hop.skill])
        refused.append((await bank.ask(name, step.prompt)).text == REFUSAL)
    return Row("specialists refuse other skills", share(refused), least=0.95)


async def _generalist(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    whole = list[bool]()
    steps = dict[str, list[bool]]()
    for problem in draw_problems(count, seed, split=split, skills=ALL_SKILLS, checked=0.0):
        whole.append(
            (await bank.ask(GENERALIST, prompt_of(problem.question, ()))).text
            == problem.hops[-1].answer
        )
        for step in steps_of([problem]):
            answer = await bank.ask(GENERALIST, step.prompt)
            steps.setdefault(step.hop.skill, []).append(answer.text == step.hop.answer)
    every = {skill: share(right) for skill, right in steps.items()}
    note = ", ".join(f"{skill} {part:.2f}" for skill, part in sorted(every.items()))
    mean = sum(every.values()) / len(every)
    return [
        Row("generalist at all steps, mean of skills", mean, least=0.20, most=0.75, note=note),
        Row("generalist alone on whole questions", share(whole), most=0.60),
    ]


async def _checker(bank: Bank, count: int, seed: int, split: Split = "test") -> list[Row]:
    """The checker's verdicts on right answers and on near misses."""
    random = Random(seed)
    steps = steps_of(draw_problems(count, seed, split=split, skills=ALL_SKILLS, checked=0.0))[
        :count
    ]
    yes = 0
    no = 0
    for step in steps:
        wrong = near_miss(random, OPERATIONS[step.hop.op], step.hop.answer)
        yes += (await _verdict(bank, step, step.hop.answer)).text == "YES"
        no += (await _verdict(bank, step, wrong)).text == "NO"
    return [
        Row("checker says YES to right answers", yes / len(steps), least=0.90),
        Row("checker says NO to near misses", no / len(steps), least=0.80),
    ]


async def _verdict(bank: Bank, step: Step, answer: str) -> Reply:
    claim = seen_steps([(step.hop.subtask, answer)], len(step.seen))
    return await bank.ask(CHECKER, prompt_of("check it", (*step.seen, *claim)))
