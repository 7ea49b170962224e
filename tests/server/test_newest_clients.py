"""What the newest SDKs send by default, over real HTTP, and what they need in the answers."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage
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
