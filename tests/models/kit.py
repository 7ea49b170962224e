"""What tests of models share: asking one, what its replies hold, and a server that says some words."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.models.base import Model
from conductor_cli.models.chat_api_model import ChatApiModel
from tests.servers import LITELLM_IGNORES, Script, SeenStep, Speaker, Wire, loopback

LITELLM = [
    pytest.mark.usefixtures("litellm"),
    *(pytest.mark.filterwarnings(f"ignore:.*{words}") for words in LITELLM_IGNORES),
]
"""The marks of a module whose tests ask through litellm."""


async def chunks_of(model: Model, request: Request) -> list[Chunk]:
    async with aclosing(model.stream(request)) as stream:
        return [chunk async for chunk in stream]


def play(model: Model, *requests: Request) -> list[list[Chunk]]:
    """The chunks of one reply after the other; the model is closed after."""

    async def go() -> list[list[Chunk]]:
        try:
            return [await chunks_of(model, request) for request in requests]
        finally:
            await model.close()

    return asyncio.run(go())


def replies(script: Script, *requests: Request, **how: Any) -> tuple[list[list[Chunk]], list[SeenStep]]:
    """The chunks of one reply after the other by a server of chat completions, and what it saw."""
    with loopback(script) as server:
        return play(ChatApiModel(how.pop("model", "m"), f"{server.url}/v1", **how), *requests), server.requests


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def notes(chunks: list[Chunk]) -> list[str]:
    return [chunk.note for chunk in chunks if chunk.note]


def answering(value: Any, status: int = 200, **headers: str) -> Script:
    """A server that answers everything with this JSON."""

    async def script(_: SeenStep, wire: Wire) -> None:
        await wire.json(value, status, **headers)

    return script


def speaking(words: str) -> Script:
    """A server that says these words in whatever protocol it is asked."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        speaker = Speaker(seen, wire)
        await speaker.begin()
        await speaker.say(words)
        await speaker.end()

    return script
