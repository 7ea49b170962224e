"""Responses over a WebSocket: one connection, on which one response follows the other.

Each message of the client is `response.create` with a body of `POST /v1/responses`; each answer is
the events of its stream, a message each. A response with `store: false` can be continued on the
connection that has it, and nowhere else. A client that works in several lanes names one in each
request (`stream_id`), and finds its name in each event of the answer.

From openresponses.org (WebSocket mode) and platform.openai.com/docs, November 2026.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConductorError
from conductor_cli.server.api.body_faults import refused
from conductor_cli.server.api.errors import error_body, request_error
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.api.responses_encoder import RESPONSE
from conductor_cli.server.http.body import read_json_body
from conductor_cli.server.http.create_answer import CreateAnswer
from conductor_cli.system.threads import run_in_thread_if_large

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

CREATE: Final = "response.create"
IDLE_SECONDS: Final = 600.0  # How long a connection may be open without a request
WRITE_SECONDS: Final = 60.0  # How long a client may take to read one event
MAX_WAITING: Final = 2  # Requests of one connection that wait for their turn
MAX_LANES: Final = 32  # Lanes of one connection whose newest response can be continued
MAX_LANE_CHARACTERS: Final = 200

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""The events that end a response. Nothing of it is sent behind them."""

_HTTP_ONLY: Final = ("stream", "stream_options", "background")
"""Fields that a message may not have: it is always streamed, and its connection waits for it."""


class ResponsesSocket:
    """The ASGI application of such connections. `create` begins the runs."""

    def __init__(self, create: CreateAnswer) -> None:
        self._create = create

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        await _Connection(self._create, scope, receive, send).serve()


class _Connection:
    """One connection.

    `newest` are the ids of the responses that it can continue without a store, by their lanes.
    """

    def __init__(self, create: CreateAnswer, scope: Scope, receive: Receive, send: Send) -> None:
        self._create = create
        self._scope = scope
        self._receive = receive
        self._send = send
        self._requests = asyncio.Queue[str | bytes](MAX_WAITING)
        self._gone = asyncio.Event()
        self._newest: dict[str, str] = {}

    async def serve(self) -> None:
        """Answer one request after the other, until the client leaves or says nothing any more."""
        reading = asyncio.create_task(self._read())
        try:
            while not self._gone.is_set():
                text = await self._next_request(reading)
                if text is None:
                    break
                await self._answer(text)
        except (TimeoutError, OSError, RuntimeError):
            pass  # the client does not read, or has gone in mid-event
        finally:
            reading.cancel()
        if not self._gone.is_set():
            await self._send({"type": "websocket.close", "code": 1000})

    async def _read(self) -> None:
        """Read what the client sends, until it leaves."""
        try:
            while True:
                message = await self._receive()
                if message["type"] == "websocket.disconnect":
                    return
                text = message.get("text")
                await self._requests.put(message.get("bytes") or b"" if text is None else text)
        finally:
            self._gone.set()

    async def _next_request(self, reading: asyncio.Task[None]) -> str | bytes | None:
        """Return the next request; None where the client has left, or was silent for too long."""
        getting = asyncio.create_task(self._requests.get())
        done, _ = await asyncio.wait(
            (getting, reading), timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if getting in done:
            return getting.result()
        getting.cancel()
        return None

    async def _answer(self, text: str | bytes) -> None:
        """Answer one request with the events of its response, or with one error."""
        writer = _EventWriter(self._send)
        try:
            message = text.encode("utf-8", "replace") if isinstance(text, str) else text
            body = await run_in_thread_if_large(len(message), lambda: dict(read_json_body(message)))
            writer.lane = _lane_of(body)
            _require_create(body)
            previous = str(body.get("previous_response_id") or "")
            is_newest = bool(previous) and previous in self._newest.values()
            answer = await self._create.answer_body(
                {**body, "stream": True}, self._scope, goes_on_at_once=is_newest
            )
        except (RequestError, ConductorError) as failed:
            error = failed if isinstance(failed, RequestError) else request_error(failed.failure)
            self._newest.pop(writer.lane, None)
            await writer.write_error(error.status, error_body(error))
            return
        # A response that fails cannot be continued, nor what it continued
        self._newest.pop(writer.lane, None)
        await answer(dict(self._scope), self._until_gone, writer)
        if writer.succeeded:
            self._newest[writer.lane] = f"{RESPONSE}{answer.served.id}"
            while len(self._newest) > MAX_LANES:
                del self._newest[next(iter(self._newest))]

    async def _until_gone(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}


def _lane_of(body: dict[str, Any]) -> str:
    """Return the lane of a request, and take it out of its body; empty where it has none.

    Raises `RequestError`.
    """
    lane = body.pop("stream_id", None)
    if lane is None:
        return ""
    if not isinstance(lane, str) or len(lane) > MAX_LANE_CHARACTERS:
        raise refused("stream_id", f"must be a string of at most {MAX_LANE_CHARACTERS} characters")
    return lane


def _require_create(body: dict[str, Any]) -> None:
    """Raise `RequestError` unless this is a request, and take its type out of its body."""
    kind = body.pop("type", None)
    if kind != CREATE:
        raise refused("type", f"must be {CREATE}")
    for name in _HTTP_ONLY:
        if body.get(name) is not None:
            raise refused(name, "is not sent on a WebSocket: each answer is a stream there")


class _EventWriter:
    """Takes an answer as it is written for HTTP, and sends its events as messages.

    Each has the name of the `lane`, where there is one.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status = 200
        self._rest = b""
        self._has_ended = False
        self.succeeded = False
        self.lane = ""

    async def __call__(self, message: Message) -> None:
        """Send what a part of an answer holds."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        self._rest += message.get("body", b"")
        if self._status != 200:
            if not message.get("more_body", False):
                await self.write_error(self._status, json.loads(self._rest))
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            await self._write_event(event)

    async def write_error(self, status: int, body: Mapping[str, Any]) -> None:
        """Send an error in the place of a response."""
        await self._write({"type": "error", "status": status, "error": body["error"]})

    async def _write_event(self, event: bytes) -> None:
        if self._has_ended:
            return
        lines = [line for line in event.split(b"\n") if line.startswith(b"data: ")]
        if not lines:
            return
        value = json.loads(lines[0].removeprefix(b"data: "))
        self._has_ended = value["type"] in _ENDS
        self.succeeded = value["type"] in {"response.completed", "response.incomplete"}
        await self._write(value)

    async def _write(self, value: Mapping[str, Any]) -> None:
        if self.lane:
            value = {**value, "stream_id": self.lane}
        async with asyncio.timeout(WRITE_SECONDS):
            await self._send({"type": "websocket.send", "text": json.dumps(value)})
