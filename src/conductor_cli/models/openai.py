"""Any server that speaks OpenAI's chat completions: OpenAI, Gemini, DeepSeek, xAI, Mistral, OpenRouter, Ollama, vLLM.

A server that answers with one JSON body instead of a stream is understood as well. A parameter that a server refuses is
left out, for this call and for later ones, and said once. A reply is held to its grammar or schema in the way that the
server offers (see `servers`). Tools are not offered, so calls of tools are not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import CAPS, FORMS, ApiError, clean_excerpt, error_in_body, rejected_parameter
from conductor_cli.models.http import HttpClient
from conductor_cli.models.sampling_options import own_setting, rejected_setting, request_fields
from conductor_cli.models.server_quirks import PLAIN, RequestShape, ServerQuirks
from conductor_cli.models.sse import Parser
from conductor_cli.models.stream_decoder import ESTIMATED, ReplyDecoder
from conductor_cli.models.structured_output import (
    Constraint,
    constraint_fields,
    constraint_of,
    enforces_schemas,
    first_chat_model,
    form_of,
    is_constrained,
)

DRAIN_SECONDS: Final = 0.1
LIST_LIMIT: Final = 4 * 1024 * 1024
LIST_SECONDS: Final = 3.0
"""How long a call may wait to learn which server answers it; it goes on without."""


class OpenAI:
    """A model behind `base_url`/chat/completions. `options` are the worker's; the key is never among them."""

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        key: str = "",
        options: Mapping[str, Any] | None = None,
        dialect: ServerQuirks = PLAIN,
    ) -> None:
        options = options or {}
        own = {str(name): str(value) for name, value in options.get("headers", {}).items()}
        headers = ({"authorization": f"Bearer {key}"} if key else {}) | own
        self._secrets = (key, *own.values())
        self._server = HttpClient(base_url, headers=headers, secrets=self._secrets, ca_file=options.get("ca_file", ""))
        self._model = model
        self._options = options
        self._cost, self._budget = dialect.cost, dialect.budget
        self._shape = RequestShape(cap=dialect.cap)
        self._form, self._schemas = dialect.form, dialect.schemas
        self._unheld: frozenset[str] = frozenset()
        self._said_estimated = False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply, as the port says; asked for again as long as the server refuses something that can be left out.

        A reply in a form that is all thinking means that the form was filled in where the model thinks: the next call
        has none.
        """
        ends = None if request.deadline is None else asyncio.get_running_loop().time() + request.deadline
        await self._prepare(request, ends)
        shape: RequestShape | None = replace(self._shape, dropped=self._shape.dropped | self._unheld)
        silent = True
        while shape is not None:
            try:
                async with aclosing(self._reply(request, shape, ends)) as chunks:
                    async for chunk in chunks:
                        silent = silent and not (chunk.text or chunk.thinking)
                        yield chunk
            except ModelError as error:
                if error.reason == "empty_answer" and not silent:
                    self._unheld |= constraint_fields(request, self._form, shape.dropped).keys() & set(FORMS)
                shape = self._without(request, shape, error) if silent else None
                if shape is None:
                    raise
            else:
                return

    async def holds(self) -> Constraint:
        """What the server holds a reply to. One of unknown kind is asked, once if it answers. Raises nothing."""
        if self._form == "ask":
            await self._learn_form(None, None)
        return constraint_of(self._form, self._shape.dropped | self._unheld, schemas=self._schemas)

    async def _reply(self, request: Request, shape: RequestShape, ends: float | None) -> AsyncGenerator[Chunk, None]:
        """The reply to a request of this shape."""
        body = {"model": self._model} | self._body(request, shape)
        async with self._server.open("POST", "/chat/completions", body=body, seconds=_left(ends)) as answer:
            for note in self._learn(shape):
                yield Chunk(note=note)
            reply = ReplyDecoder(request, self._cost)
            reader: _Stream | _Whole | None = None
            while piece := await answer.piece():
                reader = reader or self._reader(piece, reply)
                for chunk in reader.feed(piece):
                    yield chunk
                if reader.done:
                    await answer.drain(DRAIN_SECONDS)
                    break
            if reader is None:
                raise ModelError("broken", f"{self._server.name} answered with nothing")
            for chunk in reader.end():
                yield chunk
            for chunk in self._last(reply):
                yield chunk

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _prepare(self, request: Request, ends: float | None) -> None:
        """Know which model to ask, and how its server is told a form where the request has one."""
        listed: Mapping[str, Any] | None = None
        if not self._model:
            listed = await self._list(_left(ends))
            self._model = first_chat_model(listed)
        if not self._model:
            hint = "name the model: conductor workers add NAME --model MODEL; for the conductor itself: URL#MODEL"
            raise ModelError("missing", f"{self._server.name} lists no chat model of its own", hint=hint)
        if self._form == "ask" and is_constrained(request):
            await self._learn_form(listed, _left(ends))

    async def _learn_form(self, listed: Mapping[str, Any] | None, left: float | None) -> None:
        """Find out which server this is. One that does not say is sent schemas; one still loading is asked again."""
        try:
            listed = listed or await self._list(LIST_SECONDS if left is None else min(left, LIST_SECONDS))
        except ModelError as error:
            self._form = "ask" if error.retryable else "response_format"
        else:
            self._form, self._schemas = form_of(listed, self._model), enforces_schemas(listed, self._model)

    async def _list(self, left: float | None) -> Mapping[str, Any]:
        """What the server says of its models."""
        async with self._server.open("GET", "/models", seconds=left, limit=LIST_LIMIT) as answer:
            body = (await answer.body()).decode("utf-8", "replace")
        return _frame(body, self._server.name, self._secrets)

    def _without(self, request: Request, shape: RequestShape, error: ModelError) -> RequestShape | None:
        """The shape without what a refusal names; nothing if it names nothing that can be left out.

        A setting of the worker's own is not left out: its refusal is a `ModelError` that names it.
        """
        if not isinstance(error, ApiError) or error.reason != "refused" or error.status not in (200, 400, 422):
            return None
        body = self._body(request, shape)
        name = rejected_parameter(error.said, body)
        if name not in CAPS and (own := own_setting(name, body, self._options)):
            said = clean_excerpt(error.said.message, self._secrets)
            raise rejected_setting(self._model, own, self._options[own], said) from error
        return shape.without(name) if name else None

    def _learn(self, shape: RequestShape) -> list[str]:
        known = self._shape
        self._shape = replace(shape, dropped=shape.dropped | known.dropped)
        return self._shape.news(known, self._server.name)

    def _body(self, request: Request, shape: RequestShape) -> dict[str, Any]:
        option = self._options.get
        caps = [cap for cap in (request.max_tokens, option("max_tokens")) if cap is not None]
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            shape.cap: min(caps, default=None),
            "temperature": option("temperature") if request.temperature is None else request.temperature,
            "seed": request.seed,
            "stop": list(request.stop) or None,
            **request_fields(self._options, self._budget),
            **constraint_fields(request, self._form, shape.dropped),
        }
        return {name: value for name, value in body.items() if value is not None and name not in shape.dropped}

    def _reader(self, first: bytes, reply: ReplyDecoder) -> _Stream | _Whole:
        """By the first letter, as content types are often wrong: no line of an event stream begins with { or [ or <."""
        start = first.lstrip()[:1]
        if start == b"<":
            raise ModelError(
                "missing",
                f"{self._server.name} answered with a web page: {clean_excerpt(first, self._secrets)}",
                hint="check base_url; it often ends in /v1",
            )
        kind = _Whole if start in (b"{", b"[") else _Stream
        return kind(reply, self._server.name, self._secrets)

    def _last(self, reply: ReplyDecoder) -> Iterator[Chunk]:
        for chunk in reply.end():
            if reply.estimated and not self._said_estimated:
                self._said_estimated = True
                yield Chunk(note=f"{self._server.name} {ESTIMATED}")
            yield chunk


def _left(ends: float | None) -> float | None:
    """The seconds until `ends`."""
    return None if ends is None else max(0.0, ends - asyncio.get_running_loop().time())


class _Stream:
    """Reads an event stream. Pure."""

    def __init__(self, reply: ReplyDecoder, name: str, secrets: tuple[str, ...]) -> None:
        self.done = False
        self._reply = reply
        self._name = name
        self._secrets = secrets
        self._parser = Parser()

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """The chunks that `piece` completes; those before a fault come out before it is raised."""
        for event in self._parser.feed(piece):
            if event.data.strip() == "[DONE]":
                self.done = True
                return
            chunk = self._reply.frame(_frame(event.data, self._name, self._secrets))
            if chunk is not None:
                yield chunk

    def end(self) -> Iterator[Chunk]:
        """Nothing more, unless the stream broke off."""
        if not self.done and self._reply.finish is None:
            cut = " in the middle of a line" if self._parser.unfinished else ""
            raise ModelError("broken", f"{self._name} broke the answer off{cut}")
        yield from ()


class _Whole:
    """Reads an answer that is one JSON object. Pure."""

    done = False

    def __init__(self, reply: ReplyDecoder, name: str, secrets: tuple[str, ...]) -> None:
        self._reply = reply
        self._name = name
        self._secrets = secrets
        self._body = bytearray()

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """Nothing yet."""
        self._body += piece
        yield from ()

    def end(self) -> Iterator[Chunk]:
        """All of it."""
        frame = _frame(self._body.decode("utf-8", "replace"), self._name, self._secrets)
        if not frame.get("choices"):
            said = clean_excerpt(str(frame), self._secrets)
            raise ModelError("broken", f"{self._name} answered with something else than a reply: {said}")
        if (chunk := self._reply.frame(frame)) is not None:
            yield chunk


def _frame(data: str, name: str, secrets: tuple[str, ...]) -> Mapping[str, Any]:
    """One JSON object; garbage and errors in it are a `ModelError`."""
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        frame = None
    frame = frame[0] if isinstance(frame, list) and frame else frame
    if not isinstance(frame, Mapping):
        raise ModelError("broken", f"{name} sent something that is no JSON object: {clean_excerpt(data, secrets)}")
    if frame.get("error") or frame.get("object") == "error":
        raise error_in_body(name, frame, secrets)
    return frame
