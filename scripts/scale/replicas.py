"""T7: replicas of `conductor serve` over one PostgreSQL, behind the HAProxy of `deploy/`."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from scripts.scale.stage import CONDUCTOR, ROOT, Figure, Place, none_of, place
from tests.state.cluster import cluster

SETTINGS: Final = "[limits]\ncalls_day = 100000000\n[serve]\nparallel = 128"


def free_port() -> int:
    """Return a port that nobody listens at.

    No outgoing connection is given it while its server restarts.
    """
    while True:
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000))) as free,
        ):
            return int(free.getsockname()[1])


@dataclass
class Replicas:
    """Replicas, each at a port that it keeps over restarts, and what is in front of them."""

    at: Place
    ports: list[int]
    front: int = 0
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    options: Sequence[str] = ("--no-trace",)

    def launch(self, port: int) -> subprocess.Popen[bytes]:
        self.running[port] = self.at.start(
            *CONDUCTOR, "serve", "--port", port, "--quiet", *self.options
        )
        return self.running[port]

    async def start(self, port: int) -> None:
        self.launch(port)
        await self.wait_until_ready(port)

    async def start_all(self) -> None:
        await asyncio.gather(*map(self.start, self.ports))

    async def wait_until_ready(self, port: int, path: str = "/readyz") -> None:
        """Return when the replica says that it is ready, or alive.

        Raises `RuntimeError` where it never does.
        """
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
            for _ in range(2400):
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with client.get(f"http://127.0.0.1:{port}{path}") as answer:
                        if answer.status == 200:
                            return
                if self.running[port].poll() is not None:
                    break
                await asyncio.sleep(0.05)
        raise RuntimeError(
            f"replica {port} is not ready: {(self.at.home / 'log').read_text()[-2000:]}"
        )

    async def end(self, port: int) -> float:
        """End a replica as an orchestrator does; returns the seconds that it took."""
        began = time.monotonic()
        self.running[port].send_signal(signal.SIGTERM)
        await asyncio.to_thread(self.running[port].wait)
        return time.monotonic() - began

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


def request_body(number: int, **fields: Any) -> dict[str, Any]:
    """Return the body of a request that is answered with its number."""
    return {
        "model": "conductor",
        "messages": [{"role": "user", "content": f"number {number}"}],
        **fields,
    }


def restart(*, streams: int, seconds: int, restarts: int = 3) -> Iterator[Figure]:
    """Hold so many streams open while three replicas are restarted in turn, and one is killed.

    Every fourth stream is a background response then, which its client reads on from
    `Last-Event-ID`.
    """
    with cluster() as postgres, place(seconds=seconds) as at:
        at.configure(f'state = "{postgres.new_database()}"', SETTINGS)
        held = Streams(Replicas(at, [free_port() for _ in range(3)], options=()), seconds)
        took = asyncio.run(held.run(streams, restarts))
    yield Figure(f"streams of {seconds} s that were whole", f"{held.whole:,}")
    yield none_of("streams that were cut or refused by the restarts", held.before_the_kill)
    yield Figure(
        "seconds that the end of a replica took", ", ".join(f"{item:.0f}" for item in took)
    )
    most = streams * 2 // 3
    yield Figure(
        "streams that SIGKILL of a replica cut",
        str(len(held.cut)),
        f"its own, 1 to {most}",
        0 < len(held.cut) <= most,
    )
    yield none_of("streams that began after it and were cut or refused", held.later)
    broken = [item for item in held.followed if item]
    yield Figure(
        "responses read on by Last-Event-ID; with a gap or a repeat",
        f"{held.resumed} of {len(held.followed)}; {len(broken)} {broken[:1]}",
        "some; 0",
        held.resumed > 0 and not broken,
    )


@dataclass
class Streams:
    """Streams through the balancer: how many were whole, and what was wrong with others."""

    replicas: Replicas
    seconds: int
    whole: int = 0
    killed: float = float("inf")
    dead: float = float("inf")
    """When the replica was gone and the balancer knew it.

    Until then its socket takes connections, and an idle one of the balancer is still used.
    """
    before_the_kill: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    """What is wrong with each background response, as far as it was read: nothing, mostly."""
    resumed: int = 0
    """How many of them were cut and read on."""

    async def run(self, streams: int, restarts: int) -> list[float]:
        """Returns the seconds that the end of each replica took."""
        await self.replicas.start_all()
        self.replicas.balance()
        over = asyncio.Event()
        limits = aiohttp.ClientTimeout(total=None, sock_read=120)
        async with aiohttp.ClientSession(
            timeout=limits, connector=aiohttp.TCPConnector(limit=0)
        ) as client:

            async def keep_on(number: int) -> None:
                while not over.is_set():
                    began = time.monotonic()
                    if wrong := await self._read(client, number):
                        self._failures_since(began).append(wrong)
                        await asyncio.sleep(0.5)
                    else:
                        self.whole += 1
                    number += streams

            await asyncio.sleep(2)  # the balancer has found the replicas
            async with asyncio.TaskGroup() as work:
                for number in range(streams):
                    work.create_task(keep_on(number))
                took = list[float]()
                for port in self.replicas.ports[:restarts]:
                    await asyncio.sleep(self.seconds / 4)
                    took.append(await self.replicas.end(port))
                    await self.replicas.start(port)
                begun = asyncio.Barrier(streams // 4 + 1)
                for number in range(streams // 4):
                    work.create_task(self._follow(client, number, begun))
                await begun.wait()
                await asyncio.sleep(self.seconds / 2)
                self.killed = time.monotonic()
                replica = self.replicas.running[self.replicas.ports[0]]
                replica.kill()
                await asyncio.to_thread(replica.wait)
                await asyncio.sleep(0.2)
                self.dead = time.monotonic()
                await asyncio.sleep(self.seconds / 2)
                over.set()
        return took

    def _failures_since(self, began: float) -> list[str]:
        """Return the list for what failed just now and began then."""
        if time.monotonic() < self.killed:
            return self.before_the_kill
        return self.cut if began < self.dead else self.later

    async def _read(self, client: aiohttp.ClientSession, number: int) -> str:
        """Read one stream; returns what is wrong with it."""
        url = f"http://127.0.0.1:{self.replicas.front}/v1/chat/completions"
        try:
            async with client.post(url, json=request_body(number, stream=True)) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return type(error).__name__
        frames = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        if answer.status != 200 or frames[-1:] != ["[DONE]"] or '{"error"' in text:
            return f"{answer.status} {text[-200:]!r}"
        content = ""
        for frame in frames[:-1]:
            for choice in json.loads(frame)["choices"]:
                content += choice["delta"].get("content") or ""
        if content.split() == [f"{number}:{second}" for second in range(self.seconds)]:
            return ""
        return f"gap: {content!r}"

    async def _follow(
        self, client: aiohttp.ClientSession, number: int, begun: asyncio.Barrier
    ) -> None:
        """Ask one of the replicas for a background response.

        Where it is cut, it is read on through the balancer.
        """
        first = self.replicas.ports[number % len(self.replicas.ports)]
        front = self.replicas.front
        ids = list[str]()
        events = list[Any]()
        cuts = 0
        body = {
            "model": "conductor",
            "input": f"number {number}",
            "background": True,
            "stream": True,
        }
        async with asyncio.timeout(self.seconds * 4 + 60):
            while not events or events[-1]["type"] != "response.completed":
                cuts += bool(events)
                if ids:
                    url = f"http://127.0.0.1:{front}/v1/responses/{ids[-1].partition(':')[0]}?stream=true"
                    call = client.get(url, headers={"last-event-id": ids[-1]})
                else:
                    call = client.post(f"http://127.0.0.1:{first}/v1/responses", json=body)
                with suppress(aiohttp.ClientError):
                    async with call as answer:
                        async for line in answer.content:
                            if line.startswith(b"id: "):
                                if not ids:
                                    await begun.wait()
                                ids.append(line[4:].decode().strip())
                            elif line.startswith(b"data: "):
                                events.append(json.loads(line[6:]))
                await asyncio.sleep(0.5)
        self.resumed += cuts > 0
        # A heartbeat has the number of the event before it.
        numbers = [
            event["sequence_number"] for event in events if event["type"] != "response.in_progress"
        ]
        text_of_deltas = "".join(
            event["delta"] for event in events if event["type"] == "response.output_text.delta"
        )
        texts = [event["text"] for event in events if event["type"] == "response.output_text.done"]
        is_whole = (
            numbers == sorted(set(numbers))
            and texts == [text_of_deltas]
            and f"{number}:{self.seconds - 1}" in text_of_deltas
        )
        self.followed.append(
            "" if is_whole else f"cut {cuts} times: {numbers}, {text_of_deltas!r}, {texts}"
        )
