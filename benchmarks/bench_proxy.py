"""`conductor serve` beside litellm's own proxy on the same upstream, one process each: requests, processor, memory.

`python benchmarks/bench_proxy.py LITELLM` runs it, where LITELLM is the program of an environment that has
`litellm[proxy]`. It is no part of `run.py`, since nothing here may need that package.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil
from bench_serve import read, read_all, served, upstream
from figures import Figure, Table, show

CONNECTIONS: Final = 16
SECONDS: Final = 10.0  # how long requests are sent, one after the other on each connection
STREAMS: Final = 40  # streams at once, of 50 tokens a second each, while the processor time of a token is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One server: requests a second, processor seconds for a token, and bytes of memory."""

    requests: float
    processor: float
    memory: float


def measure(program: str) -> Table:
    """Both servers, one after the other."""
    with upstream() as worker:
        with served(worker) as (url, process):
            ours = measure_one(url, process, "conductor-mini")
        with litellm_proxy(program, worker) as (url, process):
            theirs = measure_one(url, process, "alpha")
    about = (
        f"conductor serve, which plans each request first, beside litellm's proxy, which does not: {CONNECTIONS} "
        f"connections that ask for one token, and {STREAMS} streams of 50 tokens a second."
    )
    return Table("proxy", about, (
        Figure(
            "requests a second, of litellm's", ours.requests / theirs.requests, "ratio", bound=3,
            least=True, also=f"{ours.requests:.0f} and {theirs.requests:.0f}",
        ),
        Figure(
            "processor time of a token, of litellm's", ours.processor / theirs.processor, "ratio",
            bound=1 / 3, also=f"{ours.processor * 1e6:.0f} and {theirs.processor * 1e6:.0f} µs",
        ),
        Figure(
            "memory, of litellm's", ours.memory / theirs.memory, "ratio", bound=0.5,
            also=f"{ours.memory / 2**20:.0f} and {theirs.memory / 2**20:.0f} MB",
        ),
    ))  # fmt: skip


def measure_one(url: str, process: psutil.Process, model: str) -> Measured:
    """One server that is up."""
    asyncio.run(read_all(url, CONNECTIONS, over=1.0, seconds=1, model=model))  # everything is loaded
    requests = asyncio.run(count_requests(url, model)) / SECONDS
    before = sum(process.cpu_times()[:2])
    streams = asyncio.run(read_all(url, STREAMS, over=2.0, seconds=8, model=model))
    used = sum(process.cpu_times()[:2]) - before
    assert all(stream.is_whole for stream in streams)
    tokens = sum(len(stream.tokens) for stream in streams)
    return Measured(requests=requests, processor=used / tokens, memory=process.memory_full_info().uss)


async def count_requests(url: str, model: str) -> int:
    """How many answers came in `SECONDS`."""
    end = time.monotonic() + SECONDS

    async def one(number: int) -> int:
        count = 0
        while time.monotonic() < end:
            stream = await read(url, f"{number} {count}", 1, model)
            assert stream.is_whole
            count += 1
        return count

    return sum(await asyncio.gather(*map(one, range(CONNECTIONS))))


@contextmanager
def litellm_proxy(program: str, worker: str) -> Iterator[tuple[str, psutil.Process]]:
    """The proxy of litellm with one model: its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    parameters = {"model": "openai/alpha", "api_base": worker, "api_key": "none"}
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.yaml"
        config.write_text(json.dumps({"model_list": [{"model_name": "alpha", "litellm_params": parameters}]}))
        command = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
        environ = {**os.environ, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_up(url)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def wait_until_up(url: str) -> None:
    """Wait until the proxy answers. Raises `TimeoutError`."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            httpx.get(f"{url}/health/liveliness", timeout=2)
        except httpx.HTTPError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError("litellm's proxy does not answer")


if __name__ == "__main__":
    show(measure(sys.argv[1]))
