"""The best step of a training, and its summary. Needs no torch."""

from __future__ import annotations

from typing import Any

from conductor_cli.train.checkpoints import best_line, describe_validation, summarize_curve


def line(step: int, *, reward: float = 0.5, validated: float | None = None, **more: Any) -> dict[str, Any]:
    measured = {"reward": validated, "right": validated, "valid": 1.0, "cases": 20}
    return {"step": step, "reward": reward, **more} | ({} if validated is None else {"validation": measured})


def test_the_best_step_is_the_first_with_the_highest_reward_on_the_validation_set() -> None:
    """The model before training has no checkpoint, and a step without a validation is none."""
    lines = [line(0, validated=0.9), line(1), line(2, validated=0.6), line(3, reward=1.0), line(4, validated=0.6)]
    assert best_line(lines) == lines[2]
    assert best_line(lines[:2]) is None


def test_a_validation_is_described_with_its_interval() -> None:
    """Twenty cases say little, and the line shows it."""
    assert describe_validation(line(2, validated=0.5)) == "0.500 right (0.30 to 0.70), 1.000 valid, 20 cases"


def test_the_summary_has_rewards_validation_and_suspicious_plans() -> None:
    """Plans that held the answer are summed over all steps."""
    lines = [
        line(0, validated=0.3), line(1, reward=0.2, told=2, failed=1), line(2, reward=0.7, validated=0.6, told=1),
    ]  # fmt: skip
    assert summarize_curve(lines) == [
        "reward: 0.200 at the beginning, 0.700 at the end",
        "validation before training: 0.300 right (0.15 to 0.52), 1.000 valid, 20 cases",
        "validation at step 2, the best: 0.600 right (0.39 to 0.78), 1.000 valid, 20 cases",
        "3 plans with the answer in a subtask: read some of them (metric told)",
        "1 plan without a reward, because a worker failed",
    ]
    assert summarize_curve([]) == []


def test_a_training_that_did_not_help_says_so() -> None:
    """The best checkpoint may be worse than the model that it started from."""
    found = summarize_curve([line(0, validated=0.6), line(1, validated=0.6)])
    assert found[-1] == "no checkpoint is better on the validation set than the untrained model"
