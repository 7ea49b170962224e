"""Any server with OpenAI's chat completions API: OpenAI, Gemini, DeepSeek, xAI, Mistral, OpenRouter, Ollama, vLLM.

A server that answers with one JSON body instead of a stream is understood as well. A parameter that a server refuses is
left out, for this call and for later ones, with one notice. A reply is held to its grammar or schema in the way that
the server offers (see `structured_output`). Tools are not offered, so tool calls are not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import (
    CONSTRAINT_FIELDS,
    MAX_TOKENS_FIELDS,
    ApiError,
    clean_excerpt,
    error_in_body,
    rejected_parameter,
)
from conductor_cli.models.http import HttpClient
from conductor_cli.models.presets import Budget
from conductor_cli.models.sampling_options import own_setting, rejected_setting, request_body
from conductor_cli.models.sse import Parser
from conductor_cli.models.stream_decoder import ESTIMATED, CostSource, ReplyDecoder
from conductor_cli.models.structured_output import (
    Constraint,
    Form,
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
"""How long a call may wait to learn what kind of server answers it; then it goes on without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerQuirks:
    """How a server departs from the plain protocol, as far as that is known before it is asked.

    `form` is the field by which it takes a grammar or a schema, `schemas` whether it is known to enforce schemas,
    `budget` how it is told the tokens a model may think.
    """

    max_tokens_field: str = "max_tokens"
    cost: CostSource = "unknown"
    form: Form = "ask"
    schemas: bool = False
    budget: Budget = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """What has been learned of the parameters that a server takes."""

    max_tokens_field: str = "max_tokens"
    renamed: bool = False
    dropped: frozenset[str] = frozenset()

    def without(self, name: str) -> RequestShape | None:
        """The shape once `name` was refused; None if there is nothing left to try."""
        if name in MAX_TOKENS_FIELDS:
            other = MAX_TOKENS_FIELDS[1 - MAX_TOKENS_FIELDS.index(name)]
            return None if self.renamed else replace(self, max_tokens_field=other, renamed=True)
        return None if name in self.dropped else replace(self, dropped=self.dropped | {name})

    def notices(self, known: RequestShape, server: str) -> list[str]:
        """What is new over what was `known`, for the user."""
        notices = [f"{server} does not accept {name}; sent without it" for name in sorted(self.dropped - known.dropped)]
        if self.max_tokens_field != known.max_tokens_field:
            notices.append(f"{server} does not accept {known.max_tokens_field}; sent as {self.max_tokens_field}")
        return notices


