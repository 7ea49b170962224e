"""Responses by their id, over real HTTP: looked up, deleted, cancelled."""

from __future__ import annotations

import threading
from typing import Any

import httpx

from tests.cli.stage import Stage, stalls
from tests.server.plain_api import serving


def respond(url: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/responses", json={"model": "conductor-mini", "input": "Why?", **more}, timeout=30)


def test_a_response_is_there_by_its_id_also_from_its_trace(stage: Stage) -> None:
    with serving() as server:
        made = respond(server.url).json()
        place = f"{server.url}/v1/responses/{made['id']}"
        kept = httpx.get(place).json()
        server.registry.forget(made["id"].removeprefix("resp_"))
        stored = httpx.get(place).json()
        deleted = httpx.delete(place).json()
        gone = httpx.get(place)
    assert [each["output"][-1]["content"][0]["text"] for each in (made, kept, stored)] == ["alpha answers"] * 3
    assert (stored["id"], stored["status"], stored["model"]) == (made["id"], "completed", "conductor-mini")
    assert deleted["deleted"] is True
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")
    assert not list(stage.traces.glob("*.jsonl"))


def test_only_what_this_client_asked_for_is_found(stage: Stage) -> None:
    stage.inside("ask", "Why?")
    run = next(stage.traces.glob("*.jsonl")).name.partition(".")[0]
    with serving() as server:
        codes = {
            httpx.request(method, f"{server.url}/v1/responses/{name}").status_code
            for method in ("GET", "DELETE")
            for name in (f"resp_{run}", "resp_last", "resp_", "nothing")
        }
    assert codes == {404}
    assert list(stage.traces.glob("*.jsonl"))


def test_a_response_that_goes_on_can_be_cancelled(stage: Stage) -> None:
    stage.models["alpha"] = stalls("First ")
    with serving() as server:
        thread = threading.Thread(target=respond, args=(server.url,))
        thread.start()
        while not stage.asked("alpha"):
            pass
        run = server.registry.going_on[0].id
        place = f"{server.url}/v1/responses/resp_{run}"
        before = httpx.get(place).json()["status"]
        cancelled = httpx.post(f"{place}/cancel").json()["status"]
        thread.join(10)
        after = httpx.get(place).json()["status"]
    assert (before, cancelled, after) == ("in_progress", "cancelled", "cancelled")
