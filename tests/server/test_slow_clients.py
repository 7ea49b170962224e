"""Clients that do not read what they asked for: the worker waits for them, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from conductor_cli.server.runs.narration import AnswerText
from conductor_cli.server.runs.run_registry import MAX_UNREAD, ServedRun
from tests.cli.stage import Stage
from tests.server import plain_api
from tests.server.plain_api import Serving, listen_at_small, serving, until
from tests.servers import SeenRequest, Wire, delta, usage

PIECE = "x" * 8000
PIECES = 150
"""1.2 million characters: nearly as long as a reply may be, and far more than is kept for a
client.
"""
WHOLE = len(PIECE) * PIECES


@pytest.fixture(autouse=True)
def _small_buffers(plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_api, "listen_at", listen_at_small)


class LongAnswer:
    """A worker that writes as much as is taken from it."""

    def __init__(self) -> None:
        self.written = 0

    async def __call__(self, _: SeenRequest, wire: Wire) -> None:
        await wire.head()
        while self.written < PIECES and not wire.gone.is_set():
            self.written += 1
            await wire.frames(delta(PIECE))
            await asyncio.sleep(0)
        await wire.frames(delta(finish="stop"), usage(), "[DONE]")


def size_when_still(served: ServedRun) -> int:
    size = 0
    since = time.monotonic()
    while not size or time.monotonic() - since < 0.3:
        if served.size != size:
            size = served.size
            since = time.monotonic()
        time.sleep(0.02)
    return size


def the_run(server: Serving) -> ServedRun:
    going_on: list[ServedRun] = until(lambda: server.registry.going_on)
    return going_on[0]


def ask_and_read_nothing(url: str) -> socket.socket:
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect((urlsplit(url).hostname, urlsplit(url).port))
    body = json.dumps({"question": "Why?", "stream": True}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
        f"{len(body)}\r\n\r\n"
    )
    opened.sendall(head.encode() + body)
    return opened


def test_a_client_that_reads_nothing_makes_the_worker_wait(stage: Stage) -> None:
    stage.models["alpha"] = LongAnswer()
    with serving() as server, ask_and_read_nothing(server.url) as deaf:
        served = the_run(server)
        assert MAX_UNREAD < size_when_still(served) < WHOLE
        deaf.close()
        until(lambda: not served.readers)
        text = "".join(text for kind, text in server.stream() if kind == "text")
    assert text == PIECE * PIECES
    assert len(stage.asked("alpha")) == 1


def test_a_client_that_reads_nothing_stops_no_other_reader_of_its_run(stage: Stage) -> None:
    stage.models["alpha"] = LongAnswer()
    with serving() as server, ask_and_read_nothing(server.url):
        served = the_run(server)
        assert size_when_still(served) < WHOLE
        assert served.task is not None
        reading = _read_all(server, served)
        assert asyncio.run_coroutine_threadsafe(reading, served.task.get_loop()).result(30) == WHOLE
        assert served.ended is not None
        assert len(served.readers) == 1


async def _read_all(server: Serving, served: ServedRun) -> int:
    reader = server.registry.open(served)
    size = 0
    while (pieces := await reader.pieces()) is not None:
        size += sum(len(piece.text) for piece in pieces if isinstance(piece, AnswerText))
    server.registry.close(reader, delivered=True)
    return size
