"""What a client is answered: a stream of a run, or the run's whole answer when it has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.chat import ToolCall
from conductor_cli.server.api.base import ClientApi, Encoder
from conductor_cli.server.api.request import ClientRequest, Outcome, RequestError
from conductor_cli.server.hub import Reader, RunHub, ServedRun
from conductor_cli.server.narration import AnswerText, Piece, Reasoning

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

BEGINNING_SECONDS: Final = 2.0
"""How long the headers of a stream wait for the run to begin: until then, an error is a status code."""

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
        while await reader.pieces() is not None:
            pass
        ended = self.served.ended
        if reader.is_gone or ended is None:
            return False
        if isinstance(ended, RequestError):
            await send_error(send, self.api, ended, self._headers)
        else:
            encoder = self.api.encoder(self.request, self.served.id, self.served.created)
            await send_json(send, 200, encoder.whole(ended), self._headers)
        return True

    async def _stream(self, reader: Reader, send: Send) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.served.began.wait(), BEGINNING_SECONDS)
        ended = self.served.ended
        if isinstance(ended, RequestError) and not self.served.items:
            await send_error(send, self.api, ended, self._headers)
            return True
        encoder = self.api.encoder(self.request, self.served.id, self.served.created)
        await _send_head(send, 200, STREAM_HEADERS | self._headers)
        await _send_body(send, encoder.begin(), more=True)
        while (pieces := await reader.pieces()) is not None:
            data = b"".join(_encode(encoder, piece) for piece in pieces) if pieces else encoder.heartbeat()
            if data:
                await _send_body(send, data, more=True)
                reader.told()
        if reader.is_gone:
            return False
        await _send_body(send, self._last_frames(encoder), more=False)
        return True

    def _last_frames(self, encoder: Encoder) -> bytes:
        ended = self.served.ended
        if isinstance(ended, Outcome):
            return encoder.end(replace(ended, text=self.served.streamed_text))
        return encoder.failed(ended or RequestError(500, "internal", "the run has no end"))


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
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    await _send_head(send, status, {"content-type": "application/json", "content-length": str(len(data)), **headers})
    await _send_body(send, data, more=False)


async def _send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _send_body(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
