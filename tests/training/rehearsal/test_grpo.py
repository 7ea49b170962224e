"""The cold start and GRPO on the real path, with a model small enough for seconds.

Cut, resumed, broken, exported.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

if any(
    importlib.util.find_spec(name) is None for name in ("torch", "transformers", "trl", "datasets")
):
    pytest.skip("trl is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import torch

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.checkpoints import last_checkpoint
from conductor_cli.train.job import TrainingJob, read_metrics
from tests.training.rehearsal.solvers import Solvers, plan_text
from training.rehearsal.asking import build
from training.rehearsal.exercises import EASY, STRONG, Phase, RehearsalCurriculum, draw_exercises
from training.rehearsal.grpo import train_conductor
from training.rehearsal.lessons import Size
from training.rehearsal.plan_lessons import COURSE
from training.rehearsal.rollouts import build_rollouts
from training.rehearsal.supervised import loaded, new_model, train_file
from training.rehearsal.world import draw_problems

SMALL = replace(
    COURSE,
    steps=4,
    batch=4,
    warmup=1,
    size=Size(width=32, layers=2, heads=2, key_heads=1, inner=64),
)
PRACTICE = RehearsalCurriculum(
    phases=(Phase(steps=3, pools=EASY),), prompts=2, group=2, warmup=1, max_plan_tokens=8
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    torch.set_num_threads(1)
    return build()


HELD_OUT = draw_exercises(draw_problems(2, 1, split="test"), STRONG, 1)
SOLVERS = Solvers([item.problem for item in (*map(PRACTICE.exercise, range(6)), *HELD_OUT)])


def school(directory: Path, **changes: Any) -> TrainingJob:
    values = {
        "curriculum": PRACTICE,
        "rollouts": build_rollouts(SOLVERS),
        "directory": directory,
        "max_seconds": 1e9,
        "log": lambda _: None,
    }
    return TrainingJob(**{**values, **changes})


def model(tokenizer: Any) -> Any:
    return new_model(SMALL, tokenizer.get_vocab_size())


def test_interrupted_supervised_training_resumes_and_writes_a_file(
    tmp_path: Path, tokenizer: Any
) -> None:
    lines: list[str] = []
    assert not train_file(SMALL, tmp_path, minutes=0, say=lines.append)
    assert train_file(SMALL, tmp_path, minutes=9, say=lines.append)
    state = torch.load(tmp_path / "cold.state", weights_only=True)["model"]
    weights = loaded(tmp_path / "cold.gguf", SMALL).state_dict()
    assert state.keys() == weights.keys()
    for name, weight in state.items():
        assert torch.equal(weights[name], weight.half().float() if weight.dim() > 1 else weight), (
            name
        )


def test_an_interrupted_training_resumes_to_the_same_metrics_and_weights(
    tmp_path: Path, tokenizer: Any
) -> None:
    whole = model(tokenizer)
    cut = model(tokenizer)
    assert train_conductor(whole, tokenizer, school(tmp_path / "whole"), HELD_OUT)
    assert not train_conductor(cut, tokenizer, school(tmp_path / "cut", max_seconds=0), HELD_OUT)
    again = model(tokenizer)
    assert train_conductor(again, tokenizer, school(tmp_path / "cut"), HELD_OUT)
    times = ("seconds", "run_seconds", "resumed")
    curves = [read_metrics(tmp_path / kind / "curve.jsonl") for kind in ("whole", "cut")]
    whole_curve, cut_curve = (
        [{key: line[key] for key in line if key not in times} for line in curve] for curve in curves
    )
    assert [line["step"] for line in whole_curve] == [0, 1, 2, 3]
    assert whole_curve == cut_curve
    assert "validation" in whole_curve[-1]
    weights = again.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in whole.state_dict().items())


def test_weights_that_are_not_finite_stop_the_training(tmp_path: Path, tokenizer: Any) -> None:
    broken = replace(PRACTICE, rate=1e38, entropy=1.0)
    first = school(tmp_path, curriculum=broken, max_seconds=0)
    train_conductor(model(tokenizer), tokenizer, first)
    good = last_checkpoint(tmp_path)
    with pytest.raises(ConfigError, match="are not finite numbers after step 2") as error:
        train_conductor(model(tokenizer), tokenizer, school(tmp_path, curriculum=broken))
    assert good is not None
    assert error.value.hint == f"the last good checkpoint is {good}"
    assert last_checkpoint(tmp_path) == good


def test_rewards_are_given_in_the_order_of_the_plans(tmp_path: Path) -> None:
    """As TRL hands them over: texts, tokens and the numbers of the exercises.

    A text of full length was cut off.
    """
    trainer = school(tmp_path)
    best = [plan_text(PRACTICE.exercise(number)) for number in (0, 1)]
    whole = [1]
    cut = [1] * PRACTICE.max_plan_tokens
    given = trainer.rewards(
        [best[0], best[1], "no plan", best[0]], [whole, whole, whole, cut], [0, 1, 0, 0]
    )
    assert given == [1.0, 1.0, 0.0, 0.0]
    metrics = trainer.take_metrics()
    assert (metrics["reward"], metrics["valid"], metrics["signal"]) == (0.5, 0.5, 0.0)
