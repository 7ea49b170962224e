"""What a training needs beside the model: exercises, rollouts, a reward function, and metrics.

A model may be trained by several processes, which `accelerate launch` starts. Each samples whole
groups and runs their plans; they share the cache of answers, the bill and the budget. The first one
writes the metrics of the whole step.

A task is a case as an exercise, with the workers on offer for it. It is drawn by its number, so a
training that was killed continues with exactly the next one.

Each process runs its own groups. Were the first one to ask for all, the others would wait.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import PROFILES, WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import Case, hash_cases, score_answer
from conductor_cli.evals.cost import USUAL_STEPS, CostEstimate, chain_estimates, scale_estimates
from conductor_cli.evals.sandbox import PYTHON_SETTING
from conductor_cli.evals.score import Score
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.models.base import Model
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.run import Orchestra, Team
from conductor_cli.system.disk import make_private_directory, read_lines, write_atomically
from conductor_cli.system.event_loop import run_async
from conductor_cli.train.recipe import Recipe
from conductor_cli.train.rollouts import Exercise, PlanOutcome, Rollouts, SampledPlan

DIGITS: Final = 4  # Significant digits of a metric that are stored


class Curriculum(Protocol):
    """The exercises of a training.

    `prompts` for each step, `group` plans for each, of at most `max_plan_tokens`.
    """

    @property
    def steps(self) -> int: ...
    @property
    def prompts(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def max_plan_tokens(self) -> int: ...
    @property
    def seed(self) -> int: ...

    def exercise(self, number: int) -> Exercise:
        """Return the exercise with a number, always the same one."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything that decides the result, as plain values.

        It distinguishes one training from another.
        """


@dataclass(slots=True, kw_only=True)
class TrainingJob:
    """A training without its model."""

    curriculum: Curriculum
    rollouts: Rollouts
    directory: Path
    max_seconds: float
    log: Callable[[str], None]
    validation: Sequence[Exercise] = ()
    """Exercises that are never trained on; the checkpoint with the highest `reward` on them is kept
    as the best.
    """
    validate_every: int = 1  # Steps between two validations; the first one is before the first step
    tries: int = 1  # How often groups without a signal are drawn
    clock: Callable[[], float] = time.monotonic
    run_async: Callable[[Coroutine[Any, Any, list[PlanOutcome]]], list[PlanOutcome]] = run_async
    outcomes: list[PlanOutcome] = field(default_factory=list)  # Those of all plans of this step
    run_seconds: float = 0.0  # How long these took

    def rewards(
        self,
        completions: list[str],
        completion_ids: list[list[int]],
        number: list[int],
        **_: object,
    ) -> list[float | None]:
        """Return the reward of each plan: TRL's reward function.

        TRL leaves out None, which is that of a plan whose worker failed or that is not run.
        """
        began = self.clock()
        exercises = {at: self.curriculum.exercise(at) for at in number if at != NOT_RUN}
        plans = []
        for at, text, ids in zip(number, completions, completion_ids, strict=True):
            if at != NOT_RUN:
                plan = SampledPlan(
                    exercise=exercises[at],
                    complete=len(ids) < self.curriculum.max_plan_tokens,
                    draw=at,
                    text=text,
                )
                plans.append(plan)
        outcomes = self.run_plans(plans)
        self.outcomes += gather_lists(outcomes)
        self.run_seconds += self.clock() - began
        left = iter(outcomes)
        rewards: list[float | None] = []
        for at in number:
            if at == NOT_RUN:
                rewards.append(None)
            else:
                rewards.append(next(left).reward)
        return rewards

    def run_plans(self, plans: Sequence[SampledPlan]) -> list[PlanOutcome]:
        """Return the outcomes of the plans of this process, within its share of the budget.

        All processes have to call it.

        Raises as `Rollouts.outcomes`, in all processes where it is raised in one.
        """
        outcomes = list[PlanOutcome]()
        failed = list[ConductorError]()
        try:
            outcomes = self.run_async(self.rollouts.outcomes(plans))
        except ConductorError as error:
            failed = [error]
        if errors := gather_lists(failed):
            raise (failed or errors)[0]
        if budget := self.rollouts.budget:
            budget.share(process_count())
        return outcomes

    def take_metrics(self) -> dict[str, Any]:
        """Return the metrics of the plans since the last call."""
        metrics = compute_metrics(self.outcomes, self.curriculum.group)
        # Whether a run is paid now, or was earlier for the cached answer
        if budget := self.rollouts.budget:
            costs = [float(outcome.cost or 0) for outcome in self.outcomes]
            metrics |= {"cost": mean(costs), "spent": float(budget.spent)}
        metrics["run_seconds"] = self.run_seconds
        self.outcomes = []
        self.run_seconds = 0.0
        return metrics


NOT_RUN: Final = -1
"""The number of an exercise whose plans are not run: all processes have to sample equally many
plans.
"""


def is_first() -> bool:
    """Return whether this process is the first or only one that trains.

    Known before the processes have connected.
    """
    return process_rank() == 0


def process_rank() -> int:
    """Return the number of this process among those that train, from 0."""
    return int(os.environ.get("RANK", "0"))


def process_count() -> int:
    """Return how many processes train."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def gather_lists(values: list[Any]) -> list[Any]:
    """Return the values of all processes, those of the first one first. All have to call it."""
    if process_count() == 1:
        return values
    from accelerate.utils import gather_object

    return list(gather_object(values))


