"""Which workers a server chooses for a run, and when it chooses them again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from conductor_cli.app.opening import LoadedModels, OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.errors import PolicyError

WORKERS = """
[conductor]
model = "http://127.0.0.1:9/v1#planner"
[workers.alpha]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "a"
[workers.beta]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "b"
"""


def test_a_rule_holds_from_the_first_run_that_begins_with_it(tmp_path: Path) -> None:
    loaded = LoadedModels()
    before = _settings(tmp_path, WORKERS)
    assert _workers(before, loaded) == ["alpha", "beta"]
    assert _workers(before, loaded) == ["alpha", "beta"]
    after = _settings(tmp_path, f'{WORKERS}[policy]\ndeny = ["beta"]\n')
    assert _workers(after, loaded) == ["alpha"]
    assert _workers(before, loaded) == ["alpha", "beta"]


def test_a_run_that_names_its_workers_gets_those_alone(tmp_path: Path) -> None:
    loaded = LoadedModels()
    settings = _settings(tmp_path, f'{WORKERS}[policy]\ndeny = ["beta"]\n')
    assert _workers(settings, loaded) == ["alpha"]
    with pytest.raises(PolicyError, match="worker beta may not be asked"):
        _workers(settings, loaded, "beta")
    assert _workers(settings, loaded, "alpha") == ["alpha"]


def test_the_same_settings_choose_their_workers_once(tmp_path: Path) -> None:
    loaded = LoadedModels()
    settings = _settings(tmp_path, WORKERS)
    policies = [_opened(settings, loaded).orchestra.team.pool_policy for _ in range(2)]
    assert policies[0] is policies[1]


def _settings(directory: Path, text: str) -> Settings:
    path = directory / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings({"HOME": str(directory)}, None, str(path))


def _workers(settings: Settings, loaded: LoadedModels, *only: str) -> list[str]:
    return list(_opened(settings, loaded, *only).orchestra.team.pool.names)


def _opened(settings: Settings, loaded: LoadedModels, *only: str) -> OpenedOrchestra:
    return asyncio.run(open_orchestra(OpeningRequest(settings=settings, only=only, loaded=loaded)))