class OpenAI:
    """A model behind `base_url`/chat/completions. `options` are the worker's; the key is never among them."""

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        key: str = "",
        options: Mapping[str, Any] | None = None,
        quirks: ServerQuirks | None = None,
    ) -> None:
        options, quirks = options or {}, quirks or ServerQuirks()
        own = {str(name): str(value) for name, value in options.get("headers", {}).items()}
        headers = ({"authorization": f"Bearer {key}"} if key else {}) | own
        self._secrets = (key, *own.values())
        self._server = HttpClient(base_url, headers=headers, secrets=self._secrets, ca_file=options.get("ca_file", ""))
        self._model = model
        self._options = options
        self._cost, self._budget = quirks.cost, quirks.budget
        self._shape = RequestShape(max_tokens_field=quirks.max_tokens_field)
        self._form, self._schemas = quirks.form, quirks.schemas
        self._ineffective: frozenset[str] = frozenset()
        """Fields that constrained the thinking instead of the answer."""
        self._noted_estimate = False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply; asked for again as long as the server refuses a parameter that can be left out."""
        ends = None if request.deadline is None else asyncio.get_running_loop().time() + request.deadline
        await self._prepare(request, ends)
        shape: RequestShape | None = replace(self._shape, dropped=self._shape.dropped | self._ineffective)
        silent = True
        while shape is not None:
            try:
                async with aclosing(self._reply(request, shape, ends)) as chunks:
                    async for chunk in chunks:
                        silent = silent and not (chunk.text or chunk.thinking)
                        yield chunk
            except ModelError as error:
                if error.reason == "empty_answer" and not silent:
                    # A constrained reply without an answer was filled in as thinking: the next call is unconstrained.
                    sent = constraint_fields(request, self._form, shape.dropped)
                    self._ineffective |= sent.keys() & set(CONSTRAINT_FIELDS)
                shape = self._without_refused(request, shape, error) if silent else None
                if shape is None:
                    raise
            else:
                return

    async def holds(self) -> Constraint:
        """What the server holds a reply to. One of unknown kind is asked, once if it answers. Raises nothing."""
        if self._form == "ask":
            await self._learn_form(None, None)
        return constraint_of(self._form, self._shape.dropped | self._ineffective, schemas=self._schemas)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _reply(self, request: Request, shape: RequestShape, ends: float | None) -> AsyncGenerator[Chunk, None]:
        """The reply to a request of this shape."""
        body = {"model": self._model} | self._body(request, shape)
        async with self._server.open("POST", "/chat/completions", body=body, seconds=_remaining(ends)) as answer:
            # No error status, so the server takes this shape. Calls beside this one may have learned more meanwhile.
            known, self._shape = self._shape, replace(shape, dropped=shape.dropped | self._shape.dropped)
            for notice in self._shape.notices(known, self._server.name):
                yield Chunk(note=notice)
            decoder = ReplyDecoder(request, self._cost)
            reader: _StreamReader | _BodyReader | None = None
            while piece := await answer.piece():
                reader = reader or self._choose_reader(piece, decoder)
                for chunk in reader.feed(piece):
                    yield chunk
                if reader.done:
                    await answer.drain(DRAIN_SECONDS)
                    break
            if reader is None:
                raise ModelError("broken", f"{self._server.name}: the answer is empty")
            for chunk in (*reader.end(), *decoder.end()):
                if decoder.estimated and not self._noted_estimate:
                    self._noted_estimate = True
                    yield Chunk(note=f"{self._server.name} {ESTIMATED}")
                yield chunk

    async def _prepare(self, request: Request, ends: float | None) -> None:
        """Learn which model to ask, and how its server takes a constraint if the request has one."""
        listed: Mapping[str, Any] | None = None
        if not self._model:
            listed = await self._list_models(_remaining(ends))
            self._model = first_chat_model(listed)
        if not self._model:
            hint = "name the model: conductor workers add NAME --model MODEL; for the conductor itself: URL#MODEL"
            raise ModelError("missing", f"{self._server.name} lists no chat model of its own", hint=hint)
        if self._form == "ask" and is_constrained(request):
            await self._learn_form(listed, _remaining(ends))

    async def _learn_form(self, listed: Mapping[str, Any] | None, remaining: float | None) -> None:
        """Find out which server this is. One that does not say is sent schemas; one still loading is asked again."""
        try:
            seconds = LIST_SECONDS if remaining is None else min(remaining, LIST_SECONDS)
            listed = listed or await self._list_models(seconds)
        except ModelError as error:
            self._form = "ask" if error.retryable else "response_format"
        else:
            self._form, self._schemas = form_of(listed, self._model), enforces_schemas(listed, self._model)

    async def _list_models(self, remaining: float | None) -> Mapping[str, Any]:
        async with self._server.open("GET", "/models", seconds=remaining, limit=LIST_LIMIT) as answer:
            body = (await answer.body()).decode("utf-8", "replace")
        return _parse_frame(body, self._server.name, self._secrets)

    def _without_refused(self, request: Request, shape: RequestShape, error: ModelError) -> RequestShape | None:
        """The shape without what an error names; None if it names nothing that can be left out.

        One of the worker's own settings is not left out: its refusal is a `ModelError` that names it.
        """
        if not isinstance(error, ApiError) or error.reason != "refused" or error.status not in (200, 400, 422):
            return None
        body = self._body(request, shape)
        name = rejected_parameter(error.said, body)
        if name not in MAX_TOKENS_FIELDS and (own := own_setting(name, body, self._options)):
            why = clean_excerpt(error.said.message, self._secrets)
            raise rejected_setting(self._model, own, self._options[own], why) from error
        return shape.without(name) if name else None

    def _body(self, request: Request, shape: RequestShape) -> dict[str, Any]:
        body = request_body(request, self._options, self._budget, shape.max_tokens_field)
        body |= constraint_fields(request, self._form, shape.dropped)
        return {name: value for name, value in body.items() if value is not None and name not in shape.dropped}

    def _choose_reader(self, first: bytes, decoder: ReplyDecoder) -> _StreamReader | _BodyReader:
        """By the first character, since content types are often wrong: no event stream begins with { or [ or <."""
        start = first.lstrip()[:1]
        if start == b"<":
            message = f"{self._server.name}: the answer is a web page: {clean_excerpt(first, self._secrets)}"
            raise ModelError("missing", message, hint="check base_url; it often ends in /v1")
        kind = _BodyReader if start in (b"{", b"[") else _StreamReader
        return kind(decoder, self._server.name, self._secrets)


def _remaining(ends: float | None) -> float | None:
    """The seconds until `ends`."""
    return None if ends is None else max(0.0, ends - asyncio.get_running_loop().time())


class _StreamReader:
    """Reads an event stream. Pure."""

    def __init__(self, decoder: ReplyDecoder, name: str, secrets: tuple[str, ...]) -> None:
        self.done = False
        self._decoder, self._name, self._secrets = decoder, name, secrets
        self._parser = Parser()

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """The chunks that `piece` completes; those before a fault come out before it is raised."""
        for data in self._parser.feed(piece):
            if data.strip() == "[DONE]":
                self.done = True
                return
            chunk = self._decoder.frame(_parse_frame(data, self._name, self._secrets))
            if chunk is not None:
                yield chunk

    def end(self) -> Iterator[Chunk]:
        """Nothing more, unless the stream broke off."""
        if not self.done and self._decoder.finish is None:
            where = " in the middle of a line" if self._parser.unfinished else ""
            raise ModelError("broken", f"{self._name}: the answer broke off{where}")
        yield from ()


class _BodyReader:
    """Reads an answer that is one JSON object. Pure."""

    done = False

    def __init__(self, decoder: ReplyDecoder, name: str, secrets: tuple[str, ...]) -> None:
        self._decoder, self._name, self._secrets = decoder, name, secrets
        self._body = bytearray()

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        """Nothing yet."""
        self._body += piece
        yield from ()

    def end(self) -> Iterator[Chunk]:
        """All of it."""
        frame = _parse_frame(self._body.decode("utf-8", "replace"), self._name, self._secrets)
        if not frame.get("choices"):
            excerpt = clean_excerpt(str(frame), self._secrets)
            raise ModelError("broken", f"{self._name}: the answer is not a reply: {excerpt}")
        if (chunk := self._decoder.frame(frame)) is not None:
            yield chunk


def _parse_frame(data: str, name: str, secrets: tuple[str, ...]) -> Mapping[str, Any]:
    """One JSON object; anything else, and an error in it, is a `ModelError`."""
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        frame = None
    frame = frame[0] if isinstance(frame, list) and frame else frame
    if not isinstance(frame, Mapping):
        raise ModelError("broken", f"{name}: the answer is not a JSON object: {clean_excerpt(data, secrets)}")
    if frame.get("error") or frame.get("object") == "error":
        raise error_in_body(name, frame, secrets)
    return frame
