"""T7 and the throughput: replicas of `conductor serve` over one PostgreSQL, behind the HAProxy of `deploy/`."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from scripts.scale.stage import CONDUCTOR, ROOT, Figure, Place, percentile, place
from tests.state.cluster import cluster

SETTINGS: Final = "[limits]\ncalls_day = 100000000\n[serve]\nparallel = 128"


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Replicas:
    """So many replicas, each at a port that it keeps over restarts, and what is in front of them."""

    at: Place
    ports: list[int]
    front: int = 0
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    options: tuple[str, ...] = ("--no-trace",)

    async def start(self, port: int) -> None:
        """Start the replica at a port, and wait until it is ready."""
        self.running[port] = self.at.start(*CONDUCTOR, "serve", "--port", port, "--quiet", *self.options)
        async with aiohttp.ClientSession() as client:
            async with asyncio.timeout(120):
                while True:
                    try:
                        async with client.get(f"http://127.0.0.1:{port}/readyz") as answer:
                            if answer.status == 200:
                                return
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(0.1)

    async def restart(self, port: int) -> float:
        """End a replica as an orchestrator does, and start it again; returns the seconds that its end took."""
        process, began = self.running[port], time.monotonic()
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)
        seconds = time.monotonic() - began
        await self.start(port)
        return seconds

    def balance(self) -> None:
        """Put HAProxy in front, with the settings of `deploy/` at ports of this machine."""
        self.front = free_port()
        text = (ROOT / "deploy/haproxy.cfg").read_text()
        text = text.replace("bind :8080", f"bind 127.0.0.1:{self.front}").replace(
            "bind :8404", f"bind 127.0.0.1:{free_port()}"
        )
        for number, port in enumerate(self.ports, start=1):
            text = text.replace(f"serve-{number}:8080", f"127.0.0.1:{port}")
        text = re.sub(r".*serve-\d:8080.*\n", "", text)
        file = self.at.home / "haproxy.cfg"
        file.write_text(text)
        program = shutil.which("haproxy", path="/usr/sbin:/usr/bin") or "haproxy"
        self.at.start(program, "-f", file, log="haproxy")


def _body(number: int, **more: Any) -> dict[str, Any]:
    return {"model": "conductor", "messages": [{"role": "user", "content": f"number {number}"}], **more}


def restart(*, streams: int, seconds: int) -> Iterator[Figure]:
    """Hold so many streams open at once while three replicas are restarted one after the other."""
    with cluster() as postgres, place(seconds=seconds) as at:
        at.configure(f'state = "{postgres.new_database()}"', SETTINGS)
        replicas = Replicas(at, [free_port() for _ in range(3)])
        ended, cut, took = asyncio.run(_restart(replicas, streams, seconds))
    yield Figure(f"streams of {seconds} s that were whole", f"{ended:,}", "", None)
    yield Figure("streams that were cut or refused", f"{len(cut)} {cut[0] if cut else ''}", "0", not cut)
    yield Figure("seconds that the end of a replica took", ", ".join(f"{each:.0f}" for each in took), "", None)


async def _restart(replicas: Replicas, streams: int, seconds: int) -> tuple[int, list[str], list[float]]:
    await asyncio.gather(*map(replicas.start, replicas.ports))
    replicas.balance()
    over, ended, cut = asyncio.Event(), 0, list[str]()
    limits = aiohttp.ClientTimeout(total=None, sock_read=120)
    async with aiohttp.ClientSession(timeout=limits, connector=aiohttp.TCPConnector(limit=0)) as client:

        async def stream(number: int) -> str:
            """Read one stream; returns what is wrong with it."""
            url = f"http://127.0.0.1:{replicas.front}/v1/chat/completions"
            try:
                async with client.post(url, json=_body(number, stream=True)) as answer:
                    text = await answer.text()
            except (aiohttp.ClientError, TimeoutError) as error:
                return type(error).__name__
            frames = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            if answer.status != 200 or frames[-1:] != ["[DONE]"] or '{"error"' in text:
                return f"{answer.status} {text[-200:]!r}"
            said = "".join(
                (choice["delta"].get("content") or "")
                for frame in frames[:-1]
                for choice in json.loads(frame)["choices"]
            )
            return "" if said.split() == [f"{number}:{second}" for second in range(seconds)] else f"gap: {said!r}"

        async def keep_on(first: int) -> None:
            nonlocal ended
            number = first
            while not over.is_set():
                wrong = await stream(number)
                ended += not wrong
                cut.extend([wrong] if wrong else [])
                number += streams

        await asyncio.sleep(2)  # the balancer has found the replicas
        work = [asyncio.create_task(keep_on(number)) for number in range(streams)]
        await asyncio.sleep(seconds / 2)
        took = [await replicas.restart(port) for port in replicas.ports]
        over.set()
        await asyncio.gather(*work)
    return ended, cut, took


def throughput(*, seconds: int, clients: int) -> Iterator[Figure]:
    """Answer whole requests by 1, 2 and 4 replicas with a limit of the day on, each in turn asked directly."""
    for count in (1, 2, 4):
        with ExitStack() as stack:
            postgres, at = stack.enter_context(cluster()), stack.enter_context(place())
            at.configure(f'state = "{postgres.new_database()}"', SETTINGS)
            replicas = Replicas(at, [free_port() for _ in range(count)])
            times = asyncio.run(_load(replicas, seconds, clients))
            p50, p99 = (1000 * percentile(times, part) for part in (0.5, 0.99))
            measured = f"{len(times) / seconds:,.0f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        yield Figure(f"{count} replicas, {clients} clients, limits on", measured)


async def _load(replicas: Replicas, seconds: int, clients: int) -> list[float]:
    await asyncio.gather(*map(replicas.start, replicas.ports))
    times = list[float]()
    end = time.monotonic() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def keep_on(number: int) -> None:
            url = f"http://127.0.0.1:{replicas.ports[number % len(replicas.ports)]}/v1/chat/completions"
            while time.monotonic() < end:
                began = time.monotonic()
                async with client.post(url, json=_body(number)) as answer:
                    if answer.status != 200:
                        raise RuntimeError(await answer.text())
                    await answer.read()
                times.append(time.monotonic() - began)

        await asyncio.gather(*map(keep_on, range(clients)))
    return times
