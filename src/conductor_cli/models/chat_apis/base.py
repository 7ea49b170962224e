"""The APIs that chat models are behind, and how each departs from OpenAI's chat completions.

One adapter sends all requests and reads all replies in the form of chat completions. A `ChatApi` says where a request
goes, which header carries the key, and translates a body on its way out and the frames of a reply on their way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

Frame = Mapping[str, Any]
"""One JSON object of a reply: a server-sent event, or all of an answer that is not a stream."""

Translate = Callable[[Frame], Frame]
"""From a frame of an API to the same in the form of chat completions. It may keep state for one reply."""


class ChatApi(Protocol):
    """One API."""

    renamed: Mapping[str, str]
    """The API's own names of parameters in snake case, and the names that chat completions has for them.

    Errors give them in snake case, in camel case or as words.
    """

    unsupported: frozenset[str]
    """Parameters of chat completions that the API does not have."""

    def path(self, model: str) -> str:
        """Where a request for a streamed reply of `model` goes, below the base URL."""

    def headers(self, key: str) -> dict[str, str]:
        """What carries the key, and what every request has besides."""

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a request, from that of chat completions without unset parameters."""

    def translator(self) -> Translate:
        """What translates the frames of one reply."""

    def output_limit(self, message: str) -> int | None:
        """The most tokens of output that a model allows, if `message` refuses a request for asking for more."""


class ChatCompletions:
    """OpenAI's own form, in which nothing is translated."""

    renamed: Mapping[str, str] = {}
    unsupported: frozenset[str] = frozenset()

    def path(self, model: str) -> str:  # noqa: ARG002 - the body names the model
        return "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(body)

    def translator(self) -> Translate:
        return lambda frame: frame

    def output_limit(self, message: str) -> int | None:  # noqa: ARG002 - no limit is sent unless the user sets one
        return None


CHAT_COMPLETIONS: Final[ChatApi] = ChatCompletions()

MOST_OUTPUT: Final = 32_000
"""Tokens of output that are asked for where an API demands a limit and the user sets none."""
