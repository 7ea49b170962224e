"""Conversations with a client's own tools over real HTTP.

The worker that asked goes on, in each API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import httpx
import pytest

from tests.cli.stage import TWO, Stage, says, sends
from tests.cli.test_tools import SERVER, calls
from tests.server.plain_api import Serving, events, serving
from tests.servers import Loopback, Script, SeenRequest, Speaker, Wire, delta, usage

EDIT = {"name": "edit", "description": "Edit a file."}
SCHEMA = {"type": "object", "properties": {"file": {"type": "string"}}}
TOOLS = {
    "chat/completions": [{"type": "function", "function": EDIT | {"parameters": SCHEMA}}],
    "responses": [{"type": "function", **EDIT, "parameters": SCHEMA}],
    "messages": [EDIT | {"input_schema": SCHEMA}],
}
SEARCH = {
    "chat/completions": {"type": "web_search"},
    "responses": {"type": "web_search"},
    "messages": {"type": "web_search_20250305", "name": "web_search"},
}


def asks(*files: str) -> Script:
    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        await speaker.say("I edit.")
        for index, name in enumerate(files):
            await speaker.call("edit", '{"file": ', f'"{name}"', "}", id=f"own{index}")
        await speaker.end()

    return script


def calls_once(name: str) -> Script:
    """A model that only calls this tool."""
    call = {"index": 0, "id": "own0", "function": {"name": name, "arguments": "{}"}}
    return sends(delta(tool_calls=[call]), delta(finish="tool_calls"), usage(), "[DONE]")


def by_turns(*scripts: Script) -> Script:
    left = list(scripts)

    async def script(request: SeenRequest, wire: Wire) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, wire)

    return script


class Talk:
    """A client's conversation in one of the APIs, as its SDK keeps it."""

    def __init__(self, server: Serving, api: str) -> None:
        self.server = server
        self.api = api
        self.turns: list[Any] = [{"role": "user", "content": "Rename it."}]
        self.calls: list[tuple[str, str]] = []
        self.text = ""

    def post(self, **fields: Any) -> httpx.Response:
        name = "input" if self.api == "responses" else "messages"
        body = {
            "model": "conductor",
            "tools": TOOLS[self.api],
            name: self.turns,
            "max_tokens": 500,
            **fields,
        }
        return httpx.post(f"{self.server.url}/v1/{self.api}", json=body, timeout=30)

    def ask(self, **fields: Any) -> httpx.Response:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer = response.json()
        if self.api == "messages":
            blocks = answer["content"]
            self.calls = [
                (call["id"], call["input"]["file"]) for call in blocks if call["type"] == "tool_use"
            ]
            self.text = "".join(call["text"] for call in blocks if call["type"] == "text")
            self.turns.append({"role": "assistant", "content": blocks})
        elif self.api == "responses":
            calls = [call for call in answer["output"] if call["type"] == "function_call"]
            self.calls = [
                (call["call_id"], json.loads(call["arguments"])["file"]) for call in calls
            ]
            messages = [item for item in answer["output"] if item["type"] == "message"]
            parts = chain.from_iterable(message["content"] for message in messages)
            self.text = "".join(part["text"] for part in parts)
            self.turns += answer["output"]
        else:
            message = answer["choices"][0]["message"]
            functions = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
            self.calls = [
                (call_id, json.loads(function["arguments"])["file"])
                for call_id, function in functions
            ]
            self.text = message["content"] or ""
            self.turns.append(message)
        return response

    def give(self) -> None:
        results = {call: f"edited {name}" for call, name in self.calls}
        if self.api == "messages":
            blocks = [
                {"type": "tool_result", "tool_use_id": call, "content": text}
                for call, text in results.items()
            ]
            self.turns.append(
                {"role": "user", "content": [*blocks, {"type": "text", "text": "Go on."}]}
            )
        elif self.api == "responses":
            outputs = [
                {"type": "function_call_output", "call_id": call, "output": t}
                for call, t in results.items()
            ]
            self.turns += outputs
        else:
            self.turns += [
                {"role": "tool", "tool_call_id": call, "content": text}
                for call, text in results.items()
            ]


def messages(request: SeenRequest) -> Sequence[Mapping[str, Any]]:
    sent: Sequence[Mapping[str, Any]] = request.json["messages"]
    return sent


