"""Groups of plans for one question, sampled by llama.cpp, run in the world, and rewarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import BRIEF_PROFILE
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.sampling import SampledReply
from training.planner.examine import read_plan
from training.planner.world.cases import Case, World
from training.planner.world.run import Outcome, program_answer, run_plan
from training.planner.world.sampling import ReplyTree

PLANS: Final = 8  # Plans of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A sampled plan, the steps that a run reads in it, and what came of it."""

    reply: SampledReply
    steps: tuple[Step, ...]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Plans for one case. `prompt` has its tokens.

    `computed_tokens` are those of the plans that the model computed: a beginning that several plans
    share is computed once.
    """

    case: Case
    prompt: tuple[int, ...]
    attempts: tuple[Attempt, ...]
    computed_tokens: int = 0

    @property
    def rewards(self) -> list[float]:
        return [attempt.outcome.reward for attempt in self.attempts]

    @property
    def has_signal(self) -> bool:
        """Whether some of its plans earned more than others."""
        return len(set(self.rewards)) > 1


def sample_group(
    engine: LlamaEngine,
    world: World,
    case: Case,
    seed: str,
    *,
    count: int = PLANS,
    temperature: float = 1.0,
) -> Group:
    """Sample plans for a case under the product's grammar, and run each.

    Raises `ModelError`.
    """
    random = Random(seed)
    tree = ReplyTree(engine, replace(case.request, temperature=temperature, habit=None))
    attempts = list[Attempt]()
    for _ in range(count):
        reply = tree.draw(random.getrandbits(32))
        steps = read_plan(reply.text, case.drawn.context, BRIEF_PROFILE)
        attempts.append(Attempt(reply=reply, steps=steps, outcome=run_in_world(world, case, steps)))
    return Group(
        case=case,
        prompt=tree.prompt,
        attempts=tuple(attempts),
        computed_tokens=tree.computed_tokens,
    )


def run_in_world(world: World, case: Case, steps: Sequence[Step]) -> Outcome:
    """What a plan earns for a case."""
    answers = {kind: program_answer(program) for kind, program in world.programs.items()}
    return run_plan(
        case.composed.text,
        steps,
        case.drawn.seats,
        answers,
        case.wanted,
        digits=case.composed.digits,
    )


def advantages(rewards: Sequence[float]) -> list[float]:
    """How much more each plan of a group earned than the mean of the group."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def shuffled(rewards: Sequence[float], seed: str) -> list[float]:
    """The rewards of a group, dealt anew to its plans, so that they say nothing of them."""
    return Random(seed).sample(list(rewards), len(rewards))


def reward_lines(group: Group, step: int, number: int) -> list[dict[str, Any]]:
    """A line of the reward log for each plan: what its steps say, who did them, what it earned."""
    return [
        {
            "step": step,
            "number": number,
            "plan": plan,
            "shape": group.case.composed.shape,
            "reward": attempt.outcome.reward,
            "steps": _described_steps(attempt),
        }
        for plan, attempt in enumerate(group.attempts)
    ]


def _described_steps(attempt: Attempt) -> list[list[str]]:
    kinds = [kind for kind, _ in attempt.outcome.log]
    return [[step.subtask, kind] for step, kind in zip(attempt.steps, kinds, strict=True)]
