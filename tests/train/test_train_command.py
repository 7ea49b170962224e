"""`conductor train` as a user runs it: requests to a local server, a tiny model, real files."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

if any(
    importlib.util.find_spec(name) is None
    for name in ("torch", "transformers", "trl", "datasets", "peft")
):
    pytest.skip("trl is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)


from tests.cli.stage import Stage, explained, says
from tests.cli.test_hygiene import opened

SUMS = [
    {
        "id": f"s{number}",
        "question": f"What is {number} + 1?",
        "answer": f"{number + 1}",
        "scorer": "number",
    }
    for number in range(1, 5)
]
Command = tuple[str | Path, ...]
SMALL = (
    "--lora",
    "--steps",
    "2",
    "--prompts",
    "2",
    "--set",
    "group=2",
    "--set",
    "draws=1",
    "--set",
    "tries=1",
)


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """A server with two workers, of which one is right in the first case."""
    stage.models = {
        "alpha": says("It is 2.", read=20, written=4),
        "beta": says("It is 3.", read=20, written=4),
    }
    return stage


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in SUMS))
    return path


@pytest.fixture
def command(base: Path, cases: Path, tmp_path: Path) -> Command:
    return ("train", "--base", base, "--cases", cases, "--out", tmp_path / "out", *SMALL)


def changed(command: Command, option: str, value: str | Path) -> Command:
    """The command with another value of an option; an option given twice is refused."""
    position = command.index(option)
    return (*command[: position + 1], value, *command[position + 2 :])


def request_count(stage: Stage) -> int:
    return sum(request.method == "POST" for request in stage.server.requests)


def state(checks: list[dict[str, Any]], name: str) -> tuple[str, str]:
    return next((check["state"], check["found"]) for check in checks if check["name"] == name)


def test_a_dry_run_checks_everything_and_changes_nothing(
    stage: Stage, command: Command, tmp_path: Path
) -> None:
    done = stage.ok(*command, "--dry-run", "--json")
    assert done.json["ok"]
    assert {check["state"] for check in done.json["checks"]} == {"ok"}
    cost = state(done.json["checks"], "cost")[1]
    assert cost == "8 runs: cost unknown, because no price is known for alpha and beta"
    assert request_count(stage) == 0
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_is_expected_and_the_most(stage: Stage, command: Command) -> None:
    """A run is 3 calls, each of 600 tokens more than the question and written.

    94 cents at these prices.
    """
    price = "price = { input = 100, output = 400 }"
    stage.configure(stage.worker("alpha", price) + "\n" + stage.worker("beta", price), workers=())
    longer = changed(command, "--steps", "200")
    done = stage.ok(*longer, "--max-cost", "50", "--dry-run", "--json")
    cost = state(done.json["checks"], "cost")[1]
    match = re.fullmatch(
        r"800 runs: about \$750.00; never more than \$([\d,.]+); at most \$50.00, (.*)", cost
    )
    assert match, cost
    assert float(match[1].replace(",", "")) > 750
    assert match[2] == "which is used up near step 13 of 200"


def test_a_dry_run_says_the_cost_though_the_model_is_missing(stage: Stage, tmp_path: Path) -> None:
    checks = stage.ends(3, "train", "--cases", "basics", "--dry-run", "--json", cwd=tmp_path).json[
        "checks"
    ]
    states = {check["name"]: check["state"] for check in checks}
    assert states.pop("memory") in ("ok", "failed")  # as this machine has it
    assert states.pop("directory") in ("ok", "failed")
    assert states == {
        "libraries": "ok",
        "base model": "failed",
        "workers": "ok",
        "parallel": "ok",
        "cases": "ok",
        "validation": "ok",
        "time": "ok",
        "cost": "ok",
    }
    assert "140 GB" in state(checks, "memory")[1]
    assert checks[1]["hint"].startswith("hf download Qwen/Qwen2.5-7B-Instruct")
    assert (
        "runs: cost unknown, because no price is known for alpha and beta"
        in state(checks, "cost")[1]
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_error_says_what_to_install(
    stage: Stage, base: Path, tmp_path: Path
) -> None:
    """A dry run says all the same what a training needs and costs.

    By the files of the model, or else by its name.
    """
    tmp_path.joinpath("torch.py").write_text("raise ImportError(\"No module named 'torch'\")\n")
    paths = os.pathsep.join([str(tmp_path), stage.environ()["PYTHONPATH"]])
    done = stage.run("train", "--cases", "basics", env={"PYTHONPATH": paths})
    assert done.code == 3
    explained(done)
    looked = stage.run(
        "train", "--cases", "basics", "--lora", "--dry-run", env={"PYTHONPATH": paths}
    )
    assert (looked.code, looked.out.count("No module named 'torch'")) == (3, 1)
    assert "by the name of the model, about 15.1 GB on a GPU" in looked.out
    assert "runs: cost unknown" in looked.out
    here = stage.run(
        "train", "--cases", "basics", "--base", base, "--dry-run", env={"PYTHONPATH": paths}
    )
    assert re.search(r"ok +memory: [\d.]+ MB on a GPU for weights and optimizer", here.out), (
        here.out
    )
    assert 'pip install "conductor-llm[train]"' in done.err


def test_two_steps_are_trained_and_a_finished_training_says_so(
    stage: Stage, command: Command, tmp_path: Path
) -> None:
    stage.ends(2, *command, told="the training may cost money and needs a confirmation")
    assert request_count(stage) == 0
    before = opened()
    done = stage.ok(*command, "--yes")
    assert opened() == before
    assert [line.split(":")[0] for line in done.out.splitlines()][:3] == [
        "step 1",
        "step 2",
        "all steps are done",
    ]
    count = request_count(stage)
    again = stage.ok(*command, "--export")
    assert request_count(stage) == count
    assert again.out.startswith("all steps are done: ")
    assert (tmp_path / "out" / "adapter.gguf").is_file()
    assert again.out.splitlines()[-1].startswith("to plan with it: conductor model import ")
    stage.ends(3, *command, "--yes", "--seed", "9", told="holds another training")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "cost_weight=0.5"], "--set knows no 'cost_weight'"),
        (["--set", "vllm_memory=0.01"], "takes a number, at least 0.05"),
        (["--set", "rate=1e999"], "takes a number, at least 0.0, not 1e999"),
        (["--set", "reward=1"], "reward (your own reward, FILE.py:FUNCTION) takes a text"),
        (["--set", "draws=1.5"], "draws (runs of each plan) takes a number, at least 1"),
        (["--export"], "--export needs --lora"),
        (["--json"], "--json needs --dry-run"),
        (["--max-cost", "-1"], "-1"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_loaded(
    stage: Stage, arguments: list[str], problem: str
) -> None:
    stage.fails(2, "train", *arguments, told=problem)


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        (
            "workers",
            ["--workers", "alpha"],
            "at least two workers to choose between; there are: alpha",
        ),
        ("cases", ["--cases", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (
            "cost",
            ["--max-cost", "1"],
            "--max-cost needs prices, and no price is known for alpha, beta",
        ),
        ("libraries", ["--set", "vllm=true"], "training needs vllm, which cannot be imported"),
        (
            "base model",
            ["--base", "model.gguf"],
            "there is no file model.gguf",
        ),
    ],
)
def test_a_check_names_its_problem(
    stage: Stage, command: Command, name: str, arguments: list[str], problem: str
) -> None:
    option, value = arguments
    if option in command and option != "--set":
        command = changed(command, option, value)
    else:
        command = (*command, option, value)
    done = stage.inside(*command, "--dry-run", "--json")
    assert done.code in (2, 3)
    assert state(done.json["checks"], name)[0] == "failed"
    assert problem in state(done.json["checks"], name)[1]


def test_an_architecture_without_export_is_refused(
    stage: Stage, base: Path, command: Command, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "gemma"}))
    of_copy = changed(command, "--base", copy)
    done = stage.ends(3, *of_copy, "--export", "--dry-run", "--json")
    assert (
        "this is a gemma model, and the export supports llama, qwen2"
        in state(done.json["checks"], "export")[1]
    )


def test_without_any_settings_training_asks_for_workers(stage: Stage, command: Command) -> None:
    """It does not ask for a planner: that is what training makes."""
    stage.config.unlink()
    message = "training needs at least two workers to choose between; there are: none"
    stage.fails(3, *command, "--yes", told=(message, "conductor setup, or conductor workers add"))


def test_a_validation_file_is_checked_like_cases(
    stage: Stage, cases: Path, command: Command, tmp_path: Path
) -> None:
    """Its cases are counted and their prompts measured.

    A question that is trained on has no place in it.
    """
    other = tmp_path / "other.jsonl"
    long = {
        **SUMS[0],
        "id": "v",
        "question": "What is 7 + 1? " + "(Think of seven things.) " * 40,
        "answer": "8",
    }
    other.write_text(json.dumps(long) + "\n")
    command = (*command, "--dry-run", "--json")
    without = stage.inside(*command)
    held = stage.inside(*command, "--validation", other)
    assert state(without.json["checks"], "cases")[1].endswith(
        "too few for a validation set (--validation FILE)"
    )
    assert (
        state(held.json["checks"], "cases")[1]
        == "4 of 4; 4 are drawn, 1 times each; 1 more for validation"
    )
    tokens = [int(state(done.json["checks"], "prompts")[1].split()[2]) for done in (without, held)]
    assert tokens[1] > tokens[0] + 100
    assert state(held.json["checks"], "cost")[1].startswith("10 runs: ")
    assert (
        "4 questions of"
        in state(stage.ends(2, *command, "--validation", cases).json["checks"], "cases")[1]
    )


def test_an_unknown_scorer_is_reported_with_file_and_line(
    stage: Stage, cases: Path, command: Command
) -> None:
    cases.write_text(json.dumps({**SUMS[0], "scorer": "taste"}) + "\n")
    stage.fails(2, *command, "--yes", told="sums.jsonl, line 1: unknown scorer 'taste'")


def check(done: Any, name: str) -> dict[str, Any]:
    """The fields of a check."""
    checks: list[dict[str, Any]] = done.json["checks"]
    return next(item for item in checks if item["name"] == name)


def test_a_dry_run_counts_the_disk_and_what_is_free(stage: Stage, command: Command) -> None:
    done = stage.ok(*changed(command, "--steps", "200"), "--dry-run", "--json")
    directory = check(done, "directory")
    assert directory["needed_bytes"] == sum(
        directory[f"{name}_bytes"] for name in ("checkpoints", "adapters", "export", "answers")
    )
    assert directory["free_bytes"] > directory["needed_bytes"]
    assert " for checkpoints and about " in directory["found"]
    # 200 steps of 2 cases, 2 plans each, one run of three calls
    assert directory["answers_bytes"] == 2400 * 2700
    assert check(done, "time")["calls"] == 2400


def test_a_training_that_does_not_fit_the_disk_is_refused(stage: Stage, command: Command) -> None:
    """Answers of 2,700 bytes, 24 billion of them."""
    position = command.index("draws=1")
    large = (*command[:position], "draws=1000000000", *command[position + 1 :])
    done = stage.ends(5, *large, "--dry-run", "--json")
    problem = "64800 GB do not fit on the disk of"
    assert state(done.json["checks"], "directory")[1].startswith(problem)
    stage.fails(5, *large, "--yes", told=problem)


def test_a_dry_run_says_how_many_calls_are_made_at_once_and_by_whose_limit(
    stage: Stage, command: Command
) -> None:
    tables = [stage.worker("alpha", "parallel = 9"), stage.worker("beta")]
    stage.configure("\n".join(tables), workers=())
    parallel = check(stage.ok(*command, "--dry-run", "--json"), "parallel")
    assert parallel["calls_at_once"] == 13
    assert parallel["workers"] == {
        "alpha": {"parallel": 9, "default": False},
        "beta": {"parallel": 4, "default": True},
    }
    assert parallel["found"].startswith("13 calls at once: alpha 9, by default beta 4; ")


def test_a_dry_run_of_a_training_that_has_begun_measures_by_its_steps(
    stage: Stage, command: Command
) -> None:
    """Checkpoints that are there need no more room, and no trace of a run does."""
    longer = changed(command, "--steps", "6")
    first = stage.ok(*longer, "--dry-run", "--json")
    stage.ends(3, *longer, "--yes", "--minutes", "0")
    done = stage.ok(*longer, "--dry-run", "--json")
    time = check(done, "time")
    assert time["measured_step_seconds"] > 0
    assert time["calls"] == 5 / 6 * check(first, "time")["calls"]
    assert "for 5 steps, as long as the last 1 took here" in time["found"]
    assert stage.ok("trace", "list", "--json").json == []
    assert ", resumes after step 1 of 6, needs about" in check(done, "directory")["found"]
    assert 0 < check(done, "directory")["needed_bytes"] < check(first, "directory")["needed_bytes"]
