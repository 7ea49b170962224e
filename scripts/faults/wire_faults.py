"""What can go wrong on the wire between an adapter and its server.

A row in `FAULTS` for each, and the server.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from tests.servers import SeenRequest, Server, Wire

Promise = Literal["explained", "right", "as sent"]
"""What must come of a fault: what is right, or explained; only what is right; what the server sent,
where nothing in the API numbers its events, so that no reader can tell it from what is right.
"""

EVENTS: Final = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
# What a server says with the request's headers in place of HEAD, the key among them
ECHO: Final = "you sent HEAD"
DRIP_SECONDS: Final = 0.05  # between the bytes of an answer that would take longer than any timeout

Reply = Callable[
    [SeenRequest], Awaitable[list[bytes]]
]  # the events with which a double answers; the call is billed then


@dataclass
class Exchange:
    """One request, and what can be done to its answer."""

    seen: SeenRequest
    wire: Wire
    double: Reply

    async def reply(self) -> list[bytes]:
        return await self.double(self.seen)

    async def send(self, piece: bytes | str) -> None:
        self.wire.kept = True
        await self.wire.raw(piece.encode() if isinstance(piece, str) else piece)

    async def chunks(self, *events: bytes) -> None:
        await self.send(b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events))

    async def stream(self, *events: bytes, end: bool = True) -> None:
        """Send a whole answer in HTTP chunks; without `end` it is not over then."""
        await self.send(f"{EVENTS}transfer-encoding: chunked\r\n\r\n")
        await self.chunks(*events)
        if end:
            await self.send(b"0\r\n\r\n")

    async def whole(self, body: bytes, *, length: int | None = None, headers: str = "") -> None:
        """Send a stream with its length, or a wrong one."""
        size = len(body) if length is None else length
        await self.send(f"{EVENTS}{headers}content-length: {size}\r\n\r\n".encode() + body)

    async def status(
        self, status: int, body: bytes | str, kind: str = "application/json", **headers: str
    ) -> None:
        content = body.encode() if isinstance(body, str) else body
        lines = [
            f"HTTP/1.1 {status} Made Up",
            f"content-type: {kind}",
            f"content-length: {len(content)}",
        ]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + content)


Strike = Callable[[Exchange], Awaitable[None]]  # what a fault does to an exchange


class FaultServer(Server):
    """Answers for one worker as a double does.

    `fault` strikes its calls from the `first` to the `last`, from 1.
    """

    def __init__(self, double: Reply, models: object = None) -> None:
        """`models` is the answer to a request without a body."""
        super().__init__(self._reply)
        self.fault: Strike | None = None
        self._double = double
        self._models = models
        self._calls = 0
        self._first = 1
        self._last = 1

    def set(self, fault: Strike | None, *, first: int = 1, last: int = 1) -> None:
        """Have `fault` strike from now on; calls are counted anew."""
        self.fault = fault
        self._first = first
        self._last = last
        self._calls = 0

    async def _reply(self, request: SeenRequest, wire: Wire) -> None:
        x = Exchange(request, wire, self._double)
        if not request.body:
            await x.status(200, json.dumps(self._models))
            return
        await self.answer(x)

    async def answer(self, x: Exchange) -> None:
        """Answer a call as the double does, unless the fault strikes it."""
        self._calls += 1
        with suppress(ConnectionAbortedError):
            if self.fault is not None and self._first <= self._calls <= self._last:
                await self.fault(x)
            else:
                await x.stream(*await x.reply())


def piece_at(events: list[bytes], number: int) -> int:
    """The index of the event that has the piece `number` of the text, from 0.

    Without a text the connection ends.
    """
    texts = [at for at, event in enumerate(events) if _has_text(event)]
    if not texts:
        raise ConnectionAbortedError  # as an answer to a notification of MCP
    return texts[min(number, len(texts) - 1)]


def _has_text(event: bytes) -> bool:
    payload = event.partition(b"data: ")[2]
    if payload.startswith(b"[DONE]"):
        return False
    frame = json.loads(payload)
    choices = frame.get("choices")
    kind = frame.get("type")
    has_delta = bool(choices and choices[0]["delta"].get("content"))
    is_text = kind in ("content_block_delta", "response.output_text.delta")
    return has_delta or is_text or any(name in frame for name in ("candidates", "result"))


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, what it does to an exchange, and what must come of it."""

    name: str
    strike: Strike
    promise: Promise = "explained"


# Connections that break off, stall or end


Part = Literal["nothing", "head", "three", "all but one", "all"]
Ending = Literal["reset", "close", "stall", "end"]


async def _cut(
    x: Exchange, part: Part, ending: Ending, then: Callable[[bytes], bytes] = lambda _: b""
) -> None:
    """Send a part of the answer, and what `then` makes of the event after it."""
    events = await x.reply()
    if part != "nothing":
        kept = {"head": 0, "all but one": len(events) - 1, "all": len(events)}.get(part)
        count = piece_at(events, 3) if kept is None else kept
        await x.stream(*events[:count], end=ending == "end")
        await x.send(then(b"".join(events[count : count + 1])))
    await _end(x, ending)


