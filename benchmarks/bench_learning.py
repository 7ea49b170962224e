"""Learning from ratings, over SIMULATED workers.

Scripted models that are right with a probability that is known.

The planner is scripted, too; everything else is real. Regret is what the best worker would have
answered right more, in expectation. 100 questions with healthy workers come first, so that the past
speaks for the worker that gets worse.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import truediv
from typing import Final

from figures import Figure, Table

from conductor_cli.app.learning import learning_key, with_learned_cards
from conductor_cli.core.chat import Request
from conductor_cli.core.learning import Rating, learn, shares_of
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import FREE
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra, RunSpec, Team, start_run

SEEDS: Final = 20
BEFORE: Final = 100
QUESTIONS: Final = 200
CARDS: Final[Mapping[str, float]] = {"ada": 0.85, "ben": 0.75, "cem": 0.70, "dua": 0.55}
"""The figures of the cards, which are true until a worker gets worse."""

WORSE: Final[Mapping[str, float]] = {**CARDS, "ada": 0.35}
BETTER: Final[Mapping[str, float]] = {**CARDS, "cem": 0.95}
# The regret of fixed cards where a worker gets better
RISE: Final = (BETTER["cem"] - BETTER["ada"]) * QUESTIONS
HOUR: Final = 3600.0  # seconds of simulated time between two questions
_LINE: Final = re.compile(r"^([A-Z])  (\w+)\b.*\(math (\d\.\d+)\)$", re.MULTILINE)


def measure() -> Table:
    """All seeds, one after the other."""
    pairs = [(regret(seed, learns=False), regret(seed)) for seed in range(SEEDS)]
    seldom = [regret(seed, rated=0.3) for seed in range(SEEDS)]
    rising = [regret(seed, after=BETTER) for seed in range(SEEDS)]
    healthy = [regret(seed, after=CARDS) for seed in range(SEEDS)]
    fixed = [regret_fixed for regret_fixed, _ in pairs]
    learned = [regret_learned for _, regret_learned in pairs]
    base = statistics.mean(fixed)
    about = (
        f"SIMULATED workers, real runs: {SEEDS} seeds; {BEFORE} questions, then one of four "
        "workers falls from "
        f"0.85 to 0.35, then the {QUESTIONS} questions that count. Regret in right answers; "
        "intervals of 95 %."
    )
    return Table(
        "learning",
        about,
        (
            Figure(
                "regret with learning, as a share of that with fixed cards",
                statistics.mean(learned) / base,
                "ratio",
                bound=0.5,
                also=f"fixed {interval(fixed)}; learning {interval(learned)}",
            ),
            Figure("the same, the worst seed", max(map(truediv, learned, fixed)), "ratio"),
            Figure(
                "the same, 3 of 10 answers rated",
                statistics.mean(seldom) / base,
                "ratio",
                also=interval(seldom),
            ),
            Figure(
                "another worker rises from 0.70 to 0.95 instead",
                statistics.mean(rising) / RISE,
                "ratio",
                also=f"fixed {RISE:.1f}; {interval(rising)}",
            ),
            Figure(
                "right answers lost where no worker gets worse",
                statistics.mean(healthy) / QUESTIONS,
                "percent",
                also=f"of {QUESTIONS}: {interval(healthy)}; fixed cards, which are true, lose none",
            ),
        ),
    )


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over the seeds."""
    mean = statistics.mean(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.1f} ({mean - half:.1f} to {mean + half:.1f})"


def plan(request: Request) -> list[str]:
    """What the planner writes: the label of the worker with the highest figure in its prompt."""
    prompt = request.messages[0].content.rpartition("The workers:\n")[2]
    label, *_ = max(_LINE.findall(prompt), key=lambda line: float(line[2]))
    return [f"{label} | - | Calculate it."]


@dataclass
class World:
    """A user who asks and rates. `rated` is the share of answers that get a verdict."""

    seed: int
    learns: bool
    rated: float
    ratings: list[Rating] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.shares = dict(CARDS)
        self.models = {name: ScriptedModel(reply=partial(self._answer, name)) for name in CARDS}
        self.pool = Pool(
            workers=tuple(
                Worker(
                    name=name,
                    kind="scripted",
                    model=name,
                    card=Card(strengths={"math": share}),
                    price=FREE,
                )
                for name, share in CARDS.items()
            )
        )

    def _answer(self, name: str, _: Request) -> list[str]:
        return ["right" if self.draw.random() < self.shares[name] else "wrong"]

    async def ask(self) -> str:
        """One question, planned with the cards of now, and perhaps rated; returns who answered."""
        self.now += HOUR
        learned = learn(self.ratings if self.learns else (), self.now)
        pool = with_learned_cards(self.pool, learned)
        planner = ScriptedModel(reply=plan)
        team = Team(model=planner, pool=pool, workers=self.models)
        orchestra = Orchestra(team=team, random=self.draw)
        run = start_run(orchestra, RunSpec(question=Question(text="What is it?")))
        async for _ in run:
            pass
        trace = run.trace
        if self.draw.random() < self.rated:
            verdict = "good" if trace.answer == "right" else "bad"
            shares = [
                replace(share, key=learning_key(self.pool[share.worker]))
                for share in shares_of(trace, verdict)
            ]
            self.ratings.append(
                Rating(
                    run=trace.run,
                    step=0,
                    verdict=verdict,
                    by="check",
                    time=self.now,
                    shares=tuple(shares),
                )
            )
        return trace.steps[0].worker


def regret(
    seed: int, *, learns: bool = True, rated: float = 1.0, after: Mapping[str, float] = WORSE
) -> float:
    """Right answers lost in the questions that count, in expectation."""
    return asyncio.run(_regret(World(seed, learns, rated), after))


async def _regret(world: World, after: Mapping[str, float]) -> float:
    for _ in range(BEFORE):
        await world.ask()
    world.shares |= after
    best = max(after.values())
    return sum([best - after[await world.ask()] for _ in range(QUESTIONS)])
