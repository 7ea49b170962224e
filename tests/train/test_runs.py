"""The tasks of a training, the runs of its plans, their rewards, and their cost. Needs no torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConfigError, LimitReached, ModelError, PolicyError
from conductor_cli.core.estimate import PlanEstimate
from conductor_cli.core.policy import Policy, PoolPolicy, Recipient
from conductor_cli.core.pool import Card, DayLimits, Limits, Pool, Worker
from conductor_cli.core.usage import Price, Usage
from conductor_cli.evals.cases import Case
from conductor_cli.models.base import ALL_FEATURES, Model, ScriptedModel
from conductor_cli.models.response_cache import CachedModel, ResponseCache
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.run import Orchestra, Team
from conductor_cli.state.spending import DailySpend
from conductor_cli.train.job import (
    Task,
    TaskCurriculum,
    TrainingJob,
    bare_orchestra,
    compute_metrics,
    estimate_training,
    split_cases,
    tells_answer,
)
from conductor_cli.train.recipe import DEFAULT_RECIPE, LoraSettings, Recipe
from conductor_cli.train.rollouts import (
    BudgetedModel,
    PlanOutcome,
    Rollouts,
    SampledPlan,
    TrainingBudget,
)
from tests.run.kit import with_team

CASES = tuple(
    Case(
        id=f"c{number}", question=f"What is {number} + 1?", answer=str(number + 1), scorer="number"
    )
    for number in range(6)
)
PRICE = Price(input=Decimal(1), output=Decimal(2))
POOL = Pool(
    workers=tuple(
        Worker(
            name=name,
            kind="openai",
            model=name,
            price=PRICE,
            card=Card(strengths={"sums": good}, measured=True),
        )
        for name, good in (("ann", 0.9), ("bob", 0.1), ("cat", 0.5))
    )
)
ZERO = Task(case=CASES[0], workers=POOL.names)
RIGHT = "A | - | Answer it."
WRONG = "B | - | Answer it."


def tasks(recipe: Recipe = DEFAULT_RECIPE) -> TaskCurriculum:
    return TaskCurriculum(
        recipe=recipe,
        cases=CASES,
        workers=POOL.names,
        identities={name: name for name in POOL.names},
    )


def says(text: str) -> ScriptedModel:
    return ScriptedModel(reply=lambda request: [text])


def rollouts(
    directory: Path, recipe: Recipe = DEFAULT_RECIPE, limit: str = "", **models: Any
) -> Rollouts:
    budget = TrainingBudget(directory / "spent.jsonl", Decimal(limit) if limit else None)
    cache = ResponseCache(directory / "answers.jsonl")
    given = {"ann": says("It is 1."), "bob": says("It is 9."), "cat": says("It is 9."), **models}
    kept = {
        worker.name: CachedModel(
            BudgetedModel(given[worker.name], worker, budget), cache, worker.name
        )
        for worker in POOL
    }
    orchestra = bare_orchestra(recipe, POOL, Limits(attempts=1), workers=kept)
    return Rollouts(
        orchestra=orchestra, budget=budget, cache=cache, format_bonus=recipe.format_bonus
    )


def spent_by(runs: Rollouts) -> Decimal:
    assert runs.budget is not None
    return runs.budget.spent


def outcomes(runs: Rollouts, texts: Sequence[str], task: Task = ZERO) -> list[PlanOutcome]:
    return asyncio.run(runs.outcomes([SampledPlan(exercise=task, text=text) for text in texts]))


def test_every_case_comes_once_before_any_is_repeated() -> None:
    drawn = [tasks().exercise(number) for number in range(12)]
    first, second = [[task.case.id for task in drawn[at : at + 6]] for at in (0, 6)]
    assert sorted(first) == sorted(second) == [case.id for case in CASES]
    assert first != second
    assert drawn == [tasks().exercise(number) for number in range(12)]


def test_pools_are_drawn_for_a_conductor_that_sees_names() -> None:
    offered = {tasks().exercise(number).workers for number in range(200)}
    assert {len(names) for names in offered} == {2, 3}
    assert len(offered) == 12
    two = {
        tasks(replace(DEFAULT_RECIPE, max_workers=2)).exercise(number).workers
        for number in range(100)
    }
    assert len(two) == 6
    assert {len(names) for names in two} == {2}
    by_number = tasks(replace(DEFAULT_RECIPE, profile="published"))
    assert {by_number.exercise(number).workers for number in range(50)} == {POOL.names}


def test_a_fifth_of_the_cases_is_held_out_by_the_seed() -> None:
    many = tuple(replace(CASES[0], id=f"c{number}") for number in range(100))
    kept, held = split_cases(many, DEFAULT_RECIPE)
    assert (len(kept), len(held)) == (80, 20)
    assert {*kept} | {*held} == {*many}
    assert split_cases(many, DEFAULT_RECIPE) == (kept, held)
    assert split_cases(many, replace(DEFAULT_RECIPE, seed=1)) != (kept, held)
    assert len(split_cases(many, replace(DEFAULT_RECIPE, validation=9))[1]) == 9
    assert split_cases(many[:39], DEFAULT_RECIPE) == (many[:39], ())
    curriculum = replace(tasks(), cases=kept, validation=held)
    assert [task.case for task in curriculum.validation_tasks()] == [*held]
    assert curriculum.as_dict() != tasks().as_dict()


def test_cases_workers_and_settings_distinguish_trainings() -> None:
    usual = tasks().as_dict()
    assert tasks(replace(DEFAULT_RECIPE, vllm=True, concurrency=2)).as_dict() == usual
    for other in (
        tasks(replace(DEFAULT_RECIPE, rate=1e-5)),
        tasks(replace(DEFAULT_RECIPE, lora=LoraSettings())),
        tasks(replace(DEFAULT_RECIPE, batch_size=8)),
        tasks(replace(DEFAULT_RECIPE, max_plan_steps=3)),
        replace(tasks(), cases=CASES[:5]),
        replace(tasks(), identities={**tasks().identities, "ann": "another"}),
    ):
        assert other.as_dict() != usual


def test_the_prompt_is_the_one_of_a_real_run(tmp_path: Path) -> None:
    system, user = rollouts(tmp_path).prompt(replace(ZERO, workers=("cat", "ann")))
    assert (system["role"], user["role"]) == ("system", "user")
    assert system["content"].endswith("The workers:\nA  cat (sums 0.50)\nB  ann (sums 0.90)")
    assert user["content"].endswith("Question:\nWhat is 0 + 1?")


def test_correct_wrong_and_invalid_plans_earn_different_rewards(tmp_path: Path) -> None:
    runs = rollouts(tmp_path)
    malformed = outcomes(runs, ["no plan", "A | 2 | Later.\n", "Z | - | Nobody."])
    assert [(outcome.reward, outcome.calls, outcome.cost) for outcome in malformed] == [
        (0.0, 0, None)
    ] * 3
    assert spent_by(runs) == 0
    right, wrong = outcomes(runs, [RIGHT, WRONG])
    assert (right.reward, right.valid, right.routes) == (1.0, True, ("ann",))
    assert (wrong.reward, wrong.valid, wrong.routes) == (0.5, True, ("bob",))
    assert (
        outcomes(rollouts(tmp_path, replace(DEFAULT_RECIPE, format_bonus=0.25)), [WRONG])[0].reward
        == 0.25
    )


def test_the_reward_is_the_mean_over_draws_less_for_steps_that_nobody_reads(tmp_path: Path) -> None:
    """A plan that holds the answer itself earns what a wrong one does.

    Although the answer is right.
    """
    # Right in every other draw
    ann = ScriptedModel(reply=lambda request: [f"It is {4 + (request.seed or 0) % 2}."])
    runs = rollouts(tmp_path, ann=ann)
    runs.draws = 4
    runs.unused_step = 0.05
    runs.tells = tells_answer
    alone, unused, answered = outcomes(
        runs,
        [RIGHT, f"B | - | Try it.\n{RIGHT}", "B | - | Try it.\nA | 1 | Say 5."],
        replace(ZERO, case=CASES[4]),
    )
    assert (alone.reward, alone.right, len(ann.requests)) == (0.75, 0.5, 12)
    assert unused.reward == pytest.approx(0.70)
    assert (answered.reward, answered.right, answered.told) == (
        0.5,
        0.5,
        True,
    )
    assert compute_metrics([alone, unused, answered], 3)["told"] == 1


def test_what_is_left_of_a_budget_is_divided_over_the_processes(tmp_path: Path) -> None:
    """Also what another process has written since: 4 of 9 are left, half of it for this process."""
    budget, another = (
        TrainingBudget(tmp_path / "spent.jsonl", Decimal("0.0090")) for _ in range(2)
    )
    request = Request(messages=(), max_tokens=1000)
    worker = POOL["ann"]
    first = another.reserve(request, worker)
    assert first is not None
    another.settle(first, Usage(cost=Decimal("0.0050"), calls=1))
    budget.share(2)
    with pytest.raises(
        LimitReached, match=r"the limit of \$0\.0090 leaves no room .*: \$0\.0050 are spent"
    ):
        budget.reserve(replace(request, max_tokens=1001), worker)


def test_a_text_that_was_cut_off_is_invalid_and_thinking_is_no_part_of_it(tmp_path: Path) -> None:
    cut = SampledPlan(exercise=ZERO, text=RIGHT, complete=False)
    thought = SampledPlan(exercise=ZERO, text=f"<think>Who adds?</think>\n{RIGHT}")
    sampled = asyncio.run(rollouts(tmp_path).outcomes([cut, thought]))
    assert [outcome.reward for outcome in sampled] == [0.0, 1.0]


def test_a_failed_worker_is_counted_separately_and_not_replaced(tmp_path: Path) -> None:
    cat = says("It is 1.")
    runs = rollouts(
        tmp_path, bob=ScriptedModel([[ModelError("auth", "the key was refused")]]), cat=cat
    )
    failing = "B | - | Answer it.\nC | 1 | Answer it."
    failed, right, wrong = outcomes(runs, [failing, RIGHT, "C | - | Try it.\nA | 1 | Answer it."])
    assert (failed.reward, failed.valid) == (None, True)
    assert (right.reward, wrong.reward) == (1.0, 1.0)
    assert len(cat.requests) == 1


def test_a_repeated_case_gets_fresh_answers_and_a_step_shares_equal_ones(tmp_path: Path) -> None:
    ann = says("It is 1.")
    runs = rollouts(tmp_path, ann=ann)
    plans = [
        SampledPlan(exercise=ZERO, text=f"{RIGHT}{end}", draw=draw)
        for draw, end in product((3, 9), ("", "\n"))
    ]
    asyncio.run(runs.outcomes(plans))
    assert sorted(request.seed or 0 for request in ann.requests) == [
        DEFAULT_RECIPE.seed + 3,
        DEFAULT_RECIPE.seed + 9,
    ]
    again = says("not asked")
    sampled = asyncio.run(rollouts(tmp_path, ann=again).outcomes(plans))
    assert not again.requests
    assert (sampled[0].reward, sampled[0].cost is not None) == (1.0, True)


def test_the_draw_of_a_plan_is_the_number_of_its_exercise(tmp_path: Path) -> None:
    pytest.importorskip(
        "accelerate", reason="accelerate is not installed: pip install 'conductor-llm[train]'"
    )
    ann = says("It is 1.")
    curriculum = replace(tasks(replace(DEFAULT_RECIPE, group=1)), cases=CASES[:1])
    job = TrainingJob(
        curriculum=curriculum,
        rollouts=rollouts(tmp_path, ann=ann, bob=ann, cat=ann),
        directory=tmp_path,
        max_seconds=1,
        log=print,
    )
    job.rewards([RIGHT, RIGHT], [[1], [1]], [0, 7])
    assert {request.seed for request in ann.requests} == {
        DEFAULT_RECIPE.seed,
        DEFAULT_RECIPE.seed + 7,
    }


PRODUCT = Case(id="1", question="What is 6*7?", answer="42")
SOLUTION = replace(PRODUCT, answer="It is 9 and 1,009.\n#### 1,018", scorer="number")
CHOICE = Case(id="1", question="Which?", answer="B", choices=("x", "y"))


@pytest.mark.parametrize(
    ("case", "subtask", "tells"),
    [
        (PRODUCT, "Confirm that it is 42.", True),
        (PRODUCT, "Multiply, and check 421 and 4.42.", False),
        (replace(PRODUCT, question="Is 42 even, or 7?"), "Look at 42.", False),
        (replace(PRODUCT, answer="Paris"), "Say paris.", True),
        (SOLUTION, "Confirm that it is 1018.", True),
        (SOLUTION, "Confirm that it is $1,018.", True),
        (SOLUTION, "Confirm that it is 1,019.", False),
        (replace(SOLUTION, question="Is 1018 even?"), "Look at 1,018.", False),
        (CHOICE, "The answer is B.", True),
        (CHOICE, "Choose between x and y (A or B).", False),
        (CHOICE, "Show that (B) holds.", True),
    ],
)
def test_a_subtask_that_holds_the_answer_is_found(case: Case, subtask: str, tells: bool) -> None:
    """As a whole word that the question does not have.

    Of a multiple choice, the letter where it is the answer.
    """
    assert tells_answer(Task(case=case, workers=POOL.names), subtask) is tells


def test_training_ends_if_answers_cannot_be_stored(tmp_path: Path) -> None:
    runs = rollouts(tmp_path)
    assert runs.cache is not None
    runs.cache.error = OSError(28, "No space left on device")
    with pytest.raises(ConfigError, match="can no longer be stored: No space left on device"):
        outcomes(runs, [RIGHT])


def test_an_exhausted_budget_stops_all_calls(tmp_path: Path) -> None:
    big = ScriptedModel(
        reply=lambda request: [
            Chunk(text="9"),
            Chunk(usage=Usage(tokens_out=900, calls=1), finish="stop"),
        ]
    )
    runs = rollouts(tmp_path, limit="0.01", ann=big, bob=big, cat=big)
    plans = [f"A | - | Try it.\nB | 1 | Answer it {number} times." for number in range(9)]
    with pytest.raises(LimitReached, match="leaves no room for another call: ") as caught:
        outcomes(runs, plans)
    assert caught.value.hint == "to continue, run the same command with a larger --max-cost"
    assert Decimal(0) < spent_by(runs) <= Decimal("0.01")
    assert TrainingBudget(tmp_path / "spent.jsonl").spent == spent_by(runs)


def test_a_provider_that_lies_exceeds_the_budget_by_the_calls_under_way(tmp_path: Path) -> None:
    budget = TrainingBudget(tmp_path / "spent.jsonl", Decimal("0.0035"))
    request = Request(messages=(), max_tokens=1000)
    worker = POOL["ann"]
    first = budget.reserve(request, worker)
    assert first is not None
    budget.settle(first, Usage(cost=10 * first.cost, calls=1))
    assert budget.spent == 10 * first.cost
    with pytest.raises(LimitReached):
        budget.reserve(request, worker)


def test_spending_counts_towards_the_limits_of_the_day(tmp_path: Path) -> None:
    runs = rollouts(tmp_path)
    daily_spend = DailySpend(tmp_path / "days")
    runs.orchestra = replace(runs.orchestra, daily_spend=daily_spend)
    outcomes(runs, [RIGHT, "no plan"])
    outcomes(runs, [RIGHT])
    assert daily_spend.today().calls == 1
    held = DailySpend(tmp_path / "days", DayLimits(calls=1))
    runs.orchestra = replace(runs.orchestra, daily_spend=held)
    with pytest.raises(LimitReached, match="stopped: today's limit of 1 call"):
        outcomes(runs, [WRONG])
    held.close()


def test_the_policy_applies_in_training(tmp_path: Path) -> None:
    bob = says("It is 9.")
    runs = rollouts(tmp_path, bob=bob)
    parties = {worker.name: Recipient(name=worker.name, provider=worker.name) for worker in POOL}
    pool_policy = PoolPolicy(policy=Policy(deny=("bob",)), recipients=parties)
    runs.orchestra = with_team(runs.orchestra, pool_policy=pool_policy)
    with pytest.raises(PolicyError, match=r"asks bob, and policy\.deny names bob"):
        outcomes(runs, [WRONG])
    assert not bob.requests


class Busy(ScriptedModel):
    """A worker that notes how many calls of all of its kind are under way at most."""

    active = 0
    most = 0

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        Busy.active += 1
        Busy.most = max(Busy.most, Busy.active)
        try:
            for _ in range(9):
                await asyncio.sleep(0)  # lets all others begin that may
            async for chunk in super().stream(request):
                yield chunk
        finally:
            Busy.active -= 1


@pytest.mark.parametrize(("processes", "calls"), [("1", 4), ("2", 2)])
def test_the_calls_at_a_provider_are_limited_in_training_too(
    processes: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes together keep to the limit, so each has its part of it."""
    monkeypatch.setenv("WORLD_SIZE", processes)
    places = FairPlaces(4)
    opened = Orchestra(
        team=Team(model=None, pool=POOL, workers={}),
        provider_slots=dict.fromkeys(POOL.names, places),
    )
    workers: dict[str, Model] = {name: Busy(reply=lambda _: ["1"]) for name in POOL.names}
    orchestra = bare_orchestra(
        DEFAULT_RECIPE, POOL, Limits(attempts=1), workers=workers, opened=opened
    )
    Busy.most = 0
    plans = []
    for case in CASES:
        task = Task(case=case, workers=POOL.names)
        plans += [SampledPlan(exercise=task, text=f"{label} | - | Answer it.") for label in "ABC"]
    asyncio.run(Rollouts(orchestra=orchestra).outcomes(plans))
    assert Busy.most == calls


