"""`conductor model prepare` and `model bench`: the real commands over small models of random weights."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from conductor_cli.app import planner_resolution
from conductor_cli.app.opened_conductor import open_conductor
from conductor_cli.cli import preparing
from conductor_cli.cli.options import GlobalOptions
from conductor_cli.config import load_settings
from tests.cli.stage import Stage
from tests.models.test_llama_about import lora
from tests.tiny_gguf import Shape, make

WIDE = Shape(width=256, layers=2, heads=4, key_heads=2, inner=512)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "tiny.gguf")


def test_a_prompt_is_prepared_once(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time it is read and kept, the second time it is there; the file on disk is what says so."""
    monkeypatch.setattr(planner_resolution, "WORTH_REMEMBERING", 0)
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    first, second = stage.inside("model", "prepare"), stage.inside("model", "prepare")
    assert (first.code, second.code) == (0, 0)
    assert "is remembered:" in first.out
    assert "was remembered already" in second.out


def test_a_place_that_cannot_be_written_is_told(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that was read and could not be kept is no success."""
    monkeypatch.setattr(planner_resolution, "WORTH_REMEMBERING", 0)
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    prefixes = load_settings(stage.environ(), {}).paths.prefixes
    prefixes.parent.mkdir(parents=True, exist_ok=True)
    prefixes.write_text("no directory")
    done = stage.inside("model", "prepare")
    assert done.code == 5
    assert f"could not be kept in {prefixes}" in done.err


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1", "openai/gpt-x"])
def test_only_local_conductors_are_prepared(stage: Stage, monkeypatch: pytest.MonkeyPatch, conductor: str) -> None:
    """A conductor elsewhere is sent nothing."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", conductor)
    done = stage.inside("model", "prepare")
    assert (done.code, stage.server.requests) == (5, [])
    assert "only a local conductor" in done.err


def test_a_small_model_needs_no_preparing(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said that nothing is kept, instead of that it was."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    done = stage.inside("model", "prepare")
    assert (done.code, done.err) == (0, "")
    assert "so small" in done.out


def test_what_lies_in_the_working_directory_is_not_run(
    stage: Stage, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process in the background is this program, not a file of its name where the user happens to be."""
    started: list[list[str]] = []
    monkeypatch.setattr(preparing, "LARGE", 0)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    monkeypatch.setenv("CONDUCTOR_LLM_CONFIG_DIR", str(tmp_path))
    preparing.prepare_in_background(GlobalOptions(quiet=True))
    ((_, *options),) = started
    assert options[:3] == ["-P", "-m", "conductor_cli"]
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_PREPARE", "no")
    preparing.prepare_in_background(GlobalOptions(quiet=True))
    assert len(started) == 1


def test_models_are_measured_apart(stage: Stage, model: Path, tmp_path: Path) -> None:
    """Each has the memory of its own process, in the order of the command line."""
    wide = make(tmp_path / "wide.gguf", shape=WIDE)
    done = stage.run("model", "bench", str(wide), str(model), "--json")
    assert done.code == 0
    first, second = json.loads(done.out)
    assert [first["name"], second["name"]] == ["wide", "tiny"]
    assert second["bytes"] < first["bytes"]
    for found in (first, second):
        assert found["prefix"] > 100
        assert min(found[name] for name in ("load", "read", "decode", "raw", "plan", "five_steps")) > 0
        assert found["first_step"] <= found["plan"]


def test_what_is_not_local_is_not_measured(stage: Stage, model: Path) -> None:
    """Nothing is measured where one of the names is wrong."""
    done = stage.inside("model", "bench", str(model), "http://127.0.0.1:9/v1")
    assert (done.code, done.out) == (2, "")
    assert "only local models can be measured" in done.err


def test_an_adapter_is_the_conductors_alone(stage: Stage, model: Path, tmp_path: Path) -> None:
    """A worker on the same file without the adapter has weights of its own."""
    adapter = lora(tmp_path / "lora.gguf")
    stage.configure(f'[workers.plain]\nkind = "llama"\nmodel = "{model}"', workers=())
    flags = {"conductor.model": str(model), "conductor.adapter": str(adapter)}

    async def go() -> bool:
        opened = await open_conductor(load_settings(stage.environ(), flags))
        same = opened.conductor.workers["plain"] is opened.conductor.model
        await opened.close()
        return same

    assert not asyncio.run(go())


@pytest.mark.parametrize("layers", ["auto", "all", "0", "3"])
def test_layers_on_a_gpu_are_words_or_a_number(stage: Stage, model: Path, layers: str) -> None:
    """All that the help names loads a model."""
    done = stage.inside("model", "bench", str(model), "--gpu-layers", layers, "--json")
    assert (done.code, len(json.loads(done.out))) == (0, 1)
