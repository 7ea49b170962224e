"""What a dry run of a training says without the libraries that train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conductor_cli.app.training_forecast import (
    describe_limits,
    describe_time,
    explain_time,
    find_call_limits,
    known_call_seconds,
)
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.pool import Pool
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.train.forecast import (
    DRAWS_OF_A_GROUP,
    CallForecast,
    CallLimit,
    CallSeconds,
    Workload,
    calls_at_once,
    disk_needs,
    measure_steps,
    shorter_ways,
    validations_left,
)
from conductor_cli.train.recipe import DEFAULT_RECIPE, LoraSettings
from tests.cli.stage import Stage

TEN = CallSeconds(10.0, "assumed")


def limits(*parallel: int, runs: int = 64) -> tuple[CallLimit, ...]:
    """The limits of as many workers, with nothing that holds several of them."""
    names = ("ann", "bob", "cat")[: len(parallel)]
    worker_limits = []
    for name, at_once in zip(names, parallel, strict=True):
        worker_limits.append(CallLimit(owner="worker", workers=(name,), at_once=at_once))
    return (*worker_limits, CallLimit(owner="runs", workers=names, at_once=runs))


def forecast(
    *parallel: int, runs: int = 64, seconds: Mapping[str, CallSeconds] | None = None
) -> CallForecast:
    """The recipe's 200 steps of 256 runs, without validation, over these workers."""
    given = limits(*parallel, runs=runs)
    return CallForecast(
        workloads=(Workload(rounds=200, runs=256),),
        limits=given,
        call_seconds=seconds or dict.fromkeys(given[-1].workers, TEN),
        calls_of_run=3,
    )


def test_calls_take_as_long_as_the_places_for_them_let_them() -> None:
    """256 runs of three calls of ten seconds, 12 at once: 640 seconds a step."""
    three = forecast(4, 4, 4)
    assert three.calls == 200 * 256 * 3
    assert three.seconds == pytest.approx(200 * 640)
    assert forecast(90, 90, 90).seconds == pytest.approx(200 * 256 * 3 * 10 / 64)


def test_the_worker_with_the_fewest_places_decides_how_long_a_step_takes() -> None:
    slow = {"ann": TEN, "bob": CallSeconds(2.0, "calibration")}
    two = forecast(1, 8, seconds=slow)
    assert two.slowest.workers == ("ann",)
    assert two.seconds == pytest.approx(200 * 256 * 3 / 2 * 10)


def test_a_step_is_never_shorter_than_one_plan_whose_calls_wait_for_each_other() -> None:
    small = replace(forecast(64, 64), workloads=(Workload(rounds=10, runs=2),))
    assert small.seconds == pytest.approx(10 * 3 * 10)


def test_the_ways_to_shorten_a_training_are_named_with_their_commands() -> None:
    """Three workers do 64 calls at once with 22 each, which is 5.3 times as many."""
    ways = shorter_ways(forecast(4, 4, 4), 4)
    commands = ", ".join(
        f"conductor workers set {name} parallel=22" for name in ("ann", "bob", "cat")
    )
    assert ways[0].change.startswith(commands)
    assert ways[0].seconds == pytest.approx(200 * 120)
    assert ways[1].change.startswith("--set draws=1, at 1/4 of the cost")
    assert ways[1].seconds == pytest.approx(200 * 160)
    assert ways[2].change == "both"
    assert ways[2].seconds == pytest.approx(200 * 30)
    once = shorter_ways(forecast(4, 4, 4), 1)
    assert [way.change for way in once] == [ways[0].change]


def test_only_the_workers_that_hold_a_training_up_are_to_be_widened() -> None:
    seconds = {"ann": TEN, "bob": CallSeconds(1.0, "runs", 9)}
    ways = shorter_ways(forecast(4, 8, seconds=seconds), 1)
    assert [way.change.split(",")[0] for way in ways] == ["conductor workers set ann parallel=59"]


def test_runs_that_are_active_are_named_where_they_decide() -> None:
    ways = shorter_ways(forecast(60, 60, 60), 1)
    assert [way.change for way in ways] == ["--set concurrency=180"]
    assert ways[0].seconds == pytest.approx(200 * 256 * 3 * 10 / 180)


def test_a_model_that_does_one_thing_at_a_time_is_not_to_be_widened() -> None:
    local = CallLimit(owner="worker", workers=("ann",), at_once=1, fixed=True)
    slowest = replace(forecast(1, 4), limits=(local, *forecast(1, 4).limits[1:]))
    assert shorter_ways(slowest, 1) == []


@pytest.fixture
def settings(stage: Stage) -> Settings:
    """Three workers at one address: one with a `parallel` of its own, and a bound on all."""
    tables = [stage.worker("alpha", "parallel = 16"), stage.worker("beta"), stage.worker("gamma")]
    tables.append('[providers."127.0.0.1"]\nparallel = 20')
    stage.configure("\n".join(tables), workers=())
    return load_settings(stage.environ())


def opened(settings: Settings) -> tuple[Pool, dict[str, Model]]:
    pool = Pool(workers=settings.enabled_workers).subset(["alpha", "beta", "gamma"])
    return pool, {name: ScriptedModel() for name in pool.names}


