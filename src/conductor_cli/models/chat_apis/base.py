"""OpenAI's chat completions, which many servers speak, and how another API departs from them. Pure.

One adapter sends all requests and reads all replies in the form of chat completions. A `ChatApi`
says where a request goes, which header carries the key, and translates a body on its way out and
the frames of a reply on their way in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import ALL_FEATURES, Features
from conductor_cli.models.chat_body import Base64File, files_in, messages_for

Frame = Mapping[str, Any]
"""One JSON object of a reply: a server-sent event, or all of an answer that is not a stream."""

Translate = Callable[[Frame], Frame]
"""From a frame of an API to the same in the form of chat completions. It may keep state for one
reply.

What the API wants back in the turn is in the frame's `provider_data`, by the API's own names. Later
frames replace what earlier ones gave under the same name.
"""

# Tokens of output that are asked for where an API demands a limit and the user sets none
MAX_OUTPUT: Final = 32_000


class ChatApi:
    """`POST /chat/completions`. Replies are not translated, and of a request only its messages.

    `path` is below the base URL. `renamed` has an API's own names of parameters in snake case, and
    the names that chat completions has for them; errors give them in snake case, in camel case or
    as words. `unsupported` are the parameters of chat completions that an API does not have,
    `features` is what can be sent besides text. With `budget_fits_reply` a model may not be allowed
    to think as much as its whole reply may have. With `ascii_keys` it takes no argument of a tool
    whose name has letters of other scripts, and `with_items` no array in it that does not say what
    it holds. `last` are the types of the frames that end a reply, in
    an API whose streams do not end with `[DONE]`.
    """

    path = "/chat/completions"
    renamed: Mapping[str, str] = {}
    unsupported: frozenset[str] = frozenset()
    features: Features = ALL_FEATURES
    budget_fits_reply = False
    ascii_keys = False
    with_items = False
    last: Collection[str] = ()

    def path_of(self, model: str) -> str:  # noqa: ARG002 - most APIs have one path for all models
        """Return the path that a request for `model` is sent to, below the base URL."""
        return self.path

    def takes_image_detail(self, model: str) -> bool:  # noqa: ARG002 - most APIs do for all models
        """Return whether `model` can be told how closely to look at each image."""
        return True

    def headers(self, key: str) -> dict[str, str]:
        """Return what carries the key, and what every request has besides."""
        if key:
            return {"authorization": f"Bearer {key}"}
        return {}

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - nothing
        """Return what this API is asked for besides what `body` says.

        A server that refuses it is not sent it.
        """
        return {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request, from that of chat completions.

        That one is without unset parameters (see `chat_body`).
        """
        model = str(body.get("model", ""))
        return {**body, "messages": messages_for(model, body["messages"])}

    def translator(self) -> Translate | None:
        """Return what translates the frames of one reply; None where they need no translation."""
        return None


def file_of(part: Mapping[str, Any]) -> Base64File | None:
    """Return the file of a content part, without the beginning of a data URL; None for a text."""
    inner = part.get("image_url") or part.get("file") or {}
    content = inner.get("url") or inner.get("file_data")
    if isinstance(content, Base64File):
        return replace(content, prefix="")
    return None


def check_size(messages: object, api: str, most: int) -> None:
    """Refuse files that in base64 alone exceed the `most` bytes of a request.

    Nothing was sent then.
    """
    size = sum(file.length for file in files_in(messages))
    if size > most:
        limit = f"{api} takes {most / 1e6:.0f} MB at most"
        message = f"the attached files need {size / 1e6:.0f} MB in base64; {limit}"
        raise ModelError("refused", message, hint="attach fewer or smaller files")
