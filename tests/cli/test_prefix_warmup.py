"""`conductor model prepare`: the real command over small models of random weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from conductor_cli.app import planner_resolution
from conductor_cli.app.conductor_factory import open_conductor
from conductor_cli.config import load_settings
from tests.cli.stage import Stage
from tests.models.test_llama_model_info import lora
from tests.tiny_gguf import make


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "tiny.gguf")


def test_a_prompt_is_read_once(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time it is read and its state stored; the second time the stored state is found."""
    monkeypatch.setattr(planner_resolution, "WORTH_REMEMBERING", 0)
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    first, second = stage.inside("model", "prepare"), stage.inside("model", "prepare")
    assert (first.code, second.code) == (0, 0)
    assert "was read:" in first.out
    assert "was already stored" in second.out


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1", "openai/gpt-x"])
def test_only_local_conductors_can_be_prepared(stage: Stage, monkeypatch: pytest.MonkeyPatch, conductor: str) -> None:
    """Nothing is sent to a remote conductor."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", conductor)
    done = stage.inside("model", "prepare")
    assert (done.code, stage.server.requests) == (5, [])
    assert "only a local conductor" in done.err


def test_a_small_model_is_not_prepared(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output says that nothing is stored."""
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    done = stage.inside("model", "prepare")
    assert (done.code, done.err) == (0, "")
    assert "so small" in done.out


def test_a_worker_does_not_share_the_conductors_adapter(stage: Stage, model: Path, tmp_path: Path) -> None:
    """A worker with the same file but without the adapter is a separate model."""
    adapter = lora(tmp_path / "lora.gguf")
    stage.configure(f'[workers.plain]\nkind = "llama"\nmodel = "{model}"', workers=())
    flags = {"conductor.model": str(model), "conductor.adapter": str(adapter)}

    async def go() -> bool:
        opened = await open_conductor(load_settings(stage.environ(), flags))
        same = opened.conductor.workers["plain"] is opened.conductor.model
        await opened.close()
        return same

    assert not asyncio.run(go())
