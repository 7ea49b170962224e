"""The APIs that the server speaks, and how a request of any of them is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.chat import text_size
from conductor_cli.programs.schema_check import size_of
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.compaction import CompactionApi
from conductor_cli.server.api.errors import TOO_LONG
from conductor_cli.server.api.messages import MessagesApi
from conductor_cli.server.api.messages_encoder import estimate_length
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError
from conductor_cli.server.api.responses import ResponsesApi

APIS: Final[dict[str, ClientApi]] = {
    "/v1/chat/completions": ChatCompletionsApi(),
    "/v1/responses": ResponsesApi(),
    "/v1/responses/compact": CompactionApi(),
    "/v1/messages": MessagesApi(),
}
"""The APIs by the paths at which a client creates an answer."""

# Of all texts of a request, its tools and its schema: a million tokens, as many as the largest
# models read
MAX_TEXT_BYTES: Final = 4_000_000


def parse_sized(api: ClientApi, body: Mapping[str, Any]) -> ClientRequest:
    """Return the request of a body.

    Raises `RequestError`, also for more text than any model reads.
    """
    request = api.parse(body)
    size = _size_of_text(request)
    if size > MAX_TEXT_BYTES:
        message = f"{size:,} bytes of text are more than {MAX_TEXT_BYTES:,}"
        raise RequestError(400, TOO_LONG, message)
    return request


def _size_of_text(request: ClientRequest) -> int:
    """Return the bytes of the texts, the calls, the tools and the schema.

    Of many texts the characters are counted instead.
    """
    size = text_size(request.messages)
    if size <= MAX_TEXT_BYTES:  # else it is too much already, and need not be encoded
        size = sum(len(message.content.encode("utf-8", "replace")) for message in request.messages)
    for message in request.messages:
        size += sum(len(call.arguments) for call in message.tool_calls)
    size += _size_of_schema(request.schema)
    for tool in request.tools:
        size += _size_of_schema(tool.parameters)
    return size


def _size_of_schema(schema: Any) -> int:  # noqa: ANN401 - any JSON value
    """Return about how many bytes a schema has as text: ten for each of its parts."""
    return 10 * size_of(schema, MAX_TEXT_BYTES, characters=10)


def count_input_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to `POST /v1/responses/input_tokens`. Raises `RequestError`."""
    if body.get("previous_response_id"):
        message = "is not counted: send the conversation itself as input"
        raise refused("previous_response_id", message, "unsupported_parameter")
    request = parse_sized(APIS["/v1/responses"], body)
    return {"object": "response.input_tokens", "input_tokens": estimate_length(request)}
