"""What a client is answered: a stream of a run, or the run's whole answer when it has ended."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.chat import ToolCall
from conductor_cli.server.access import describe_error
from conductor_cli.server.api.request import ClientApi, ClientRequest, Encoder, Outcome, RequestError
from conductor_cli.server.narration import AnswerText, Piece, Reasoning
from conductor_cli.server.run_registry import Reader, RunHub, ServedRun

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

BEGINNING_SECONDS: Final = 2.0
"""How long the headers of a stream wait for the run to begin: until then, an error is a status code."""

JSON: Final = "application/json"

STREAM_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""Proxies must neither keep nor collect what is streamed."""


@dataclass
class RunAnswer:
    """An ASGI application that answers one request with a run."""

    hub: RunHub
    served: ServedRun
    api: ClientApi
    request: ClientRequest

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer, and let the hub know when the client has gone."""
        reader = self.hub.open(self.served)
        watching = asyncio.create_task(_watch(receive, reader))
        delivered = False
        try:
            delivered = await (self._stream(reader, send) if self.request.stream else self._whole(reader, send))
        finally:
            watching.cancel()
            self.hub.close(reader, delivered=delivered)

    @property
    def _headers(self) -> dict[str, str]:
        return {"x-request-id": self.served.id}

    async def _whole(self, reader: Reader, send: Send) -> bool:
        """Answer with one JSON object. While it takes long, line ends say that the server lives: JSON may begin so.

        With the first of them the status is out, so an error that follows is only in the body.
        """
        is_begun = False
        while (pieces := await reader.pieces()) is not None:
            if pieces:
                continue
            if not is_begun:
                is_begun = True
                await _send_head(send, 200, {"content-type": JSON} | self._headers)
            await _send_body(send, b"\n", more=True)
            reader.told()
        ended = self.served.ended
        if reader.is_gone or ended is None:
            return False
        if is_begun:
            return await self._end_whole(ended, send)
        if isinstance(ended, RequestError):
            await send_error(send, self.api, ended, self._headers)
        else:
            await send_json(send, 200, self._encoder().whole(ended), self._headers)
        return True

    async def _end_whole(self, ended: Outcome | RequestError, send: Send) -> bool:
        """Send the object behind the line ends. Returns whether it is the end of the run."""
        encoder, is_end = self._encoder(), True
        try:
            value = encoder.whole(ended) if isinstance(ended, Outcome) else encoder.whole_failed(ended)
            data = _json_bytes(value)
        except Exception as error:  # noqa: BLE001 - the status is out: the client must be told in the body
            data, is_end = _json_bytes(self.api.error(self._fault(error))), False
        await _send_body(send, data, more=False)
        return is_end

    async def _stream(self, reader: Reader, send: Send) -> bool:
        """Answer with server-sent events. Whatever happens, they have an end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.served.began.wait(), BEGINNING_SECONDS)
        ended = self.served.ended
        if isinstance(ended, RequestError) and not self.served.items:
            await send_error(send, self.api, ended, self._headers)
            return True
        encoder = self._encoder()
        data: bytes | None = encoder.begin()
        await _send_head(send, 200, STREAM_HEADERS | self._headers)
        try:
            while data is not None:
                if data:
                    await _send_body(send, data, more=True)
                    reader.told()
                data = await self._next_frames(encoder, reader)
            if reader.is_gone:
                return False
            last, is_end = self._last_frames(encoder), True
        except _EncoderError as fault:
            last, is_end = self._broken_off(encoder, fault), False
        await _send_body(send, last, more=False)
        return is_end

    async def _next_frames(self, encoder: Encoder, reader: Reader) -> bytes | None:
        """What is sent next; None after the last piece. Raises `_EncoderError`."""
        pieces = await reader.pieces()
        if pieces is None:
            return None
        if not pieces:
            return _encoded(encoder.heartbeat)
        return _encoded(lambda: b"".join(_encode(encoder, piece) for piece in pieces))

    def _encoder(self) -> Encoder:
        return self.api.encoder(self.request, self.served.id, self.served.created)

    def _fault(self, error: Exception) -> RequestError:
        """What a client is told of a failure of this server, which is logged without its text: that may be a prompt."""
        log.error("the answer of run %s cannot be written: %s", self.served.id, describe_error(error))
        message = f"the server failed while it wrote the answer; its log says where [run {self.served.id}]"
        return RequestError(500, "internal_error", message)

    def _broken_off(self, encoder: Encoder, fault: _EncoderError) -> bytes:
        """The end of a stream whose encoder has failed. If it cannot write that either, a new one does."""
        error = self._fault(fault.error)
        try:
            return encoder.failed(error)
        except Exception:  # noqa: BLE001 - it has been logged
            return self._encoder().failed(error)

    def _last_frames(self, encoder: Encoder) -> bytes:
        """The end of the stream. Raises `_EncoderError`."""
        ended = self.served.ended
        if isinstance(ended, Outcome):
            outcome = replace(ended, text=self.served.streamed_text)
            return _encoded(lambda: encoder.end(outcome))
        error = ended or RequestError(500, "internal", "the run has no end")
        return _encoded(lambda: encoder.failed(error))


class _EncoderError(Exception):
    """An encoder has failed with `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _encoded(encode: Callable[[], bytes]) -> bytes:
    """What `encode` returns. Raises `_EncoderError`: what an encoder raises is not what sending raises."""
    try:
        return encode()
    except Exception as error:  # noqa: BLE001 - whatever it is, the stream gets an end
        raise _EncoderError(error) from None


def _encode(encoder: Encoder, piece: Piece) -> bytes:
    match piece:
        case AnswerText():
            return encoder.text(piece.text)
        case Reasoning():
            return encoder.reasoning(piece.text)
        case ToolCall():
            return encoder.tool_call(piece)
    return encoder.event(piece)


async def _watch(receive: Receive, reader: Reader) -> None:
    """Tell the reader when its client has gone. The body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.leave()


# Bytes


async def send_error(send: Send, api: ClientApi, error: RequestError, headers: Mapping[str, str]) -> None:
    """Send an error in the envelope of an API."""
    retry = {} if error.retry_after is None else {"retry-after": str(max(1, round(error.retry_after)))}
    await send_json(send, error.status, api.error(error), {**headers, **retry})


async def send_json(send: Send, status: int, value: Any, headers: Mapping[str, str]) -> None:  # noqa: ANN401 - any JSON value
    """Send a JSON value."""
    data = _json_bytes(value)
    await _send_head(send, status, {"content-type": JSON, "content-length": str(len(data)), **headers})
    await _send_body(send, data, more=False)


def _json_bytes(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


async def _send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _send_body(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
