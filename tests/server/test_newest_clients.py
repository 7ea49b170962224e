"""What the newest SDKs send by default, over real HTTP, and what they need in the answers."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage, says
from tests.media_files import pdf, png
from tests.server.plain_api import serving


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
    first, again = (seen.json for seen in stage.asked("alpha"))
    assert answered.status_code == 502
    assert "response_format" not in first
    assert again["response_format"]["json_schema"]["schema"] == SCHEMA
    assert again["tool_choice"] == "none"
