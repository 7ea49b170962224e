"""OpenAI's chat completions, which many other servers speak too. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conductor_cli.models.chat_apis.base import Frame, Translate
from conductor_cli.models.chat_body import plain_messages
from conductor_cli.models.features import ALL_FEATURES


class ChatCompletions:
    """`POST /chat/completions`. Replies are not translated, and of a request only its messages."""

    renamed: Mapping[str, str] = {}
    unsupported: frozenset[str] = frozenset()
    features = ALL_FEATURES

    def path(self, model: str) -> str:  # noqa: ARG002 - the body names the model
        return "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - nothing
        return {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {**body, "messages": plain_messages(body["messages"])}

    def translator(self) -> Translate:
        return lambda frame: frame

    def is_last(self, frame: Frame) -> bool:  # noqa: ARG002 - a stream ends with [DONE]
        return False

    def output_limit(self, message: str) -> int | None:  # noqa: ARG002 - no limit is sent unless the user sets one
        return None
