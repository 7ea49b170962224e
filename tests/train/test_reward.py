"""Rewards of the user's own, in the place of the built-in one. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.models.base import ScriptedModel
from conductor_cli.system.user_functions import load_user_function
from conductor_cli.train.recipe import DEFAULT_RECIPE
from conductor_cli.train.reward import RewardFunction, user_reward
from tests.cli.stage import Stage, says
from tests.train.test_runs import RIGHT, WRONG, outcomes, rollouts, tasks


def reward_in(directory: Path, body: str) -> RewardFunction:
    path = directory / "rewards.py"
    path.write_text(f"def reward(run):\n    {body}\n")
    return user_reward(load_user_function(f"{path}:reward"))


def test_a_reward_of_the_users_own_takes_the_place_of_the_built_in_one(tmp_path: Path) -> None:
    """It is asked about valid plans only; what is right stays what the scorer says."""
    runs = rollouts(tmp_path)
    runs.unused_step = 0.05
    runs.reward = reward_in(
        tmp_path,
        "assert run.question == 'What is 0 + 1?' and not run.told\n"
        "    steps = len(run.plan.steps)\n"
        "    return 10 * run.score.right + steps + run.trace.usage.calls / 10"
        " + run.unused_steps / 100 + run.builtin_reward / 1000",
    )
    right, wrong, unused, invalid = outcomes(runs, [RIGHT, WRONG, f"{WRONG}\n{RIGHT}", "no plan"])
    assert right.reward == pytest.approx(11.101)
    assert wrong.reward == pytest.approx(1.1005)
    assert unused.reward == pytest.approx(12.21095)
    assert invalid.reward == 0.0
    assert [outcome.right for outcome in (right, wrong, unused, invalid)] == [1.0, 0.0, 1.0, 0.0]


def test_a_failed_worker_earns_nothing_whatever_the_users_reward_says(tmp_path: Path) -> None:
    refused = ModelError("auth", "the key was refused")
    runs = rollouts(tmp_path, bob=ScriptedModel([[refused]]))
    runs.reward = reward_in(tmp_path, "return 2")
    failed, right = outcomes(runs, [WRONG, RIGHT])
    assert (failed.reward, right.reward) == (None, 2.0)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return None", "returned None, not a finite number"),
        ("return 1 / 0", "failed: ZeroDivisionError"),
    ],
)
def test_a_reward_that_is_no_number_ends_the_training(
    tmp_path: Path, body: str, problem: str
) -> None:
    runs = rollouts(tmp_path)
    runs.reward = reward_in(tmp_path, body)
    with pytest.raises(ConfigError, match=problem):
        outcomes(runs, [RIGHT])


def test_another_reward_makes_another_training_and_none_is_as_before() -> None:
    assert "reward" not in tasks().as_dict()
    with_own_reward = tasks(replace(DEFAULT_RECIPE, reward="rewards.py:reward"))
    assert with_own_reward.as_dict() != tasks().as_dict()
    assert replace(with_own_reward, reward_digest="changed").as_dict() != with_own_reward.as_dict()


@pytest.mark.parametrize(
    ("function", "state", "message"),
    [
        ("reward", "ok", "rewards.py:reward, which takes the place of the built-in one"),
        ("missing", "failed", "rewards.py has no function missing"),
    ],
)
def test_a_dry_run_says_whether_the_reward_can_be_imported(
    stage: Stage, tmp_path: Path, function: str, state: str, message: str
) -> None:
    stage.models = {"alpha": says("It is 2."), "beta": says("It is 3.")}
    cases = tmp_path / "sums.jsonl"
    case = {"id": "s1", "question": "What is 1 + 1?", "answer": "2", "scorer": "number"}
    cases.write_text(json.dumps(case) + "\n")
    path = tmp_path / "rewards.py"
    path.write_text("def reward(run):\n    return run.builtin_reward\n")
    reward = f"reward={path}:{function}"
    done = stage.inside("train", "--cases", cases, "--set", reward, "--dry-run", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["reward"]["state"] == state
    assert message in checks["reward"]["found"]
    usual = stage.inside("train", "--cases", cases, "--dry-run", "--json")
    assert "reward" not in {check["name"] for check in usual.json["checks"]}
