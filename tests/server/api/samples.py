"""What the tests of client APIs share.

Requests, outcomes, and the real SDK over bytes that an encoder wrote.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest

from conductor_cli.core.chat import Finish, ToolCall
from conductor_cli.core.usage import Usage
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import (
    AnswerEncoder,
    ClientApi,
    RequestError,
    ServedAnswer,
    ServedUsage,
    StepUsage,
)

RUN = "20261122-201500-abcd"

USAGE = ServedUsage(
    answer=Usage(
        tokens_in=212,
        tokens_out=522,
        tokens_cached=100,
        tokens_stored=12,
        tokens_reasoning=40,
        cost=Decimal("0.02"),
        calls=1,
    ),
    orchestration=Usage(
        tokens_in=5463, tokens_out=1053, tokens_cached=7, cost=Decimal("0.10"), calls=3, unpriced=1
    ),
    steps=(
        StepUsage(
            step=1, worker="bob", model="b-1", usage=Usage(tokens_in=5000, tokens_out=1000, calls=2)
        ),
        StepUsage(
            step=2, worker="alice", model="a-1", usage=Usage(tokens_in=212, tokens_out=522, calls=1)
        ),
    ),
)

CALLS = (
    ToolCall(id="call_one", name="edit", arguments='{"file": "a.py"}'),
    ToolCall(id="call_two", name="shell", arguments='{"command": "ls"}'),
)


def outcome(
    text: str = "Hello there.",
    finish: Finish = "stop",
    calls: tuple[ToolCall, ...] = (),
    reasoning: str = "",
) -> ServedAnswer:
    return ServedAnswer(
        run=RUN, text=text, finish=finish, usage=USAGE, reasoning=reasoning, tool_calls=calls
    )


def refusal(api: ClientApi, body: Mapping[str, Any], param: str, status: int = 400) -> RequestError:
    """The error of a body that is refused because of this field."""
    with pytest.raises(RequestError) as caught:
        api.parse(body)
    assert (caught.value.status, caught.value.param) == (status, param)
    return caught.value


def field_of(param: str) -> str:
    """The field of a body that the name of a place begins with."""
    return param.partition(".")[0].partition("[")[0]


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def written(encoder: AnswerEncoder, end: ServedAnswer, *, pieces: tuple[str, ...] = ()) -> bytes:
    half = len(end.text) // 2
    return b"".join(
        [
            encoder.begin(),
            encoder.heartbeat(),
            *map(encoder.reasoning, pieces),
            encoder.heartbeat(),
            encoder.text(end.text[:half]),
            encoder.text(end.text[half:]),
            *map(encoder.tool_call, end.tool_calls),
            encoder.end(end),
        ]
    )


def events(stream: bytes) -> Iterator[dict[str, Any]]:
    """The data of the events; one that has a type is named after it."""
    for block in stream.decode("ascii").split("\n\n"):
        head, _, data_line = block.rpartition("\n")
        if data_line.startswith("data: {"):
            event = json.loads(data_line.removeprefix("data: "))
            assert head.rpartition("\n")[2] == (
                f"event: {event['type']}" if "type" in event else ""
            )
            yield event


def failing_sdk(api: ClientApi, error: RequestError) -> openai.OpenAI:
    """The OpenAI SDK, whose requests an API parses: no server between them.

    Each run that begins ends with `error`.
    """

    def answer(sent: httpx.Request) -> httpx.Response:
        try:
            request = api.parse(json.loads(sent.content))
        except RequestError as refused:
            return httpx.Response(refused.status, json=error_body(refused))
        encoder = api.encoder(request, RUN, 1_790_000_000)
        if request.stream:
            stream = encoder.begin() + encoder.text("He") + encoder.failed(error)
            return httpx.Response(
                200, headers={"content-type": "text/event-stream"}, content=stream
            )
        # As after a long time, when the server has shown that it lives.
        whole = b"\n\n" + json.dumps(encoder.whole_failed(error)).encode()
        return httpx.Response(200, headers={"content-type": "application/json"}, content=whole)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(
        api_key="none", base_url="http://loopback/v1", max_retries=0, http_client=client
    )
