"""The state of a training on disk, its curve, its metrics and its rewards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.checkpoints import (
    adapter_directory,
    best_line,
    check_same_training,
    describe_validation,
    exclusive_directory,
    last_checkpoint,
    remove_old_adapter,
    summarize_curve,
    write_settings,
)
from conductor_cli.train.job import add_metrics, compute_metrics, keep_metrics, read_metrics
from conductor_cli.train.rollouts import PlanOutcome

HOLDS = """
import sys
from pathlib import Path
from conductor_cli.train.checkpoints import exclusive_directory
with exclusive_directory(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    for step, state in ((20, '{"global_step": 20}'), (40, '{"global_st'), (60, None)):
        directory = tmp_path / f"checkpoint-{step}"
        directory.mkdir()
        if state is not None:
            (directory / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-20"
    assert last_checkpoint(tmp_path / "none") is None


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    """Settings in another order are the same settings; a damaged file counts as other settings."""
    write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})
    check_same_training(tmp_path, {"steps": 9, "rate": 0.1, "seed": 1})
    with pytest.raises(
        ConfigError, match="holds another training: it differs in max_plan_tokens, seed"
    ) as caught:
        check_same_training(tmp_path, {"seed": 2, "rate": 0.1, "steps": 9, "max_plan_tokens": 4})
    assert caught.value.hint == "remove it to start over, or choose another directory: --out"
    for damaged in (b'{"seed": 1', b"\xff\x00", b"5", b"[1, 2]", b"[" * 100_000):
        (tmp_path / "course.json").write_bytes(damaged)
        with pytest.raises(
            ConfigError, match="holds another training: it differs in rate, seed, steps"
        ):
            write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})


def test_rewards_are_of_one_python(tmp_path: Path) -> None:
    """A training that was begun before the Python was stored goes on, and stores it."""
    write_settings(tmp_path, {"seed": 1})
    write_settings(tmp_path, {"seed": 1, "eval.python": "/a/python (3.12.1)"})
    with pytest.raises(ConfigError, match=r"it differs in eval\.python"):
        check_same_training(tmp_path, {"seed": 1, "eval.python": "/b/python (3.12.1)"})


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match=r".*out cannot be written: ") as caught:
        exclusive_directory(tmp_path / "out").__enter__()
    assert caught.value.hint == "choose another directory: --out"