# The metrics of each step are stored as JSON Lines, so that a collapse shows while it happens.


def compute_metrics(outcomes: Sequence[PlanOutcome], group: int) -> dict[str, Any]:
    """Return the figures of one step's rollouts, of which each `group` belong to one question.

    `signal` is the share of groups whose rewards differ: the others teach nothing.
    `routing_entropy` is in bits, over the routes of all steps. `told` counts the plans that hold
    the answer in a subtask, which is no planning.
    """
    scored = [outcome for outcome in outcomes if outcome.reward is not None]
    valid = [outcome for outcome in scored if outcome.valid]
    groups = [outcomes[start : start + group] for start in range(0, len(outcomes), group)]
    routes = Counter[str]()
    for outcome in valid:
        routes.update(outcome.routes)
    return _round_values(
        {
            "reward": mean([outcome.reward for outcome in scored if outcome.reward is not None]),
            "valid": _mean_of("valid", outcomes),
            "right": _mean_of("right", scored),
            "right_given_valid": _mean_of("right", valid),
            "steps": _mean_of("steps", valid),
            "calls": _mean_of("calls", valid),
            "routing_entropy": _entropy(routes),
            "routes": dict(sorted(routes.items())),
            "signal": mean(list(map(_has_signal, groups))),
            "failed": len(outcomes) - len(scored),
            "told": sum(outcome.told for outcome in outcomes),
        }
    )


def _mean_of(figure: str, outcomes: Iterable[PlanOutcome]) -> float:
    """Return the mean of a field of plans: of a truth, the share of those that have it."""
    return mean(list(map(attrgetter(figure), outcomes)))


def _entropy(counts: Counter[str]) -> float:
    """Return in bits how evenly things that were counted are spread."""
    shares = [count / counts.total() for count in counts.values()]
    return sum(share * math.log2(1 / share) for share in shares)


def _has_signal(group: Iterable[PlanOutcome]) -> bool:
    """Return whether the rewards of the plans of one question differ."""
    rewards = {outcome.reward for outcome in group}
    return len(rewards - {None}) > 1


def results_in_order(
    numbers: Sequence[int], outcomes: Sequence[PlanOutcome]
) -> dict[str, list[float | None]]:
    """Return the rewards and the shares of right answers of cases, by their numbers.

    None where a worker failed.
    """
    by_number = dict(zip(numbers, outcomes, strict=True))
    rewards = []
    rights = []
    for _, outcome in sorted(by_number.items()):
        rewards.append(outcome.reward)
        rights.append(None if outcome.reward is None else outcome.right)
    return {"rewards": rewards, "rights": rights}


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 for no values."""
    if not values:
        return 0.0
    return sum(values) / len(values)


def keep_metrics(path: Path, step: int) -> None:
    """Drop the lines of a metrics file after `step`, which a resumed training writes again.

    Raises `OSError`.
    """
    make_private_directory(path.parent)
    kept = []
    for line in read_metrics(path):
        if line["step"] <= step:
            kept.append(json.dumps(line) + "\n")
    write_atomically(path, "".join(kept))


def add_metrics(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line, which has its `step`. Raises `OSError`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(_round_values(line)) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file.

    A line that was cut off while it was written is left out, and a missing file is empty.
    """
    metrics = []
    for line in read_lines(path):
        with suppress(ValueError):
            metrics.append(json.loads(line))
    return metrics


def _round_values(values: Mapping[str, Any]) -> dict[str, Any]:
    def rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, Mapping):
            return _round_values(value)
        if not isinstance(value, float):
            return value
        return float(f"{value:.{DIGITS}g}")

    return {name: rounded(value) for name, value in values.items()}