async def _end(x: Exchange, ending: Ending) -> None:
    if ending == "reset":
        await asyncio.sleep(0.02)
        x.wire.reset()
    elif ending == "close":
        x.wire.cut()
    elif ending == "stall":
        await x.wire.stall()


async def _reset_at_once(x: Exchange) -> None:
    x.wire.reset()


async def _reset_inside_head(x: Exchange) -> None:
    await x.reply()
    await x.send(EVENTS[:30])
    x.wire.reset()


async def _comments_only(x: Exchange) -> None:
    await x.reply()
    await x.stream(end=False)
    while not x.wire.gone.is_set():
        await x.chunks(b": still there\n\n")
        await asyncio.sleep(DRIP_SECONDS)


async def _trickle(x: Exchange, size: int, pause: float) -> None:
    body = b"".join(await x.reply())
    await x.stream(end=False)
    for at in range(0, len(body), size):
        await x.chunks(body[at : at + size])
        await asyncio.sleep(pause)
        if x.wire.gone.is_set():
            return
    await x.send(b"0\r\n\r\n")


# Refusals, and answers of another form


def _error(message: str, kind: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": kind}})


def _status(
    name: str, status: int, body: str, kind: str = "application/json", **headers: str
) -> Fault:
    async def refuse(x: Exchange) -> None:
        await x.status(
            status, body.replace("HEAD", str(x.seen.headers).replace('"', "'")), kind, **headers
        )

    return Fault(name, refuse)


SLOW_DOWN: Final = _error("slow down", "rate_limit_exceeded")


async def _other(x: Exchange, content: bytes) -> None:
    await x.send(content)
    x.wire.cut()


# Events that are changed, lost, repeated or exchanged


async def _edit(x: Exchange, edited: Callable[[list[bytes]], list[bytes]]) -> None:
    await x.stream(*edited(await x.reply()))


async def _error_event(x: Exchange) -> None:
    events = await x.reply()
    message = ECHO.replace("HEAD", str(x.seen.headers))
    error = {
        "type": "error",
        "error": {"type": "server_error", "message": message, "code": "server_error"},
    }
    await x.stream(*events[: piece_at(events, 3)], b"data: " + json.dumps(error).encode() + b"\n\n")


def _with_wrong_types(event: bytes) -> bytes:
    name, separator, payload = event.partition(b"data: ")
    if payload.startswith(b"[DONE]"):
        return event
    return name + separator + json.dumps(_wrong(json.loads(payload))).encode() + b"\n\n"


def _wrong(value: Any) -> Any:
    """What is below the first level as another type.

    A list as an object, a text or a number as a list.
    """
    if isinstance(value, dict):
        inner = {
            name: _wrong(item) if isinstance(item, (dict, list)) else item
            for name, item in value.items()
        }
        return inner | ({"delta": 7} if isinstance(value.get("delta"), str) else {})
    return {str(at): item for at, item in enumerate(value)} if isinstance(value, list) else [value]


def _broken_json(events: list[bytes]) -> list[bytes]:
    at = piece_at(events, 3)
    return [*events[:at], _half(events[at]) + b"\n\n", *events[at + 1 :]]


def _moved(events: list[bytes], *order: int) -> list[bytes]:
    """The events with the third piece and the one after it replaced by those of this order."""
    at = piece_at(events, 2)
    return [*events[:at], *(events[at + offset] for offset in order), *events[at + 2 :]]


# Lengths and encodings


async def _body(x: Exchange, headers: str, encode: Callable[[bytes], bytes]) -> None:
    await x.whole(encode(b"".join(await x.reply())), headers=headers)


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _damaged(body: bytes) -> bytes:
    content = bytearray(gzip.compress(body))
    content[len(content) // 2] ^= 0xFF
    return bytes(content)


async def _length(x: Exchange, length: Callable[[int], int], ending: Ending) -> None:
    body = b"".join(await x.reply())
    await x.whole(body, length=length(len(body)))
    await asyncio.sleep(0.02)
    await _end(x, ending)


async def _two_answers(x: Exchange) -> None:
    other = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    await x.stream(*await x.reply(), end=False)
    await x.send(b"0\r\n\r\n" + other)


async def _late_second_answer(x: Exchange) -> None:
    await x.stream(*await x.reply())
    await asyncio.sleep(0.01)
    await x.whole(
        b'data: {"choices": [{"delta": {"content": "[[not yours]]"}, "finish_reason": "stop"}]}\n\n'
    )


GZIP: Final = "content-encoding: gzip\r\n"

FAULTS: Final[tuple[Fault, ...]] = (
    Fault("reset-at-once", _reset_at_once),
    Fault("reset-before-head", partial(_cut, part="nothing", ending="reset")),
    Fault("reset-inside-head", _reset_inside_head),
    Fault(
        "reset-inside-event",
        partial(
            _cut,
            part="three",
            ending="reset",
            then=lambda event: b"%x\r\n%s" % (len(event), _half(event)),
        ),
    ),
    Fault("reset-after-events", partial(_cut, part="three", ending="reset")),
    Fault("reset-at-end", partial(_cut, part="all", ending="reset")),
    Fault("close-after-events", partial(_cut, part="three", ending="close")),
    Fault("early-end", partial(_cut, part="three", ending="end")),
    Fault("end-without-last-event", partial(_cut, part="all but one", ending="end")),
    Fault("no-answer", partial(_cut, part="nothing", ending="close")),
    Fault("stall-before-head", partial(_cut, part="nothing", ending="stall")),
    Fault("stall-after-head", partial(_cut, part="head", ending="stall")),
    Fault("stall-inside", partial(_cut, part="three", ending="stall")),
    Fault("stall-at-end", partial(_cut, part="all", ending="stall")),
    Fault("comments-only", _comments_only),
    Fault("trickle", partial(_trickle, size=16, pause=0.0), "right"),
    Fault("drip", partial(_trickle, size=1, pause=DRIP_SECONDS)),
    _status("429-with-time", 429, SLOW_DOWN, retry_after="0.2"),
    _status("429-without-time", 429, SLOW_DOWN),
    _status("429-absurd-time", 429, SLOW_DOWN, retry_after="-inf"),
    _status("500-echo", 500, _error(ECHO, "server_error")),
    _status("502-page", 502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "text/html"),
    _status("503-date", 503, "", retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
    _status(
        "529",
        529,
        '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
    ),
    _status("401-echo", 401, _error(ECHO, "invalid_api_key")),
    _status("redirect", 307, "", location="http://127.0.0.1:9/elsewhere"),
    Fault("204", lambda x: x.send("HTTP/1.1 204 No Content\r\n\r\n")),
    Fault("error-event", _error_event),
    _status(
        "web-page",
        200,
        "<!DOCTYPE html><html><body>Log in to this network</body></html>",
        "text/html",
    ),
    Fault("empty-answer", partial(_edit, edited=lambda _: [])),
    Fault(
        "not-http", partial(_other, content=b"\x16\x03\x01\x02\x00SSH-2.0-OpenSSH_9.9\r\n\x00\xff")
    ),
    Fault(
        "endless-head",
        partial(_other, content=b"HTTP/1.1 200 OK\r\n" + b"x-more: nothing at all\r\n" * 20_000),
    ),
    Fault(
        "wrong-types", partial(_edit, edited=lambda events: list(map(_with_wrong_types, events)))
    ),
    Fault("broken-json", partial(_edit, edited=_broken_json)),
    Fault(
        "nulls-and-bad-utf8",
        partial(_edit, edited=lambda events: [b": \x00\xff\xfe\n\n", *events, b": \xc3\x28\n\n"]),
        "right",
    ),
    Fault(
        "byte-order-mark",  # a notification of MCP has no event
        partial(
            _edit,
            edited=lambda events: [*(b"\xef\xbb\xbf" + event for event in events[:1]), *events[1:]],
        ),
        "right",
    ),
    Fault("length-too-long", partial(_length, length=lambda size: size + 500, ending="close")),
    Fault("length-too-short", partial(_length, length=lambda size: size // 2, ending="stall")),
    Fault(
        "chunk-size-wrong",
        partial(
            _cut,
            part="three",
            ending="stall",
            then=lambda event: b"%x\r\n%s\r\n" % (len(event) - 9, event),
        ),
    ),
    Fault("two-answers", _two_answers, "right"),
    Fault("late-second-answer", _late_second_answer, "right"),
    Fault("gzip", partial(_body, headers=GZIP, encode=gzip.compress), "right"),
    Fault(
        "gzip-truncated",
        partial(_body, headers=GZIP, encode=lambda body: _half(gzip.compress(body))),
    ),
    Fault("gzip-damaged", partial(_body, headers=GZIP, encode=_damaged)),
    Fault("gzip-pretended", partial(_body, headers=GZIP, encode=bytes)),
    Fault(
        "duplicate-event", partial(_edit, edited=lambda events: _moved(events, 0, 0, 1)), "as sent"
    ),
    Fault(
        "reordered-events", partial(_edit, edited=lambda events: _moved(events, 1, 0)), "as sent"
    ),
    Fault("lost-event", partial(_edit, edited=lambda events: _moved(events, 1)), "as sent"),
    Fault(
        "duplicate-last-event",
        partial(_edit, edited=lambda events: [*events, *events[-1:]]),
        "as sent",
    ),
)
"""All faults of an exchange, by family."""

REFUSE: Final = Fault("refuse", _reset_at_once)  # nobody listens: the server is closed instead