def test_two_trainings_cannot_share_a_directory_until_one_is_killed(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another training is running in ") as caught:
            exclusive_directory(tmp_path).__enter__()
        assert caught.value.hint == "wait until it ends, or choose another directory: --out"
        process.send_signal(signal.SIGKILL)
        process.wait()
    with exclusive_directory(tmp_path):
        pass


def line(
    step: int, *, reward: float = 0.5, validated: float | None = None, **fields: Any
) -> dict[str, Any]:
    measured = {"reward": validated, "right": validated, "valid": 1.0, "cases": 20}
    return {"step": step, "reward": reward, **fields} | (
        {} if validated is None else {"validation": measured}
    )


def test_the_best_step_is_the_first_with_the_highest_reward_on_the_validation_set() -> None:
    lines = [
        line(0, validated=0.9),
        line(1),
        line(2, validated=0.6),
        line(3, reward=1.0),
        line(4, validated=0.6),
    ]
    assert best_line(lines) == lines[2]
    assert best_line(lines[:2]) is None


def test_only_the_last_two_adapters_for_vllm_are_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "weights").write_text("…")
        remove_old_adapter(tmp_path, newest=number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5"]


KILLED = """
import os, signal, sys
from pathlib import Path
from conductor_cli.train.checkpoints import adapter_directory
with adapter_directory(Path(sys.argv[1]), rank=int(sys.argv[2]), processes=2) as directory:
    (directory / "7").mkdir(parents=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_adapters_that_a_killed_training_has_left_are_removed_by_the_next_one(
    tmp_path: Path,
) -> None:
    """Also where it has fewer processes. What it writes itself does not stay either."""
    source = Path(__file__).resolve().parents[2] / "src"
    for rank in ("0", "1"):
        command = [sys.executable, "-c", KILLED, str(tmp_path), rank]
        environ = {**os.environ, "PYTHONPATH": str(source)}
        assert subprocess.run(command, env=environ, check=False).returncode == -signal.SIGKILL
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/*")}
    assert left == {"handed-to-vllm/0/7", "handed-to-vllm/1/7"}
    with adapter_directory(tmp_path, rank=0, processes=1) as directory:
        assert list(tmp_path.glob("*/*")) == []
        (directory / "1").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []


def test_the_interval_of_a_validation_leaves_out_cases_in_which_a_worker_failed() -> None:
    shares = {"right": 0.5, "valid": 1.0, "cases": 20, "failed": 10}
    # Five of ten, not ten of twenty
    assert describe_validation({"validation": shares}) == (
        "0.500 right (0.24 to 0.76), 1.000 valid, 10 of 20 cases, as a worker failed in the others"
    )
    none = {"right": 0.0, "valid": 0.0, "cases": 3, "failed": 3}
    assert describe_validation({"validation": none}) == "none of 3 cases could be judged"


def test_the_best_of_several_validations_is_told_to_look_better_than_it_is() -> None:
    lines = [line(0, validated=0.5), line(1, validated=0.55), line(2, validated=0.5)]
    summary = summarize_curve(lines)
    assert summary[2].startswith("validation at step 1, the best of 2: 0.550 right")
    assert summary[3].startswith("the best of 2 on the same cases looks better than it is")


def test_the_summary_has_rewards_validation_and_suspicious_plans() -> None:
    lines = [
        line(0, validated=0.3),
        line(1, reward=0.2, told=2, failed=1),
        line(2, reward=0.7, validated=0.6, told=1),
    ]
    assert summarize_curve(lines) == [
        "reward: 0.200 at the beginning, 0.700 at the end",
        "validation before training: 0.300 right (0.15 to 0.52), 1.000 valid, 20 cases",
        "validation at step 2, the only one: 0.600 right (0.39 to 0.78), 1.000 valid, 20 cases",
        "3 plans with the answer in a subtask: read some of them (metric told)",
        "1 plan without a reward, because a worker failed",
    ]
    assert summarize_curve([]) == []
    helpless = summarize_curve([line(0, validated=0.6), line(1, validated=0.6)])
    assert helpless[-1] == "no checkpoint is better on the validation set than the untrained model"


RIGHT = PlanOutcome(
    reward=1.0, right=1.0, valid=True, steps=2, calls=2, routes=("facts", "letters")
)
WRONG_OUTCOME = PlanOutcome(reward=0.5, valid=True, steps=1, calls=1, routes=("facts",))
MALFORMED = PlanOutcome(reward=0.0, valid=False)
FAILED = PlanOutcome(reward=None, valid=True, steps=1, calls=0, routes=("facts",))


def test_the_metrics_of_a_step() -> None:
    metrics = compute_metrics([RIGHT, MALFORMED, WRONG_OUTCOME, WRONG_OUTCOME], 2)
    assert (
        metrics["reward"],
        metrics["valid"],
        metrics["right"],
        metrics["right_given_valid"],
    ) == (
        0.5,
        0.75,
        0.25,
        0.3333,
    )
    assert (metrics["steps"], metrics["calls"], metrics["signal"]) == (1.333, 1.333, 0.5)
    assert metrics["routes"] == {"facts": 3, "letters": 1}
    assert metrics["routing_entropy"] == 0.8113
    assert [
        compute_metrics(step, 2)["routing_entropy"]
        for step in ([WRONG_OUTCOME] * 4, [MALFORMED] * 2, [])
    ] == [0, 0, 0]
    failed = compute_metrics([RIGHT, FAILED, FAILED, FAILED], 2)
    assert (failed["failed"], failed["reward"], failed["right_given_valid"], failed["signal"]) == (
        3,
        1.0,
        1.0,
        0.0,
    )


def test_a_resumed_training_removes_the_lines_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a" / "curve.jsonl"
    keep_metrics(path, 0)
    for step in (1, 2, 3):
        add_metrics(path, {"step": step, "reward": 0.123456, "by": {"x": 0.98765}})
    with path.open("a") as file:
        file.write('{"step": 4, "rew')
    keep_metrics(path, 2)
    add_metrics(path, {"step": 3, "reward": 1.0})
    assert [(line["step"], line["reward"]) for line in read_metrics(path)] == [
        (1, 0.1235),
        (2, 0.1235),
        (3, 1.0),
    ]
    assert read_metrics(path)[0]["by"] == {"x": 0.9877}


def cases_line(step: int, rights: list[float]) -> dict[str, Any]:
    share = sum(rights) / len(rights)
    figures = {"reward": share, "right": share, "valid": 1.0, "cases": len(rights)}
    measured: dict[str, Any] = {**figures, "rewards": rights, "rights": rights}
    return {"step": step, "reward": share, "validation": measured}


def test_the_best_checkpoint_is_measured_on_cases_that_did_not_choose_it() -> None:
    lines = [cases_line(0, [0.0] * 40), cases_line(1, [1.0] * 40)]
    summary = summarize_curve(lines)
    assert (
        "on the 20 cases that did not choose it: 1.000 right, 0.000 before training" in summary[-1]
    )
    assert "(p 0.000)" in summary[-1]


def test_a_training_that_teaches_nothing_is_seldom_said_to_teach_something() -> None:
    """The best of ten draws around the untrained model looks better, and is not proved to be."""
    random = Random(1)
    claims = 0
    for _ in range(200):
        draws = [[float(random.random() < 0.5) for _ in range(64)] for _ in range(11)]
        summary = summarize_curve([cases_line(step, rights) for step, rights in enumerate(draws)])
        claims += "before training (p" in summary[-1]
    assert claims <= 10