def test_a_reserved_budget_waits_for_calls_to_end(tmp_path: Path) -> None:
    budget = TrainingBudget(tmp_path / "spent.jsonl", Decimal("0.0035"))
    request = Request(messages=(), max_tokens=1000)
    worker = POOL["ann"]
    first = budget.reserve(request, worker)
    assert first is not None
    assert budget.reserve(request, worker) is None
    budget.settle(first, Usage(cost=Decimal("0.0001"), calls=1))
    again = budget.reserve(request, worker)
    assert again is not None
    budget.settle(again, Usage(cost=Decimal("0.0020"), calls=1))
    with pytest.raises(LimitReached, match=r"\$0\.0021 are spent"):
        budget.reserve(request, worker)


def test_a_truncated_line_of_the_costs_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    path.write_text('{"cost": "0.5"}\n{"cost": "0.2')
    assert TrainingBudget(path).spent == Decimal("0.5")


async def ask(model: Model, budget: TrainingBudget, question: str = "") -> None:
    request = Request(messages=(Message(role="user", content=question),), max_tokens=9)
    async for _ in BudgetedModel(model, POOL["ann"], budget).stream(request):
        pass


def test_a_call_that_breaks_off_is_charged_for_what_it_wrote(tmp_path: Path) -> None:
    budget = TrainingBudget(tmp_path / "spent.jsonl")
    with pytest.raises(ModelError):
        asyncio.run(ask(ScriptedModel([[ModelError("connect", "nobody there")]]), budget))
    assert budget.spent == 0
    with pytest.raises(ModelError):
        asyncio.run(
            ask(ScriptedModel([["some words, and then ", ModelError("broken", "gone")]]), budget)
        )
    assert budget.spent > 0


