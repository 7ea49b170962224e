"""A real conductor's training with a model small enough for seconds: cut, killed, resumed, out of money, broken."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "trl", "datasets", "peft")):
    pytest.skip("trl is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import torch

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ConductorUnusable, ConfigError, LimitReached, ModelError
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.usage import Price
from conductor_cli.evals import scorers
from conductor_cli.evals.cases import Case
from conductor_cli.models.llama.model_info import read_model_info
from conductor_cli.models.scripted import ScriptedModel
from conductor_cli.run.conductor import Conductor
from conductor_cli.train import distributed, grpo, session
from conductor_cli.train.base_model import find_base_model
from conductor_cli.train.checkpoints import last_checkpoint
from conductor_cli.train.job import TrainingJob
from conductor_cli.train.metrics import read_metrics
from conductor_cli.train.metrics_callback import MetricsCallback
from conductor_cli.train.recipe import PUBLISHED, LoraSettings, Recipe
from conductor_cli.train.rollouts import SampledPlan
from conductor_cli.train.session import (
    TrainingSession,
    check_exportable,
    export_result,
    open_rollouts,
    run_session,
    trl_arguments,
)
from conductor_cli.train.tasks import TaskCurriculum
from tests.train import tiny

CASES = tuple(
    Case(id=f"c{number}", question=f"What is {number} + 1?", answer=str(number + 1), scorer="number")
    for number in range(5)
)  # fmt: skip
PRICE = Price(input=Decimal(1), output=Decimal(2))
POOL = Pool(
    workers=tuple(
        Worker(name=name, kind="openai", model=name, price=PRICE, card=Card(strengths={"sums": good}, measured=True))
        for name, good in (("ann", 0.9), ("bob", 0.1), ("cat", 0.5))
    )
)
RECIPE = replace(
    PUBLISHED, steps=3, prompts=2, group=4, batch_size=8, max_plan_tokens=4, warmup=0, rate=1e-2, vllm="off",
    checkpoint_every=1, lora=LoraSettings(rank=2),
)  # fmt: skip
RECIPE = replace(RECIPE, lora=replace(RECIPE.lora or LoraSettings(), rate=1e-3))
WHOLE = replace(RECIPE, lora=None)
TIMES = ("seconds", "run_seconds")


def adds(request: Request) -> list[str]:
    """A worker that adds, and one that cannot, by whom it is asked for."""
    text = request.messages[-1].content
    number = int(text.partition("What is ")[2].partition(" ")[0])
    return [f"It is {number + 1}."]


def models(**other: Any) -> dict[str, Any]:
    return {"ann": ScriptedModel(reply=adds), "bob": knows_not(), "cat": knows_not(), **other}


def knows_not() -> ScriptedModel:
    return ScriptedModel(reply=lambda request: ["It is 99."])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny.base(tmp_path_factory.mktemp("base"), context=8192)


@contextmanager
def staged(
    base: Path, directory: Path, recipe: Recipe = RECIPE, workers: Any = None, limit: str = "", **changes: Any
) -> Iterator[TrainingSession]:
    """All that a stage is made of, over scripted workers."""
    opened = Conductor(model=None, pool=POOL, workers=workers or models())
    most = Decimal(limit) if limit else None
    with open_rollouts(directory, recipe, opened, most) as rollouts, asyncio.Runner() as runner:
        tasks = TaskCurriculum(
            recipe=recipe, cases=CASES, workers=POOL.names, identities={name: name for name in POOL.names}
        )
        values = {
            "base": find_base_model(str(base), recipe.lora), "curriculum": tasks, "rollouts": rollouts, "prompt": 6000,
            "directory": directory, "max_seconds": 1e9, "log": lambda _: None, "run_async": runner.run,
        }  # fmt: skip
        yield TrainingSession(**{**values, **changes})


def curve(directory: Path) -> list[dict[str, Any]]:
    lines = read_metrics(directory / "curve.jsonl")
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def weights(directory: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    checkpoint = last_checkpoint(directory)
    assert checkpoint is not None
    found: dict[str, Any] = load_file(next(checkpoint.glob("*model.safetensors")))
    return found


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill in the third step of `trained` would have left: the files as they stood then, and nothing later."""
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def trained(base: Path, killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course of three steps in one go."""
    directory = tmp_path_factory.mktemp("trained")

    def say(line: str) -> None:
        if line.startswith("step 3"):
            shutil.copytree(directory, killed, dirs_exist_ok=True)

    with staged(base, directory, log=say) as stage:
        assert run_session(stage)
    return directory


def test_a_training_writes_metrics_an_adapter_and_its_costs(trained: Path) -> None:
    """The metrics of three steps, whose rewards differ, what each run cost, and what was spent: every call once."""
    lines = curve(trained)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert any(line["signal"] for line in lines)
    assert all(line["failed"] == 0 for line in lines)
    paid = [float(line["cost"]) for line in read_metrics(trained / "spent.jsonl")]
    assert lines[-1]["spent"] == pytest.approx(sum(paid), rel=1e-3)
    assert any(weight.abs().sum() > 0 for name, weight in weights(trained).items() if "lora_B" in name)


def test_an_interrupted_training_resumes_to_the_same_metrics_and_weights(
    base: Path, trained: Path, tmp_path: Path
) -> None:
    """Draws, optimizer, tasks and answers are those of a training that was never cut; what was spent, too."""
    with staged(base, tmp_path, max_seconds=0) as stage:
        assert not run_session(stage)
    assert [line["step"] for line in curve(tmp_path)] == [1]
    with staged(base, tmp_path) as stage:
        assert run_session(stage)
    assert curve(tmp_path) == curve(trained)
    one, two = weights(trained), weights(tmp_path)
    assert all(torch.equal(weight, two[name]) for name, weight in one.items())


def test_a_killed_training_resumes_to_the_same_metrics_without_new_calls(
    base: Path, trained: Path, killed: Path
) -> None:
    """Killed in the third step: metrics and costs are those of a training that was never killed."""
    assert curve(killed)[-1]["step"] == 3
    assert last_checkpoint(killed) == killed / "checkpoint-2"
    silent = {name: ScriptedModel([[ModelError("auth", "nobody is to be asked again")]]) for name in POOL.names}
    with staged(base, killed, workers=silent) as stage:
        assert run_session(stage)
    assert curve(killed) == curve(trained)


def test_all_weights_can_be_trained(base: Path, tmp_path: Path) -> None:
    """In 32 bits, whatever the file has. A finished training does nothing more."""
    with staged(base, tmp_path, replace(WHOLE, steps=1)) as stage:
        assert run_session(stage)
        assert run_session(stage)
    assert {weight.dtype for weight in weights(tmp_path).values()} == {torch.float32}
    assert len(curve(tmp_path)) == 1


def test_weights_that_are_not_finite_stop_the_training(base: Path, tmp_path: Path) -> None:
    """They are never stored, and the error names the last good checkpoint."""
    with staged(base, tmp_path, replace(RECIPE, steps=9), max_seconds=0) as stage:
        run_session(stage)
    good = last_checkpoint(tmp_path)
    with staged(base, tmp_path, replace(RECIPE, steps=9)) as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr("conductor_cli.train.metrics_callback._is_finite", lambda model: False)
        with pytest.raises(ConfigError, match="are not finite numbers after step 2") as told:
            run_session(stage)
    assert told.value.hint == f"the last good checkpoint is {good}"
    assert last_checkpoint(tmp_path) == good


@pytest.mark.parametrize("figures", [{"loss": float("nan")}, {"loss": 0.0, "grad_norm": float("inf")}])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_training(
    base: Path, tmp_path: Path, figures: dict[str, float]
) -> None:
    """No process sees all of the weights if they are sharded, but each sees loss and gradient."""
    with staged(base, tmp_path) as stage:
        school = TrainingJob(
            curriculum=stage.curriculum, rollouts=stage.rollouts, directory=tmp_path, max_seconds=1e9,
            log=lambda _: None,
        )  # fmt: skip
        keeper = MetricsCallback(school, step=0)
    control = SimpleNamespace(should_training_stop=False, should_save=True)
    keeper.on_log(None, SimpleNamespace(global_step=4), control, logs={"loss": 0.1})
    assert (keeper.broken_step, control.should_training_stop, control.should_save) == (0, False, True)
    keeper.on_log(None, SimpleNamespace(global_step=5), control, logs=figures)
    assert (keeper.broken_step, control.should_training_stop, control.should_save) == (5, True, False)


@pytest.mark.parametrize(
    ("error", "room", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), 1 << 40, "not enough memory for a training step"),
        (ConnectionError("refused"), 1 << 40, "the vLLM server off does not answer: refused"),
        (RuntimeError("file write failed"), 1 << 10, "a checkpoint could not be written"),
        (RuntimeError("unexpected pos 64 vs 0"), 1 << 40, "a checkpoint could not be written"),
        (OSError(27, "File too large"), 1 << 40, "a checkpoint could not be written"),
        (RuntimeError("probability tensor contains either `inf`"), 1 << 40, "the logits are not finite numbers"),
    ],
)
def test_a_lack_of_memory_disk_or_server_is_explained(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, room: int, said: str
) -> None:
    """Each is one error with what to do."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"{grpo.__name__}.GRPOTrainer.train", fails)
    monkeypatch.setattr(grpo, "free_bytes", lambda _: room)
    with staged(base, tmp_path) as stage, pytest.raises(ConfigError, match=said):
        run_session(stage)


def test_a_damaged_checkpoint_is_named(base: Path, trained: Path, tmp_path: Path) -> None:
    """Its state is complete, but another of its files is damaged: the error names the directory to remove."""
    directory = tmp_path / "out"
    shutil.copytree(trained, directory)
    shutil.rmtree(directory / "checkpoint-3")
    (directory / "checkpoint-2" / "optimizer.pt").write_bytes(b"PK cut off")
    with staged(base, directory) as stage, pytest.raises(ConfigError, match=r"checkpoint-2 is damaged") as told:
        run_session(stage)
    assert told.value.hint.startswith("remove it")


def test_an_internal_error_is_not_reported_as_a_full_disk(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk has room, the error is raised as it is."""
    monkeypatch.setattr(session, "trl_arguments", lambda *_: {"nothing": 1, "like": 2})
    with staged(base, tmp_path) as stage, pytest.raises(TypeError):
        run_session(stage)


def test_a_cost_limit_ends_the_training_and_a_larger_one_continues_it(base: Path, tmp_path: Path) -> None:
    """What was spent is remembered, and no answer is paid for twice."""
    with staged(base, tmp_path, limit="0.0086") as stage, pytest.raises(LimitReached) as told:
        run_session(stage)
    assert told.value.hint == "to continue, run the same command with a larger --max-cost"
    with staged(base, tmp_path, limit="100") as stage:
        assert stage.rollouts.budget is not None
        assert 0 < stage.rollouts.budget.spent <= Decimal("0.0086")
        assert run_session(stage)


def test_a_scorer_that_raises_ends_the_training_and_names_the_case(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error in the reward, not in a plan."""

    def raises(*_: object) -> bool:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(scorers.SCORERS, "number", replace(scorers.SCORERS["number"], is_correct=raises))
    with staged(base, tmp_path) as stage, pytest.raises(ConfigError, match=r"the scorer number failed on case 'c\d'"):
        run_session(stage)


def test_workers_that_fail_in_most_runs_end_the_training(base: Path, tmp_path: Path) -> None:
    """The error gives the reason. Invalid plans were never run and do not count."""
    refused = ScriptedModel([[ModelError("auth", "the key was refused")]])
    broken = dict.fromkeys(POOL.names, refused)
    with staged(base, tmp_path, workers=broken) as stage:
        texts = ["A | - | Answer it.", "B | - | Answer it.", "no plan", "nor this", "nor that"]
        written = [
            SampledPlan(exercise=stage.curriculum.exercise(number), text=text) for number, text in enumerate(texts)
        ]
        said = r"workers failed in 2 of the 2 plans of a step that were run.*: the key was refused"
        with pytest.raises(ConfigError, match=said):
            asyncio.run(stage.rollouts.outcomes(written))


def test_the_plans_of_a_step_are_divided_over_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are sampled, however many processes there are; what cannot be divided is refused."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    given = trl_arguments(replace(PUBLISHED, vllm="off"), 100)
    assert (given["per_device_train_batch_size"], given["gradient_accumulation_steps"]) == (4, 8)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="256 plans a step cannot be divided over 3 processes in batches of 4"):
        trl_arguments(PUBLISHED, 100)


@pytest.mark.parametrize(("merged", "name"), [(False, "adapter.gguf"), (True, "conductor.gguf")])
def test_the_export_is_a_file_that_llama_cpp_loads(base: Path, trained: Path, merged: bool, name: str) -> None:
    """An adapter, or a whole model with the adapter in its weights; what was made on the way is gone."""
    path = export_result(trained, find_base_model(str(base), RECIPE.lora), RECIPE, merged=merged)
    assert path == trained / name
    assert read_model_info(path).architecture == "qwen2"
    assert not (trained / "merged").exists()


def test_an_export_without_room_leaves_nothing_and_can_be_repeated(
    base: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is looked at first; the checkpoint stays."""
    known = sorted(trained.iterdir())
    usage = shutil.disk_usage(trained)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    for merged in (False, True):
        with pytest.raises(ConductorUnusable, match="more bytes do not fit on the disk"):
            export_result(trained, find_base_model(str(base), RECIPE.lora), RECIPE, merged=merged)
    assert sorted(trained.iterdir()) == known


def test_an_architecture_without_export_is_refused(base: Path) -> None:
    """Before any training is wasted."""
    with pytest.raises(ConfigError, match=r".* is a llama model, and the export supports qwen2"):
        check_exportable(replace(find_base_model(str(base)), architecture="llama"))


class Met:
    """Two processes that have met, of which this is one: the other has the items `other`."""

    def __init__(self, rank: int, other: list[int], told: Any = None) -> None:
        self.rank, self.other, self.told = rank, other, told

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_world_size(self) -> int:
        return 2

    def get_rank(self) -> int:
        return self.rank

    def all_gather_object(self, every: list[Any], mine: Any) -> None:
        every[:] = [mine, self.other] if self.rank == 0 else [self.other, mine]

    def broadcast_object_list(self, told: list[Any], src: int) -> None:
        self.told = told[0] = told[0] if self.rank == src else self.told


def test_the_first_of_several_processes_works_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the results for its own items, an exception is raised in all, and all stop if one wants to."""
    first = Met(0, [3])
    monkeypatch.setattr("torch.distributed", first)
    assert distributed.run_on_first([1, 2], lambda items: [10 * item for item in items]) == [10, 20]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("torch.distributed", Met(1, [1, 2], first.told))
    assert distributed.run_on_first([3], lambda items: pytest.fail("asked twice")) == [30]
    assert distributed.any_process(False) is True  # the other says [1, 2], which is not nothing
    monkeypatch.setattr("torch.distributed", Met(1, [1], (None, LimitReached("no money"))))
    with pytest.raises(LimitReached, match="no money"):
        distributed.run_on_first([3], lambda items: items)


def test_the_sampler_is_configured_for_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, in the training processes with room for prompt and plan, or a server by its URL."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert trl_arguments(replace(PUBLISHED, vllm="off"), 100)["use_vllm"] is False
    assert trl_arguments(PUBLISHED, 3000)["vllm_max_model_length"] == 3000 + PUBLISHED.max_plan_tokens
    served = trl_arguments(replace(PUBLISHED, vllm="http://host:8000"), 3000)
    assert (served["vllm_mode"], served["vllm_server_base_url"]) == ("server", "http://host:8000")
