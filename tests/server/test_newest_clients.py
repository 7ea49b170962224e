"""What the newest SDKs send by default, over real HTTP, and what they need in the answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from tests.cli.stage import PLANNER, TWO, Stage, refuses, says, sends
from tests.media_files import pdf, png
from tests.server.plain_api import events, serving, until
from tests.servers import Script, delta, usage


def message(url: str, **fields: Any) -> httpx.Response:
    """Anthropic's Messages, as its SDKs send them."""
    body = {"model": "conductor-mini", "max_tokens": 50, **fields}
    body.setdefault("messages", [{"role": "user", "content": "Why?"}])
    return httpx.post(f"{url}/v1/messages", json=body, timeout=30)


@pytest.mark.parametrize(
    "thread",
    [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_nope"}],
    ids=["create", "continue"],
)
def test_a_thread_is_refused_in_the_form_that_sends_the_whole_conversation(
    stage: Stage, thread: dict[str, str]
) -> None:
    """The SDKs of Anthropic ask again without a thread, so no question is lost."""
    with serving() as server:
        refused = message(server.url, thread=thread)
        whole = message(server.url)
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request"}
    assert "send the full conversation" in error["message"]
    assert whole.status_code == 200
    assert len(stage.asked("alpha")) == 1


def ask_with(url: str, model: str, part: dict[str, Any]) -> httpx.Response:
    """Chat Completions with a file or an image beside the question."""
    content = [{"type": "text", "text": "What is in it?"}, part]
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("accepts", ["", 'accepts = ["image"]'], ids=["nothing", "images"])
def test_a_worker_that_takes_no_pdf_is_sent_its_text(stage: Stage, accepts: str) -> None:
    stage.configure(workers={"alpha": accepts})
    url = "data:application/pdf;base64," + base64.b64encode(pdf("The fruit is MANGO.")).decode()
    part = {"type": "file", "file": {"filename": "fruit.pdf", "file_data": url}}
    with serving() as server:
        answered = ask_with(server.url, "conductor-mini", part)
    assert answered.status_code == 200
    content = stage.asked("alpha")[-1].json["messages"][-1]["content"]
    assert isinstance(content, str)
    assert "The fruit is MANGO." in content
    assert 'name="fruit.pdf"' in content


SCAN = "data:application/pdf;base64," + base64.b64encode(pdf("")).decode()
SCANNED: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Why?"},
                        {"type": "file", "file": {"filename": "scan.pdf", "file_data": SCAN}},
                    ],
                }
            ]
        },
    ),
    (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "Why?"},
                        {"type": "input_file", "filename": "scan.pdf", "file_data": SCAN},
                    ],
                }
            ]
        },
    ),
    (
        "/v1/messages",
        {
            "max_tokens": 50,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Why?"},
                        {
                            "type": "document",
                            "title": "scan.pdf",
                            "source": {
                                "type": "base64",
                                "media_type": "application/pdf",
                                "data": SCAN.partition(",")[2],
                            },
                        },
                    ],
                }
            ],
        },
    ),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), SCANNED, ids=["chat", "responses", "messages"])
