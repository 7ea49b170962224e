"""Files of text that a client sends: files to every rule, as images and PDF documents are."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage, says
from tests.server.plain_api import serving

PAY = "Ann earns 7300.\n</file>"
WORDS = "What does Ann earn?"
DATA = b64encode(PAY.encode()).decode()


def of_responses(text: str) -> tuple[str, dict[str, Any]]:
    parts = [
        {"type": "input_text", "text": text},
        {"type": "input_file", "filename": "pay.csv", "file_data": DATA},
    ]
    return "/v1/responses", {"input": [{"role": "user", "content": parts if text else parts[1:]}]}


def of_chat(text: str) -> tuple[str, dict[str, Any]]:
    parts = [
        {"type": "text", "text": text},
        {"type": "file", "file": {"filename": "pay.csv", "file_data": DATA}},
    ]
    body = {"messages": [{"role": "user", "content": parts if text else parts[1:]}]}
    return "/v1/chat/completions", body


def of_messages(text: str) -> tuple[str, dict[str, Any]]:
    source = {"type": "text", "media_type": "text/plain", "data": PAY}
    parts = [
        {"type": "text", "text": text},
        {"type": "document", "title": "pay.csv", "source": source},
    ]
    messages = [{"role": "user", "content": parts if text else parts[1:]}]
    return "/v1/messages", {"max_tokens": 100, "messages": messages}


def readers_of(stage: Stage, text: str) -> set[str]:
    return {post.json["model"] for post in stage.posts if text in post.body.decode()}


@pytest.mark.parametrize("form", [of_responses, of_chat, of_messages])
@pytest.mark.parametrize("text", [WORDS, ""])
def test_a_text_file_is_kept_from_who_may_not_see_files(
    stage: Stage, form: Callable[[str], tuple[str, dict[str, Any]]], text: str
) -> None:
    stage.configure('[policy]\nfiles_only = ["alpha"]')
    path, body = form(text)
    with serving() as server:
        answer = httpx.post(server.url + path, json={"model": "conductor", **body})
    assert answer.status_code == 200, answer.text
    assert stage.asked("planner")
    assert readers_of(stage, "7300") == {"alpha"}
    flow = stage.ok("trace", "show", "--flow").out
    assert "file pay.csv" in flow


def test_a_conversation_that_goes_on_by_its_id_keeps_its_text_files(stage: Stage) -> None:
    stage.configure('[policy]\nfiles_only = ["alpha"]')
    stage.models["alpha"] = says("Ann earns 7300.")
    path, body = of_responses(WORDS)
    with serving() as server:
        url = server.url + path
        first = httpx.post(url, json={"model": "conductor", **body}).json()
        later = {"model": "conductor", "input": "Much?", "previous_response_id": first["id"]}
        second = httpx.post(url, json=later).json()
        again = {**later, "previous_response_id": second["id"]}
        assert httpx.post(url, json=again).status_code == 200
    assert len(stage.asked("planner")) == len(stage.asked("alpha")) == 3
    assert readers_of(stage, "7300") == {"alpha"}


def test_without_a_rule_everybody_reads_a_text_file_and_the_worker_where_it_stands(
    stage: Stage,
) -> None:
    path, body = of_chat(WORDS)
    body["messages"][0]["content"].append({"type": "text", "text": "Be brief."})
    with serving() as server:
        httpx.post(server.url + path, json={"model": "conductor", **body})
    assert readers_of(stage, "7300") == {"planner", "alpha"}
    (sent,) = stage.asked("alpha")
    content = sent.json["messages"][-1]["content"]
    assert content.index(WORDS) < content.index("7300") < content.index("Be brief.")
    assert content.count("7300") == 1


@pytest.mark.parametrize("by_id", [False, True], ids=["input", "previous response"])
def test_a_summary_of_a_conversation_with_files_is_made_and_read_by_who_may_see_them(
    stage: Stage, by_id: bool
) -> None:
    """Also where another worker is cheaper."""
    prices = {
        "alpha": "price = { input = 5, output = 5 }",
        "beta": "price = { input = 1, output = 1 }",
    }
    stage.configure('[policy]\nfiles_only = ["alpha"]', workers=prices)
    stage.models["alpha"] = says("Ann earns 7300.")
    path, body = of_responses(WORDS)
    with serving() as server:
        url = server.url + path
        asked: dict[str, Any] = dict(body)
        if by_id:
            first = httpx.post(url, json={"model": "conductor", **body}).json()
            asked = {"previous_response_id": first["id"]}
        made = httpx.post(f"{url}/compact", json={"model": "conductor", **asked}).json()
        later = [*made["output"], {"role": "user", "content": "Much?"}]
        second = httpx.post(url, json={"model": "conductor", "input": later}).json()
        third = {"model": "conductor", "input": "Why?", "previous_response_id": second["id"]}
        assert httpx.post(url, json=third).status_code == 200
    assert "summary" in stage.asked("alpha")[-1].body.decode()
    assert readers_of(stage, "7300") == {"alpha"}
