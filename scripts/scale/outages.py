"""T3.

PostgreSQL is stopped again and again, and once for minutes, while clients ask two replicas.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import psycopg

from scripts.scale.replicas import SETTINGS, Replicas, free_port, request_body
from scripts.scale.stage import CONDUCTOR, Figure, at_most, none_of, place
from tests.state.cluster import Cluster, cluster

CLIENTS: Final = 16
RETURN: Final = 5.0  # seconds after which a replica is ready again


@dataclass
class Seen:
    """What the clients and the probes got."""

    answered: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)


def run(*, stops: int, outage: int) -> Iterator[Figure]:
    """Stop the database at once `stops` times, and once for `outage` seconds.

    Another replica starts within these.
    """
    with cluster() as postgres, place() as at:
        url = postgres.new_database()
        at.configure(f'state = "{url}"', SETTINGS)
        words = [*CONDUCTOR, "serve", "keys", "add", "app"]
        added = subprocess.run(words, env=at.environ, capture_output=True, text=True, check=True)
        replicas = Replicas(at, [free_port() for _ in range(3)], options=())
        record = Seen()
        asyncio.run(_run(replicas, postgres, record, stops, outage, added.stdout.split()[-1]))
        counts = at.counts()
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT count(*) FROM conductor_calls").fetchone() or (0,)
            settled = connection.execute(
                "SELECT count(*) FROM conductor_calls WHERE owner IS NULL AND worker = 'alpha' "
                "AND "
                "worker_call = 1"
            ).fetchone() or (0,)
            whole = {
                run
                for (run,) in connection.execute(
                    "SELECT run FROM conductor_runs WHERE state = 'finished'"
                )
            }
    calls = counts["calls"] + counts["planned"]
    statuses = ", ".join(
        f"{status}: {number:,}" for status, number in sorted(record.statuses.items())
    )
    yield Figure("requests by status", statuses, "no 401", "401" not in record.statuses)
    yield none_of("what was neither an answer nor 503 with Retry-After", record.wrong)
    yield Figure(
        "calls that models got, and rows of calls",
        f"{calls:,}, {rows[0]:,}",
        "no call without a row",
        calls <= rows[0],
    )
    yield Figure(
        "answers, and calls of workers that are settled",
        f"{len(record.answered):,}, {settled[0]:,}",
        "no answer without one",
        len(record.answered) <= settled[0],
    )
    yield none_of("answers whose run is not stored whole", sorted(set(record.answered) - whole))
    yield at_most(
        f"most seconds until ready after {len(record.returns)} returns",
        max(record.returns),
        RETURN,
        timed=True,
    )


async def _run(
    replicas: Replicas, postgres: Cluster, record: Seen, stops: int, outage: int, key: str
) -> None:
    *first, late = replicas.ports
    await asyncio.gather(*map(replicas.start, first))
    over = asyncio.Event()
    limits = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        timeout=limits, headers={"authorization": f"Bearer {key}"}
    ) as client:
        clients = [
            asyncio.create_task(_ask(client, first, record, over, number))
            for number in range(CLIENTS)
        ]
        for seconds in [random.uniform(0.2, 1.0) for _ in range(stops)] + [float(outage)]:
            await asyncio.sleep(random.uniform(0.3, 1.0))
            await asyncio.to_thread(postgres.control, "stop", "--mode", "immediate")
            ports = first
            if seconds == outage:
                ports = replicas.ports
                replicas.launch(late)
            await asyncio.sleep(seconds)
            if seconds == outage:
                for port in ports:
                    await replicas.wait_until_ready(port, "/livez")
            await asyncio.to_thread(postgres.control, "start")
            began = time.monotonic()
            await asyncio.gather(*map(replicas.wait_until_ready, ports))
            record.returns.append(time.monotonic() - began)
        await asyncio.sleep(1)
        over.set()
        await asyncio.gather(*clients)
    await asyncio.gather(*map(replicas.end, replicas.ports))


async def _ask(
    client: aiohttp.ClientSession, ports: list[int], record: Seen, over: asyncio.Event, number: int
) -> None:
    while not over.is_set():
        url = f"http://127.0.0.1:{ports[number % len(ports)]}/v1/chat/completions"
        try:
            async with client.post(url, json=request_body(number)) as answer:
                reply = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            record.wrong.append(type(error).__name__)
            continue
        record.statuses[str(answer.status)] += 1
        if answer.status == 200:
            record.answered.append(reply["id"].removeprefix("chatcmpl-"))
        else:
            if answer.status != 503 or "retry-after" not in answer.headers:
                record.wrong.append(f"{answer.status} {reply}")
            await asyncio.sleep(0.2)
        number += CLIENTS
