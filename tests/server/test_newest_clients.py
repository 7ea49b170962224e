"""What the newest SDKs send by default, over real HTTP, and what they need in the answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage
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
