"""Training with a tiny model: interrupted, killed, resumed, out of money, broken."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if any(
    importlib.util.find_spec(name) is None
    for name in ("torch", "transformers", "trl", "datasets", "peft")
):
    pytest.skip("trl is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import torch
from safetensors.torch import load_file
from trl.generation import vllm_generation

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ConfigError, LimitReached, ModelError
from conductor_cli.core.plan_formats.published import PREFILL
from conductor_cli.evals import scorers
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.llama.gguf import read_header_and_tensors
from conductor_cli.run import Orchestra, Team
from conductor_cli.train import grpo
from conductor_cli.train.base_model import check_memory, find_base_model, load_model
from conductor_cli.train.checkpoints import best_checkpoint, best_line, last_checkpoint, step_of
from conductor_cli.train.grpo import (
    MetricsCallback,
    export_adapter,
    open_rollouts,
    run_session,
    trl_arguments,
)
from conductor_cli.train.job import TaskCurriculum, TrainingJob, read_metrics
from conductor_cli.train.recipe import DEFAULT_RECIPE, LoraSettings, Recipe
from conductor_cli.train.rollouts import SampledPlan
from tests.train import tiny
from tests.train.test_runs import CASES as ALL
from tests.train.test_runs import POOL

CASES = ALL[:5]
RECIPE = replace(
    DEFAULT_RECIPE,
    steps=3,
    prompts=2,
    group=4,
    batch_size=8,
    max_plan_tokens=4,
    warmup=0,
    rate=1e-2,
    draws=2,
    checkpoint_every=1,
    lora=LoraSettings(rank=2, rate=1e-3),
)
WHOLE = replace(RECIPE, lora=None)
TIMES = ("seconds", "run_seconds", "resumed")


def adds(request: Request) -> list[str]:
    """The script of a worker that can add."""
    number = int(request.messages[-1].content.partition("What is ")[2].partition(" ")[0])
    return [f"It is {number + 1}."]


def models() -> dict[str, Any]:
    wrong = {name: ScriptedModel(reply=lambda request: ["It is 99."]) for name in ("bob", "cat")}
    return {"ann": ScriptedModel(reply=adds), **wrong}


@contextmanager
def opened_job(
    directory: Path,
    recipe: Recipe = RECIPE,
    workers: Any = None,
    limit: str = "",
    held_out: int = 0,
    kind: type[TrainingJob] = TrainingJob,
    **changes: Any,
) -> Iterator[TrainingJob]:
    """A training over scripted workers."""
    opened = Orchestra(team=Team(model=None, pool=POOL, workers=workers or models()))
    most = Decimal(limit) if limit else None
    with open_rollouts(directory, recipe, opened, most) as rollouts, asyncio.Runner() as runner:
        tasks = TaskCurriculum(
            recipe=recipe,
            cases=CASES[: len(CASES) - held_out],
            workers=POOL.names,
            identities={name: name for name in POOL.names},
            validation=CASES[len(CASES) - held_out :],
        )
        values = {"max_seconds": 1e9, "log": lambda _: None, "run_async": runner.run, **changes}
        yield kind(curriculum=tasks, rollouts=rollouts, directory=directory, **values)


def train(base: Path, directory: Path, recipe: Recipe = RECIPE, **changes: Any) -> bool:
    """Train for one session; whether all steps are done."""
    with opened_job(directory, recipe, **changes) as opened:
        return run_session(find_base_model(str(base), recipe.lora), recipe, opened)


def curve(directory: Path) -> list[dict[str, Any]]:
    lines = read_metrics(directory / "curve.jsonl")
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def weights(directory: Path) -> dict[str, Any]:
    checkpoint = last_checkpoint(directory)
    assert checkpoint is not None
    tensors: dict[str, Any] = load_file(next(checkpoint.glob("*model.safetensors")))
    return tensors


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill in the third step of `trained` would have left on disk."""
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def trained(base: Path, killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of three steps in one session."""
    directory = tmp_path_factory.mktemp("trained")

    def say(line: str) -> None:
        if line.startswith("step 3"):
            shutil.copytree(directory, killed, dirs_exist_ok=True)

    assert train(base, directory, log=say)
    return directory


def test_a_training_writes_metrics_an_adapter_and_its_costs(trained: Path) -> None:
    lines = curve(trained)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert any(line["signal"] for line in lines)
    assert all(line["failed"] == 0 for line in lines)
    paid = [float(line["cost"]) for line in read_metrics(trained / "spent.jsonl")]
    assert lines[-1]["spent"] == pytest.approx(sum(paid), rel=1e-3)
    assert any(
        weight.abs().sum() > 0 for name, weight in weights(trained).items() if "lora_B" in name
    )


def test_an_interrupted_training_resumes_to_the_same_result(
    base: Path, trained: Path, tmp_path: Path
) -> None:
    assert not train(base, tmp_path, max_seconds=0)
    assert [line["step"] for line in curve(tmp_path)] == [1]
    assert train(base, tmp_path)
    assert curve(tmp_path) == curve(trained)
    whole = weights(trained)
    resumed = weights(tmp_path)
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_a_killed_training_resumes_without_new_calls(
    base: Path, trained: Path, killed: Path
) -> None:
    assert curve(killed)[-1]["step"] == 3
    assert last_checkpoint(killed) == killed / "checkpoint-2"
    silent = {
        name: ScriptedModel([[ModelError("auth", "nobody is to be asked again")]])
        for name in POOL.names
    }
    assert train(base, killed, workers=silent)
    assert curve(killed) == curve(trained)


@pytest.fixture(scope="module")
def validated(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two steps with two cases held out, killed while the second step was written."""
    directory = tmp_path_factory.mktemp("whole")
    cut = tmp_path_factory.mktemp("cut")

    def say(line: str) -> None:
        if line.startswith("step 2"):
            shutil.copytree(directory, cut, dirs_exist_ok=True, symlinks=True)

    brief = replace(RECIPE, steps=2)
    assert train(base, directory, brief, log=say, held_out=2)
    assert train(base, cut, brief, held_out=2)
    assert curve(cut) == curve(directory)
    return cut


def test_the_best_checkpoint_by_validation_is_kept_beside_the_last(
    base: Path, validated: Path
) -> None:
    """The validation is measured before training and at each checkpoint."""
    lines = curve(validated)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all(line["validation"]["cases"] == 2 for line in lines)
    best = best_line(lines)
    assert best is not None
    assert step_of(best_checkpoint(validated)) == best["step"]
    names = {path.name for path in (validated / "best").iterdir()}
    assert "adapter_model.safetensors" in names
    assert not [name for name in names if name.startswith(("optimizer", "rng_state", "scheduler"))]
    assert export_adapter(validated, find_base_model(str(base), RECIPE.lora)).is_file()


def test_a_plan_without_an_end_is_incomplete_in_a_validation(base: Path, tmp_path: Path) -> None:
    train(base, tmp_path, replace(RECIPE, steps=1, max_plan_tokens=1), held_out=3)
    assert [line["validation"]["valid"] for line in curve(tmp_path)] == [0, 0]


def _note_batches(monkeypatch: pytest.MonkeyPatch, *, fitting: int = 99) -> list[int]:
    """Return the batches of validations from now on; larger ones than `fitting` lack memory."""
    batches = list[int]()
    write = grpo._Trainer.likeliest

    def noting(trainer: Any, exercises: Any) -> Iterator[SampledPlan]:
        batches.append(len(exercises))
        if len(exercises) > fitting:
            raise torch.OutOfMemoryError
        yield from write(trainer, exercises)

    monkeypatch.setattr(grpo._Trainer, "likeliest", noting)
    return batches


def test_a_validation_writes_as_many_plans_at_once_as_a_step(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = _note_batches(monkeypatch)
    assert train(base, tmp_path / "8", replace(RECIPE, steps=1), held_out=3)
    assert batches == [3, 3]
    batches.clear()
    assert train(base, tmp_path / "2", replace(RECIPE, steps=1, prompts=1, group=2), held_out=3)
    assert batches == [2, 1, 2, 1]


def test_a_validation_goes_on_with_half_a_batch_where_memory_is_short(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[str]()
    batches = _note_batches(monkeypatch, fitting=2)
    brief = replace(RECIPE, steps=1)
    assert train(base, tmp_path, brief, held_out=4, log=lines.append)
    assert batches == [4, 2, 2, 4, 2, 2]
    assert lines[0] == (
        "4 plans of the validation do not fit the memory at once: it goes on with 2"
    )
    assert [line["validation"]["cases"] for line in curve(tmp_path)] == [4, 4]


def test_a_training_with_the_published_template_samples_after_its_beginning(
    base: Path, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, profile="published")
    reader = find_base_model(str(base)).tokenizer
    with opened_job(tmp_path, recipe) as opened:
        rows = [grpo._row(opened, reader, number) for number in range(4)]
        lists = 'model_id = [0]\nsubtasks = ["Add."]\naccess_list = [[]]'
        exercise = opened.curriculum.exercise(0)
        plan = SampledPlan(exercise=exercise, text=f" One worker can add.\n\n{lists}")
        (outcome,) = asyncio.run(opened.rollouts.outcomes([plan]))
    assert all(row["prompt"].endswith(f"<|im_start|>assistant\n{PREFILL}") for row in rows)
    assert all("Model id 0\nModel id 1\nModel id 2<|im_end|>" in row["prompt"] for row in rows)
    assert (outcome.reward, outcome.routes) == (1.0, ("ann",))


def test_all_weights_can_be_trained(base: Path, tmp_path: Path) -> None:
    assert train(base, tmp_path, replace(WHOLE, steps=1))
    assert train(base, tmp_path, replace(WHOLE, steps=1))
    assert {weight.dtype for weight in weights(tmp_path).values()} == {torch.float32}
    assert len(curve(tmp_path)) == 1


@pytest.mark.parametrize(
    "figures", [{"loss": float("nan")}, {"loss": 0.0, "grad_norm": float("inf")}]
)
def test_a_loss_or_gradient_that_is_not_finite_stops_the_training(
    tmp_path: Path, figures: dict[str, float]
) -> None:
    with opened_job(tmp_path) as opened:
        callback = MetricsCallback(opened, step=0)
    control = SimpleNamespace(should_training_stop=False, should_save=True)
    callback.on_log(None, SimpleNamespace(global_step=4), control, logs={"loss": 0.1})
    assert (callback.broken_step, control.should_training_stop, control.should_save) == (
        0,
        False,
        True,
    )
    callback.on_log(None, SimpleNamespace(global_step=5), control, logs=figures)
    assert (callback.broken_step, control.should_training_stop, control.should_save) == (
        5,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "not enough memory for a training step"),
        (
            RuntimeError("unexpected pos 64 vs 0"),
            "training stopped after step 0: unexpected pos 64",
        ),
        (
            OSError(28, "No space left on device"),
            "training stopped after step 0: .*No space left on device",
        ),
    ],
)
def test_a_lack_of_memory_or_disk_is_explained(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"{grpo.__name__}.GRPOTrainer.train", fails)
    with pytest.raises(ConfigError, match=message):
        train(base, tmp_path)


def test_a_damaged_checkpoint_is_named(base: Path, trained: Path, tmp_path: Path) -> None:
    directory = tmp_path / "out"
    shutil.copytree(trained, directory)
    shutil.rmtree(directory / "checkpoint-3")
    (directory / "checkpoint-2" / "optimizer.pt").write_bytes(b"PK cut off")
    with pytest.raises(
        ConfigError, match="training stopped after step 2: its checkpoint cannot be read"
    ) as caught:
        train(base, directory)
    assert "checkpoint-2 if it is damaged" in caught.value.hint


def test_an_internal_error_is_no_full_disk(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "trl_arguments", lambda *_: {"nothing": 1, "like": 2})
    with pytest.raises(TypeError):
        train(base, tmp_path)


def test_a_cost_limit_ends_the_training_and_a_larger_one_continues_it(
    base: Path, tmp_path: Path
) -> None:
    with pytest.raises(LimitReached) as caught:
        train(base, tmp_path, limit="0.0082")
    assert caught.value.hint == "to continue, run the same command with a larger --max-cost"
    with opened_job(tmp_path) as opened:
        assert opened.rollouts.budget is not None
        assert 0 < opened.rollouts.budget.spent <= Decimal("0.0082")
    assert train(base, tmp_path, limit="100")


def test_a_scorer_that_raises_ends_the_training(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def raises(*_: object) -> bool:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(
        scorers.SCORERS, "number", replace(scorers.SCORERS["number"], is_correct=raises)
    )
    with pytest.raises(ConfigError, match=r"the scorer number failed on case 'c\d'"):
        train(base, tmp_path)


def test_workers_that_fail_in_most_runs_end_the_training(tmp_path: Path) -> None:
    refused = ScriptedModel([[ModelError("auth", "the key was refused")]])
    broken = dict.fromkeys(POOL.names, refused)
    with opened_job(tmp_path, workers=broken) as opened:
        texts = ["A | - | Answer it.", "B | - | Answer it.", "no plan", "nor this", "nor that"]
        written = [
            SampledPlan(exercise=opened.curriculum.exercise(number), text=text)
            for number, text in enumerate(texts)
        ]
        problem = r"workers or the scorer failed in 2 of the 2 plans of a step that were run.*: the key was refused"
        with pytest.raises(ConfigError, match=problem):
            asyncio.run(opened.rollouts.outcomes(written))


def test_the_plans_of_a_step_are_divided_over_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    arguments = trl_arguments(DEFAULT_RECIPE)
    assert (arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]) == (
        4,
        2,
    )
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(
        ConfigError, match="8 groups of 8 plans cannot be divided over 3 processes in batches of 4"
    ):
        trl_arguments(DEFAULT_RECIPE)


TWO_PROCESSES = """
import os, sys
from pathlib import Path
from tests.train.test_session import train_as_rank
other = os.fork()  # so that torch, trl and peft are imported once
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"
train_as_rank(*map(Path, sys.argv[1:]))
assert not other or os.waitpid(other, 0)[1] == 0
"""


def train_as_rank(base: Path, directory: Path) -> None:
    """One of several processes of a training; it writes how many requests its own workers got."""
    torch.set_num_threads(1)
    request_models = models()
    assert train(base, directory, replace(RECIPE, steps=2), workers=request_models, held_out=3)
    count = sum(len(model.requests) for model in request_models.values())
    (directory / f"asked-{os.environ['RANK']}").write_text(str(count))


@pytest.mark.timeout(900)  # to import torch, trl and peft takes long
def test_two_processes_train_together_and_each_runs_its_own_groups(
    base: Path, tmp_path: Path
) -> None:
    """Metrics, validation and bill are those of both, and the best checkpoint is kept."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-c", TWO_PROCESSES, str(base), str(tmp_path)]
    done = subprocess.run(
        command, env=environ, stderr=subprocess.PIPE, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = curve(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all(line["validation"]["cases"] == 3 for line in lines)
    assert all(int((tmp_path / f"asked-{rank}").read_text()) > 0 for rank in (0, 1))
    paid = [float(line["cost"]) for line in read_metrics(tmp_path / "spent.jsonl")]
    assert lines[-1]["spent"] <= sum(paid) + 1e-9
    best = best_line(lines)
    assert best is not None
    assert step_of(best_checkpoint(tmp_path)) == best["step"]
    assert any(
        weight.abs().sum() > 0 for name, weight in weights(tmp_path).items() if "lora_B" in name
    )


def test_a_group_without_a_signal_gives_way_to_another_case(base: Path, tmp_path: Path) -> None:
    """Two groups are drawn.

    Where one of them has no signal, only that one is drawn again, until the tries are used.
    """
    drawn: list[tuple[int, ...]] = []
    silent = {1, 4}

    class Marked(TrainingJob):
        def rewards(
            self, completions: Any, completion_ids: Any, number: Any, **_: object
        ) -> list[float | None]:
            TrainingJob.rewards(self, completions, completion_ids, number)
            drawn.append(tuple(dict.fromkeys(number)))
            return [float(at not in silent and position % 2) for position, at in enumerate(number)]

    recipe = replace(RECIPE, steps=1, entropy=0.0, kl=0.0)
    train(base, tmp_path / "one", recipe, kind=Marked)
    assert drawn == [(0, 1), (4,), (6,)]
    silent |= {*range(99)}
    drawn.clear()
    train(base, tmp_path / "none", recipe, kind=Marked)
    assert [len(numbers) for numbers in drawn] == [2, 2, 2]
    assert len(set(chain.from_iterable(drawn))) == 6
    assert all(
        not weight.any() for name, weight in weights(tmp_path / "none").items() if "lora_B" in name
    )
    assert any(
        weight.any() for name, weight in weights(tmp_path / "one").items() if "lora_B" in name
    )


def _sampler_of(base: Path, opened: list[dict[str, Any]], handed: list[dict[str, Any]]) -> type:
    """Return a double of vLLM, which notes its settings and the adapters that it is handed."""
    reader = find_base_model(str(base)).tokenizer
    ends = [reader.eos_token_id]

    class Sampler:
        def __init__(self, **settings: Any) -> None:
            opened.append(settings)

        def generate(self, prompts: Any, *, lora_request: Any, **_: object) -> list[Any]:
            handed.append(load_file(Path(lora_request.path) / "adapter_model.safetensors"))
            written = [
                [reader.convert_tokens_to_ids(tiny.PLANS[position % 4]), *ends]
                for position in range(len(prompts))
            ]
            return [
                SimpleNamespace(
                    prompt_token_ids=prompt["prompt_token_ids"],
                    outputs=[
                        SimpleNamespace(
                            token_ids=plan,
                            logprobs=[
                                {token: SimpleNamespace(rank=1, logprob=-1.0)} for token in plan
                            ],
                        )
                    ],
                )
                for prompt, plan in zip(prompts, written, strict=True)
            ]

        def reset_prefix_cache(self) -> None: ...

    return Sampler


def _replace_vllm(monkeypatch: pytest.MonkeyPatch, sampler: type) -> None:
    # TRL sets them for vLLM
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    request = SimpleNamespace(LoRARequest=lambda name, number, path: SimpleNamespace(path=path))
    for name, module in {"vllm": None, "vllm.lora": None, "vllm.lora.request": request}.items():
        monkeypatch.setitem(sys.modules, name, module or SimpleNamespace())
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", sampler, raising=False)
    monkeypatch.setattr(vllm_generation, "SamplingParams", SimpleNamespace, raising=False)


def test_vllm_gets_the_adapter_itself(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged into weights of 16 bits, as TRL does it, nearly all of the step is lost.

    vLLM itself is a double here.
    """
    handed = list[dict[str, Any]]()
    opened = list[dict[str, Any]]()
    _replace_vllm(monkeypatch, _sampler_of(base, opened, handed))
    lora = LoraSettings(rank=2, rate=1e-5)
    train(
        base,
        tmp_path,
        replace(RECIPE, steps=2, tries=1, kl=0.0, vllm=True, vllm_memory=0.4, lora=lora),
    )
    assert (
        opened[0]["enable_lora"],
        opened[0]["max_lora_rank"],
        opened[0]["gpu_memory_utilization"],
    ) == (True, 8, 0.4)
    before = handed[0]
    after = handed[-1]
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_{}.weight"
    first = before[name.format("B")]
    second = after[name.format("B")]
    assert not first.any()
    assert 0 < second.abs().max() <= 1.1e-5
    step = 2 * second @ after[name.format("A")]  # what alpha 64 and rank 32 make of it
    in_vllm = 2 * second.bfloat16().float() @ after[name.format("A")].bfloat16().float()
    assert (in_vllm - step).norm() < 0.01 * step.norm()
    weight = load_file(base / "model.safetensors")["model.layers.1.mlp.down_proj.weight"].bfloat16()
    merged = (weight + step.bfloat16()) - weight
    assert (merged.float() - step).norm() > 0.5 * step.norm()


def test_vllm_writes_a_whole_validation_at_once_and_its_adapters_leave_nothing_behind(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is written in the directory of the training, and nothing for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    handed = list[dict[str, Any]]()
    _replace_vllm(monkeypatch, _sampler_of(base, [], handed))
    batches = _note_batches(monkeypatch)
    kept = list[int]()

    def count_adapters(_: str) -> None:
        kept.append(len(list((tmp_path / "out").glob("handed-to-vllm/0/*"))))

    recipe = replace(RECIPE, steps=4, prompts=1, group=2, batch_size=2, tries=1, vllm=True)
    train(base, tmp_path / "out", recipe, held_out=3, log=count_adapters)
    assert set(batches) == {3}
    assert (len(handed) > 4, max(kept)) == (True, 2)
    assert not list((tmp_path / "out").glob("handed-to-vllm*"))
    assert not list(temporary.iterdir())


def test_memory_for_the_weights_is_checked(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All weights of a 7B model do not fit one GPU, and an adapter does.

    Several processes may share the weights.
    """
    large = replace(find_base_model(str(base)), weights=7_615_616_512)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * 2**30)
    )
    with pytest.raises(ConfigError, match=r"it needs 152 GB of the 85\.9 GB of a GPU"):
        check_memory(large, DEFAULT_RECIPE)
    with pytest.raises(ConfigError, match=r"it needs 122 GB of"):
        check_memory(large, replace(DEFAULT_RECIPE, kl=0.0))
    adapter = replace(large, adapter_weights=80_000_000)
    assert check_memory(adapter, DEFAULT_RECIPE).startswith("16.5 GB of the 85.9 GB")
    with_vllm = replace(DEFAULT_RECIPE, vllm=True)
    assert check_memory(adapter, with_vllm).startswith("16.5 GB and 25.8 GB for vLLM of")
    with pytest.raises(ConfigError, match=r"it needs 16\.5 GB and 77\.3 GB for vLLM"):
        check_memory(adapter, replace(with_vllm, vllm_memory=0.9))
    with pytest.raises(
        ConfigError, match=r"vLLM has 8\.59 GB, and the weights alone need 15\.2 GB"
    ):
        check_memory(adapter, replace(with_vllm, vllm_memory=0.1))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ConfigError, match="there are 4 GPUs"):
        check_memory(large, DEFAULT_RECIPE)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert check_memory(large, DEFAULT_RECIPE).startswith("152 GB")


@pytest.mark.parametrize("instruction", ["", "amx_bf16", "avx512_bf16"])
def test_frozen_weights_may_have_16_bits(
    base: Path, monkeypatch: pytest.MonkeyPatch, instruction: str
) -> None:
    """The memory that is needed follows; weights that are trained keep 32 bits."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instruction: True})
    frozen, trained = (
        load_model(find_base_model(str(base)), lora=lora)[0] for lora in (LoraSettings(), None)
    )
    assert frozen.dtype == (torch.bfloat16 if instruction else torch.float32)
    assert trained.dtype == torch.float32
    assert trl_arguments(RECIPE)["bf16"] is bool(instruction)
    large = replace(find_base_model(str(base)), weights=1_000_000_000, adapter_weights=1)
    assert check_memory(large, DEFAULT_RECIPE).startswith("2.00 GB" if instruction else "4.00 GB")


def test_weights_that_a_library_shrank_are_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason, trained weights have 32 bits."""
    model, _ = load_model(find_base_model(str(base)), lora=None)
    monkeypatch.setattr(grpo, "load_model", lambda *_, **__: (model.to(torch.bfloat16), None))
    with pytest.raises(ConfigError, match=r"the trained weights are torch\.bfloat16"):
        train(base, tmp_path, WHOLE)


def test_fsdp_has_to_store_whole_weights() -> None:
    """In parts, the best checkpoint could not be kept.

    accelerate starts FSDP on GPUs only, so it is a double here.
    """
    state = SimpleNamespace(
        fsdp_plugin=SimpleNamespace(state_dict_type="StateDictType.FULL_STATE_DICT")
    )
    trainer = SimpleNamespace(model=torch.nn.Linear(1, 1), accelerator=SimpleNamespace(state=state))
    grpo._check_weights(trainer)
    state.fsdp_plugin.state_dict_type = "StateDictType.SHARDED_STATE_DICT"
    with pytest.raises(ConfigError, match="FSDP would write checkpoints in parts"):
        grpo._check_weights(trainer)


def test_the_exported_adapter_fits_the_base_model(base: Path, trained: Path) -> None:
    path = export_adapter(trained, find_base_model(str(base), RECIPE.lora))
    header, tensors = read_header_and_tensors(path)
    assert (path, header.architecture) == (trained / "adapter.gguf", "qwen2")
    assert len(tensors) == 2 * 7 * 2
    assert tensors["blk.1.ffn_down.weight.lora_a"].shape == (64, 2)