def test_a_cancelled_call_is_charged_for_its_prompt(tmp_path: Path) -> None:
    budget = TrainingBudget(tmp_path / "spent.jsonl")
    sent = asyncio.Event()

    class Silent:
        features = ALL_FEATURES

        async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
            sent.set()
            await asyncio.Event().wait()
            yield Chunk()

        async def close(self) -> None: ...

    async def cancel() -> None:
        task = asyncio.create_task(ask(Silent(), budget, "a question " * 99))
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert budget.spent > 0


def test_the_estimate_is_a_range_for_the_remaining_steps() -> None:
    recipe = replace(DEFAULT_RECIPE, steps=10, prompts=2, group=4, draws=1, tries=1)
    whole = estimate_training(tasks(recipe), POOL)
    assert (whole.runs, whole.low.calls, whole.high.calls) == (80, 80, 400)
    assert Decimal(0) < whole.low.cost[0] < whole.high.cost[1]
    assert estimate_training(tasks(recipe), POOL, begin=5).runs == 40
    drawn = estimate_training(tasks(replace(recipe, draws=4, tries=3)), POOL)
    assert (drawn.runs, drawn.low.calls, drawn.high.calls) == (320, 320, 4800)
    none = estimate_training(tasks(recipe), POOL, begin=10)
    assert (none.runs, none.low, none.high) == (0, PlanEstimate(), PlanEstimate())
