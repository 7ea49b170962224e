"""Responses over a WebSocket, and the paths beside it: compaction and the count of tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage, breaks, says, stalls
from tests.server.plain_api import serving, until
from tests.server.sockets import Socket


def create(**fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "conductor-mini", "input": "Why?", **fields}


def text_of(event: dict[str, Any]) -> str:
    return str(event["response"]["output"][-1]["content"][0]["text"])


def test_responses_follow_each_other_on_one_connection(stage: Stage) -> None:
    with serving() as server, Socket(server.url) as client:
        first = client.ask(create())
        stage.models["alpha"] = says("Another one.")
        second = client.ask(create(input="And?"))
    assert first[0]["type"] == "response.created"
    assert [event["sequence_number"] for event in first] == sorted(
        event["sequence_number"] for event in first
    )
    assert (text_of(first[-1]), text_of(second[-1])) == ("alpha answers", "Another one.")


def test_a_response_that_is_not_stored_goes_on_where_it_was_made_alone(stage: Stage) -> None:
    with serving() as server:
        with Socket(server.url) as client:
            first = client.ask(create(store=False, input="The word is cobalt."))[-1]
            name = first["response"]["id"]
            second = client.ask(create(store=False, previous_response_id=name))[-1]
        with Socket(server.url) as other:
            refused = other.ask(create(store=False, previous_response_id=name))[-1]
            recovered = other.ask(create(store=False))[-1]
    assert second["type"] == recovered["type"] == "response.completed"
    assert "cobalt" in str(stage.asked("alpha")[1].json["messages"])
    assert refused["type"] == "error"
    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")


def test_each_event_names_the_lane_of_its_request(stage: Stage) -> None:
    """A client that works in lanes reads no event without one; each lane goes on by itself."""
    with serving() as server, Socket(server.url) as client:
        first = client.ask(create(store=False, stream_id="one", input="The word is cobalt."))
        other = client.ask(create(store=False, stream_id="two"))
        name = first[-1]["response"]["id"]
        again = client.ask(create(store=False, stream_id="one", previous_response_id=name))
        refused = client.ask(create(stream_id="one", input=None))
        unnamed = client.ask(create())
        wrong = client.ask(create(stream_id=7))
    for events, lane in ((first, "one"), (other, "two"), (again, "one"), (refused, "one")):
        assert {event["stream_id"] for event in events} == {lane}
    assert "ignored" not in first[-1]["response"]["conductor"]
    assert again[-1]["type"] == "response.completed"
    assert "cobalt" in str(stage.asked("alpha")[2].json["messages"])
    assert not any("stream_id" in event for event in unnamed)
    assert wrong[-1]["error"]["param"] == "stream_id"


@pytest.mark.parametrize(
    ("field", "value"), [("generate", False), ("prompt_cache_options", {"prewarm": True})]
)
def test_a_request_for_no_answer_is_refused_and_costs_nothing(
    stage: Stage, field: str, value: object
) -> None:
    with serving() as server, Socket(server.url) as client:
        (refused,) = client.ask(create(**{field: value}))
    assert refused["error"]["param"] == field
    assert not stage.posts


def test_after_a_failure_there_is_nothing_to_continue(stage: Stage) -> None:
    output = {"type": "function_call_output", "call_id": "call_nope", "output": "x"}
    with serving() as server, Socket(server.url) as client:
        name = client.ask(create(store=False))[-1]["response"]["id"]
        failed = client.ask(create(store=False, previous_response_id=name, input=[output]))[-1]
        stale = client.ask(create(store=False, previous_response_id=name))[-1]
    assert failed["error"]["code"] == "tool_call_not_found"
    assert stale["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"type": "response.cancel"}, "type"),
        (create(stream=True), "stream"),
        (create(background=True), "background"),
        (create(input=None), "input"),
        ("no JSON", None),
    ],
    ids=["type", "stream", "background", "input", "JSON"],
)
def test_what_cannot_be_served_is_an_error_and_the_connection_stays(
    stage: Stage, sent: dict[str, Any] | str, param: str | None
) -> None:
    with serving() as server, Socket(server.url) as client:
        (refused,) = client.ask(sent)
        answered = client.ask(create())
    assert (refused["type"], refused["status"]) == ("error", 400)
    assert refused["error"]["param"] == param
    assert text_of(answered[-1]) == "alpha answers"


def test_a_worker_that_breaks_off_is_one_end_of_the_response(stage: Stage) -> None:
    """Behind `response.failed` there is no second event for the next request to be taken for."""
    stage.models["alpha"] = breaks("It ")
    with serving() as server, Socket(server.url) as client:
        failed = client.ask(create())
        stage.models["alpha"] = says("It hails.")
        answered = client.ask(create(input="Again?"))
    assert failed[-1]["type"] == "response.failed"
    assert text_of(answered[-1]) == "It hails."


def test_the_work_for_a_client_that_has_gone_is_stopped(stage: Stage) -> None:
    stage.models["alpha"] = stalls("It ")
    with serving() as server:
        server.registry.limits.grace = 0.0
        with Socket(server.url) as client:
            client.send(create())
            until(lambda: stage.asked("alpha"))
        until(lambda: not server.registry.going_on, "the end of the run")


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"host": "evil.example"}], ids=["page", "name"]
)
def test_a_foreign_page_opens_no_connection(stage: Stage, headers: dict[str, str]) -> None:
    """Browsers ask nobody before they open one."""
    with serving() as server, Socket(server.url, headers) as client:
        assert client.status in {400, 403}
    assert not stage.asked("alpha")


def test_a_connection_needs_a_key_where_there_are_keys(stage: Stage) -> None:
    key = stage.ok("serve", "keys", "add", "laptop").out.split()[-1]
    with serving() as server:
        with Socket(server.url) as stranger:
            error = json.loads(stranger.body)["error"]
        with Socket(server.url, {"authorization": f"Bearer {key}"}) as client:
            answered = client.ask(create())[-1]
    assert (stranger.status, error["code"]) == (401, "invalid_api_key")
    assert text_of(answered) == "alpha answers"


def test_a_conversation_is_compacted_to_one_item_from_which_it_goes_on(stage: Stage) -> None:
    stage.models["alpha"] = says("The user said: slate.")
    talk = [{"role": "user", "content": "Remember: slate."}, {"role": "assistant", "content": "OK"}]
    with serving() as server:
        url = f"{server.url}/v1/responses"
        compacted = httpx.post(f"{url}/compact", json={"model": "conductor", "input": talk}).json()
        nameless = httpx.post(f"{url}/compact", json={"input": talk})
        kept = httpx.get(f"{url}/{compacted['id']}")
        again = [*compacted["output"], {"role": "user", "content": "Which word?"}]
        answered = httpx.post(url, json={"model": "conductor-mini", "input": again}).json()
        foreign = {"type": "compaction", "encrypted_content": "gAAAAABpM0Yj"}
        refused = httpx.post(url, json={"model": "conductor", "input": [foreign]})
    assert compacted["object"] == "response.compaction"
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    assert compacted["usage"]["total_tokens"] > 0
    assert "Remember: slate." in str(stage.asked("alpha")[0].json["messages"])
    assert "The user said: slate." in str(stage.asked("alpha")[1].json["messages"])
    assert answered["status"] == "completed"
    assert (nameless.status_code, nameless.json()["error"]["param"]) == (400, "model")
    assert (kept.status_code, refused.status_code) == (404, 400)


def test_the_tokens_of_an_input_are_counted_without_a_run(stage: Stage) -> None:
    with serving() as server:
        url = f"{server.url}/v1/responses/input_tokens"
        short = httpx.post(url, json={"model": "conductor", "input": "Why?"}).json()
        long = httpx.post(url, json={"model": "conductor", "input": "Why? " * 100}).json()
    assert short["object"] == "response.input_tokens"
    assert 0 < short["input_tokens"] < long["input_tokens"]
    assert not stage.posts


def test_a_prompt_is_refused_for_its_own_reason(stage: Stage) -> None:
    with serving() as server:
        url = f"{server.url}/v1/responses"
        refused = httpx.post(url, json={"model": "conductor", "prompt": {"id": "pmpt_1"}})
    assert refused.json()["error"]["param"] == "prompt"
