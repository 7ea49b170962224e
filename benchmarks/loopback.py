"""A server on 127.0.0.1 that speaks OpenAI's chat completions and says words.

It runs as a process of its own.

What it says is part of the model's name: `400` is an answer of 400 words as fast as they are taken,
`400@200` one at 200 words a second, `plan` a plan of three steps. It prints its port and ends when
its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle, islice
from typing import Any, Final

PROSE: Final = (
    "The queue between the two threads is bounded, so the writer waits as soon as the reader falls "
    "behind; that is "
    "where the second lock is taken, and the order of the locks is not the same on both sides of "
    "it.\n"
)
PLAN: Final = (
    "A | - | List what can go wrong.\n",
    "B | 1 | Check the list against the code.\n",
    "C | 1 2 | Answer the question.",
)


def words() -> Iterator[str]:
    """Prose without end, one word at a time, a line break now and then."""
    return (word if word.endswith("\n") else f"{word} " for word in cycle(PROSE.split(" ")))


def paced(pieces: Iterator[str], rate: float) -> Iterator[str | float]:
    """Pieces, and the seconds to wait before one.

    Piece n comes n / `rate` s after the first was asked for, or later.

    What is done between two pieces does not add up. At rate 0 nothing waits.
    """
    began = time.perf_counter()
    for number, piece in enumerate(pieces, start=1):
        if rate and (wait := began + number / rate - time.perf_counter()) > 0:
            yield wait
        yield piece


def script(model: str) -> tuple[list[str], float]:
    """The pieces that a model of this name says, and how many a second."""
    if model == "plan":
        return list(PLAN), 0.0
    number, _, rate = model.partition("@")
    return list(islice(words(), int(number))), float(rate or 0)


Asked = Mapping[str, Any]  # the body of a request

Reply = Callable[[Asked], AsyncIterator[bytes]]  # the events of an answer


async def serve(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: requests one after the other until the client goes."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"POST "):  # a client that asks which models there are
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                continue
            length = next(
                line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            body = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
                b"chunked\r\n\r\n"
            )
            async for event in reply(body):
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    writer.close()


async def events(request: Asked) -> AsyncIterator[bytes]:
    """The events of one answer, each piece in an event of its own, as providers send them."""
    model = request["model"]
    pieces, rate = script(model)
    for item in paced(iter(pieces), rate):
        if isinstance(item, float):
            await asyncio.sleep(item)
        else:
            yield spelled(model, choices=[choice({"content": item}, None)])
    for event in ending(model, len(pieces)):
        yield event


def ending(model: str, count: int) -> Iterator[bytes]:
    """The events after the last of so many pieces."""
    yield spelled(model, choices=[choice({}, "stop")])
    used = {"prompt_tokens": 100, "completion_tokens": count, "total_tokens": 100 + count}
    yield spelled(model, choices=[], usage=used)
    yield b"data: [DONE]\n\n"


def choice(delta: dict[str, str], finish: str | None) -> dict[str, object]:
    """What one event adds to the answer."""
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def spelled(model: str, **content: object) -> bytes:
    """One server-sent event."""
    head = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1764806400,
        "model": model,
    }
    return b"data: %s\n\n" % json.dumps(head | content, separators=(",", ":")).encode()


@contextmanager
def server(file: str = __file__) -> Iterator[str]:
    """The address of a server that runs as long as the context.

    This one, or that of another file.
    """
    process = subprocess.Popen(
        [sys.executable, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.communicate()


async def listen(reply: Reply) -> None:
    """Serve until standard input ends."""
    listening = await asyncio.start_server(partial(serve, reply), "127.0.0.1", 0, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listening.close()


if __name__ == "__main__":
    asyncio.run(listen(events))