@pytest.mark.parametrize("api", TOOLS)
def test_the_worker_that_asked_goes_on_for_two_turns_of_tools(stage: Stage, api: str) -> None:
    stage.plan = TWO
    stage.models["beta"] = by_turns(asks("a.py", "b.py"), asks("c.py"), says("Done."))
    with serving() as server:
        talk = Talk(server, api)
        talk.ask()
        assert ([name for _, name in talk.calls], talk.text) == (["a.py", "b.py"], "I edit.")
        assert all(len(call) <= 64 and "own" not in call for call, _ in talk.calls)
        talk.give()
        talk.ask()
        talk.give()
        talk.ask()
    assert (talk.calls, talk.text) == ([], "Done.")
    first, second, third = map(messages, stage.asked("beta"))
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert [
        message.get("tool_call_id") for message in second[len(first) :] if message["role"] == "tool"
    ] == ["own0", "own1"]
    assert (len(stage.asked("planner")), len(stage.asked("alpha"))) == (1, 1)


def test_ids_of_this_server_reach_workers_in_a_length_that_they_take(stage: Stage) -> None:
    """They do where the client has changed its conversation, so that its run says nothing of it."""
    stage.models["alpha"] = by_turns(asks("a.py"), says("Done."))
    with serving() as server:
        talk = Talk(server, "chat/completions")
        talk.ask()
        talk.give()
        talk.turns[0] = {"role": "user", "content": "Rename that file."}
        talk.ask()
    sent = messages(stage.asked("alpha")[1])
    assert sent[0]["content"] == "Rename that file."
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]
    assert len(sent[2]["tool_call_id"]) <= 40


@pytest.mark.parametrize("api", ["chat/completions", "responses"])
@pytest.mark.parametrize(
    ("choice", "script", "told"),
    [
        ("required", says("No."), "alpha called no tool, although a call was asked for"),
        ("edit", says("No."), "alpha did not call edit, which was asked for"),
        ("edit", calls_once("look"), "alpha did not call edit, which was asked for"),
        ("edit", calls_once("edit"), ""),
        ("required", calls_once("look"), ""),
        ("auto", says("No."), ""),
        ("required", says("No.", finish="length"), ""),
    ],
)
def test_a_call_that_was_asked_for_and_not_made_is_told(
    stage: Stage, api: str, choice: str, script: Script, told: str
) -> None:
    """Many servers take `tool_choice` and do as they like."""
    stage.models["alpha"] = script
    asked: Any = choice
    if choice == "edit":
        asked = {"type": "function", "name": "edit"}
        if api == "chat/completions":
            asked = {"type": "function", "function": {"name": "edit"}}
    with serving() as server:
        answer = Talk(server, api).post(tool_choice=asked).json()
    notices = answer["conductor"].get("notices", [])
    assert notices == ([f"step 1: {told}"] if told else [])


def test_a_response_goes_on_from_the_id_of_the_one_before(stage: Stage) -> None:
    stage.models["alpha"] = by_turns(asks("a.py"), says("Done."))
    with serving() as server:
        talk = Talk(server, "responses")
        before = talk.ask().json()["id"]
        talk.turns.clear()
        talk.give()
        talk.ask(previous_response_id=before)
        unknown = talk.post(previous_response_id="resp_20261122-000000-000000")
    assert talk.text == "Done."
    first, second = map(messages, stage.asked("alpha"))
    assert second[: len(first)] == first
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (
        400,
        "previous_response_not_found",
    )


def test_tokens_of_messages_are_counted_without_a_run(stage: Stage) -> None:
    with serving() as server:
        talk = Talk(server, "messages/count_tokens")
        body = {"model": "conductor", "messages": talk.turns, "tools": TOOLS["messages"]}
        counted = httpx.post(f"{server.url}/v1/messages/count_tokens", json=body)
        refused = httpx.post(f"{server.url}/v1/messages/count_tokens", json={"model": "conductor"})
    assert 20 < counted.json()["input_tokens"] < 60
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert not stage.server.requests