def test_what_runs_at_once_is_told_with_what_is_a_default(settings: Settings) -> None:
    pool, models = opened(settings)
    given = find_call_limits(settings, pool, models, DEFAULT_RECIPE)
    assert calls_at_once(given) == 20
    assert describe_limits(given, settings) == (
        "20 calls at once: alpha 16, by default beta 4 and gamma 4; at most 20 at the provider "
        "127.0.0.1; 64 runs at once"
    )


def test_several_processes_share_what_a_worker_does_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    given = find_call_limits(settings, *opened(settings), DEFAULT_RECIPE)
    assert [limit.at_once for limit in given] == [15, 3, 3, 18, 192]


def test_what_a_call_takes_is_told_with_where_it_is_from(stage: Stage) -> None:
    """Of alpha there are runs; nothing is known of beta."""
    for _ in range(5):
        stage.inside("ask", "-m", "alpha", "Why?")
    settings = load_settings(stage.environ())
    pool = Pool(workers=settings.enabled_workers).subset(["alpha", "beta"])
    call_seconds = known_call_seconds(settings, pool)
    assert (call_seconds["alpha"].source, call_seconds["alpha"].calls) == ("runs", 5)
    assert call_seconds["beta"] == TEN
    models: dict[str, Model] = {name: ScriptedModel() for name in pool.names}
    given = find_call_limits(settings, pool, models, DEFAULT_RECIPE)
    two = replace(forecast(4, 4), limits=given, call_seconds=call_seconds)
    lines = explain_time(two, None, 200, []).splitlines()
    assert "(5 calls) for a call in your own runs; 10 s for a call of beta is assumed" in lines[0]
    assert lines[1].startswith("writing plans and learning come on top and were not measured")


@pytest.mark.parametrize(
    ("done", "left"), [(0, 4), (10, 3), (19, 3), (20, 2), (21, 2), (40, 1), (45, 1)]
)
def test_a_stopped_training_counts_each_validation_that_is_left(done: int, left: int) -> None:
    """Of 50 steps: at 20, at 40 and after the last, and before the first one."""
    recipe = replace(DEFAULT_RECIPE, steps=50, checkpoint_every=20)
    due = [step for step in range(done + 1, 51) if step % 20 == 0 or step == 50]
    assert validations_left(recipe, done) == len(due) + (done == 0) == left


def test_a_training_that_has_begun_tells_how_long_the_rest_takes_by_its_own_steps() -> None:
    """The first step of each session, in which the model is loaded, does not count."""
    session = [{"step": 0, "validation": {}}]
    for step in range(1, 4):
        session.append({"step": step, "seconds": 500.0 + 300 * step, "run_seconds": 200.0})
    session.append({"step": 4, "seconds": 900.0, "run_seconds": 200.0})
    measured = measure_steps(session)
    assert measured == (2, 300.0, 200.0)
    assert measure_steps(session[:2]) == (1, 800.0, 200.0)
    assert measure_steps(session[:1]) is None
    # A session whose first step took longer than all of the one before
    slow = [
        {"step": 1, "seconds": 100.0, "resumed": 0},
        {"step": 2, "seconds": 110.0, "resumed": 0},
    ]
    slow.append({"step": 3, "seconds": 500.0, "resumed": 2})
    assert measure_steps(slow) == (1, 10.0, 0.0)
    text = describe_time(forecast(4), measured, 196, DEFAULT_RECIPE)
    assert text.startswith("about 16 h 20 min for 196 steps, as long as the last 2 took here")
    four = forecast(4)
    ways = shorter_ways(four, 1)
    # 64 at once instead of 4: the runs take a sixteenth, and all else as long as before.
    assert four.seconds / ways[0].seconds == pytest.approx(16)
    rest = explain_time(four, measured, 196, ways)
    assert rest.startswith("about 6 h 7 min with conductor workers set ann parallel=64")


def test_all_that_a_training_writes_is_counted() -> None:
    """An adapter of 80 million weights: two checkpoints and the next one, the best, vLLM's."""
    lora = replace(DEFAULT_RECIPE, lora=LoraSettings())
    alone = disk_needs(lora, trained_weights=80_000_000, answers=7)
    assert (alone.checkpoints, alone.best, alone.adapters) == (2_880_000_000, 320_000_000, 0)
    assert alone.total == 3_200_000_007
    sampled = replace(lora, vllm=True)
    two = disk_needs(sampled, trained_weights=80_000_000, answers=0, processes=2, export=True)
    assert (two.adapters, two.export) == (6 * 320_000_000, 320_000_000)


@pytest.mark.parametrize(("draws", "validated"), [(4, 192), (1, 192), (1, 100)])
def test_the_guide_has_the_sums_of_the_recipe_for_one_gpu(draws: int, validated: int) -> None:
    """Three workers of ten seconds a call, with the default of 4 at once and with 22."""
    guide = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    workloads = (
        Workload(rounds=200, runs=64 * draws * DRAWS_OF_A_GROUP),
        Workload(rounds=11, runs=validated * draws),
    )
    four = replace(forecast(4, 4, 4), workloads=workloads)
    wider = four.with_wider_workers()
    assert (
        f"| {four.calls:,} | {four.seconds / 3600:.1f} h | {wider.seconds / 3600:.1f} h |" in guide
    )
