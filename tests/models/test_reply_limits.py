"""A reply is bounded by the tokens that were asked for, in whatever form it comes, and so is the memory it takes."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.litellm import LiteLLM
from tests.models.kit import replies, text
from tests.servers import Script, SeenStep, Wire, delta, litellm_ready, loopback, saying, usage

ASKED = Request(messages=(Message(role="user", content="Yes?"),), max_tokens=100)
HEAD = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"'
FLOOD = 24 << 20
"""Bytes that each server below has to say."""


def flooding(kind: str, begin: bytes, piece: bytes) -> Script:
    """A server that begins so and then says this piece without end, or nearly."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head(200, kind)
        if begin:  # an empty chunk would end the answer
            await wire.send(begin)
        for _ in range(FLOOD >> 16):
            await wire.send(piece)
            if wire.gone.is_set():
                return

    return script


def packed(how: str, data: bytes) -> Script:
    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.head(200, "application/json", content_encoding=how)
        await wire.send(data)

    return script


def framed(**parts: str) -> bytes:
    return f"data: {json.dumps(delta(**parts))}\n\n".encode()


MUCH = "x" * (1 << 16)
stream = flooding("text/event-stream", b"", framed(text=MUCH))
BOMB = HEAD + b"x" * FLOOD + b'"}}]}'
FLOODS = {
    "whole": flooding("application/json", HEAD, MUCH.encode()),
    "gzip": packed("gzip", gzip.compress(BOMB, 1)), "deflate": packed("deflate", zlib.compress(BOMB)),
    "stream": stream, "thinking": flooding("text/event-stream", b"", framed(reasoning_content=MUCH)),
    "comments": flooding("text/event-stream", b"", f": {MUCH}\n".encode()),
    "lists": flooding("application/json", b'{"choices":[', b"[]," * (1 << 15)),
}  # fmt: skip


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
    body = {"choices": [{"message": {"content": "".join(words)}, "finish_reason": "stop"}], **usage()["usage"]}
    frames = [delta(word, logprobs="x" * 1500) for word in words]
    for script in (
        saying(*frames, delta(finish="stop"), usage()),
        packed("gzip", gzip.compress(json.dumps(body).encode())),
        packed("deflate", zlib.compress(json.dumps(body).encode())),
    ):
        assert text(replies(script, ASKED)[0][0]) == "".join(words)


@pytest.mark.parametrize("script", [packed("gzip", gzip.compress(b"data: " + b"x" * (8 << 20), 1)), stream])
def test_litellm_reads_no_more(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own client, which would make 100 MB of 100 KB at once."""
    monkeypatch.setattr("conductor_cli.models.http.MAX_FOREIGN_BODY", 4 << 20)
    litellm_ready()
    with loopback(script) as server:
        made = LiteLLM("openai/m", key="sk-12345678", base_url=f"{server.url}/v1")
        error = asyncio.run(fault_of(made))
    assert error.reason in ("broken", "internal", "connect", "overloaded")
