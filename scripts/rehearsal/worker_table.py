"""What the finished workers reach on held-out questions, through the very adapter that runs use, beside the bounds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.normalize import Skill
from conductor_cli.rehearsal.workers import MOST_TOKENS, NAMES, clean_answer, model_path, rehearsal_workers, render
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.world import Problem, draw_problems

COUNT: Final = 500
"""Questions for each row."""

SEED: Final = 2026

MEGABYTES: Final = 12.0


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


def rows(directory: Path | None = None, *, count: int = COUNT, seed: int = SEED) -> tuple[Row, ...]:
    """The whole table, from the files in `directory` or those that ship with the package. Needs no torch."""
    return asyncio.run(_rows(rehearsal_workers(directory=directory), count, seed))


async def _rows(workers: Pool, count: int, seed: int) -> tuple[Row, ...]:
    own = {skill: draw_problems(count, seed, split="test", hops=(1,), skills=(skill,)) for skill in SKILLS}
    right: dict[tuple[str, Skill], float] = {}
    notes: dict[str, str] = {}
    for skill, problems in own.items():
        found = await directly(workers, problems)
        right |= {(name, skill): accuracy(problems, answers) for name, answers in found.items()}
        notes |= {skill: misses(problems, found[skill])}
    best: dict[Skill, str] = {skill: max(NAMES, key=lambda name: right[name, skill]) for skill in SKILLS}
    mix = draw_problems(count, seed, split="test")
    single = {name: accuracy(mix, answers) for name, answers in (await directly(workers, mix)).items()}
    routed = await decomposed(workers, mix, best)
    return tuple(_written(right, notes, single, accuracy(mix, routed), workers))


def _written(
    right: Mapping[tuple[str, Skill], float],
    notes: Mapping[str, str],
    single: Mapping[str, float],
    routed: float,
    workers: Pool,
) -> Iterator[Row]:
    for skill in SKILLS:
        yield Row(f"{skill} on {skill}, one hop", right[skill, skill], least=0.95, note=notes[skill])
    for name in NAMES:
        others = ", ".join(f"{skill} {right[name, skill]:.3f}" for skill in SKILLS)
        mean = sum(right[name, skill] for skill in SKILLS) / len(SKILLS)
        least, most = (0.30, 0.75) if name == "generalist" else (None, None)
        yield Row(f"{name} on all skills, one hop", mean, least, most, others)
    for name in NAMES:
        yield Row(f"{name} alone on the whole mix", single[name], most=0.60)
    yield Row("true hops, each to the best worker", routed, least=0.92)
    size = sum(Path(worker.model).stat().st_size for worker in workers) / 1e6
    yield Row("all files, MB", size, most=MEGABYTES)


def accuracy(problems: Sequence[Problem], answers: Sequence[str]) -> float:
    """The share of right answers."""
    return sum(problem.answer == answer for problem, answer in zip(problems, answers, strict=True)) / len(problems)


def misses(problems: Sequence[Problem], answers: Sequence[str]) -> str:
    """How many of which operation went wrong, the most first."""
    pairs = zip(problems, answers, strict=True)
    wrong = Counter(problem.hops[-1].op for problem, answer in pairs if problem.answer != answer)
    every = Counter(problem.hops[-1].op for problem in problems)
    return ", ".join(f"{op} {count} of {every[op]} wrong" for op, count in wrong.most_common())


def missing(directory: Path | None) -> tuple[Path, ...]:
    """The files that do not exist."""
    files = [model_path(name) if directory is None else directory / f"{name}.gguf" for name in NAMES]
    return tuple(file for file in files if not file.is_file())


# What they write


async def reply(model: Model, prompt: str) -> str:
    """What `model` writes after `prompt`."""
    request = Request(messages=(Message(role="user", content=prompt),), max_tokens=MOST_TOKENS, temperature=0.0)
    return "".join([chunk.text async for chunk in model.stream(request)])


async def answers(worker: Worker, prompts: Sequence[str]) -> tuple[str, ...]:
    """What one worker answers to each prompt, one after the other, as its model is one."""
    model = open_model(worker, environ={})
    try:
        return tuple([clean_answer(await reply(model, prompt)) for prompt in prompts])
    finally:
        await model.close()


def whole(problem: Problem) -> str:
    """What a worker reads that is to answer the question by itself."""
    return render(Question(text=problem.question), Step(worker="", subtask=problem.question), ())


async def directly(pool: Pool, problems: Sequence[Problem]) -> dict[str, tuple[str, ...]]:
    """What each worker answers to each question by itself. The workers run side by side."""
    prompts = [whole(problem) for problem in problems]
    found = await asyncio.gather(*(answers(worker, prompts) for worker in pool))
    return dict(zip(pool.names, found, strict=True))


async def decomposed(pool: Pool, problems: Sequence[Problem], best: Mapping[Skill, str]) -> tuple[str, ...]:
    """The answers along the true hops, each done by the worker that is `best` at its skill."""
    seen: list[list[SeenStep]] = [[] for _ in problems]
    for at in range(max(len(problem.hops) for problem in problems)):
        groups: dict[str, list[int]] = {}
        for number, problem in enumerate(problems):
            if at < len(problem.hops):
                groups.setdefault(best[problem.hops[at].skill], []).append(number)
        await asyncio.gather(*(_hop(pool[name], problems, group, seen, at) for name, group in groups.items()))
    return tuple((items[-1].answer or "") for items in seen)


async def _hop(
    worker: Worker, problems: Sequence[Problem], group: Sequence[int], seen: Sequence[list[SeenStep]], at: int
) -> None:
    """Hop `at` (from 0) of the problems in `group`, done by one worker; `seen` grows by its answers."""
    prompts = []
    for number in group:
        hop = problems[number].hops[at]
        visible = [item for item in seen[number] if item.number in hop.access]
        step = Step(worker=worker.name, subtask=hop.subtask, access=hop.access)
        prompts.append(render(Question(text=problems[number].question), step, visible))
    for number, answer in zip(group, await answers(worker, prompts), strict=True):
        subtask = problems[number].hops[at].subtask
        seen[number].append(SeenStep(number=at + 1, worker=worker.name, subtask=subtask, answer=answer))