def test_a_document_that_is_not_read_whole_is_told_to_the_client(
    stage: Stage, path: str, body: dict[str, Any], stream: bool
) -> None:
    stage.configure(workers={"alpha": 'accepts = ["pdf"]'})
    request_body = {"model": "conductor-mini", "stream": stream, **body}
    with serving() as server:
        answered = httpx.post(f"{server.url}{path}", json=request_body, timeout=60)
    notice = "note: scan.pdf: it holds no text, as scanned documents do"
    assert answered.status_code == 200, answered.text
    assert notice in answered.text.partition('"notices":[')[2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("schön und groß".encode("latin-1"), "a text in UTF-8; it may be CP1252"),
        ("Some words".encode("utf-16-le"), "a text in UTF-8; it may be UTF-16LE"),
        (b"\xef\xbb\xbf", "is empty"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_the_reason(
    stage: Stage, content: bytes, reason: str
) -> None:
    url = "data:text/plain;base64," + base64.b64encode(content).decode()
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": url}}
    with serving() as server:
        refused = ask_with(server.url, "conductor-mini", part)
    assert refused.status_code == 400
    assert reason in refused.json()["error"]["message"]
    assert not stage.posts


def test_an_image_goes_only_to_the_step_whose_worker_sees_it(stage: Stage) -> None:
    stage.configure(workers={"alpha": 'accepts = ["image"]', "beta": "accepts = []"})
    stage.plan = "alpha | - | Look at it.\nbeta | 1 | Answer."
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    with serving() as server:
        answered = ask_with(
            server.url, "conductor", {"type": "image_url", "image_url": {"url": url}}
        )
    assert answered.status_code == 200
    looked = str(stage.asked("alpha")[-1].json["messages"])
    answering = stage.asked("beta")[-1].json["messages"][-1]["content"]
    assert "image_url" in looked
    assert isinstance(answering, str)
    assert "Left out, because you cannot see it: PNG image" in answering
    assert "alpha answers" in answering


def test_the_detail_of_an_image_reaches_every_worker_that_sees_it(stage: Stage) -> None:
    """Also a step of a plan, which is sent the file of the question and not the conversation."""
    stage.configure(workers={"alpha": 'accepts = ["image"]', "beta": 'accepts = ["image"]'})
    stage.plan = "alpha | - | Look at it.\nbeta | 1 | Answer."
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    image = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    with serving() as server:
        answered = ask_with(server.url, "conductor", image)
    assert answered.status_code == 200
    for worker in ("alpha", "beta"):
        content = stage.asked(worker)[-1].json["messages"][-1]["content"]
        images = [part["image_url"] for part in content if part["type"] == "image_url"]
        assert [sent["detail"] for sent in images] == ["low"]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def ask_for_json(url: str, **fields: Any) -> httpx.Response:
    """Chat Completions for an answer that follows a JSON Schema."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    body: dict[str, Any] = {"model": "conductor-mini", "response_format": form, **fields}
    body["messages"] = [{"role": "user", "content": "Where?"}]
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def text_of_chat(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


def test_a_schema_goes_to_the_server_of_the_worker_in_its_own_field(stage: Stage) -> None:
    stage.models["alpha"] = says('{"city": "Rome"}')
    with serving() as server:
        answered = ask_for_json(server.url)
    sent = stage.asked("alpha")[-1].json["response_format"]
    assert text_of_chat(answered) == '{"city": "Rome"}'
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"] == SCHEMA
    assert sent["json_schema"]["strict"] is True


@pytest.mark.parametrize(
    "written",
    [
        '```json\n{"city": "Rome"}\n```',
        'Here is the JSON: {"city": "Rome"}',
        '{"city": "Rome"} Hope this helps [1].',
    ],
    ids=["fenced", "before", "behind"],
)
def test_the_value_of_an_answer_is_read_out_of_its_words(stage: Stage, written: str) -> None:
    stage.models["alpha"] = says(written)
    with serving() as server:
        answered = ask_for_json(server.url)
    assert (answered.status_code, text_of_chat(answered)) == (200, '{"city": "Rome"}')
    assert len(stage.asked("alpha")) == 1


def test_a_schema_is_kept_from_calls_and_holds_when_the_answer_is_asked_for_again(
    stage: Stage,
) -> None:
    """Most servers would hold the calls to the schema, too."""
    stage.models["alpha"] = says("no JSON at all")
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with serving() as server:
        answered = ask_for_json(server.url, tools=[tool])
    first, again = (request.json for request in stage.asked("alpha"))
    assert answered.status_code == 502
    assert "response_format" not in first
    assert again["response_format"]["json_schema"]["schema"] == SCHEMA
    assert again["tool_choice"] == "none"


def respond(url: str, **fields: Any) -> httpx.Response:
    """OpenAI's Responses."""
    body = {"model": "conductor-mini", "input": "Why?", **fields}
    return httpx.post(f"{url}/v1/responses", json=body, timeout=30)


def calls(name: str, arguments: dict[str, Any], count: int = 1) -> Script:
    """A model that calls a tool, the same several times where `count` says so."""
    call = {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    made = [{"index": index, "id": f"w{index}", **call} for index in range(count)]
    return sends(delta(tool_calls=made), delta(finish="tool_calls"), usage(), "[DONE]")


FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def test_items_that_are_referred_to_by_their_ids_are_found(stage: Stage) -> None:
    """Vercel's SDK sends the items of earlier responses so, because `store` is on by default."""
    stage.models["alpha"] = calls("look", {"at": "it"})
    with serving() as server:
        first = respond(server.url, tools=[FUNCTION]).json()
        server.registry.forget(first["id"].removeprefix("resp_"))
        *reasoning, call = first["output"]
        references = [{"type": "item_reference", "id": item["id"]} for item in (*reasoning, call)]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "hail"}
        stage.models["alpha"] = says("It hails.")
        items = [{"role": "user", "content": "Why?"}, *references, result]
        answered = respond(server.url, input=items, tools=[FUNCTION])
        unknown = respond(server.url, input=[{"type": "item_reference", "id": "msg_nope_0"}])
    assert reasoning
    assert answered.status_code == 200
    assert answered.json()["output"][-1]["content"][0]["text"] == "It hails."
    roles = [message["role"] for message in stage.asked("alpha")[-1].json["messages"]]
    assert roles[-2:] == ["assistant", "tool"]
    assert unknown.status_code == 400
    assert "does not have" in unknown.json()["error"]["message"]


def test_a_response_that_is_not_stored_cannot_be_read_or_continued(stage: Stage) -> None:
    """Neither while this server has it nor from its trace."""
    with serving() as server:
        made = respond(server.url, store=False).json()
        url = f"{server.url}/v1/responses/{made['id']}"
        kept = [httpx.get(url).status_code, httpx.delete(url).status_code]
        server.registry.forget(made["id"].removeprefix("resp_"))
        from_trace = httpx.get(url).status_code
        continued = respond(server.url, previous_response_id=made["id"])
    assert made["store"] is False
    assert (kept, from_trace) == ([404, 404], 404)
    assert continued.status_code == 400
    assert continued.json()["error"]["code"] == "previous_response_not_found"


def test_what_the_developer_said_in_the_input_is_continued_and_instructions_are_not(
    stage: Stage,
) -> None:
    """As in OpenAI's API, where the input of a response stays and its `instructions` do not."""
    rule = {"role": "developer", "content": "Answer in French."}
    other = {"role": "system", "content": "Be polite."}
    asked = {"role": "user", "content": "Why?"}
    with serving() as server:
        first = respond(server.url, instructions="Be brief.", input=[rule, asked]).json()
        second = respond(
            server.url,
            instructions="Be exact.",
            input=[other, asked],
            previous_response_id=first["id"],
        ).json()
        respond(server.url, previous_response_id=second["id"])
    systems = [request.json["messages"][0] for request in stage.asked("alpha")]
    assert [message["content"] for message in systems] == [
        "Be brief.\n\nAnswer in French.",
        "Be exact.\n\nAnswer in French.\n\nBe polite.",
        "Answer in French.\n\nBe polite.",
    ]


ASKED_WITH: dict[str, Any] = {
    "metadata": {"job": "7"},
    "tools": [FUNCTION | {"description": None, "strict": True}],
    "max_output_tokens": 99,
    "temperature": 0.5,
    "top_p": 0.9,
    "instructions": "Be brief.",
    "text": {
        "format": {
            "type": "json_schema",
            "name": "city",
            "description": None,
            "schema": SCHEMA,
            "strict": False,
        }
    },
}


def test_a_response_keeps_what_it_was_asked_with(stage: Stage) -> None:
    """Also one in the background, and where it is read from its trace."""
    stage.models["alpha"] = says('{"city": "Rome"}')
    with serving() as server:
        first = respond(server.url, background=True, **ASKED_WITH).json()
        url = f"{server.url}/v1/responses/{first['id']}"
        until(lambda: httpx.get(url).json()["status"] == "completed")
        kept = httpx.get(url).json()
        server.registry.forget(first["id"].removeprefix("resp_"))
        stored = httpx.get(url).json()
        streamed = events(httpx.get(url, params={"stream": "true"}).text)[-1]["response"]
        second = respond(server.url, previous_response_id=first["id"]).json()
        read_again = httpx.get(f"{server.url}/v1/responses/{second['id']}").json()
    for response in (first, kept, stored, streamed):
        assert {name: response[name] for name in ASKED_WITH} == ASKED_WITH
        assert response["background"] is True
    assert isinstance(kept["completed_at"], int)
    assert second["previous_response_id"] == first["id"] == read_again["previous_response_id"]


def test_whoever_reads_a_response_by_its_id_is_told_what_had_no_effect(stage: Stage) -> None:
    """A response in the background is read in no other way."""
    fields = {"truncation": "auto", "user": "ann", "tools": [{**FUNCTION, "defer_loading": True}]}
    with serving() as server:
        made = respond(server.url, background=True, **fields).json()
        url = f"{server.url}/v1/responses/{made['id']}"
        until(lambda: httpx.get(url).json()["status"] == "completed")
        kept = httpx.get(url).json()
        server.registry.forget(made["id"].removeprefix("resp_"))
        stored = httpx.get(url).json()
        streamed = events(httpx.get(url, params={"stream": "true"}).text)[-1]["response"]
    told = [response["conductor"].get("ignored") for response in (kept, stored, streamed)]
    assert told == [["tools[].defer_loading", "truncation", "user"]] * 3


CLIENT_TOOLS = [
    (
        {"type": "custom", "name": "sql", "description": "Runs SQL."},
        ("sql", {"input": "select 1"}),
        {"type": "custom_tool_call", "name": "sql", "input": "select 1"},
    ),
    (
        {"type": "local_shell"},
        ("local_shell", {"command": ["ls"]}),
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    ),
    (
        {"type": "shell"},
        ("shell", {"commands": ["ls"]}),
        {
            "type": "shell_call",
            "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
        },
    ),
    (
        {"type": "apply_patch"},
        ("apply_patch", {"type": "delete_file", "path": "a"}),
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
    ),
]


@pytest.mark.parametrize(("tool", "call", "item"), CLIENT_TOOLS, ids=lambda case: str(case)[:30])
def test_tools_that_a_client_of_responses_runs_come_back_as_their_own_items(
    stage: Stage, tool: dict[str, Any], call: tuple[str, dict[str, Any]], item: dict[str, Any]
) -> None:
    """Beside functions and alone; the same worker goes on with the result."""
    stage.models["alpha"] = calls(*call)
    with serving() as server:
        beside = respond(server.url, tools=[FUNCTION, tool]).json()
        streamed = events(respond(server.url, tools=[tool], stream=True).text)[-1]["response"]
        made = beside["output"][-1]
        result = {"type": f"{item['type']}_output", "call_id": made["call_id"], "output": "done"}
        stage.models["alpha"] = says("It is done.")
        items = [{"role": "user", "content": "Why?"}, made, result]
        answered = respond(server.url, input=items, tools=[tool])
    for response in (beside, streamed):
        assert {name: response["output"][-1][name] for name in item} == item
    offered = [tool["function"]["name"] for tool in stage.asked("alpha")[0].json["tools"]]
    assert offered == ["look", call[0]]
    assert answered.json()["output"][-1]["content"][0]["text"] == "It is done."
    sent = stage.asked("alpha")[-1].json["messages"]
    assert [message["role"] for message in sent[-2:]] == ["assistant", "tool"]
    assert json.loads(sent[-2]["tool_calls"][0]["function"]["arguments"]) == call[1]
    assert sent[-1]["content"] == "done"


def test_a_custom_tool_of_chat_completions_comes_back_as_one(stage: Stage) -> None:
    stage.models["alpha"] = calls("sql", {"input": "select 1"})
    body = {"model": "conductor-mini", "messages": [{"role": "user", "content": "Why?"}]}
    body["tools"] = [{"type": "custom", "custom": {"name": "sql"}}]
    with serving() as server:
        answered = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30).json()
    call = answered["choices"][0]["message"]["tool_calls"][0]
    assert (call["type"], call["custom"]) == ("custom", {"name": "sql", "input": "select 1"})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ({"type": "bash_20250124", "name": "bash"}, {"command": "ls"}),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"command": "view", "path": "a"},
        ),
        ({"type": "memory_20250818", "name": "memory"}, {"command": "view", "path": "/memories"}),
    ],
    ids=["bash", "text editor", "memory"],
)
def test_tools_that_a_client_of_messages_runs_are_offered(
    stage: Stage, tool: dict[str, str], arguments: dict[str, str]
) -> None:
    stage.models["alpha"] = calls(tool["name"], arguments)
    look = {"name": "look", "input_schema": {"type": "object"}}
    with serving() as server:
        answered = message(server.url, tools=[look, tool]).json()
    offered = [tool["function"] for tool in stage.asked("alpha")[0].json["tools"]]
    assert [function["name"] for function in offered] == ["look", tool["name"]]
    assert "command" in offered[1]["parameters"]["properties"]
    assert answered["content"][-1]["name"] == tool["name"]
    assert answered["content"][-1]["input"] == arguments


