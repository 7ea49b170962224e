"""Rivals that learn from questions and outcomes. Imports torch.

Their questions are drawn from the training half of the world with pools as in the evaluation, and the real workers
answer, so a router knows who was right. A router works as RouterDC. A question becomes a vector: the sum of vectors of
its words and pairs of words, hashed. A member becomes another: the sum of vectors of its skills, each times its
strength. The member whose vector is nearest to the question's is asked. Both are learned from nothing with RouterDC's
contrast: members that answered rightly against those that did not. A question that everybody, or nobody, got right
teaches nothing.

The mix of questions shifts in mid-stream: who loses how much? A stream has 200 questions of one mix and then 200 of
another, all over one pool of four members, whose names stay the same. The first mix is what a pipeline could be built
for: chains of two steps, a fact about a place or a Spanish word, and then something about its letters. The second has
the six other skills and all other shapes, as often as the world has them. Three systems divide each question as the
conductor does:

- the conductor, which reads the question and the cards;
- a fixed pipeline: the first step of every question goes to one member, all others to another, each step sees the one
  before it. The two are those that do best on 60 other questions of the first mix;
- a static router: it has learned from the outcomes of the steps of 200 other questions of the first mix which member a
  step goes to, by its words. It knows members by name and reads no cards.

The second mix is harder for everybody, so the loss of the true plans stands beside the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from random import Random
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import render_for_worker as render
from conductor_cli.rehearsal.words import Skill, normalize
from conductor_cli.train.recipe import require
from training.rehearsal.asking import StoredModel
from training.rehearsal.exercises import MAX_SKILLS, STRONG, Member, RehearsalExercise, draw_exercises
from training.rehearsal.operations import SKILLS, Shape
from training.rehearsal.rollouts import (
    Answers,
    DrawnPools,
    Found,
    followed,
    forced_chain,
    gold_plan,
    planned,
    routed_by,
)
from training.rehearsal.supervised import use_threads
from training.rehearsal.worker_table import steps_of
from training.rehearsal.world import SHAPES, Problem, ProblemSettings, Split, draw_problems

with require("torch"):
    import torch

BUCKETS: Final = 4096
WIDTH: Final = 48
EPOCHS: Final = 15
BATCH: Final = 32
RATE: Final = 0.01

Card = Mapping[str, float]  # strengths by skill; or for members that are always the same, 1 for each one's name


class Sample(NamedTuple):
    """A question or step, the cards on offer, and who was right."""

    text: str
    cards: Sequence[Card]
    right: Sequence[bool]


class Router:
    """Chooses one of several cards for a text."""

    def __init__(self, samples: Sequence[Sample], seed: int = 1) -> None:
        useful = [sample for sample in samples if any(sample.right) and not all(sample.right)]
        names = sorted({name for sample in useful for card in sample.cards for name in card})
        self._places = {name: place for place, name in enumerate(names)}
        torch.manual_seed(seed)
        self._words = torch.nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum", sparse=True)
        self._skills = torch.nn.Linear(max(len(names), 1), WIDTH, bias=False)
        torch.nn.init.normal_(self._words.weight, std=0.1)
        if useful:
            self._learn(useful, seed)

    def choose(self, text: str, cards: Sequence[Card]) -> int:
        """The place of the card that suits the text best; of equal ones the first."""
        with torch.inference_mode():
            return int(self._scores([text], [cards])[0].argmax())

    def _learn(self, samples: Sequence[Sample], seed: int) -> None:
        use_threads(1)
        # Only the words of a batch are touched, or Adam would take most of the time for all others.
        optimizers = (
            torch.optim.SparseAdam(list(self._words.parameters()), lr=RATE),
            torch.optim.Adam(self._skills.parameters(), lr=RATE),
        )
        generator = torch.Generator().manual_seed(seed)
        for _ in range(EPOCHS):
            for places in torch.randperm(len(samples), generator=generator).split(BATCH):
                batch = [samples[place] for place in places.tolist()]
                scores = self._scores([sample.text for sample in batch], [sample.cards for sample in batch])
                right = torch.full_like(scores, float("-inf"))
                for row, sample in enumerate(batch):
                    right[row, [place for place, is_right in enumerate(sample.right) if is_right]] = 0.0
                loss = (scores.logsumexp(1) - (scores + right).logsumexp(1)).mean()
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()

    def _scores(self, texts: Sequence[str], offered: Sequence[Sequence[Card]]) -> Any:
        """The scores (texts, cards), minus infinity where there is no card."""
        rows = [features(text) for text in texts]
        starts = torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]
        asked = self._words(torch.tensor([bucket for row in rows for bucket in row]), starts)
        most = max(map(len, offered))
        cards = torch.zeros(len(texts), most, len(self._places) or 1)
        absent = torch.ones(len(texts), most, dtype=torch.bool)
        for row, offer in enumerate(offered):
            for place, card in enumerate(offer):
                absent[row, place] = False
                for name, strength in card.items():
                    if name in self._places:
                        cards[row, place, self._places[name]] = strength
        return torch.einsum("tcw,tw->tc", self._skills(cards), asked).masked_fill(absent, float("-inf"))


def features(text: str) -> list[int]:
    """The buckets of the words and pairs of words of a text. In a pair, an operand is only a word or a number."""
    own = normalize(text).split()
    words = ["^", *map(_kind, own), "$"]
    pairs = [f"{one} {two}" for one, two in pairwise(words)]
    return [zlib.crc32(item.encode()) % BUCKETS for item in (*own, *words, *pairs)]


def _kind(word: str) -> str:
    return "#" if word.isdecimal() else "@" if word.isupper() else word


SEED: Final = 4711  # of the questions that routers learn from; no evaluation uses it
QUESTIONS: Final = 1500
STEP_QUESTIONS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Routers:
    """Routers that read cards: one for whole questions, as RouterDC, and one for single steps."""

    questions: Router
    steps: Router

    def of_question(self, exercise: RehearsalExercise) -> int:
        """The place of the member that is asked the whole question."""
        return self.questions.choose(exercise.question, [member.strengths for member in exercise.members])

    def of_step(self, exercise: RehearsalExercise, subtask: str) -> str:
        """The worker that is asked a step."""
        return exercise.workers[self.steps.choose(subtask, [member.strengths for member in exercise.members])]


async def learned_routers(answers: Answers, *, questions: int = QUESTIONS, steps: int = STEP_QUESTIONS) -> Routers:
    """Both routers, trained on so many questions."""
    drawn = draw_exercises(draw_problems(questions, SEED, checked=0.0), STRONG, SEED)
    return Routers(
        questions=Router([await whole_sample(answers, item) for item in drawn]),
        steps=Router([sample for item in drawn[:steps] for sample in await step_samples(answers, item)]),
    )


async def whole_sample(answers: Answers, exercise: RehearsalExercise) -> Sample:
    """Who was right about the whole question."""
    prompt = render(Question(text=exercise.question), Step(worker="", subtask=exercise.question), [])
    given = [await answers.member(member.files, prompt, exercise.seed) for member in exercise.members]
    cards = [member.strengths for member in exercise.members]
    return Sample(exercise.question, cards, [exercise.is_correct(text) for text in given])


async def step_samples(
    answers: Answers, exercise: RehearsalExercise, cards: Sequence[Card] | None = None
) -> list[Sample]:
    """Who was right about each true step, given the right answers before it."""
    offered = cards or [member.strengths for member in exercise.members]
    samples = []
    for step in steps_of(exercise.problem):
        given = [await answers.member(member.files, step.prompt, exercise.seed) for member in exercise.members]
        samples.append(Sample(step.hop.subtask, offered, [text == step.hop.answer for text in given]))
    return samples


FIRST: Final[tuple[Skill, ...]] = ("geography", "translation")
THEN: Final[tuple[Skill, ...]] = ("spelling", "counting")  # the skills of the two steps of the first mix
OTHERS: Final[tuple[Skill, ...]] = tuple(skill for skill in SKILLS if skill not in {*FIRST, *THEN})
OTHER_SHAPES: Final[Mapping[Shape, float]] = {shape: share for shape, share in SHAPES.items() if shape != "chain2"}

TEAM: Final[tuple[tuple[Skill, ...], ...]] = (
    ("geography", "translation", "opposites"), ("spelling", "counting", "comparing"), ("adding", "multiplying"),
    ("chemistry", "calendar"),
)  # fmt: skip
"""The members of the pool. Each skill is also with one other member that has room, and is worse."""

WEAK: Final = (0.15, 0.75)

When = Literal["before", "after"]
MIXES: Final[tuple[When, ...]] = ("before", "after")

DRAWN: Final = 6  # chains that are drawn for each question of the first mix
SHIFT_QUESTIONS: Final = 200
PRACTICE: Final = 200
TRIED: Final = 60
"""Questions of the first mix from which the static router learns; the first `TRIED` of them choose the pipeline."""


class Stream:
    """The stream of one seed. `count` questions of each mix."""

    def __init__(self, rollouts: DrawnPools, conductor: StoredModel, seed: int, count: int = SHIFT_QUESTIONS) -> None:
        self._rollouts, self._conductor, self._seed = rollouts, conductor, seed
        self._pool = draw_team(Random(f"stream {seed}"))
        self._count, self._practice = count, min(PRACTICE, count)

    async def measure(self) -> dict[str, list[float]]:
        """Who is right, before and after the shift."""
        practice = await planned(self._rollouts, self._conductor, self._draw("before", "train", self._practice))
        pipeline = await self._best_pipeline(practice[:TRIED])
        router = await self._router(practice)
        values: dict[str, list[float]] = {}
        for when in MIXES:
            found = await planned(self._rollouts, self._conductor, self._draw(when, "test", self._count))
            plans: dict[str, list[Plan | None]] = {
                "pipeline": [in_pipeline(item, pipeline) for item in found],
                "static router": [routed_by(item, router) for item in found],
                "oracle": [gold_plan(item.exercise) for item in found],
            }
            values[f"{when} conductor"] = [float(item.right) for item in found]
            for name, given in plans.items():
                values[f"{when} {name}"] = [float(item.right) for item in await self._followed(found, given)]
        return values

    async def _best_pipeline(self, practice: Sequence[Found]) -> tuple[str, str]:
        """The two members that do best on these questions."""
        names = practice[0].exercise.workers
        reached = dict[tuple[str, str], float]()
        for first, later in product(names, repeat=2):
            plans = [in_pipeline(item, (first, later)) for item in practice]
            reached[first, later] = sum(item.right for item in await self._followed(practice, plans)) / len(plans)
        return max(reached, key=reached.__getitem__)

    async def _router(self, practice: Sequence[Found]) -> Callable[[RehearsalExercise, str], str]:
        cards = [{name: 1.0} for name in practice[0].exercise.workers]
        found = [await step_samples(self._rollouts.answers, item.exercise, cards) for item in practice]
        router = Router([sample for samples in found for sample in samples])
        return lambda exercise, subtask: exercise.workers[router.choose(subtask, cards)]

    def _draw(self, when: When, split: Split, count: int) -> list[RehearsalExercise]:
        problems = draw_mix(when, split, count, self._seed)
        return [
            RehearsalExercise(problem=problem, members=self._pool, seed=1000 * self._seed + number)
            for number, problem in enumerate(problems)
        ]

    async def _followed(self, found: Sequence[Found], plans: Sequence[Plan | None]) -> list[Found]:
        pairs = zip(found, plans, strict=True)
        return [await followed(self._rollouts, item.exercise, plan) for item, plan in pairs]


def draw_team(random: Random) -> tuple[Member, ...]:
    """The pool of a stream: its weaker strengths, order and prices are drawn."""
    members: list[dict[str, float]] = [dict.fromkeys(skills, 1.0) for skills in TEAM]
    for skill in random.sample(SKILLS, len(SKILLS)):
        able = [member for member in members if skill not in member and len(member) < MAX_SKILLS]
        if able:
            random.choice(able)[skill] = round(random.uniform(*WEAK), 2)
    return tuple(
        Member(strengths=strengths, price=random.randint(1, 9)) for strengths in random.sample(members, len(members))
    )


def draw_mix(when: When, split: Split, count: int, seed: int) -> list[Problem]:
    """Questions of the first mix or the second."""
    settings = ProblemSettings(split=split, phrasings="held" if split == "test" else "known", checked=0.0)
    if when == "after":
        return list(draw_problems(count, seed, replace(settings, skills=OTHERS, shapes=OTHER_SHAPES)))
    chains = replace(settings, skills=(*FIRST, *THEN), shapes={"chain2": 1.0})
    drawn = draw_problems(DRAWN * count, seed, chains)
    fitting = [problem for problem in drawn if problem.hops[0].skill in FIRST and problem.hops[1].skill in THEN]
    assert len(fitting) >= count
    return fitting[:count]


def in_pipeline(found: Found, workers: tuple[str, str]) -> Plan | None:
    """The conductor's steps as a chain: the first to one worker, all others to another."""
    chain = forced_chain(found.plan)
    if chain is None:
        return None
    first, later = workers
    steps = (replace(step, worker=later if number else first) for number, step in enumerate(chain.steps))
    return Plan(steps=tuple(steps))