SPEED_SETTINGS: Final = ("vllm", "vllm_memory", "concurrency", "checkpoint_every")
"""Settings that change only the speed; not `batch_size`: the bonus for uncertainty is a mean over a
batch.
"""

LEAST_VALIDATION: Final = 8  # Fewer cases say nothing about which checkpoint is the best
# Tasks whose cost is estimated one by one; the rest are assumed to be like them
SAMPLE_TASKS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case as an exercise: see `rollouts.Exercise`."""

    case: Case
    workers: tuple[str, ...]

    @property
    def question(self) -> str:
        return self.case.question

    @property
    def slow(self) -> bool:
        return SCORERS[self.case.scorer].slow

    def score(self, text: str) -> Score:
        try:
            return score_answer(text, self.case)
        except ConfigError:
            raise
        except Exception as error:
            message = (
                f"the scorer {self.case.scorer} failed on case {self.case.id!r:.60}: "
                f"{type(error).__name__}: {error}"
            )
            hint = "fix or remove that case, then run the same command again"
            raise ConfigError(message, hint=hint) from error


def tells_answer(exercise: Exercise, subtask: str) -> bool:
    """Return whether a subtask holds the answer of a case, which the question does not hold.

    Of a multiple choice the letter counts, in words such as `the answer is B` or `(B)`: the
    question has the choices. A short number may be there by chance, so a few such plans mean
    nothing. The answer of a program's case is its tests, which no subtask holds.
    """
    if not isinstance(exercise, Task) or SCORERS[exercise.case.scorer].needs == "sandbox":
        return False
    case = exercise.case
    question = case.question
    answer = re.escape(case.answer.strip())
    if case.scorer == "number":
        # Of a whole solution, as GSM8K has it, what stands at its end
        answer = re.escape(_plain_number(case.answer.rpartition("####")[2]))
        subtask = _plain_number(subtask)
        question = _plain_number(question)
    if case.choices:
        named = rf"\b(?:answer|option|choice)\W+(?:is\W+)?{answer}\b|\({answer}\)"
        return re.search(named, subtask) is not None
    whole = re.compile(rf"(?<![\w.]){answer}(?![\w]|\.\d)", re.IGNORECASE)
    return whole.search(subtask) is not None and whole.search(question) is None


def _plain_number(text: str) -> str:
    """Return a text without what only separates the digits of a number: `1,018` is 1018."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text).strip(" \t\r\n$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCurriculum:
    """The tasks of a training."""

    recipe: Recipe
    cases: tuple[Case, ...]
    workers: tuple[str, ...]
    identities: Mapping[str, Any]  # As JSON values, which model each worker is, and its card
    validation: tuple[Case, ...] = ()  # Cases that are never drawn
    reward_digest: str = ""  # SHA-256 of the file of the user's own reward
    python: str = ""  # The Python that runs programs of models, where cases have any

    steps = property(lambda self: self.recipe.steps)
    prompts = property(lambda self: self.recipe.prompts)
    group = property(lambda self: self.recipe.group)
    max_plan_tokens = property(lambda self: self.recipe.max_plan_tokens)
    seed = property(lambda self: self.recipe.seed)

    def exercise(self, number: int) -> Task:
        """Return the task with a number.

        Every case comes once before any comes again, each time in another order.
        """
        turn, position = divmod(number, len(self.cases))
        order = _random("order", self.seed, turn).sample(range(len(self.cases)), len(self.cases))
        return Task(case=self.cases[order[position]], workers=self._draw_workers(number))

    def validation_tasks(self) -> list[Task]:
        """Return the cases to validate with, each with all workers in their order, as in a run.

        Where a question is offered only some of them, each case has a draw of its own, always the
        same.
        """
        if not self.recipe.max_workers:
            return [Task(case=case, workers=self.workers) for case in self.validation]
        tasks = []
        for number, case in enumerate(self.validation):
            tasks.append(Task(case=case, workers=self._draw_workers(number, "validation offer")))
        return tasks

    def as_dict(self) -> dict[str, Any]:
        """Return everything that decides the result, as plain values. Prices do not."""
        recipe = asdict(self.recipe)
        for name in SPEED_SETTINGS:
            del recipe[name]
        if self.recipe.reward:
            recipe["reward"] = [self.recipe.reward, self.reward_digest]
        else:
            # A training that was begun before there was this setting goes on.
            del recipe["reward"]
        workers = [[name, self.identities[name]] for name in self.workers]
        cases = {"cases": hash_cases(self.cases), "validation_cases": hash_cases(self.validation)}
        values = {**recipe, **cases, "workers": workers}
        if self.python:
            values[PYTHON_SETTING] = self.python
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = list(value)
        return values

    def _draw_workers(self, number: int, name: str = "offer") -> tuple[str, ...]:
        # Where workers have only numbers, the model learns them by their position, which must not
        # change.
        if not PROFILES[self.recipe.profile].names:
            return self.workers
        random = _random(name, self.seed, number)
        most = min(self.recipe.max_workers or len(self.workers), len(self.workers))
        count = random.randint(min(self.recipe.min_workers, most), most)
        return tuple(random.sample(self.workers, count))


