"""Responses by their id, over real HTTP: looked up, deleted, cancelled."""

from __future__ import annotations

import threading
from itertools import product
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage, refuses, stalls
from tests.server.plain_api import deltas, events, serving, text_of, until


def respond(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/responses",
        json={"model": "conductor-mini", "input": "Why?", **fields},
        timeout=30,
    )


def test_a_response_is_there_by_its_id_also_from_its_trace(stage: Stage) -> None:
    with serving() as server:
        made = respond(server.url).json()
        url = f"{server.url}/v1/responses/{made['id']}"
        kept = httpx.get(url).json()
        server.registry.forget(made["id"].removeprefix("resp_"))
        stored = httpx.get(url).json()
        deleted = httpx.delete(url).json()
        gone = httpx.get(url)
    assert list(map(text_of, (made, kept, stored))) == ["alpha answers"] * 3
    assert (stored["id"], stored["status"], stored["model"]) == (
        made["id"],
        "completed",
        "conductor-mini",
    )
    assert deleted["deleted"] is True
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")
    assert not list(stage.traces.glob("*.jsonl"))


def test_a_response_is_read_again_from_any_of_its_events(stage: Stage) -> None:
    """Also from its trace: a number means the same place, in the middle of a piece of text too."""
    tools = [
        {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "edit"}]}
    ]
    with serving() as server:
        first = respond(server.url, stream=True, tools=tools)
        run = events(first.text)[-1]["response"]["id"]

        def again(**query: Any) -> list[dict[str, Any]]:
            address = f"{server.url}/v1/responses/{run}"
            return events(httpx.get(address, params={"stream": "true", **query}).text)

        kept = again()
        server.registry.forget(run.removeprefix("resp_"))
        stored = again()
        refused = httpx.get(f"{server.url}/v1/responses/{run}?stream=true&starting_after=x")
        last = next(event for event in stored if event["type"] == "response.output_text.delta")[
            "sequence_number"
        ]
        rest = again(starting_after=last - 6)
        url = f"{server.url}/v1/responses/{run}?stream=true"
        same = events(httpx.get(url, headers={"last-event-id": f"{run}:{last - 6}"}).text)
    assert ["".join(deltas(response)) for response in (kept, stored)] == ["alpha answers"] * 2
    assert [event[-1]["sequence_number"] for event in (kept, stored, rest)] == [
        kept[-1]["sequence_number"]
    ] * 3
    assert (rest[0]["delta"], rest[0]["sequence_number"], refused.status_code) == (
        "nswers",
        last,
        400,
    )
    assert same == rest


def test_a_response_in_the_background_needs_no_reader(stage: Stage) -> None:
    """It is answered at once and goes on; the same request again is another one.

    Without a trace it is refused.
    """
    with serving() as server:
        server.registry.limits.grace = 0.0
        made = [respond(server.url, background=True).json() for _ in range(2)]
        assert {response["status"] for response in made} <= {"queued", "in_progress"}
        assert {response["background"] for response in made} == {True}
        assert len({response["id"] for response in made}) == 2
        for response in made:
            while (stored := httpx.get(f"{server.url}/v1/responses/{response['id']}").json())[
                "status"
            ] != "completed":
                assert stored["status"] in ("queued", "in_progress")
            assert text_of(stored) == "alpha answers"
    with serving(stores_traces=False) as server:
        refused = respond(server.url, background=True)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "background")


def test_a_response_that_goes_on_cannot_be_continued_and_the_reason_is_told(stage: Stage) -> None:
    stage.models["alpha"] = stalls("First ")
    with serving() as server:
        made = respond(server.url, background=True).json()
        until(lambda: stage.asked("alpha"))
        refused = respond(server.url, previous_response_id=made["id"])
        missing = respond(server.url, previous_response_id="resp_20261122-000000-000000")
        httpx.post(f"{server.url}/v1/responses/{made['id']}/cancel")
    assert [answer.json()["error"]["code"] for answer in (refused, missing)] == [
        "previous_response_not_found"
    ] * 2
    assert "has no end: it goes on" in refused.json()["error"]["message"]
    assert "deleted, or never stored" in missing.json()["error"]["message"]


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "This model's maximum context length is 50 tokens.", "context_length_exceeded"),
        (401, "no such key", "invalid_prompt"),
        (500, "no", "server_error"),
    ],
)
def test_a_response_that_failed_has_the_same_error_however_it_is_read(
    stage: Stage, status: int, message: str, code: str
) -> None:
    """The code says whether to ask again."""
    stage.configure(workers=["alpha"])
    stage.models["alpha"] = refuses(status, message)
    with serving() as server:
        made = respond(server.url, background=True).json()
        url = f"{server.url}/v1/responses/{made['id']}"
        until(lambda: httpx.get(url).json()["status"] == "failed")
        kept = httpx.get(url).json()["error"]
        failed = events(httpx.get(url, params={"stream": "true"}).text)[-2]
        server.registry.forget(made["id"].removeprefix("resp_"))
        stored = httpx.get(url).json()["error"]
    assert kept == stored == failed["response"]["error"]
    assert kept["code"] == code


def test_only_what_this_client_asked_for_is_found(stage: Stage) -> None:
    stage.inside("ask", "Why?")
    run = next(stage.traces.glob("*.jsonl")).name.partition(".")[0]
    with serving() as server:
        names = (f"resp_{run}", "resp_last", "resp_", "nothing")
        codes = {
            httpx.request(method, f"{server.url}/v1/responses/{name}").status_code
            for method, name in product(("GET", "DELETE"), names)
        }
    assert codes == {404}
    assert list(stage.traces.glob("*.jsonl"))


def test_a_response_that_goes_on_can_be_cancelled(stage: Stage) -> None:
    stage.models["alpha"] = stalls("First ")
    with serving() as server:
        thread = threading.Thread(target=respond, args=(server.url,))
        thread.start()
        until(lambda: stage.asked("alpha"))
        run = server.registry.going_on[0].id
        url = f"{server.url}/v1/responses/resp_{run}"
        before = httpx.get(url).json()["status"]
        cancelled = httpx.post(f"{url}/cancel").json()["status"]
        thread.join(30)
        after = httpx.get(url).json()["status"]
    assert (before, cancelled, after) == ("in_progress", "cancelled", "cancelled")
