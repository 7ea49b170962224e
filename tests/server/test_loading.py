"""A server accepts requests while its application is still being loaded."""

from __future__ import annotations

import socket
import threading
from threading import Thread

import httpx
import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.process import HttpServer, access_rules, listen_at, make_registry
from conductor_cli.server.run_registry import RunRegistry
from tests.cli.stage import Stage
from tests.server.plain_api import wait_until_up


def _url(opened: socket.socket) -> str:
    return f"http://127.0.0.1:{opened.getsockname()[1]}"


def test_a_request_waits_for_the_application_and_health_does_not(stage: Stage) -> None:
    stage.configure()
    options, loads = ServerOptions(flags={}), threading.Event()

    def load() -> RunRegistry:
        loads.wait(10)
        return make_registry(options)

    server = HttpServer(load, access_rules(options.settings(), "127.0.0.1"), opened := listen_at("127.0.0.1", 0))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    wait_until_up(_url(opened))
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{_url(opened)}/v1/models", timeout=0.1)
    loads.set()
    answer = httpx.get(f"{_url(opened)}/v1/models", timeout=10)
    server.stop()
    thread.join(10)
    assert answer.status_code == 200
    assert not thread.is_alive()


def test_a_server_whose_application_cannot_be_loaded_ends_with_its_error(stage: Stage) -> None:
    stage.configure()

    def load() -> RunRegistry:
        raise ConfigError("a package is damaged")

    access = access_rules(ServerOptions(flags={}).settings(), "127.0.0.1")
    server = HttpServer(load, access, listen_at("127.0.0.1", 0))
    with pytest.raises(ConfigError, match="a package is damaged"):
        server.run()
