"""What tests of models share.

Asking one, what its replies hold, and a server that says some words.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core.chat import (
    Attachment,
    Chunk,
    Message,
    Request,
    Tool,
    ToolCall,
    join_tool_calls,
)
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.models.chat_api_model import ChatApiModel
from tests.servers import LITELLM_IGNORES, Script, SeenRequest, Speaker, Wire, loopback

LITELLM = [
    pytest.mark.usefixtures("litellm"),
    *(pytest.mark.filterwarnings(f"ignore:.*{words}") for words in LITELLM_IGNORES),
]
"""The marks of a module whose tests ask through litellm."""


CHART = Attachment(name="chart.png", media_type="image/png", sha256="0" * 64, size=9)
PAPER = Attachment(name="paper.pdf", media_type="application/pdf", sha256="1" * 64, size=9)
BYTES = {"chart.png": b"png bytes", "paper.pdf": b"pdf bytes"}
WEATHER = Tool(
    name="weather",
    description="Says the weather.",
    parameters={"properties": {"city": {"type": "string"}}},
)
ASK = Message(role="user", content="Is it warm?")
TALK = (
    Message(role="system", content="Be short."),
    Message(role="user", content="Two?"),
    Message(role="assistant", content="2."),
    Message(role="user", content="Three?"),
)
TALKED = Request(messages=TALK)
APIS: dict[str, tuple[str, dict[str, str]]] = {
    "chat completions": ("openai-compatible", {}),
    "responses": ("openai-compatible", {"api": "responses"}),
    "anthropic": ("anthropic", {}),
    "gemini": ("gemini", {}),
    "gemini-chat": ("gemini", {"base_url": "/openai"}),
}
"""Kind and options of a worker that is asked by each API; of its address, the path."""


def user_request(text: str = "Yes?", **fields: Any) -> Request:
    """A request with one message."""
    return Request(messages=(Message(role="user", content=text),), **fields)


def spoken(role: Any, content: str = "", **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def called(call_id: str, **fields: Any) -> tuple[Message, Message]:
    """A turn with one call, and its result."""
    call = ToolCall(id=call_id, name="weather", arguments='{"city": "Oslo"}')
    return (
        spoken("assistant", tool_calls=(call,), **fields),
        spoken("tool", "Hail.", tool_call_id=call_id),
    )


def talk(*messages: Message) -> Request:
    return Request(messages=messages, tools=(WEATHER,))


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


def together(model: Model, *requests: Request) -> list[list[Chunk]]:
    """The chunks of the replies to requests that are asked side by side.

    The model is closed after.
    """

    async def go() -> list[list[Chunk]]:
        try:
            return await asyncio.gather(*(chunks_of(model, request) for request in requests))
        finally:
            await model.close()

    return asyncio.run(go())


def replies(
    script: Script, *requests: Request, **how: Any
) -> tuple[list[list[Chunk]], list[SeenRequest]]:
    """The chunks of one reply after the other by a server of chat completions, and what it saw."""
    with loopback(script) as server:
        return play(
            ChatApiModel(how.pop("model", "m"), f"{server.url}/v1", **how), *requests
        ), server.requests


def text(chunks: Iterable[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def thinking(chunks: list[Chunk]) -> str:
    return "".join(chunk.thinking for chunk in chunks)


def calls(chunks: list[Chunk]) -> tuple[ToolCall, ...]:
    return join_tool_calls(chunk.tool_call for chunk in chunks if chunk.tool_call)


def used(chunks: list[Chunk]) -> Usage:
    """What the last chunk says was used."""
    usage = chunks[-1].usage
    assert usage is not None
    return usage


def broken_off(model: Model, request: Request) -> tuple[list[Chunk], ModelError]:
    """What came before a reply failed, and its error; the model is closed after."""

    async def go() -> tuple[list[Chunk], ModelError]:
        chunks: list[Chunk] = []
        try:
            async with aclosing(model.stream(request)) as stream:
                async for chunk in stream:
                    chunks += [chunk]
        except ModelError as error:
            return chunks, error
        finally:
            await model.close()
        pytest.fail("the reply did not fail")

    return asyncio.run(go())


def notes(chunks: list[Chunk]) -> list[str]:
    return [chunk.note for chunk in chunks if chunk.note]


async def silent(_: SeenRequest, wire: Wire) -> None:
    """A server that says nothing."""
    await wire.stall()


async def page(_: SeenRequest, wire: Wire) -> None:
    """A server that answers with a web page."""
    await wire.head(200, "text/html")
    await wire.send("<html>")


def answering(value: Any, status: int = 200, **headers: str) -> Script:
    """A server that answers everything with this JSON."""

    async def script(_: SeenRequest, wire: Wire) -> None:
        await wire.json(value, status, **headers)

    return script


def refusing(errors: Mapping[str, Mapping[str, Any]], then: Script, status: int = 400) -> Script:
    """A server that refuses each of these fields with its error, and takes the rest."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        for name, error in errors.items():
            if name in request.json:
                return await wire.json({"type": "error", "error": error}, status)
        return await then(request, wire)

    return script


def events(*values: dict[str, Any]) -> Script:
    """Server-sent events as Anthropic writes them, and others without their names."""

    async def script(_: SeenRequest, wire: Wire) -> None:
        await wire.head()
        for value in values:
            name = f"event: {value['type']}\n" if "type" in value else ""
            await wire.send(f"{name}data: {json.dumps(value)}\n\n")

    return script


def speaking(*words: str) -> Script:
    """A server that says these words, piece by piece, in whatever protocol it is asked."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        for piece in words:
            await speaker.say(piece)
        await speaker.end()

    return script


fine = speaking("Yes.")
"""A server that says yes."""


def in_turn(
    api: str, script: Script, *requests: Request, model: str = "m", **options: Any
) -> tuple[list[list[Chunk]], list[SeenRequest]]:
    """Return the chunks of the replies, and what the server saw.

    They are by one of `APIS`, or by a worker of another kind.
    """
    kind, api_options = APIS.get(api, (api, {}))
    with loopback(script) as server:
        address = server.url + api_options.get("base_url", "")
        settings = {**api_options, "base_url": address, "key_env": "KEY", **options}
        opened = open_model(
            Worker(name="w", kind=kind, model=model, options=settings), environ={"KEY": "sk-123456"}
        )
        return play(opened, *requests), server.requests


def asked_by(
    api: str, script: Script, request: Request = TALKED, **how: Any
) -> tuple[list[Chunk], list[SeenRequest]]:
    """The same for one request."""
    (chunks,), requests = in_turn(api, script, request, **how)
    return chunks, requests


def failure_of(api: str, script: Script, request: Request = TALKED, **how: Any) -> ModelError:
    """How a reply failed that was `asked_by` an API."""
    with pytest.raises(ModelError) as caught:
        asked_by(api, script, request, **how)
    return caught.value


def sent_to(api: str, request: Request, **options: Any) -> SeenRequest:
    """A request as the server of an API saw it, with the files of `BYTES`."""
    readable = replace(request, read_attachment=lambda file: BYTES[file.name])
    seen_requests = asked_by(api, fine, readable, **options)[1]
    return next(request for request in seen_requests if request.method == "POST")
