"""What the tests of client APIs share: requests, outcomes, and the real SDK over bytes that an encoder wrote."""

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
    ClientRequest,
    RequestError,
    ServedAnswer,
    ServedUsage,
    StepUsage,
)

RUN = "20261122-201500-abcd"

USAGE = ServedUsage(
    answer=Usage(tokens_in=212, tokens_out=522, tokens_cached=100, tokens_reasoning=40, cost=Decimal("0.02"), calls=1),
    orchestration=Usage(tokens_in=5463, tokens_out=1053, tokens_cached=7, cost=Decimal("0.10"), calls=3, unpriced=1),
    steps=(
        StepUsage(step=1, worker="bob", model="b-1", usage=Usage(tokens_in=5000, tokens_out=1000, calls=2)),
        StepUsage(step=2, worker="alice", model="a-1", usage=Usage(tokens_in=212, tokens_out=522, calls=1)),
    ),
)

CALLS = (
    ToolCall(id="call_one", name="edit", arguments='{"file": "a.py"}'),
    ToolCall(id="call_two", name="shell", arguments='{"command": "ls"}'),
)


def outcome(
    text: str = "Hello there.", finish: Finish = "stop", calls: tuple[ToolCall, ...] = (), reasoning: str = ""
) -> ServedAnswer:
    return ServedAnswer(run=RUN, text=text, finish=finish, usage=USAGE, reasoning=reasoning, tool_calls=calls)


def refusal(api: ClientApi, body: Mapping[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        api.parse(body)
    return caught.value


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def written(encoder: AnswerEncoder, end: ServedAnswer, *, pieces: tuple[str, ...] = ()) -> bytes:
    half = len(end.text) // 2
    return b"".join([
        encoder.begin(),
        encoder.heartbeat(),
        *(encoder.reasoning(piece) for piece in pieces),
        encoder.heartbeat(),
        encoder.text(end.text[:half]),
        encoder.text(end.text[half:]),
        *(encoder.tool_call(call) for call in end.tool_calls),
        encoder.end(end),
    ])  # fmt: skip


def events(stream: bytes) -> Iterator[dict[str, Any]]:
    for line in stream.decode("ascii").split("\n"):
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


class Sdk:
    """The OpenAI SDK, whose requests an API parses and whose answers its encoder writes: no server between them.

    `requests` has what was parsed. An error of the API is answered as the server does it.
    """

    def __init__(
        self, api: ClientApi, end: ServedAnswer | RequestError, pieces: tuple[str, ...] = ("Plan.\n",)
    ) -> None:
        self.api, self.end, self.pieces = api, end, pieces
        self.requests: list[ClientRequest] = []
        self.client = openai.OpenAI(
            api_key="none", base_url="http://loopback/v1", max_retries=0,
            http_client=httpx.Client(transport=httpx.MockTransport(self._answer)),
        )  # fmt: skip

    def _answer(self, sent: httpx.Request) -> httpx.Response:
        try:
            request = self.api.parse(json.loads(sent.content))
        except RequestError as error:
            return httpx.Response(error.status, json=error_body(error))
        self.requests.append(request)
        encoder = self.api.encoder(request, RUN, 1_790_000_000)
        if not request.stream:
            failed = isinstance(self.end, RequestError)
            value = encoder.whole_failed(self.end) if failed else encoder.whole(self.end)  # type: ignore[arg-type]
            # As after a long time, when the server has shown that it lives.
            return httpx.Response(
                200, headers={"content-type": "application/json"}, content=b"\n\n" + json.dumps(value).encode()
            )
        if isinstance(self.end, RequestError):
            stream = encoder.begin() + encoder.text("He") + encoder.failed(self.end)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
        stream = written(encoder, self.end, pieces=self.pieces)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