def test_an_answer_in_json_is_held_until_it_follows_the_schema(stage: Stage) -> None:
    stage.models["alpha"] = by_turns(says("{}"), says('{"file": ', '"a.py"}'))
    schema = SCHEMA | {"required": ["file"]}
    form = {"format": {"type": "json_schema", "schema": schema}}
    with serving() as server:
        stream = Talk(server, "messages").post(stream=True, tools=[], output_config=form)
    deltas = [
        event["delta"] for event in events(stream.text) if event["type"] == "content_block_delta"
    ]
    assert "".join(event.get("text", "") for event in deltas) == '{"file": "a.py"}'
    assert '"file" is a required property' in messages(stage.asked("alpha")[1])[-1]["content"]


def test_an_answer_that_stays_wrong_is_an_error(stage: Stage) -> None:
    form = {"type": "json_object"}
    with serving() as server:
        talk = Talk(server, "chat/completions")
        whole = talk.post(tools=[], response_format=form)
        stream = talk.post(tools=[], response_format=form, stream=True)
    assert (whole.status_code, whole.json()["error"]["code"]) == (502, "invalid_answer")
    assert '"code":"invalid_answer"' in stream.text
    assert "alpha answers" not in "".join(
        line for line in stream.text.splitlines() if '"content":' in line
    )


async def cut(request: SeenRequest, wire: Wire) -> None:
    """A reply whose limit cuts it inside a call."""
    await wire.head()
    call = {
        "index": 0,
        "id": "own",
        "type": "function",
        "function": {"name": "edit", "arguments": '{"file": "a'},
    }
    await wire.frames(delta(tool_calls=[call]), delta(finish="length"), usage(), "[DONE]")


@pytest.mark.parametrize(
    ("api", "word"),
    [
        ("chat/completions", '"finish_reason":"length"'),
        ("responses", "max_output_tokens"),
        ("messages", '"stop_reason":"max_tokens"'),
    ],
)
def test_a_reply_that_its_limit_cuts_is_told_as_such_and_never_asked_for_again(
    stage: Stage, api: str, word: str
) -> None:
    stage.configure(tables="[limits]\nattempts = 3")
    stage.models["alpha"] = cut
    stage.models["beta"] = cut
    with serving() as server:
        whole, stream = (Talk(server, api).post(stream=stream) for stream in (False, True))
    assert [answer.status_code for answer in (whole, stream)] == [200, 200]
    assert word in whole.text
    assert word in stream.text
    assert len([*stage.asked("alpha"), *stage.asked("beta")]) == 2


@pytest.mark.parametrize("api", SEARCH)
def test_a_search_that_nobody_can_run_is_refused_and_a_server_of_tools_runs_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """Never is it answered from nothing: only workers that have the tools are asked."""
    monkeypatch.setenv("DIARY", str(stage.home / "diary"))
    stage.models["beta"] = calls("add", a=40, b=2)
    with serving() as server:
        talk = Talk(server, api)
        refused = talk.post(tools=[SEARCH[api]])
        assert (refused.status_code, stage.server.requests) == (400, [])
        assert "web_search" in refused.json()["error"]["message"]
        stage.inside(
            "tools", "add", "web_search", "--set", "env=DIARY", "--", sys.executable, str(SERVER)
        )
        stage.configure(workers={"alpha": "", "beta": 'tools = ["web_search"]'})
        talk.ask(tools=[SEARCH[api]])
    assert talk.text.endswith("the tool says: 42")


@pytest.mark.parametrize("api", SEARCH)
def test_a_search_of_a_client_is_made_with_the_search_of_the_settings(
    stage: Stage, api: str
) -> None:
    """Where a rule keeps everybody from it, the request is refused as without it."""

    async def search(request: SeenRequest, wire: Wire) -> None:
        result = {"title": "Harbour", "url": "https://example.com/a", "content": "A pier was built"}
        await wire.json({"results": [result]})

    stage.configure(workers=("beta",))
    stage.plan = "beta | - | Answer it."
    stage.models["beta"] = calls("web_search", query="harbour")
    with Loopback(search) as engine:
        stage.ok("config", "set", "web.search", engine.url)
        with serving() as server:
            talk = Talk(server, api)
            talk.ask(tools=[SEARCH[api]])
        with serving(flags={"policy.deny": ["tool:web"]}) as server:
            refused = Talk(server, api).post(tools=[SEARCH[api]])
    assert "A pier was built" in talk.text
    assert (refused.status_code, len(engine.requests)) == (400, 1)
    assert "no worker has tools of that name that it may call" in refused.text
