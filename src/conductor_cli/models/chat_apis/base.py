"""What an API has to say that chat models are behind: how it departs from OpenAI's chat completions.

One adapter sends all requests and reads all replies in the form of chat completions. A `ChatApi` says where a request
goes, which header carries the key, and translates a body on its way out and the frames of a reply on their way in.

The files among the content parts of chat completions, for APIs that have another form for them. Pure.

OpenAI's chat completions, which many other servers speak too. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import largest_output
from conductor_cli.models.base import ALL_FEATURES, Features
from conductor_cli.models.chat_body import Base64File, files_in, plain_messages
from conductor_cli.models.tool_schemas import wants_short_ids, with_short_ids

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


def file_of(part: Mapping[str, Any]) -> tuple[Base64File | None, str]:
    """The file of a content part without the beginning of a data URL, and its name; None for a text."""
    inner = part.get("image_url") or part.get("file") or {}
    found = inner.get("url") or inner.get("file_data")
    if not isinstance(found, Base64File):
        return None, ""
    return replace(found, prefix=""), found.attachment.name


def check_size(messages: object, api: str, most: int) -> None:
    """Refuse, before anything is sent, files that in base64 alone are longer than the `most` bytes of a request."""
    size = sum(file.length for file in files_in(messages))
    if size > most:
        message = f"the attached files need {size / 1e6:.0f} MB in base64; {api} takes {most / 1e6:.0f} MB at most"
        raise ModelError("refused", message, hint="attach fewer or smaller files")


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
        messages = body["messages"]
        if wants_short_ids(body.get("model", "")):
            messages = with_short_ids(messages)
        return {**body, "messages": plain_messages(messages)}

    def translator(self) -> Translate:
        return lambda frame: frame

    def is_last(self, frame: Frame) -> bool:  # noqa: ARG002 - a stream ends with [DONE]
        return False

    def output_limit(self, message: str) -> int | None:
        return largest_output(message)
