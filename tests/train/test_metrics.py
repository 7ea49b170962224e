"""The figures of training, and the file that they are kept in."""

from __future__ import annotations

from pathlib import Path

from conductor_cli.train.job import add_metrics, compute_metrics, keep_metrics, read_metrics
from conductor_cli.train.rollouts import Outcome

RIGHT = Outcome(
    reward=1.0, valid=True, steps=2, calls=2, routes=("facts", "letters"), fitting=(("facts", True), ("letters", True))
)
WRONG = Outcome(reward=0.5, valid=True, steps=1, calls=1, routes=("facts",), fitting=(("letters", False),))
MALFORMED = Outcome(reward=0.0, valid=False)
FAILED = Outcome(reward=None, valid=True, steps=1, calls=0, routes=("facts",))


def test_the_metrics_of_a_step() -> None:
    """Two groups of two, of which one has a signal."""
    found = compute_metrics([RIGHT, MALFORMED, WRONG, WRONG], 2)
    assert (found["reward"], found["valid"], found["right"], found["right_given_valid"]) == (0.5, 0.75, 0.25, 0.3333)
    assert (found["steps"], found["calls"], found["signal"]) == (1.333, 1.333, 0.5)
    assert found["routes"] == {"facts": 3, "letters": 1}
    assert found["routing_entropy"] == 0.8113
    assert found["fitting"] == {"facts": 1.0, "letters": 0.3333}


def test_a_collapse_onto_one_worker_shows() -> None:
    """The entropy is 0, whatever the reward."""
    assert compute_metrics([WRONG] * 4, 2)["routing_entropy"] == 0


def test_failed_runs_are_counted_separately() -> None:
    """They are not in the means, and a group of failed runs has no signal."""
    found = compute_metrics([RIGHT, FAILED, FAILED, FAILED], 2)
    assert (found["failed"], found["reward"], found["right"], found["right_given_valid"]) == (3, 1.0, 1.0, 1.0)
    assert found["signal"] == 0.0


def test_a_step_without_valid_plans_has_metrics() -> None:
    """So has one without any plan."""
    assert compute_metrics([MALFORMED] * 2, 2)["routing_entropy"] == 0
    assert compute_metrics([], 2)["reward"] == 0.0


def test_a_resumed_training_removes_the_lines_after_its_checkpoint(tmp_path: Path) -> None:
    """Those steps are repeated, and would be there twice."""
    path = tmp_path / "a" / "curve.jsonl"
    keep_metrics(path, 0)
    for step in (1, 2, 3):
        add_metrics(path, {"step": step, "reward": 0.123456, "by": {"x": 0.98765}})
    with path.open("a") as file:
        file.write('{"step": 4, "rew')
    keep_metrics(path, 2)
    add_metrics(path, {"step": 3, "reward": 1.0})
    assert [(line["step"], line["reward"]) for line in read_metrics(path)] == [(1, 0.1235), (2, 0.1235), (3, 1.0)]
    assert read_metrics(path)[0]["by"] == {"x": 0.9877}


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    """Before the first step."""
    assert read_metrics(tmp_path / "none") == []