def split_cases(cases: Sequence[Case], recipe: Recipe) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return the cases to train on, and the validation set, drawn by the seed.

    It is empty if it would be too small.
    """
    count = min(recipe.validation, len(cases) // 5)
    if count < LEAST_VALIDATION:
        return tuple(cases), ()
    drawn = set(_random("validation", recipe.seed).sample(range(len(cases)), count))
    training = []
    validation = []
    for number, case in enumerate(cases):
        if number in drawn:
            validation.append(case)
        else:
            training.append(case)
    return tuple(training), tuple(validation)


def bare_orchestra(
    recipe: Recipe,
    pool: Pool,
    limits: Limits,
    *,
    workers: Mapping[str, Model] | None = None,
    opened: Orchestra | None = None,
) -> Orchestra:
    """Return the orchestra of the planner that is trained, without its model.

    Policy, timeouts, turns at providers and record of spending are those of `opened`.

    It writes plans without a grammar, and reviews nothing.

    The limits of a single run on cost, time, tokens and calls do not apply: the budget of the
    training and the limits of the day do.
    """
    # A run that stopped at one of these limits would look like a bad plan.
    kept = replace(
        limits,
        steps=recipe.max_plan_steps,
        recursion=0,
        cost=None,
        seconds=None,
        tokens=None,
        calls=None,
    )
    team = Team(model=None, pool=pool, workers=workers or {}, profile=PROFILES[recipe.profile])
    if opened is None:
        return Orchestra(team=team, limits=kept, seed=recipe.seed)
    return Orchestra(
        team=replace(team, pool_policy=opened.team.pool_policy),
        limits=kept,
        timeouts=opened.timeouts,
        seed=recipe.seed,
        daily_spend=opened.daily_spend,
        provider_slots=share_provider_slots(opened.provider_slots),
    )


def share_provider_slots(
    slots: Mapping[str, AbstractAsyncContextManager[None]],
) -> Mapping[str, AbstractAsyncContextManager[None]]:
    """Return the turns at providers that this process has, by worker: each gets an equal part."""
    if process_count() == 1:
        return slots
    parts: dict[int, FairPlaces] = {}
    shared = {}
    for name, places in slots.items():
        assert isinstance(places, FairPlaces)  # as they are opened from settings
        if id(places) not in parts:
            parts[id(places)] = FairPlaces(max(1, places.free // process_count()))
        shared[name] = parts[id(places)]
    return shared


def estimate_training(
    curriculum: TaskCurriculum, pool: Pool, *, begin: int = 0, validations: int = 0
) -> CostEstimate:
    """Return the estimate for the steps after `begin` and the runs of validations.

    It is made as if no answer were known yet.

    At least, every plan is one step by the cheapest worker. At most, it has all the steps that are
    allowed, by the most expensive worker, each of them sees all the steps before it, and all groups
    are drawn again each time.
    """
    numbers = range(begin * curriculum.prompts, curriculum.steps * curriculum.prompts)
    steps = curriculum.recipe.max_plan_steps
    lengths = (1, min(steps, USUAL_STEPS), steps)
    profile = WorkerProfile(writes_long=False)  # as in a training: see `Rollouts.team_for`
    ranges = []
    for number in numbers[:SAMPLE_TASKS]:
        task = curriculum.exercise(number)
        question = Question(text=task.question)
        ranges.append(chain_estimates(question, task.workers, lengths, pool, profile))
    recipe = curriculum.recipe
    planned = len(numbers) * curriculum.group * recipe.draws
    validated = validations * recipe.draws
    runs = planned + validated
    once = scale_estimates(ranges, runs)
    high = scale_estimates(ranges, recipe.tries * planned + validated).high
    unknown = pool.unpriced()
    return CostEstimate(runs=runs, low=once.low, usual=once.usual, high=high, unknown=unknown)


def _random(*names: object) -> Random:
    return Random(" ".join(map(str, names)))  # noqa: S311 - reproducible, no secret
