"""What can go wrong on the wire between an adapter and its server: one row in `FAULTS` for each."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from scripts.faults.wire_proxy import EVENTS, Exchange, Strike, piece_at

Promise = Literal["explained", "right", "as sent"]
"""What must come of a fault: what is right, or explained; only what is right; what the server sent, where nothing in
the API numbers its events, so that no reader can tell it from what is right."""

ECHO: Final = "you sent "
"""What a server says before it repeats the request's headers, the key among them."""

DRIP_SECONDS: Final = 0.05
"""Between the bytes of an answer that would take longer than any timeout."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, what it does to an exchange, and what must come of it."""

    name: str
    strike: Strike
    promise: Promise = "explained"


# Connections


async def _reset_at_once(x: Exchange) -> None:
    x.reset()


async def _reset_before_head(x: Exchange) -> None:
    await x.reply()
    x.reset()


async def _reset_inside_head(x: Exchange) -> None:
    await x.reply()
    await x.send(EVENTS[:30])
    x.reset()


async def _reset_inside_event(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 3)
    await x.stream(*events[:at], end=False)
    await x.send(b"%x\r\n%s" % (len(events[at]), events[at][: len(events[at]) // 2]))
    await asyncio.sleep(0.02)
    x.reset()


async def _reset_after_events(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(*events[: piece_at(events, 3)], end=False)
    await asyncio.sleep(0.02)
    x.reset()


async def _reset_at_end(x: Exchange) -> None:
    await x.stream(*await x.reply(), end=False)
    await asyncio.sleep(0.02)
    x.reset()


async def _close_after_events(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(*events[: piece_at(events, 3)], end=False)
    x.close()


async def _early_end(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(*events[: piece_at(events, 3)])


async def _end_without_last_event(x: Exchange) -> None:
    await x.stream(*(await x.reply())[:-1])


async def _no_answer(x: Exchange) -> None:
    await x.reply()
    x.close()


# Time


async def _stall_before_head(x: Exchange) -> None:
    await x.reply()
    await x.gone()


async def _stall_after_head(x: Exchange) -> None:
    await x.reply()
    await x.stream(end=False)
    await x.gone()


async def _stall_inside(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(*events[: piece_at(events, 3)], end=False)
    await x.gone()


async def _stall_at_end(x: Exchange) -> None:
    await x.stream(*await x.reply(), end=False)
    await x.gone()


async def _comments_only(x: Exchange) -> None:
    await x.reply()
    await x.stream(end=False)
    gone = asyncio.create_task(x.gone())
    while not gone.done():
        await x.chunks(b": still there\n\n")
        await asyncio.wait({gone}, timeout=DRIP_SECONDS)


async def _trickle(x: Exchange) -> None:
    await x.send(f"{EVENTS}transfer-encoding: chunked\r\n\r\n")
    for event in await x.reply():
        for at in range(0, len(event), 16):
            await x.chunks(event[at : at + 16])
            await asyncio.sleep(0)
    await x.send(b"0\r\n\r\n")


async def _drip(x: Exchange) -> None:
    body = b"".join(await x.reply())
    await x.send(f"{EVENTS}transfer-encoding: chunked\r\n\r\n")
    gone = asyncio.create_task(x.gone())
    for at in range(len(body)):
        await x.chunks(body[at : at + 1])
        await asyncio.wait({gone}, timeout=DRIP_SECONDS)
        if gone.done():
            return
    await x.send(b"0\r\n\r\n")
    await gone


# Refusals


def _error(message: str, kind: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": kind}})


async def _rate_limit_with_time(x: Exchange) -> None:
    await x.status(429, _error("slow down", "rate_limit_exceeded"), retry_after="0.2")


async def _rate_limit_without_time(x: Exchange) -> None:
    await x.status(429, _error("slow down", "rate_limit_exceeded"))


async def _rate_limit_absurd_time(x: Exchange) -> None:
    await x.status(429, _error("slow down", "rate_limit_exceeded"), retry_after="-inf")


async def _server_error_echo(x: Exchange) -> None:
    await x.status(500, _error(ECHO + x.request.head, "server_error"))


async def _bad_gateway(x: Exchange) -> None:
    await x.status(502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "text/html")


async def _unavailable(x: Exchange) -> None:
    await x.status(503, "", retry_after="Wed, 21 Oct 2026 07:28:00 GMT")


async def _overloaded(x: Exchange) -> None:
    await x.status(529, '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}')


async def _refused_key_echo(x: Exchange) -> None:
    await x.status(401, _error(ECHO + x.request.head, "invalid_api_key"))


async def _redirect(x: Exchange) -> None:
    await x.status(307, "", location="http://127.0.0.1:9/elsewhere")


async def _no_content(x: Exchange) -> None:
    await x.send("HTTP/1.1 204 No Content\r\n\r\n")


async def _error_event(x: Exchange) -> None:
    events = await x.reply()
    error = {
        "type": "error",
        "error": {"type": "server_error", "message": ECHO + x.request.head, "code": "server_error"},
    }
    await x.stream(*events[: piece_at(events, 3)], b"data: " + json.dumps(error).encode() + b"\n\n")


# Forms


async def _web_page(x: Exchange) -> None:
    await x.status(200, "<!DOCTYPE html><html><body>Log in to this network</body></html>", "text/html")


async def _empty_answer(x: Exchange) -> None:
    await x.stream()


async def _not_http(x: Exchange) -> None:
    await x.send(b"\x16\x03\x01\x02\x00SSH-2.0-OpenSSH_9.9\r\n\x00\xff")
    x.close()


async def _endless_head(x: Exchange) -> None:
    await x.send("HTTP/1.1 200 OK\r\n" + "x-more: nothing at all\r\n" * 20_000)
    x.close()


async def _wrong_types(x: Exchange) -> None:
    events = [_with_wrong_types(event) for event in await x.reply()]
    await x.stream(*events)


def _with_wrong_types(event: bytes) -> bytes:
    name, found, data = event.partition(b"data: ")
    if data.startswith(b"[DONE]"):
        return event
    return name + found + json.dumps(_wrong(json.loads(data))).encode() + b"\n\n"


def _wrong(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """What is below the first level as another type: a list as an object, a text or a number as a list."""
    if isinstance(value, dict):
        inner = {name: _wrong(item) if isinstance(item, (dict, list)) else item for name, item in value.items()}
        return inner | ({"delta": 7} if isinstance(value.get("delta"), str) else {})
    return {str(at): item for at, item in enumerate(value)} if isinstance(value, list) else [value]


async def _broken_json(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 3)
    await x.stream(*events[:at], events[at][: len(events[at]) // 2] + b"\n\n", *events[at + 1 :])


async def _nulls_and_bad_utf8(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(b": \x00\xff\xfe\n\n", *events, b": \xc3\x28\n\n")


async def _byte_order_mark(x: Exchange) -> None:
    events = await x.reply()  # none for a notification of MCP
    await x.stream(*(b"\xef\xbb\xbf" + event for event in events[:1]), *events[1:])


# Lengths and encodings


async def _length_too_long(x: Exchange) -> None:
    body = b"".join(await x.reply())
    await x.send(f"{EVENTS}content-length: {len(body) + 500}\r\n\r\n".encode() + body)
    await asyncio.sleep(0.02)
    x.close()


async def _length_too_short(x: Exchange) -> None:
    body = b"".join(await x.reply())
    await x.send(f"{EVENTS}content-length: {len(body) // 2}\r\n\r\n".encode() + body)
    await x.gone()


async def _chunk_size_wrong(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 3)
    await x.stream(*events[:at], end=False)
    await x.send(b"%x\r\n%s\r\n" % (len(events[at]) - 9, events[at]))
    await x.gone()


async def _two_answers(x: Exchange) -> None:
    other = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    await x.stream(*await x.reply(), end=False)
    await x.send(b"0\r\n\r\n" + other)


async def _late_second_answer(x: Exchange) -> None:
    other = b'data: {"choices": [{"delta": {"content": "[[not yours]]"}, "finish_reason": "stop"}]}\n\n'
    await x.stream(*await x.reply())
    await asyncio.sleep(0.01)
    await x.send(f"{EVENTS}content-length: {len(other)}\r\n\r\n".encode() + other)


async def _gzip(x: Exchange) -> None:
    body = gzip.compress(b"".join(await x.reply()))
    await x.send(f"{EVENTS}content-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


async def _gzip_truncated(x: Exchange) -> None:
    body = gzip.compress(b"".join(await x.reply()))
    half = body[: len(body) // 2]
    await x.send(f"{EVENTS}content-encoding: gzip\r\ncontent-length: {len(half)}\r\n\r\n".encode() + half)


async def _gzip_damaged(x: Exchange) -> None:
    body = bytearray(gzip.compress(b"".join(await x.reply())))
    body[len(body) // 2] ^= 0xFF
    await x.send(f"{EVENTS}content-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n".encode() + bytes(body))


async def _gzip_pretended(x: Exchange) -> None:
    body = b"".join(await x.reply())
    await x.send(f"{EVENTS}content-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


# Order


async def _duplicate_event(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 2)
    await x.stream(*events[: at + 1], *events[at:])


async def _reordered_events(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 2)
    await x.stream(*events[:at], events[at + 1], events[at], *events[at + 2 :])


async def _lost_event(x: Exchange) -> None:
    events = await x.reply()
    at = piece_at(events, 2)
    await x.stream(*events[:at], *events[at + 1 :])


async def _duplicate_last_event(x: Exchange) -> None:
    events = await x.reply()
    await x.stream(*events[:-1], events[-1], events[-1])


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("reset-at-once", _reset_at_once),
    Fault("reset-before-head", _reset_before_head),
    Fault("reset-inside-head", _reset_inside_head),
    Fault("reset-inside-event", _reset_inside_event),
    Fault("reset-after-events", _reset_after_events),
    Fault("reset-at-end", _reset_at_end),
    Fault("close-after-events", _close_after_events),
    Fault("early-end", _early_end),
    Fault("end-without-last-event", _end_without_last_event),
    Fault("no-answer", _no_answer),
    Fault("stall-before-head", _stall_before_head),
    Fault("stall-after-head", _stall_after_head),
    Fault("stall-inside", _stall_inside),
    Fault("stall-at-end", _stall_at_end),
    Fault("comments-only", _comments_only),
    Fault("trickle", _trickle, "right"),
    Fault("drip", _drip),
    Fault("429-with-time", _rate_limit_with_time),
    Fault("429-without-time", _rate_limit_without_time),
    Fault("429-absurd-time", _rate_limit_absurd_time),
    Fault("500-echo", _server_error_echo),
    Fault("502-page", _bad_gateway),
    Fault("503-date", _unavailable),
    Fault("529", _overloaded),
    Fault("401-echo", _refused_key_echo),
    Fault("redirect", _redirect),
    Fault("204", _no_content),
    Fault("error-event", _error_event),
    Fault("web-page", _web_page),
    Fault("empty-answer", _empty_answer),
    Fault("not-http", _not_http),
    Fault("endless-head", _endless_head),
    Fault("wrong-types", _wrong_types),
    Fault("broken-json", _broken_json),
    Fault("nulls-and-bad-utf8", _nulls_and_bad_utf8, "right"),
    Fault("byte-order-mark", _byte_order_mark, "right"),
    Fault("length-too-long", _length_too_long),
    Fault("length-too-short", _length_too_short),
    Fault("chunk-size-wrong", _chunk_size_wrong),
    Fault("two-answers", _two_answers, "right"),
    Fault("late-second-answer", _late_second_answer, "right"),
    Fault("gzip", _gzip, "right"),
    Fault("gzip-truncated", _gzip_truncated),
    Fault("gzip-damaged", _gzip_damaged),
    Fault("gzip-pretended", _gzip_pretended),
    Fault("duplicate-event", _duplicate_event, "as sent"),
    Fault("reordered-events", _reordered_events, "as sent"),
    Fault("lost-event", _lost_event, "as sent"),
    Fault("duplicate-last-event", _duplicate_last_event, "as sent"),
)
"""All faults, by family. A server that refuses connections is no exchange, see `wire.REFUSE`."""
