"""What a client is answered: a stream of a run, or the run's whole answer when it has ended."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse

from conductor_cli.core.chat import ToolCall
from conductor_cli.core.errors import ConductorError
from conductor_cli.server.api.errors import error_body, path_of_api, request_error
from conductor_cli.server.api.request import (
    AnswerEncoder,
    ClientApi,
    ClientRequest,
    RequestError,
    ServedAnswer,
)
from conductor_cli.server.http.access import REQUEST_ID, TOKENS, describe_error
from conductor_cli.server.http.connections import WRITE_BODY, WriteBody
from conductor_cli.server.runs.narration import AnswerText, Piece, Reasoning
from conductor_cli.server.runs.run_registry import (
    MAX_FAILURES,
    RunRegistry,
    ServedRun,
    Subscriber,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

BEGIN_SECONDS: Final = 2.0  # How long the head of a stream waits for the beginning of its run
HELD_SECONDS: Final = 30.0
"""How long the head of a stream waits for the answer where equal requests have failed.

Some clients stop at a status and go on at an error inside a stream.
"""

STREAM_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""Proxies must neither keep nor collect what is streamed."""


@dataclass
class RunAnswer:
    """An ASGI application that answers one request, which came to `path`, with a run."""

    registry: RunRegistry
    served: ServedRun
    api: ClientApi
    request: ClientRequest
    path: str
    _write_body: WriteBody | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and let the registry know when the client has gone."""
        reader = self.registry.open(self.served, takes_pieces=self.request.stream)
        self._write_body = scope.get(WRITE_BODY)

        async def watch() -> None:  # the body was read before
            while (await receive())["type"] != "http.disconnect":
                pass
            reader.leave()

        watching = asyncio.create_task(watch())
        delivered = False
        try:
            answer = self._stream if self.request.stream else self._whole
            delivered = await answer(reader, send)
        finally:
            watching.cancel()
            self.registry.close(reader, delivered=delivered)
            if isinstance(ended := self.served.ended, ServedAnswer):
                scope[TOKENS] = ended.usage.total.tokens

    async def _whole(self, reader: Subscriber, send: Send) -> bool:
        """Answer with one JSON object.

        While it takes long, line ends say that the server lives: JSON may begin so.

        With the first of them the status is out, so an error that follows is only in the body.
        Returns whether the client got the end of the run.
        """
        is_begun = False
        while await reader.pieces() is not None:
            if not is_begun:
                is_begun = True
                headers = {"content-type": "application/json", "x-request-id": self.served.id}
                await _send_head(send, 200, headers)
            await _send_body(send, b"\n", more_follows=True)
            reader.restart_silence()
        ended = self.served.ended
        if reader.is_gone or ended is None:
            return False
        if is_begun:
            return await self._end_body(send, ended)
        if isinstance(ended, RequestError):
            await self._send_error(send, ended)
        else:
            value = self._encoder().whole(ended)
            await send_json(send, 200, value, {"x-request-id": self.served.id})
        return True

    async def _end_body(self, send: Send, ended: ServedAnswer | RequestError) -> bool:
        """Send the one JSON object behind line ends: the status is out, also for an error.

        Returns whether the client got the end of the run.
        """
        encoder = self._encoder()
        is_end = True
        try:
            if isinstance(ended, ServedAnswer):
                content = _json_bytes(encoder.whole(ended))
            else:
                content = _json_bytes(encoder.whole_failed(self._as_told(ended)))
        except Exception as error:  # noqa: BLE001
            # The status is out: the client must be told in the body
            content = _json_bytes(error_body(self._fault(error), self.path, self.served.id))
            is_end = False
        await _send_body(send, content, more_follows=False)
        return is_end

    async def _stream(self, reader: Subscriber, send: Send) -> bool:
        """Answer with server-sent events. Whatever happens, they have an end.

        Returns whether it is that of the run.
        """
        early_error = await self._error_before_text()
        if early_error is not None:
            await self._send_error(send, early_error)
            return True
        encoder = self._encoder()
        is_end = True
        is_going_on = True
        content = encoder.begin()
        await _send_head(send, 200, STREAM_HEADERS | {"x-request-id": self.served.id})
        reader.write = partial(self._write_piece, encoder)
        while is_going_on:
            if content:
                await _send_body(send, content, more_follows=True)
                reader.restart_silence()
            pieces = await reader.pieces()
            if reader.is_gone or self.served.is_lost:  # cut off, a stream is read on elsewhere
                return False
            is_going_on = pieces is not None
            try:
                if pieces is not None:
                    content = _frames(encoder, pieces)
                else:
                    content = self._end_frames(encoder)
            except Exception as error:  # noqa: BLE001 - whatever it is, the stream gets an end
                is_end = False
                is_going_on = False
                content = self._fault_frames(encoder, error)
        await _send_body(send, content, more_follows=False)
        return is_end

    async def _error_before_text(self) -> RequestError | None:
        """Wait a while for the run to begin, and return the error that has ended it by then.

        Until then, an error is a status code.
        """
        is_held = self.registry.recent_failures(self.served.key) >= MAX_FAILURES
        event = self.served.began
        seconds = BEGIN_SECONDS
        if is_held:
            event = self.served.answered
            seconds = HELD_SECONDS
        if not event.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        is_unsaid = not self.served.items or (is_held and self.served.first_text_at is None)
        if isinstance(self.served.ended, RequestError) and is_unsaid:
            return self.served.ended
        return None

    def _write_piece(self, encoder: AnswerEncoder, piece: Piece) -> bool:
        """Write a piece of a stream at once, and return whether that was done.

        If not, `pieces` gives it, and a stream whose encoder fails gets its end there.
        """
        if self._write_body is None:
            return False
        try:
            return self._write_body(_frame(encoder, piece))
        except Exception:  # noqa: BLE001 - whatever it is, `pieces` meets it again
            return False

    def _end_frames(self, encoder: AnswerEncoder) -> bytes:
        """Return the end of a stream: that of the answer, or the error that the run ended with."""
        ended = self.served.ended
        if isinstance(ended, ServedAnswer):
            return encoder.end(replace(ended, text=self.served.streamed_text))
        failed = ended or RequestError(500, "internal", "the run has no end")
        return encoder.failed(self._as_told(failed))

    def _fault_frames(self, encoder: AnswerEncoder, error: Exception) -> bytes:
        """Return the end of a stream that cannot be encoded."""
        fault = self._fault(error)
        try:
            return encoder.failed(fault)
        except Exception:  # noqa: BLE001 - it has been logged; a new encoder can tell it
            return self._encoder().failed(fault)

    async def _send_error(self, send: Send, error: RequestError) -> None:
        headers = {"x-request-id": self.served.id}
        if self.registry.recent_failures(self.served.key) >= MAX_FAILURES:
            headers["x-should-retry"] = "false"
        await send_error(send, self.path, self._as_told(error), headers)

    def _as_told(self, error: RequestError) -> RequestError:
        """Return an error as its client is told it, which may be not to repeat the request."""
        failures = self.registry.recent_failures(self.served.key)
        if failures > MAX_FAILURES and error.status >= 500:
            return _not_to_be_repeated(error, failures)
        return error

    def _encoder(self) -> AnswerEncoder:
        return self.api.encoder(self.request, self.served.id, self.served.created)

    def _fault(self, error: Exception) -> RequestError:
        """Return what a client is told of a failure of this server.

        The log leaves its text out: it may be a prompt.
        """
        log.error(
            "the answer of run %s cannot be written: %s", self.served.id, describe_error(error)
        )
        message = (
            "the server failed while it wrote the answer; its log says where [run "
            f"{self.served.id}]"
        )
        return RequestError(500, "internal_error", message)


def _not_to_be_repeated(error: RequestError, failures: int) -> RequestError:
    """Return an error for a client that reads no header and repeats whatever has a status of 5xx.

    OpenCode and aider went on for more than two minutes.
    """
    # OpenCode goes on, whatever the status, where the message names a server's error
    message = (
        f"equal requests have failed {failures} times within two minutes, so this one is not to be "
        "repeated at once; the first answers say why"
    )
    run = re.search(r"\[run [^]]+\]", error.message)
    if run is not None:
        message += f" {run[0]}"
    return RequestError(400, error.code, message, param=error.param, details=error.details)


def _frames(encoder: AnswerEncoder, pieces: Sequence[Piece]) -> bytes:
    if not pieces:
        return encoder.heartbeat()
    return b"".join(_frame(encoder, piece) for piece in pieces)


def _frame(encoder: AnswerEncoder, piece: Piece) -> bytes:
    match piece:
        case AnswerText():
            return encoder.text(piece.text)
        case Reasoning():
            return encoder.reasoning(piece.text)
        case ToolCall():
            return encoder.tool_call(piece)


def answering(
    act: Callable[[Request], Awaitable[dict[str, Any] | ASGIApp]],
    headers: Mapping[str, str] | None = None,
) -> Callable[[Request], Awaitable[ASGIApp]]:
    """Return a route that answers with what `act` returns.

    Its errors come in the envelope of the client's API.
    """

    async def answer(http: Request) -> ASGIApp:
        try:
            return _response_of(await act(http))
        except RequestError as error:
            failed = error
        except ConductorError as error:
            failed = request_error(error.failure)
        except OSError as error:
            failed = RequestError(507, "disk", f"the server cannot keep it: {error.strerror}")
        path = path_of_api(http.url.path, http.headers)
        body = error_body(failed, path, http.scope.get(REQUEST_ID, ""))
        return JSONResponse(body, failed.status, {**(headers or {}), **retry_headers(failed)})

    return answer


def _response_of(result: dict[str, Any] | ASGIApp) -> ASGIApp:
    if isinstance(result, dict):
        return JSONResponse(result)
    return result


async def send_error(
    send: Send, path: str, error: RequestError, headers: Mapping[str, str]
) -> None:
    """Send an error in the envelope of the API at this path."""
    body = error_body(error, path, headers.get("x-request-id", ""))
    await send_json(send, error.status, body, {**headers, **retry_headers(error)})


def retry_headers(error: RequestError) -> dict[str, str]:
    """Return the headers that say when to send the same request again, or that it is in vain."""
    headers = dict[str, str]()
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    if error.is_final:
        # The SDKs of OpenAI and Anthropic and Claude Code read it
        headers["x-should-retry"] = "false"
    return headers


# Any JSON value
async def send_json(send: Send, status: int, value: Any, headers: Mapping[str, str]) -> None:  # noqa: ANN401
    """Send a JSON value."""
    content = _json_bytes(value)
    await _send_head(
        send,
        status,
        {"content-type": "application/json", "content-length": str(len(content)), **headers},
    )
    await _send_body(send, content, more_follows=False)


def _json_bytes(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


async def _send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _send_body(send: Send, content: bytes, *, more_follows: bool) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more_follows})
