"""The base model of a training: what is accepted, and what is refused with a reason."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip("torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.prompt import ChatTemplate
from conductor_cli.models.llama.prompt import render_messages as run_prompt
from conductor_cli.train.base_model import find_base_model, load_model, longest_prompt, render_chat, thinks_by_itself
from conductor_cli.train.checkpoints import (
    best_line,
    check_same_training,
    exclusive_directory,
    last_checkpoint,
    summarize_curve,
    write_settings,
)
from conductor_cli.train.job import add_metrics, compute_metrics, keep_metrics, read_metrics
from conductor_cli.train.recipe import LoraSettings
from conductor_cli.train.rollouts import PlanOutcome
from tests.train import tiny


def copied(base: Path, directory: Path) -> Path:
    return Path(shutil.copytree(base, directory / "copy"))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_is_described_without_being_loaded(base: Path) -> None:
    model = find_base_model(str(base), LoraSettings(rank=2))
    assert (model.architecture, model.context) == ("qwen2", 8192)
    real, adapter = load_model(model, lora=LoraSettings(rank=2))
    assert model.weights == sum(weight.numel() for weight in real.parameters())
    from peft import get_peft_model

    trained = sum(weight.numel() for weight in get_peft_model(real, adapter).parameters() if weight.requires_grad)
    assert model.adapter_weights == trained


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no chat template") as caught:
        find_base_model(str(tiny.base(tmp_path, template="")))
    assert "chat_template.jinja" in caught.value.hint


def test_a_template_that_rejects_a_conductors_messages_is_refused(tmp_path: Path) -> None:
    template = "{{ raise_exception('no system message, please') }}"
    model = find_base_model(str(tiny.base(tmp_path, template=template)))
    with pytest.raises(ConfigError, match="rejects a conductor's messages: no system message, please"):
        longest_prompt(model, [[{"role": "system", "content": "x"}]])


def _bring_code(directory: Path) -> None:
    """Have the model bring a program, which must not run."""
    code = {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}
    (directory / "config.json").write_text(json.dumps(code))
    (directory / "evil.py").write_text("raise SystemExit('the code was run')")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda copy: (copy / "model.safetensors").unlink(), "is incomplete: .*model.safetensors is missing"),
        (lambda copy: (copy / "config.json").unlink(), "cannot be used as a base model"),
        (lambda copy: (copy / "config.json").write_text("{}"), "cannot be used as a base model"),
        (lambda copy: (copy / "config.json").write_text('{"model_type": "vit"}'), "cannot be used as a base model"),
        (lambda copy: (copy / "tokenizer.json").write_text("{"), "cannot be used as a base model"),
        (_bring_code, "cannot be used as a base model"),
        (
            lambda copy: (copy / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
            ),
            "model-00001-of-00002.safetensors is missing",
        ),
    ],
)
def test_a_partial_model_is_refused(base: Path, tmp_path: Path, spoil: Callable[[Path], object], problem: str) -> None:
    copy = copied(base, tmp_path)
    spoil(copy)
    with pytest.raises(ConfigError, match=problem) as caught:
        find_base_model(str(copy))
    assert "\n" not in caught.value.message


def test_truncated_weights_are_refused(base: Path, tmp_path: Path) -> None:
    weights = copied(base, tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConfigError, match="cannot be used as a base model"):
        load_model(find_base_model(str(weights.parent)), lora=None)


@pytest.mark.parametrize("name", ["nobody/nothing", "no where", "a/b/c", "../x"])
def test_a_missing_model_is_not_downloaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match="is neither a directory nor in the Hugging Face cache") as caught:
        find_base_model(name)
    assert caught.value.hint.startswith(f"hf download {name}")


QWEN3 = tiny.TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
"""The end of Qwen3's template: without the switch, the model thinks by itself."""


def test_a_template_that_thinks_by_default_is_told_not_to(tmp_path: Path) -> None:
    """By its own switch; a template without one is rendered as it is."""
    asked = [{"role": "user", "content": "x"}]
    switched, plain = tiny.tokenizer(QWEN3), tiny.tokenizer(tiny.TEMPLATE)
    assert render_chat(switched, asked).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert render_chat(plain, asked).endswith("<|im_start|>assistant\n")
    assert not thinks_by_itself(switched)
    assert thinks_by_itself(tiny.tokenizer(tiny.TEMPLATE + "<think>\n"))


def test_a_prompt_in_training_is_the_prompt_of_a_run() -> None:
    messages = (Message(role="system", content="be brief"), Message(role="user", content="a question"))
    dicts = [{"role": message.role, "content": message.content} for message in messages]
    for template in (tiny.TEMPLATE, QWEN3):
        pieces = run_prompt(ChatTemplate("a model", template, {}), messages, thinking=False)
        served = "".join(piece.text for piece in pieces)
        assert render_chat(tiny.tokenizer(template), dicts) == served
        begun = [*dicts, {"role": "assistant", "content": "Let's think"}]
        assert render_chat(tiny.tokenizer(template), begun) == f"{served}Let's think"