def test_a_tool_whose_results_are_screens_is_refused_by_name(stage: Stage) -> None:
    """Also beside functions: it was dropped in silence."""
    computer = {"type": "computer_use_preview", "display_width": 9, "display_height": 9}
    with serving() as server:
        refused = respond(server.url, tools=[FUNCTION, computer])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[1].type")


def test_how_tokens_are_drawn_reaches_the_worker(stage: Stage) -> None:
    drawn: dict[str, Any] = {"top_p": 0.5, "seed": 7, "frequency_penalty": 0.25, "top_k": 3}
    drawn |= {"presence_penalty": -1.0, "logit_bias": {"50": -100}}
    body = {"model": "conductor-mini", "verbosity": "low", **drawn}
    body["messages"] = [{"role": "user", "content": "Why?"}]
    with serving() as server:
        answered = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30).json()
    sent = stage.asked("alpha")[-1].json
    assert {name: sent[name] for name in drawn} == drawn
    assert answered["conductor"]["ignored"] == ["verbosity"]


def test_one_call_at_a_time_is_one_call(stage: Stage) -> None:
    stage.models["alpha"] = calls("look", {}, count=2)
    with serving() as server:
        answered = respond(server.url, tools=[FUNCTION], parallel_tool_calls=False).json()
    assert [item["type"] for item in answered["output"]][-2:] == ["reasoning", "function_call"]
    assert "2 calls at once" in str(answered["output"][0])


