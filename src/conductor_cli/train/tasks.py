"""What a real conductor practises on: cases, and which workers are on offer for each. Pure.

A task is drawn by its number, so a training that was killed goes on with the very next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import PROFILES
from conductor_cli.evals.cases import Case, hash_cases, is_correct
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case as an exercise: see `rollouts.Exercise`."""

    case: Case
    names: tuple[str, ...]
    skills: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return self.case.question

    @property
    def slow(self) -> bool:
        return SCORERS[self.case.scorer].slow

    def is_right(self, text: str) -> bool:
        try:
            return is_correct(text, self.case)
        except ConfigError:
            raise
        except Exception as error:
            said = f"the scorer {self.case.scorer} failed on case {self.case.id!r:.60}: {type(error).__name__}: {error}"
            raise ConfigError(said, hint="mend or leave out that case, then run the same command again") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCurriculum:
    """A course over cases. `who` says, as JSON has it, which model each worker is (see `who_is`), and its card."""

    recipe: Recipe
    cases: tuple[Case, ...]
    names: tuple[str, ...]
    who: Mapping[str, Any]

    @property
    def steps(self) -> int:
        return self.recipe.steps

    @property
    def prompts(self) -> int:
        return self.recipe.prompts

    @property
    def group(self) -> int:
        return self.recipe.group

    @property
    def longest(self) -> int:
        return self.recipe.longest

    @property
    def seed(self) -> int:
        return self.recipe.seed

    def exercise(self, number: int) -> Task:
        """The task of a number: every case once before any comes again, each time in another order."""
        turn, place = divmod(number, len(self.cases))
        order = _random("order", self.seed, turn).sample(range(len(self.cases)), len(self.cases))
        return Task(case=self.cases[order[place]], names=self._offered(number))

    def described(self) -> dict[str, Any]:
        """All of it as plain values, to tell one training from another; of a worker not the price."""
        recipe = {name: value for name, value in asdict(self.recipe).items() if name not in _ASIDE}
        known = {"cases": hash_cases(self.cases), "workers": [[name, self.who[name]] for name in self.names]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in {**recipe, **known}.items()}

    def _offered(self, number: int) -> tuple[str, ...]:
        if not PROFILES[self.recipe.profile].names:
            return self.names
        random = _random("offer", self.seed, number)
        count = random.randint(min(self.recipe.fewest, len(self.names)), len(self.names))
        return tuple(random.sample(self.names, count))


_ASIDE = ("vllm", "vllm_memory", "at_once", "keep")
"""What changes how fast a course is, and not the course. `rows` does: BNPO takes a mean over what is passed at once."""


def bare_conductor(recipe: Recipe, pool: Pool, limits: Limits) -> Conductor:
    """The conductor that is trained, without models: it writes without a grammar, and plans, but reviews nothing.

    Of the limits of a run it has none on what is spent: that is held by the purse and the day.
    """
    held = replace(limits, steps=recipe.plan_steps, recursion=0, cost=None, seconds=None, tokens=None, calls=None)
    profile = PROFILES[recipe.profile]
    return Conductor(model=None, pool=pool, workers={}, profile=profile, limits=held, exact=False, seed=recipe.seed)


def _random(*names: object) -> Random:
    return Random(" ".join(map(str, names)))  # noqa: S311 - reproducible, no secret
