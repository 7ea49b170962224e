"""How the rehearsal's conductor is trained by reward: the settings of its course. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from conductor_cli.train.exercises import Exercise, Offer, Phase, exercise


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """One training by GRPO.

    Each step takes `prompts` exercises and samples `group` plans for each. `quantile` is the share of tokens, the least
    certain ones, that the gradient passes through; `entropy` the weight of their entropy in the loss: TRL's mean is one
    over those tokens, so the same number weighs five times as much as over all. `longest` is in tokens.

    The rate rises over `warmup` steps and then, if it is `falling`, falls to nothing as a line.
    """

    phases: tuple[Phase, ...]
    prompts: int = 32
    group: int = 8
    rate: float = 2e-4
    warmup: int = 5
    falling: bool = True
    betas: tuple[float, float] = (0.9, 0.99)
    quantile: float = 0.2
    entropy: float = 0.01
    longest: int = 64
    seed: int = 1

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def exercise(self, number: int) -> Exercise:
        """The exercise of a number, from the phase that it falls into."""
        step, last = number // self.prompts, self.phases[-1]
        for phase in self.phases:
            if step < phase.steps:
                return exercise(phase, self.seed, number)
            step -= phase.steps
        return exercise(last, self.seed, number)

    def described(self) -> dict[str, Any]:
        """All of it as plain values, to tell one training from another."""
        return asdict(self)


ALONE: Final = Offer()
MIXED: Final = Offer(specialists=0.4, everybody=0.35, missing=0.25)


def rehearsal(*, steps: int | None = None, seed: int = 1) -> Practice:
    """The course of the shipped conductor; with `steps` one of its own: its beginning, at a steady, higher rate."""
    first = Phase(steps=90, offer=ALONE, hops=(4, 4, 2))
    then = Phase(steps=130, offer=MIXED, hops=(3, 4, 3))
    if steps is None:
        return Practice(phases=(first, then), seed=seed)
    return Practice(phases=(replace(first, steps=steps),), falling=False, rate=3.5e-4, seed=seed)