def test_a_first_token_that_the_tokenizer_adds_is_not_there_twice() -> None:
    reader = tiny.tokenizer("{{ bos_token }}" + tiny.TEMPLATE)
    reader.bos_token = "<|endoftext|>"
    assert render_chat(reader, [{"role": "user", "content": "x"}]).startswith("<|endoftext|>")
    adding = type("Adding", (), {
        "chat_template": "x", "bos_token": "<s>", "bos_token_id": 1,
        "__call__": lambda self, text: {"input_ids": [1]},
        "apply_chat_template": lambda self, messages, **more: "<s>hello",
    })()  # fmt: skip
    assert render_chat(adding, [{"role": "user", "content": "x"}]) == "hello"


# The state of a training on disk, its curve, its metrics and its rewards


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
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        if state is not None:
            (place / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-20"
    assert last_checkpoint(tmp_path / "none") is None


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    """Settings in another order are the same settings; a damaged file counts as other settings."""
    write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})
    check_same_training(tmp_path, {"steps": 9, "rate": 0.1, "seed": 1})
    with pytest.raises(ConfigError, match="holds another training: it differs in max_plan_tokens, seed") as caught:
        check_same_training(tmp_path, {"seed": 2, "rate": 0.1, "steps": 9, "max_plan_tokens": 4})
    assert caught.value.hint == "remove it to start over, or choose another directory: --out"
    (tmp_path / "course.json").write_text(json.dumps({"seed": 1})[:-1])
    with pytest.raises(ConfigError, match="holds another training: it differs in rate, seed, steps"):
        write_settings(tmp_path, {"seed": 1, "rate": 0.1, "steps": 9})


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match=r".*out cannot be written: ") as caught:
        exclusive_directory(tmp_path / "out").__enter__()
    assert caught.value.hint == "choose another directory: --out"


def test_two_trainings_cannot_share_a_directory_until_one_is_killed(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another training is running in ") as caught:
            exclusive_directory(tmp_path).__enter__()
        assert caught.value.hint == "wait until it ends, or choose another directory: --out"
        process.send_signal(signal.SIGKILL)
        process.wait()
    with exclusive_directory(tmp_path):
        pass


def line(step: int, *, reward: float = 0.5, validated: float | None = None, **more: Any) -> dict[str, Any]:
    measured = {"reward": validated, "right": validated, "valid": 1.0, "cases": 20}
    return {"step": step, "reward": reward, **more} | ({} if validated is None else {"validation": measured})


def test_the_best_step_is_the_first_with_the_highest_reward_on_the_validation_set() -> None:
    lines = [line(0, validated=0.9), line(1), line(2, validated=0.6), line(3, reward=1.0), line(4, validated=0.6)]
    assert best_line(lines) == lines[2]
    assert best_line(lines[:2]) is None


def test_the_summary_has_rewards_validation_and_suspicious_plans() -> None:
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
    helpless = summarize_curve([line(0, validated=0.6), line(1, validated=0.6)])
    assert helpless[-1] == "no checkpoint is better on the validation set than the untrained model"


RIGHT = PlanOutcome(reward=1.0, right=1.0, valid=True, steps=2, calls=2, routes=("facts", "letters"))
WRONG = PlanOutcome(reward=0.5, valid=True, steps=1, calls=1, routes=("facts",))
MALFORMED = PlanOutcome(reward=0.0, valid=False)
FAILED = PlanOutcome(reward=None, valid=True, steps=1, calls=0, routes=("facts",))


def test_the_metrics_of_a_step() -> None:
    found = compute_metrics([RIGHT, MALFORMED, WRONG, WRONG], 2)
    assert (found["reward"], found["valid"], found["right"], found["right_given_valid"]) == (0.5, 0.75, 0.25, 0.3333)
    assert (found["steps"], found["calls"], found["signal"]) == (1.333, 1.333, 0.5)
    assert found["routes"] == {"facts": 3, "letters": 1}
    assert found["routing_entropy"] == 0.8113
    assert [compute_metrics(step, 2)["routing_entropy"] for step in ([WRONG] * 4, [MALFORMED] * 2, [])] == [0, 0, 0]
    failed = compute_metrics([RIGHT, FAILED, FAILED, FAILED], 2)
    assert (failed["failed"], failed["reward"], failed["right_given_valid"], failed["signal"]) == (3, 1.0, 1.0, 0.0)


def test_a_resumed_training_removes_the_lines_after_its_checkpoint(tmp_path: Path) -> None:
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
