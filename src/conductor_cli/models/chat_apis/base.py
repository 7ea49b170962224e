"""What an API has to say that chat models are behind: how it departs from OpenAI's chat completions.

One adapter sends all requests and reads all replies in the form of chat completions. A `ChatApi` says where a request
goes, which header carries the key, and translates a body on its way out and the frames of a reply on their way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from conductor_cli.models.features import Features

Frame = Mapping[str, Any]
"""One JSON object of a reply: a server-sent event, or all of an answer that is not a stream."""

Translate = Callable[[Frame], Frame]
"""From a frame of an API to the same in the form of chat completions. It may keep state for one reply.

What the API wants back in the turn is in the frame's `provider_data`, by the API's own names. Later frames replace what
earlier ones gave under the same name.
"""


class ChatApi(Protocol):
    """One API."""

    renamed: Mapping[str, str]
    """The API's own names of parameters in snake case, and the names that chat completions has for them.

    Errors give them in snake case, in camel case or as words.
    """

    unsupported: frozenset[str]
    """Parameters of chat completions that the API does not have."""

    features: Features
    """What can be sent besides text."""

    def path(self, model: str) -> str:
        """Where a request for a streamed reply of `model` goes, below the base URL."""

    def headers(self, key: str) -> dict[str, str]:
        """What carries the key, and what every request has besides."""

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What this API is asked for besides what `body` says. Where a server refuses it, it is left out in silence."""

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a request, from that of chat completions without unset parameters (see `chat_body`)."""

    def translator(self) -> Translate:
        """What translates the frames of one reply."""

    def is_last(self, frame: Frame) -> bool:
        """Whether a frame ends the reply, in an API whose streams do not end with `[DONE]`."""

    def output_limit(self, message: str) -> int | None:
        """The most tokens of output that a model allows, if `message` refuses a request for asking for more."""


MOST_OUTPUT: Final = 32_000
"""Tokens of output that are asked for where an API demands a limit and the user sets none."""