def test_the_stop_text_that_ended_an_answer_is_told(stage: Stage) -> None:
    """Where the worker's server says which it was, as vLLM does."""
    end = {"choices": [{"delta": {}, "finish_reason": "stop", "stop_reason": "END"}]}
    stage.models["alpha"] = sends(delta("It hails."), end, usage(), "[DONE]")
    with serving() as server:
        answered = message(server.url, stop_sequences=["END"]).json()
        streamed = events(message(server.url, stop_sequences=["END"], stream=True).text)
    ended = next(event["delta"] for event in streamed if event["type"] == "message_delta")
    for response in (answered, ended):
        assert (response["stop_reason"], response["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize(
    ("field", "value"),
    [("container", "c"), ("fallbacks", [{"model": "x"}]), ("inference_geo", "eu")],
)
def test_what_no_worker_could_promise_is_refused_in_messages(
    stage: Stage, field: str, value: object
) -> None:
    with serving() as server:
        refused = message(server.url, **{field: value})
    assert refused.status_code == 400
    assert field in refused.json()["error"]["message"]


def test_citations_are_refused_as_there_are_none(stage: Stage) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Hail."}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    with serving() as server:
        refused = message(server.url, messages=[{"role": "user", "content": [document]}])
    assert refused.status_code == 400
    assert "citations" in refused.json()["error"]["message"]


def test_a_client_whose_request_keeps_failing_is_told_to_stop(stage: Stage) -> None:
    """Each time every worker was asked; a client would repeat it for minutes."""
    stage.models |= dict.fromkeys(("alpha", "beta"), refuses(500))
    with serving() as server:
        first, second, third = (message(server.url) for _ in range(3))
        stage.models["alpha"] = says("It hails.")
        answered = message(server.url)
        stage.models["alpha"] = refuses(500)
        again = message(server.url)
    assert (first.status_code, first.headers.get("x-should-retry")) == (503, None)
    assert (second.status_code, second.headers.get("x-should-retry")) == (503, "false")
    # Clients that read no header repeat each 5xx for minutes.
    assert third.status_code == 400
    assert "equal requests have failed 3 times within two minutes" in third.text
    assert answered.status_code == 200
    assert again.status_code == 503
    assert again.headers.get("x-should-retry") is None


def test_a_stream_that_keeps_failing_has_a_status(stage: Stage) -> None:
    """OpenCode repeats a request for minutes where the error stands inside a stream."""
    stage.models |= dict.fromkeys(("alpha", "beta"), refuses(500))
    with serving() as server:
        streams = [message(server.url, stream=True) for _ in range(3)]
        stage.models["alpha"] = says("It hails.")
        answered = message(server.url, stream=True)
    assert [stream.status_code for stream in streams] == [200, 200, 400]
    assert "It hails." in answered.text


def test_a_client_that_wants_no_reasoning_is_told_none(stage: Stage) -> None:
    """Neither at once nor where the response is read again."""
    with serving() as server:
        made = respond(server.url, reasoning={"effort": "none"}).json()
        server.registry.forget(made["id"].removeprefix("resp_"))
        again = httpx.get(f"{server.url}/v1/responses/{made['id']}").json()
    for response in (made, again):
        assert [item["type"] for item in response["output"]] == ["message"]


def test_a_client_of_anthropics_files_gets_no_objects_of_openai(stage: Stage) -> None:
    with serving() as server:
        url = f"{server.url}/v1/files"
        refused = httpx.get(url, headers={"anthropic-version": "2023-06-01"})
        listed = httpx.get(url)
    assert (refused.status_code, listed.status_code) == (404, 200)
    assert "send the file in the message" in refused.json()["error"]["message"]


def test_a_block_that_cannot_be_served_is_refused_with_those_that_can(stage: Stage) -> None:
    with serving() as server:
        content = [{"type": "search_result"}]
        refused = message(server.url, messages=[{"role": "user", "content": content}])
    error_text = refused.json()["error"]["message"]
    assert "'tool_result'" in error_text
    assert "dropped" not in error_text


def test_a_response_that_has_ended_cannot_be_cancelled(stage: Stage) -> None:
    with serving() as server:
        made = respond(server.url).json()
        refused = httpx.post(f"{server.url}/v1/responses/{made['id']}/cancel")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "response_has_ended")


def test_a_check_of_a_call_is_made_by_one_worker_that_the_planner_chooses(stage: Stage) -> None:
    """Claude Code has each call of a tool checked, and a whole plan is too much for that.

    The cheapest worker may not be good enough.
    """
    prices = {"alpha": "input = 2, output = 8", "beta": "input = 1, output = 2"}
    stage.configure(workers={name: f"price = {{ {price} }}" for name, price in prices.items()})
    stage.plan = TWO
    body = {
        "model": "conductor",
        "max_tokens": 64,
        "system": "You are a security monitor for autonomous AI coding agents.\n\n## Context",
        "messages": [{"role": "user", "content": '<transcript>\n{"Bash":"ls"}\n</transcript>'}],
    }
    with serving() as server:
        headers = {"x-claude-code-session-id": "1"}
        answered = httpx.post(f"{server.url}/v1/messages", json=body, headers=headers, timeout=30)
    assert answered.json()["content"] == [{"type": "text", "text": "alpha answers"}]
    assert [len(stage.asked(name)) for name in (PLANNER, "alpha", "beta")] == [1, 1, 0]
