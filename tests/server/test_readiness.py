"""`/livez` and `/readyz`: what they ask, and how a server leaves its balancers."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.process import HttpServer, access_rules, listen_at
from conductor_cli.server.run_registry import RunRegistry
from tests.cli.stage import Stage, refuses, stalls
from tests.server.plain_api import QUESTION, Serving, serving, until


def ready(server: Serving) -> tuple[int, list[str]]:
    answer = httpx.get(f"{server.url}/readyz", timeout=10)
    return answer.status_code, answer.json().get("missing", [])


def block_state(stage: Stage) -> None:
    """A file stands where the directory of what is spent should be."""
    place = stage.home / "state/conductor-llm/spending"
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


@pytest.mark.parametrize(("happens", "said"), [
    (lambda stage: None, (200, [])),
    (block_state, (503, ["state"])),
    (lambda stage: stage.server.close(), (503, ["planner"])),
    (lambda stage: setattr(stage.server, "script", refuses(503)), (503, ["planner"])),
    (lambda stage: setattr(stage.server, "script", refuses(404)), (200, [])),
], ids=["all is there", "state away", "planner away", "planner loading", "planner without a list"])  # fmt: skip
def test_ready_asks_state_and_planner_and_alive_nobody(
    stage: Stage, happens: Callable[[Stage], None], said: tuple[int, list[str]]
) -> None:
    with serving() as server:
        happens(stage)
        assert ready(server) == said
        assert httpx.get(f"{server.url}/livez").json() == {"status": "ok"}


def test_a_server_that_ends_takes_requests_until_its_balancer_knows(stage: Stage) -> None:
    with serving() as server:
        assert ready(server) == (200, [])
        server.server.stop()
        assert [ready(server)[1] for _ in range(2)] == [["server"]] * 2
        assert httpx.post(f"{server.url}/v1/chat/completions", json=QUESTION, timeout=20).status_code == 200
        assert ready(server)[0] == 503
        server.thread.join(10)
        assert not server.thread.is_alive()


@pytest.mark.parametrize("asked", [False, True])
def test_a_second_signal_ends_the_pause_and_the_runs(stage: Stage, *, asked: bool) -> None:
    """Without a balancer there is no pause; with one that never comes back, the second signal ends it."""
    stage.models["alpha"] = stalls("Half ")
    with serving() as server:
        if asked:
            ready(server)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(httpx.post, f"{server.url}/v1/chat/completions", json=QUESTION, timeout=20)
            until(lambda: stage.asked("alpha"))
            server.server.stop()
            server.server.stop()
            assert asking.result(5).status_code == 503
        server.thread.join(5)
        assert not server.thread.is_alive()


def test_a_server_that_cannot_be_loaded_ends_with_its_error_and_refuses_who_waits(stage: Stage) -> None:
    def load() -> RunRegistry:
        raise ConfigError("a package is damaged")

    opened = listen_at("127.0.0.1", 0)
    place = opened.getsockname()
    with pytest.raises(ConfigError, match="a package is damaged"):
        HttpServer(load, access_rules(ServerOptions(flags={}).settings(), "127.0.0.1"), opened).run()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place)
