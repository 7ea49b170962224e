"""Requests a second of 1, 2 and 4 replicas with limits on, on the same cores as their clients.

Each is asked for whole answers of a model that answers at once. A replica makes two calls for one, of the planner and
of a worker, under the limits of a day in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiohttp

from scripts.scale.replicas import SETTINGS, Replicas, free_port, request_body
from scripts.scale.stage import Figure, percentile, place
from tests.state.cluster import cluster


def run(*, seconds: int, clients: int) -> Iterator[Figure]:
    """Ask each as fast as it answers, and the first replicas at half of that rate."""
    with place() as at:
        direct = percentile(asyncio.run(_ask([at.port], seconds / 2, 1, model="alpha")), 0.99)
    for count in (1, 2, 4):
        with cluster() as postgres, place() as at:
            at.configure(f'state = "{postgres.new_database()}"', SETTINGS)
            replicas = Replicas(at, [free_port() for _ in range(count)])
            asyncio.run(replicas.start_all())
            name = f"{count} replica{'s' * (count > 1)}, limits on"
            asyncio.run(_ask(replicas.ports, 1, clients))  # what is loaded at the first request
            times = asyncio.run(_ask(replicas.ports, seconds, clients))
            rate = len(times) / seconds
            p50, p99 = (1000 * percentile(times, part) for part in (0.5, 0.99))
            yield Figure(f"{name}, {clients} clients", f"{rate:,.0f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms")
            if count < 4:
                times = asyncio.run(_ask(replicas.ports, seconds, clients, rate / 2))
                added = 1000 * (percentile(times, 0.99) - direct)
                what = f"{name}: p99 added at half of that"
                yield Figure(what, f"{added:.0f} ms", "<= 20 ms", added <= 20, timed=True)


async def _ask(
    ports: list[int], seconds: float, clients: int, rate: float = 0.0, model: str = "conductor"
) -> list[float]:
    """Return how long each answer took; with a `rate`, so many requests a second begin, however long others take."""
    times, refused, began_at, begun = list[float](), list[str](), time.monotonic(), 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def keep_on(number: int) -> None:
            nonlocal begun
            url = f"http://127.0.0.1:{ports[number % len(ports)]}/v1/chat/completions"
            while (began := time.monotonic()) < began_at + seconds:
                if rate:
                    began = began_at + begun / rate
                    begun += 1
                    if began > began_at + seconds:
                        return
                    await asyncio.sleep(max(0.0, began - time.monotonic()))
                async with client.post(url, json=request_body(number) | {"model": model}) as answer:
                    text = await answer.text()
                if answer.status == 200:
                    times.append(time.monotonic() - began)
                else:
                    refused.append(f"{answer.status} {text}")

        await asyncio.gather(*map(keep_on, range(clients)))
    if len(refused) > len(times):
        raise RuntimeError(refused[0])
    return times
