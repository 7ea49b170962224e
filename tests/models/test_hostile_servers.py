"""Servers that want to break us, by calls or by endless replies.

Each ends as an error, in bounded time and memory.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.litellm import LiteLLM
from conductor_cli.models.stream_decoder import MAX_KEPT, ChatReplyDecoder
from conductor_cli.models.tool_call_decoder import MAX_ARGUMENTS, MAX_CALLS, ToolCallDecoder
from tests.models.kit import ASK, WEATHER, broken_off, calls, replies, text
from tests.models.test_contract import ADAPTERS, ask, request_of
from tests.servers import (
    Script,
    SeenRequest,
    Speaker,
    Wire,
    delta,
    litellm_ready,
    loopback,
    saying,
    usage,
)

OURS = [name for name in ADAPTERS if not name.startswith("litellm")]
EACH = pytest.mark.parametrize("name", OURS)
REQUEST = request_of(tools=(WEATHER,))


def error_of(name: str, script: Any, request: Request = REQUEST) -> tuple[list[Chunk], ModelError]:
    """What came before the failure, and the failure."""
    with loopback(script) as server:
        return broken_off(ADAPTERS[name](server.url), request)


def calling(*pieces: str, name: str = "weather", **options: Any) -> Script:
    """A server whose reply is one call with these pieces of arguments."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        await speaker.call(name, *pieces, **options)
        await speaker.end()

    return script


@EACH
def test_ten_thousand_calls_are_cut_off(name: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        while speaker.calls < 10_000 and not wire.gone.is_set():
            await speaker.call("weather", "{}")

    chunks, error = error_of(name, script)
    assert error.reason == "broken"
    assert len({chunk.tool_call.index for chunk in chunks if chunk.tool_call}) == MAX_CALLS


@EACH
def test_arguments_beyond_the_limit_are_cut_off(name: str) -> None:
    chunks, error = error_of(name, calling('{"city": "', *["x" * 60_000] * 40, '"}'))
    assert error.reason == "broken"
    read = sum(len(chunk.tool_call.arguments) for chunk in chunks if chunk.tool_call)
    assert read <= MAX_ARGUMENTS


@EACH
@pytest.mark.parametrize("field", ["name", "id"])
def test_a_name_or_an_id_of_any_length_is_refused(name: str, field: str) -> None:
    assert error_of(name, calling(**{"id": "1", field: "x" * 500_000}))[1].reason == "broken"


@EACH
def test_control_characters_in_a_name_do_not_come_back_to_the_server(name: str) -> None:
    evil = "\x1b[31m\x00rm\u202e"
    chunks, _ = ask(name, calling("{}", name=evil), REQUEST)
    (call,) = calls(chunks)
    assert call.name == evil
    turn = Message(role="assistant", content="", tool_calls=(call,))
    result = Message(role="tool", content="no such tool", tool_call_id=call.id, is_error=True)
    _, body = ask(name, calling("{}"), request_of(ASK, turn, result, tools=(WEATHER,)))
    assert not {"\\u001b", "\\u0000", "\\u202e"} & {body[at : at + 6] for at in range(len(body))}


def test_indexes_that_jump_and_ids_that_repeat_are_calls_of_their_own() -> None:
    indexes: list[Any] = [0, 10**9, -5, 2**70, 3, 4]
    frames = [
        delta(
            tool_calls=[
                {
                    "index": at,
                    "id": "same",
                    "function": {"name": "weather", "arguments": json.dumps({"n": n})},
                }
            ]
        )
        for n, at in enumerate(indexes)
    ]
    odd: list[Any] = ["x", 1.5, True, None, [1], {"a": 1}]
    frames += [
        delta(
            tool_calls=[
                {"index": at, "id": f"odd{n}", "function": {"name": "weather", "arguments": "{}"}}
            ]
        )
        for n, at in enumerate(odd)
    ]
    chunks, _ = ask(
        "chat completions", saying(*frames, delta(finish="tool_calls"), usage()), REQUEST
    )
    tool_calls = calls(chunks)
    assert len({call.id for call in tool_calls}) == len(tool_calls) == len(indexes) + len(odd)
    assert {call.arguments for call in tool_calls if call.id.startswith("odd")} == {"{}"}


@pytest.mark.timeout(60)  # work that grows with the square takes longer
def test_a_call_of_very_many_pieces_takes_time_in_proportion() -> None:
    decoder = ToolCallDecoder(Secrets())
    for number in range(100_000):
        arguments = ',{"b": 1}' if number else '{"a": [{}'
        function = {"name": "weather", "arguments": arguments}
        list(decoder.feed([{"index": 0, "id": f"c{number}", "function": function}]))
    assert len(decoder) == 1


@pytest.mark.parametrize("case_name", ["signature", "hidden", "blocks"])
def test_what_anthropic_wants_back_has_a_bound(case_name: str) -> None:
    start = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": ""},
    }
    piece = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "x" * 60_000},
    }
    block = start | {"content_block": {"type": "redacted_thinking", "data": "x" * 60_000}}
    flood = {"signature": (piece, 100), "hidden": (block, 100), "blocks": (start, 11_000)}

    async def script(_: SeenRequest, wire: Wire) -> None:
        await wire.head()
        frame, times = flood[case_name]
        event_text = f"data: {json.dumps(frame)}\n\n"
        await wire.send(f"data: {json.dumps(start)}\n\n" + event_text * times)
        await wire.stall()

    assert error_of("Anthropic", script)[1].reason == "broken"


