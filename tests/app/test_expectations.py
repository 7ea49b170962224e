"""What is usual, and what plans were measured to gain, is read from the user's own records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conductor_cli.app.expectations import (
    MIN_USUAL_CALLS,
    MIN_USUAL_RUNS,
    read_call_times,
    read_usual_steps,
)
from conductor_cli.app.stored_evaluations import describe_measured_gain
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.pool import Pool
from tests.cli.stage import ONE, TWO, Stage
from tests.evals.kit import cases, make_evaluation, orchestra, run_evaluation


def test_usual_plans_have_the_median_of_the_steps_of_planned_runs(stage: Stage) -> None:
    """Runs without a planner, and of plans that were given, do not count."""
    stage.plan = ONE
    for _ in range(MIN_USUAL_RUNS - 4):
        stage.inside("ask", "Why?")
    stage.inside("ask", "-m", "alpha", "Why?")
    stage.plan = TWO
    for _ in range(3):
        stage.inside("ask", "Why?")
    settings = load_settings(stage.environ())
    assert read_usual_steps(settings) is None
    stage.inside("ask", "Why?")
    assert read_usual_steps(settings) == 2
    assert read_usual_steps(replace(settings, rehearsal=True)) is None


def test_the_seconds_of_calls_are_those_of_stored_runs_with_the_same_model(stage: Stage) -> None:
    for _ in range(MIN_USUAL_CALLS - 1):
        stage.inside("ask", "-m", "alpha", "Why?")
    stage.inside("ask", "-m", "beta", "Why?")
    settings = load_settings(stage.environ())
    pool = Pool(workers=settings.enabled_workers)
    assert read_call_times(settings, pool) == {}
    stage.inside("ask", "-m", "alpha", "Why?")
    times = read_call_times(settings, pool)
    assert list(times) == ["alpha"]
    assert times["alpha"].calls == MIN_USUAL_CALLS
    assert 0 < times["alpha"].seconds < 60
    others = Pool(workers=tuple(replace(worker, model="another") for worker in pool))
    assert read_call_times(settings, others) == {}
    assert read_call_times(replace(settings, rehearsal=True), pool) == {}


def settings_of(directory: Path) -> Settings:
    return load_settings({"CONDUCTOR_LLM_STATE_DIR": str(directory)})


def test_the_newest_evaluation_of_this_planner_says_what_plans_gain(tmp_path: Path) -> None:
    case_set = cases(12)
    by = orchestra()
    systems = ["alone:ann", "alone:bob", "conductor"]
    directory = tmp_path / "evals" / "20261129-070000-abcdef"
    run_evaluation(directory, by, case_set, systems, conductor="tiny sha256-ends:1")
    gain = describe_measured_gain(settings_of(tmp_path), "tiny sha256-ends:1")
    assert "points of right answers against " in gain
    assert "(95 % interval " in gain
    assert gain.endswith("(20261129-070000-abcdef, sums)")


def test_of_another_planner_or_without_runs_nothing_was_measured(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert describe_measured_gain(settings, "tiny") == ""
    make_evaluation(tmp_path / "evals" / "1", orchestra(), cases(2), conductor="tiny")
    assert describe_measured_gain(settings, "tiny") == ""
    run_evaluation(tmp_path / "evals" / "2", orchestra(), cases(2), conductor="other")
    assert describe_measured_gain(settings, "tiny") == ""
