"""What `conductor serve` adds to a worker in mode mini.

To each token, to the first one, and in memory.

The upstream is a process of its own that plans at once and writes 50 tokens a second to each
stream. Each token holds its number and the moment at which it was sent, by the clock that all
processes of a machine share. The client reads all streams at once and checks that every token came,
in order. In the same run it reads the upstream without the server between them, and that time to
the first token is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from figures import Figure, Table, cpu_of, newcomer
from loopback import Asked, choice, ending, listen, server, spelled

RATE: Final = 50  # tokens a second of each stream
# streams at once
FEW = 100
MANY = 500
SECONDS: Final = 6  # how long a stream takes


@dataclass
class Stream:
    """What one stream gave.

    The seconds to its first token, and those of each token from the upstream to here.
    """

    first: float = 0.0
    tokens: list[float] = field(default_factory=list)
    is_whole: bool = False


ABOUT: Final = (
    f"conductor serve, conductor-mini, an instant planner and a worker of {RATE} tokens a second, "
    "each in a process of its own. The first token counts from the request, the others from when "
    "the worker sent them."
)


def measure() -> Table:
    """Return all figures, with one server for each part."""
    with server(__file__) as worker:
        with served(worker) as (url, _):
            asyncio.run(read_all(url, 5, over=0.5))
            alone = asyncio.run(read_all(url, 20, over=10.0))
            few = asyncio.run(read_all(url, FEW, over=SECONDS - 1.0))
            burst = asyncio.run(read_all(url, FEW, over=0.0))
            direct = asyncio.run(
                read_all(worker.removesuffix("/v1"), FEW, over=SECONDS - 1.0, model="alpha")
            )
        with served(worker) as (url, process):
            many = asyncio.run(read_all(url, MANY, over=10.0, seconds=20))
            memory = process.memory_full_info().uss
            cpu = cpu_of(process.pid)
    broken = [stream for stream in (*few, *burst, *many) if not stream.is_whole]
    figures = (
        *_first_token_figures(alone, few, burst, direct),
        Figure(f"a token, {FEW} streams, median", percentile(rests(few), 50), "us", bound=0.005),
        Figure(f"a token, {FEW} streams, 99th", percentile(rests(few), 99), "us"),
        Figure(f"a token, {MANY} streams, median", percentile(rests(many), 50), "ms"),
        Figure("processor time of the server for a token", cpu / len(rests(many)), "us"),
        Figure(f"memory of the server, {MANY} streams", memory, "MB", bound=400 * 2**20),
        Figure("streams with tokens lost or out of order", len(broken), "tokens", bound=0),
    )
    return Table("serve", ABOUT, figures)


def _first_token_figures(
    alone: list[Stream], few: list[Stream], burst: list[Stream], direct: list[Stream]
) -> Iterator[Figure]:
    """Yield when first tokens came, of `direct` without the server."""
    median_direct = percentile(firsts(direct), 50)
    highest_direct = percentile(firsts(direct), 99)
    machine = psutil.getloadavg()[0] / (os.cpu_count() or 1)
    yield Figure("first token, one stream at a time, median", percentile(firsts(alone), 50), "ms")
    yield Figure(
        f"added to the first token, {FEW} streams, median",
        percentile(firsts(few), 50) - median_direct,
        "ms",
        0.01,
        f"{median_direct * 1000:.1f} ms without the server; {machine:.1f} tasks for each core",
    )
    yield Figure(
        f"added to the first token, {FEW} streams, 99th",
        percentile(firsts(few), 99) - highest_direct,
        "ms",
        0.03,
        f"{highest_direct * 1000:.1f} ms without the server",
    )
    yield Figure(
        f"first token, {FEW} requests in one moment, 99th",
        percentile(firsts(burst), 99),
        "ms",
        also="they wait for each other",
    )


def firsts(streams: list[Stream]) -> list[float]:
    """Seconds from each request to its first token."""
    return [stream.first for stream in streams]


def rests(streams: list[Stream]) -> list[float]:
    """Seconds that each later token took from the upstream to here."""
    seconds: list[float] = []
    for stream in streams:
        seconds += stream.tokens[1:]
    return seconds


def percentile(values: list[float], share: float) -> float:
    """The value below which so many percent are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


# The client


async def read_all(
    url: str, count: int, *, over: float, seconds: float = SECONDS, model: str = "conductor-mini"
) -> list[Stream]:
    """So many streams, begun one after the other within `over` seconds, each `seconds` long."""

    async def read_late(number: int) -> Stream:
        await asyncio.sleep(over * number / count)
        return await read(url, f"{number}", int(seconds * RATE), model)

    return await asyncio.gather(*(read_late(number) for number in range(count)))


async def read(url: str, question: str, tokens: int, model: str = "conductor-mini") -> Stream:
    """One stream.

    A client that is slow itself would make the server look slow, so this one only cuts bytes.
    """
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    text = f"Say {tokens} tokens. {question}"
    body = json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    stream = Stream()
    began = time.monotonic()
    writer.write(head.encode() + body)
    expected = 0
    rest = b""
    marker = b'"content":"<'
    while b"data: [DONE]" not in rest:
        received = await reader.read(1 << 16)
        if not received:
            break
        now = time.monotonic()
        *events, rest = (rest + received).split(b"\n\n")
        for event in events:
            at = event.find(marker)
            if at < 0:
                rest = event if b"[DONE]" in event else rest
                continue
            for piece in event[at + len(marker) :].partition(b'"')[0].split(b"<"):
                number, _, sent = piece.rstrip(b"> ").partition(b"@")
                if int(number) != expected:
                    raise AssertionError(f"token {number!r} came in place of {expected}")
                expected += 1
                stream.first = stream.first or now - began
                stream.tokens.append(now - float(sent))
    writer.close()
    stream.is_whole = expected == tokens
    return stream


# The server and its upstream


@contextmanager
def served(worker: str) -> Iterator[tuple[str, psutil.Process]]:
    """A `conductor serve` with a home of its own: its address and its process."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.toml"
        tables = "".join(
            f'[workers.{name}]\nkind = "openai-compatible"\nbase_url = "{worker}"\nmodel = '
            f'"{name}"\n'
            f"parallel = {MANY}\n"
            for name in ("alpha", "beta")
        )
        config.write_text(
            f'[planner]\nmodel = "{worker}#planner"\n[serve]\nparallel = {MANY}\n{tables}',
            encoding="utf-8",
        )
        command = [
            sys.executable,
            "-m",
            "conductor_cli",
            "serve",
            "--port",
            "0",
            "--config",
            str(config),
        ]
        process = subprocess.Popen(command, env=newcomer(home), stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


async def tokens(request: Asked) -> AsyncIterator[bytes]:
    """Answer with a plan of one step, or as many tokens as the last message asks for.

    Those come 50 a second, the first at once.
    """
    if request["model"] == "planner":
        yield spelled("m", choices=[choice({"content": "A"}, None)])
    else:
        began = time.monotonic()
        for number in range(int(str(request["messages"]).rpartition("Say ")[2].partition(" ")[0])):
            if (wait := began + number / RATE - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            token = f"<{number}@{time.monotonic():.6f}>"
            yield spelled("m", choices=[choice({"content": token}, None)])
    for event in ending("m", 9):
        yield event


if __name__ == "__main__":  # the upstream
    asyncio.run(listen(tokens))
