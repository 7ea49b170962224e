"""A model server that costs little, as a process of its own.

A planner, and a worker that repeats a number.

    python -m scripts.scale.provider '{"fail_every": 100, "seconds": 0}'

It prints its port. Of every `fail_every` questions it refuses one. An answer takes `seconds`, with
a piece in each of them. `GET /counts` says how many calls of the worker there were, how many of
them were for a number that had been asked for before, and how many plans. With `steps`, plans have
so many, and the calls of the planner count as calls too, each known by what it asks.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from hashlib import sha256
from typing import Any, ClassVar, Final

PLAN: Final = "alpha | - | Answer it."
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_NUMBER: Final = re.compile(rb"number (\d+)")
_STREAMS: Final = re.compile(rb'"stream": ?true')
_PLANNER: Final = re.compile(rb'"model": ?"planner"')
_HEAD: Final = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
_FRAME: Final = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _frame(**fields: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps(_FRAME | {"choices": []} | fields).encode()


def _piece(text: str, finish: str | None = None) -> bytes:
    return _frame(
        choices=[{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]
    )


_USAGE: Final = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
_WHOLE: Final = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "usage": _USAGE,
}
_END: Final = _piece("", "stop") + _frame(usage=_USAGE) + b"data: [DONE]\n\n"


def _choice(text: str) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


class Provider(asyncio.Protocol):
    """One connection."""

    fail_every = 0
    seconds = 0
    steps = 0
    planned = 0
    asked: ClassVar[Counter[bytes]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            size = int(length[1]) if length else 0
            if len(rest) < size:
                return
            self._data = rest[size:]
            self._answer(head, rest[:size])

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /counts"):
            calls = sum(self.asked.values())
            position = len(self.asked)
            self._send_json(
                {"calls": calls, "repeated": calls - position, "planned": Provider.planned}
            )
        elif head.startswith(b"GET"):
            self._send_json({"object": "list", "data": [{"id": "alpha"}, {"id": "planner"}]})
        elif _PLANNER.search(body):
            Provider.planned += 1
            if self.steps:
                self.asked[sha256(body).digest()] += 1
            later = (f"alpha | {step} | Do part {step + 1}." for step in range(1, self.steps))
            self._stream("\n".join([PLAN, *later]))
        else:
            wanted = _NUMBER.search(body)
            number = wanted[1] if wanted else b"0"
            self.asked[sha256(body).digest() if self.steps else number] += 1
            if self.fail_every and int(number) % self.fail_every == self.fail_every - 1:
                self._send_json(
                    {"error": {"message": "not this number", "type": "invalid_request_error"}},
                    b"400 No",
                )
            elif not _STREAMS.search(body):
                self._send_json(_WHOLE | {"choices": [_choice(number.decode())]})
            elif self.seconds:
                asyncio.get_running_loop().create_task(self._stream_slowly(number.decode()))
            else:
                self._stream(number.decode())

    def _send_json(self, value: object, status: bytes = b"200 OK") -> None:
        content = json.dumps(value).encode()
        self._transport.write(_HEAD % (status, b"application/json") + _chunk(content) + _chunk(b""))

    def _stream(self, text: str) -> None:
        self._transport.write(
            _HEAD % (b"200 OK", b"text/event-stream") + _chunk(_piece(text) + _END) + _chunk(b"")
        )

    async def _stream_slowly(self, text: str) -> None:
        self._transport.write(_HEAD % (b"200 OK", b"text/event-stream"))
        for second in range(self.seconds):
            if self._transport.is_closing():
                return
            self._transport.write(_chunk(_piece(f"{text}:{second} ")))
            await asyncio.sleep(1)
        self._transport.write(_chunk(_END) + _chunk(b""))


async def serve() -> None:
    """Serve until the process is ended."""
    for name, value in json.loads(sys.argv[1]).items():
        setattr(Provider, name, value)
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