@pytest.mark.timeout(60)  # work that grows with the square takes longer
def test_thinking_in_very_many_pieces_takes_time_in_proportion_and_has_a_bound() -> None:
    decoder = ChatReplyDecoder(REQUEST, Secrets())
    frame = delta(
        reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "ten letter" * 2}]
    )
    with pytest.raises(ModelError) as caught:
        list(map(decoder.frame, [frame] * (MAX_KEPT // 20)))
    assert caught.value.reason == "broken"


ASKED = Request(messages=(Message(role="user", content="Yes?"),), max_tokens=100)
HEAD = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"'
FLOOD = 24 << 20
"""Bytes that each server below has to say."""


def flooding(kind: str, begin: bytes, piece: bytes) -> Script:
    """A server that begins so and then says this piece without end, or nearly."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, kind)
        if begin:  # an empty chunk would end the answer
            await wire.send(begin)
        for _ in range(FLOOD >> 16):
            await wire.send(piece)
            if wire.gone.is_set():
                return

    return script


def packed(how: str, content: bytes) -> Script:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.head(200, "application/json", content_encoding=how)
        await wire.send(content)

    return script


def framed(**parts: str) -> bytes:
    return f"data: {json.dumps(delta(**parts))}\n\n".encode()


MUCH = "x" * (1 << 16)
stream = flooding("text/event-stream", b"", framed(text=MUCH))
BOMB = HEAD + b"x" * FLOOD + b'"}}]}'
FLOODS = {
    "whole": flooding("application/json", HEAD, MUCH.encode()),
    "gzip": packed("gzip", gzip.compress(BOMB, 1)),
    "deflate": packed("deflate", zlib.compress(BOMB)),
    "stream": stream,
    "thinking": flooding("text/event-stream", b"", framed(reasoning_content=MUCH)),
    "comments": flooding("text/event-stream", b"", f": {MUCH}\n".encode()),
    "lists": flooding("application/json", b'{"choices":[', b"[]," * (1 << 15)),
}


async def fault_of(model: Any, request: Request = ASKED) -> ModelError:
    try:
        with pytest.raises(ModelError) as caught:
            async for _ in model.stream(request):
                pass
        return caught.value
    finally:
        await model.close()


def peak(action: Any) -> tuple[Any, int]:
    """What the action returns, and the most bytes that it held at once."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS)
def test_a_reply_that_is_far_too_long_is_cut_off(script: Script) -> None:
    with loopback(script) as server:
        error, most = peak(lambda: asyncio.run(fault_of(ChatApiModel("m", f"{server.url}/v1"))))
    assert (error.reason, error.retryable) == ("broken", False)
    assert "more than the limit for one answer" in error.message or "longer than" in error.message
    assert most < 20 << 20


def test_eight_at_once_stay_small() -> None:
    async def go(url: str) -> None:
        await asyncio.gather(*(fault_of(ChatApiModel("m", f"{url}/v1")) for _ in range(8)))

    with loopback(packed("gzip", gzip.compress(BOMB, 1))) as server:
        _, most = peak(lambda: asyncio.run(go(server.url)))
    assert most < 60 << 20


def test_a_compression_that_cannot_be_bounded_is_refused() -> None:
    with loopback(packed("br", b"\x00")) as server:
        error = asyncio.run(fault_of(ChatApiModel("m", f"{server.url}/v1")))
    assert "compressed (br), which was not asked for" in error.message


def test_a_reply_of_all_its_tokens_comes_whole() -> None:
    words = ["a" * 60] * 100
    body = {
        "choices": [{"message": {"content": "".join(words)}, "finish_reason": "stop"}],
        **usage()["usage"],
    }
    frames = [delta(word, logprobs="x" * 1500) for word in words]
    for script in (
        saying(*frames, delta(finish="stop"), usage()),
        packed("gzip", gzip.compress(json.dumps(body).encode())),
        packed("deflate", zlib.compress(json.dumps(body).encode())),
    ):
        assert text(replies(script, ASKED)[0][0]) == "".join(words)


@pytest.mark.parametrize(
    "script",
    [packed("gzip", gzip.compress(b"data: " + b"x" * (8 << 20), 1)), stream],
    ids=["packed", "stream"],
)
def test_litellm_reads_no_more_than_the_limit_of_a_body(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its own client, which would make 100 MB of 100 KB at once."""
    monkeypatch.setattr("conductor_cli.models.http.MAX_FOREIGN_BODY", 4 << 20)
    litellm_ready()
    with loopback(script) as server:
        made = LiteLLM("openai/m", key="sk-12345678", base_url=f"{server.url}/v1")
        error = asyncio.run(fault_of(made))
    assert error.reason in ("broken", "internal", "connect", "overloaded")
