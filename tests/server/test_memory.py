"""What a server holds of requests that are over: nothing of their bodies."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

from conductor_cli.server import http as http_module
from conductor_cli.server import run_registry
from conductor_cli.server import runs as runs_module
from conductor_cli.server.api.request import ClientRequest
from tests.cli.stage import Stage, refuses
from tests.server.plain_api import PlainApi, serving
from tests.server.test_run_registry import Gate, read_until_text, until


class Request(ClientRequest):
    """A request that can be watched."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Request]]:
    seen = list[weakref.ref[Request]]()
    api = PlainApi()
    parse = api.parse

    def watched(body: dict[str, object]) -> Request:
        read = parse(body)
        request = Request(**{name: getattr(read, name) for name in ClientRequest.__dataclass_fields__})
        seen.append(weakref.ref(request))
        return request

    monkeypatch.setattr(api, "parse", watched)
    monkeypatch.setitem(http_module.APIS, "/v1/chat/completions", api)
    return seen


def test_nothing_of_a_request_is_held_after_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, requests: list[weakref.ref[Request]]
) -> None:
    monkeypatch.setattr(run_registry, "RegistryLimits", partial(run_registry.RegistryLimits, grace=0.0))
    with serving() as server:
        assert [server.ask(model=name).status_code for name in ("conductor", "nobody")] == [200, 404]
        stage.models["alpha"] = stage.models["beta"] = refuses(400)
        assert server.ask("Fail?").status_code == 400
        stage.models["alpha"] = Gate().script
        run = read_until_text(server)
        until(lambda: server.registry.find(run).ended)  # type: ignore[union-attr]

        def all_gone() -> bool:
            gc.collect()
            return not any(request() for request in requests)

        until(all_gone)
    assert len(requests) == 4


def test_a_server_remembers_its_newest_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "MAX_STARTED", 2)
    monkeypatch.setitem(http_module.APIS, "/v1/chat/completions", PlainApi())
    with serving() as server:
        asked = [server.ask().headers["x-request-id"] for _ in range(3)]
        assert list(server.registry.runs.started) == asked[1:]
