"""Which model plans, what it is called, and adapters that have nothing to lie over."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from conductor_cli.app.planner_resolution import missing_key_notice, resolve_planner
from conductor_cli.config import load_settings
from tests.cli.stage import Stage, explained, finished
from tests.models.test_llama_model_info import lora


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1#m", "openai/gpt-9", "alpha"])
def test_an_adapter_for_a_model_that_is_not_a_file_is_refused(stage: Stage, tmp_path: Path, conductor: str) -> None:
    """It is not left out without a word: nothing is asked, and the hint says how to go on."""
    adapter = lora(tmp_path / "lora.gguf")
    done = stage.inside("ask", "Why?", "--conductor", conductor, "--adapter", str(adapter))
    assert (done.code, stage.server.requests) == (3, [])
    assert f"the conductor is {conductor}" in done.err
    assert "leave --adapter out" in done.err
    explained(done)


def test_an_adapter_that_is_set_for_good_is_named_by_its_setting(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is the command that takes it out."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_ADAPTER", str(lora(tmp_path / "lora.gguf")))
    assert "conductor config set conductor.adapter default" in stage.inside("ask", "Why?").err


@pytest.mark.parametrize(
    ("damage", "said"),
    [("gone", "there is no file"), ("text", "is not a GGUF file"), ("model", "is not a LoRA adapter")],
)
def test_a_bad_adapter_is_what_is_blamed(stage: Stage, tiny: Path, tmp_path: Path, damage: str, said: str) -> None:
    """The model is whole, so the error names the adapter and no other file."""
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


def test_a_key_that_is_missing_is_known_before_anything_is_asked(stage: Stage, tiny: Path) -> None:
    """Named by its variable; a file and an address of one's own need none."""
    for conductor, said in (("openai/gpt-9", "OPENAI_API_KEY is not set"), (f"{stage.url}#m", ""), (str(tiny), "")):
        settings = load_settings(stage.environ(), {"conductor.model": conductor})
        told = missing_key_notice(resolve_planner(settings), settings)
        assert said in told
        assert bool(told) == bool(said)


def test_a_trace_calls_the_conductor_as_the_model_store_does(stage: Stage, tiny: Path) -> None:
    """The name under which it was imported, with the hash of its bytes: its file may be called anything."""
    stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
    assert stage.inside("model", "import", str(tiny), "--name", "mine", "--use").code == 0
    done = stage.inside("ask", "Why?", "--seed", "3", "--format", "json")
    assert done.json["conductor"].startswith("mine sha256-ends:")
    assert "conductor  mine sha256-ends:" in stage.inside("trace", "show").out


@pytest.mark.parametrize("name", ["conductor.model", "conductor.adapter"])
def test_a_file_is_set_by_its_whole_path(stage: Stage, tiny: Path, name: str) -> None:
    """A setting holds in every directory; what names no file stays as it is written."""
    (stage.home / "my.gguf").symlink_to(tiny)
    with stage.start("config", "set", name, "my.gguf", cwd=stage.home) as process:
        assert finished(process).code == 0
    section, key = name.split(".")
    assert tomllib.loads(stage.own.read_text())[section][key] == str(stage.home / "my.gguf")
    assert stage.inside("config", "set", name, "other.gguf").code == 0
    assert tomllib.loads(stage.own.read_text())[section][key] == "other.gguf"


def test_a_name_is_set_as_it_is_also_beside_a_file_of_that_name(stage: Stage) -> None:
    """A listed worker is found first when it is used, so it is what was meant."""
    (stage.home / "alpha").write_text("no model")
    with stage.start("config", "set", "conductor.model", "alpha", cwd=stage.home) as process:
        assert finished(process).code == 0
    assert tomllib.loads(stage.own.read_text()) == {"conductor": {"model": "alpha"}}
