"""Reading the fixed part of the prompt ahead, with small models of random weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from conductor_cli.app import planner_resolution
from conductor_cli.app.conductor_factory import open_conductor
from conductor_cli.app.models import warm_prefix
from conductor_cli.config import load_settings
from conductor_cli.core.errors import ConductorUnusable
from tests.cli.stage import Stage
from tests.tiny_gguf import lora, make


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "tiny.gguf")


def test_a_prompt_is_read_once(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_resolution, "WORTH_REMEMBERING", 0)
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    first, second = (warm_prefix(load_settings(stage.environ())) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tokens_cached == 0 < first.tokens_in == second.tokens_in
    assert second.tokens_cached > second.tokens_in / 2


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1", "openai/gpt-x"])
def test_only_local_conductors_can_be_prepared(stage: Stage, monkeypatch: pytest.MonkeyPatch, conductor: str) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", conductor)
    with pytest.raises(ConductorUnusable, match="only a local planner"):
        warm_prefix(load_settings(stage.environ()))
    assert stage.server.requests == []


def test_a_small_model_is_not_prepared(stage: Stage, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_CONDUCTOR_MODEL", str(model))
    assert warm_prefix(load_settings(stage.environ())) is None


def test_a_worker_does_not_share_the_conductors_adapter(stage: Stage, model: Path, tmp_path: Path) -> None:
    adapter = lora(tmp_path / "lora.gguf")
    stage.configure(f'[workers.plain]\nkind = "llama"\nmodel = "{model}"', workers=())
    flags = {"conductor.model": str(model), "conductor.adapter": str(adapter)}

    async def go() -> bool:
        opened = await open_conductor(load_settings(stage.environ(), flags))
        same = opened.conductor.workers["plain"] is opened.conductor.model
        await opened.close()
        return same

    assert not asyncio.run(go())
