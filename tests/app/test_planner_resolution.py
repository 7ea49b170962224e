"""Which model plans, how it is described, and adapters without a model file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.cli.stage import Stage, explained, finished
from tests.models.test_llama_model_info import lora


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1#m", "openai/gpt-9", "alpha"])
def test_an_adapter_for_a_model_that_is_not_a_file_is_refused(stage: Stage, tmp_path: Path, conductor: str) -> None:
    """The adapter is not silently ignored: no model is called, and the hint says what to do."""
    adapter = lora(tmp_path / "lora.gguf")
    done = stage.inside("ask", "Why?", "--conductor", conductor, "--adapter", str(adapter))
    assert (done.code, stage.server.requests) == (3, [])
    assert f"the conductor is {conductor}" in done.err
    assert "leave --adapter out" in done.err
    explained(done)


def test_an_adapter_from_the_settings_is_named_by_its_setting(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is the command that removes the setting."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_ADAPTER", str(lora(tmp_path / "lora.gguf")))
    assert "conductor config set conductor.adapter default" in stage.inside("ask", "Why?").err


@pytest.mark.parametrize(
    ("damage", "said"),
    [("gone", "there is no file"), ("text", "is not a GGUF file"), ("model", "is not a LoRA adapter")],
)
def test_the_error_names_the_bad_adapter(stage: Stage, tiny: Path, tmp_path: Path, damage: str, said: str) -> None:
    """The model file is good, so the error names the adapter and no other file."""
    adapter = tmp_path / "lora.gguf"
    if damage != "gone":
        adapter.write_bytes(tiny.read_bytes() if damage == "model" else b"Dear sir or madam,\n")
    done = stage.inside("ask", "Why?", "--conductor", str(tiny), "--adapter", str(adapter))
    assert done.code == 5
    explained(done)
    first = done.err.splitlines()[0]
    assert str(adapter) in first
    assert said in first
    assert str(tiny) not in done.err
    assert "the conductor model cannot be used" not in done.err


def test_a_trace_names_the_conductor_as_the_model_store_does(stage: Stage, tiny: Path) -> None:
    """The trace has the name of the stored model and the hash of its file, whatever the file is called."""
    stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
    assert stage.inside("model", "import", str(tiny), "--name", "mine", "--use").code == 0
    done = stage.inside("ask", "Why?", "--seed", "3", "--format", "json")
    assert done.json["conductor"].startswith("mine sha256-ends:")
    assert "conductor  mine sha256-ends:" in stage.inside("trace", "show").out


@pytest.mark.parametrize("name", ["conductor.model", "conductor.adapter"])
def test_a_file_is_stored_in_a_setting_by_its_whole_path(stage: Stage, tiny: Path, name: str) -> None:
    """A setting applies in every directory; a value that names no file is stored unchanged."""
    (stage.home / "my.gguf").symlink_to(tiny)
    with stage.start("config", "set", name, "my.gguf", cwd=stage.home) as process:
        assert finished(process).code == 0
    section, key = name.split(".")
    assert tomllib.loads(stage.own.read_text())[section][key] == str(stage.home / "my.gguf")
    assert stage.inside("config", "set", name, "other.gguf").code == 0
    assert tomllib.loads(stage.own.read_text())[section][key] == "other.gguf"
