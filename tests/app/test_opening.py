"""Which workers a server chooses for a run, and when it chooses them again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from conductor_cli.app.learning import learning_key
from conductor_cli.app.opening import LoadedModels, OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.learning import Rating, RatingShare
from conductor_cli.run import Orchestra
from conductor_cli.state.interfaces import USER, Spender
from conductor_cli.state.opening import open_state

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


def test_runs_for_the_same_client_share_one_orchestra(tmp_path: Path) -> None:
    loaded = LoadedModels()
    settings = _settings(tmp_path, WORKERS)
    first = _shared(settings, loaded, USER)
    assert _shared(settings, loaded, USER) is first
    assert _shared(settings, loaded, Spender(name="laptop")) is not first
    assert _shared(settings, loaded, None) is not first
    assert _shared(_settings(tmp_path, WORKERS), loaded, USER) is not first


def test_a_rating_counts_from_the_next_run_that_shares_an_orchestra(tmp_path: Path) -> None:
    loaded = LoadedModels()
    settings = _settings(tmp_path, WORKERS)
    first = _shared(settings, loaded, USER)
    worker = first.team.pool["alpha"]
    share = RatingShare(
        worker="alpha", key=learning_key(worker), step=1, kind="answer", weight=1.0, good=False
    )
    rating = Rating(
        run="run", step=0, verdict="bad", by="user", time=time.time() - 3600, shares=(share,)
    )
    open_state(settings.paths).ratings.add(rating)
    second = _shared(settings, loaded, USER)
    assert second is not first
    assert _shared(settings, loaded, USER) is second


def test_a_worker_whose_key_is_missing_is_looked_for_at_each_run(tmp_path: Path) -> None:
    loaded = LoadedModels()
    settings = _settings(tmp_path, f'{WORKERS}key_env = "NO_SUCH_KEY"\n')
    first = _shared(settings, loaded, USER)
    assert "beta" in first.team.unavailable
    assert _shared(settings, loaded, USER) is not first


def _shared(settings: Settings, loaded: LoadedModels, spender: Spender | None) -> Orchestra:
    request = OpeningRequest(settings=settings, loaded=loaded, shared_by=spender, learning=True)
    return asyncio.run(open_orchestra(request)).orchestra
