"""The base model of a training: what is accepted, and what is refused with a reason."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip(
        "torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True
    )

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.prompt import ChatTemplate
from conductor_cli.models.llama.prompt import render_messages as run_prompt
from conductor_cli.train.base_model import (
    find_base_model,
    load_model,
    longest_prompt,
    measure_base_model,
    render_chat,
    thinks_by_itself,
)
from conductor_cli.train.recipe import LoraSettings
from tests import tiny_gguf
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

    trained = sum(
        weight.numel()
        for weight in get_peft_model(real, adapter).parameters()
        if weight.requires_grad
    )
    assert model.adapter_weights == trained


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no chat template") as caught:
        find_base_model(str(tiny.base(tmp_path, template="")))
    assert "chat_template.jinja" in caught.value.hint


def test_a_template_that_rejects_a_conductors_messages_is_refused(tmp_path: Path) -> None:
    template = "{{ raise_exception('no system message, please') }}"
    model = find_base_model(str(tiny.base(tmp_path, template=template)))
    with pytest.raises(
        ConfigError, match="rejects a conductor's messages: no system message, please"
    ):
        longest_prompt(model, [[{"role": "system", "content": "x"}]])


def _bring_code(directory: Path) -> None:
    """Have the model bring a program, which must not run."""
    code = {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}
    (directory / "config.json").write_text(json.dumps(code))
    (directory / "evil.py").write_text("raise SystemExit('the code was run')")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (
            lambda copy: (copy / "model.safetensors").unlink(),
            "is incomplete: .*model.safetensors is missing",
        ),
        (lambda copy: (copy / "config.json").unlink(), "cannot be used as a base model"),
        (lambda copy: (copy / "config.json").write_text("{}"), "cannot be used as a base model"),
        (
            lambda copy: (copy / "config.json").write_text('{"model_type": "vit"}'),
            "cannot be used as a base model",
        ),
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
def test_a_partial_model_is_refused(
    base: Path, tmp_path: Path, spoil: Callable[[Path], object], problem: str
) -> None:
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
def test_a_missing_model_is_not_downloaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(
        ConfigError, match="is neither a directory nor in the Hugging Face cache"
    ) as caught:
        find_base_model(name)
    assert caught.value.hint.startswith(f"hf download {name}")


def test_a_gguf_file_is_a_base_model_and_is_dequantised_once(tmp_path: Path) -> None:
    file = tiny_gguf.make(tmp_path / "base.gguf", extra=tiny_gguf.Extra(bias=None))
    measured = measure_base_model(str(file), LoraSettings(rank=2))
    assert not measured.directory.exists()
    base_model = find_base_model(str(file), LoraSettings(rank=2))
    assert replace(base_model, tokenizer=None) == measured
    assert base_model.tokenizer.chat_template
    model, _ = load_model(base_model, lora=LoraSettings(rank=2))
    assert sum(weight.numel() for weight in model.parameters()) == base_model.weights
    made = (base_model.directory / "config.json").stat().st_mtime_ns
    assert find_base_model(str(file)).directory == base_model.directory
    assert (base_model.directory / "config.json").stat().st_mtime_ns == made


def test_another_file_of_the_same_name_is_dequantised_anew(tmp_path: Path) -> None:
    first = measure_base_model(str(tiny_gguf.make(tmp_path / "base.gguf"))).directory
    assert (
        measure_base_model(str(tiny_gguf.make(tmp_path / "base.gguf", seed=1))).directory != first
    )


def test_a_file_with_a_weight_that_transformers_lacks_is_refused(tmp_path: Path) -> None:
    """It would be left out in silence, and another model than the file's would be trained."""
    file = tiny_gguf.make(tmp_path / "base.gguf")
    with pytest.raises(ConfigError, match=r"it has output\.bias, which transformers does not have"):
        find_base_model(str(file))
    assert not measure_base_model(str(file)).directory.exists()


def test_a_file_that_is_no_gguf_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "base.gguf").write_text("<html>")
    with pytest.raises(ConfigError, match="is not a GGUF file"):
        find_base_model(str(tmp_path / "base.gguf"))


QWEN3 = tiny.TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
"""The end of Qwen3's template: without the switch, the model thinks by itself."""


def test_a_template_that_thinks_by_default_is_told_not_to(tmp_path: Path) -> None:
    """By its own switch; a template without one is rendered as it is."""
    messages = [{"role": "user", "content": "x"}]
    switched = tiny.tokenizer(QWEN3)
    plain = tiny.tokenizer(tiny.TEMPLATE)
    assert render_chat(switched, messages).endswith(
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert render_chat(plain, messages).endswith("<|im_start|>assistant\n")
    assert not thinks_by_itself(switched)
    assert thinks_by_itself(tiny.tokenizer(tiny.TEMPLATE + "<think>\n"))


def test_a_prompt_in_training_is_the_prompt_of_a_run() -> None:
    messages = (
        Message(role="system", content="be brief"),
        Message(role="user", content="a question"),
    )
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
    adding = type(
        "Adding",
        (),
        {
            "chat_template": "x",
            "bos_token": "<s>",
            "bos_token_id": 1,
            "__call__": lambda self, text: {"input_ids": [1]},
            "apply_chat_template": lambda self, messages, **options: "<s>hello",
        },
    )()
    assert render_chat(adding, [{"role": "user", "content": "x"}]) == "hello"
