"""T2.

Runs in the background, of a plan and five steps, while one of four replicas is killed again and
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import psycopg

from scripts.scale.replicas import SETTINGS, Replicas, free_port
from scripts.scale.stage import Figure, percentile, place
from tests.state.cluster import cluster

REPLICAS: Final = 4
STEPS: Final = 5
EVERY: Final = 2.0  # seconds between two kills
LEASE: Final = 15.0
TOKENS: Final = 18  # what the provider bills for a call
OWNERS: Final = (
    "SELECT run, split_part(owner, '-', 1)::int FROM conductor_leases WHERE job IS NOT NULL"
)
CALLS: Final = (
    "SELECT count(*) FILTER (WHERE owner IS NULL), count(owner),"
    " array_agg(tokens_in + tokens_out) FILTER (WHERE owner IS NULL AND worker = 'alpha'"
    " AND tokens_in + tokens_out <> %s) FROM conductor_calls"
)


@dataclass
class Campaign:
    """What was asked, who was killed when, and how soon another process had each of its runs.

    That is in seconds.
    """

    replicas: Replicas
    url: str
    killed: dict[int, float] = field(default_factory=dict)
    taken: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def ready(self) -> list[int]:
        """The ports of the replicas that were ready when somebody looked last."""
        return [
            port
            for port, process in self.replicas.running.items()
            if process.pid not in self.killed
        ]

    async def kill_on(self) -> None:
        """Kill one replica after the other, and start each again."""
        number = 0
        starting = set[asyncio.Task[None]]()
        while True:
            await asyncio.sleep(EVERY)
            if len(self.ready()) < 2:  # how fast others start says nothing here
                continue
            number += 1
            port = self.ready()[number % len(self.ready())]
            process = self.replicas.running.pop(port)
            process.kill()
            await asyncio.to_thread(process.wait)
            self.killed[process.pid] = time.monotonic()
            task = asyncio.create_task(self._start(port))
            starting.add(task)
            task.add_done_callback(starting.discard)

    async def _start(self, port: int) -> None:
        fresh = Replicas(self.replicas.at, [port], options=())
        await fresh.start(port)
        self.replicas.running |= fresh.running

    async def watch(self) -> None:
        """See which process has which run, and note when that of a killed one has another."""
        before = dict[str, int]()
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            while True:
                rows = await (await connection.execute(OWNERS)).fetchall()
                now = time.monotonic()
                owners = {str(run): int(owner) for run, owner in rows}
                for run, owner in owners.items():
                    if owner != before.get(run, owner) and before[run] in self.killed:
                        self.taken.append(now - self.killed[before[run]])
                before = owners
                await asyncio.sleep(0.1)

    async def ask_on(self, client: aiohttp.ClientSession, first: int, end: float) -> None:
        """Ask question after question in the background, and wait for answers at any replica."""
        number = first
        while time.monotonic() < end:
            body = {"model": "conductor", "input": f"number {number}", "background": True}
            made = await self._request(client, "POST", "/v1/responses", json=body)
            if made is not None and "id" in made:  # else nobody has said that it will be done
                run = str(made["id"])
                self.asked.append(run)
                while made is None or made["status"] in ("queued", "in_progress"):
                    await asyncio.sleep(1.0)
                    made = await self._request(client, "GET", f"/v1/responses/{run}")
                    made = (
                        made
                        if made is None or "status" in made
                        else {"status": "gone", "error": made}
                    )
                if made["status"] != "completed":
                    self.wrong.append(f"{made['status']}: {made['error']}")
            number += 1000

    async def _request(
        self, client: aiohttp.ClientSession, method: str, path: str, **options: Any
    ) -> Any:
        with suppress(aiohttp.ClientError, TimeoutError, IndexError):
            port = self.ready()[hash(path + str(time.monotonic())) % len(self.ready())]
            async with client.request(
                method, f"http://127.0.0.1:{port}{path}", **options
            ) as answer:
                return await answer.json() if answer.status not in (429, 503) else None
        await asyncio.sleep(0.2)
        return None


def run(*, seconds: int, clients: int) -> Iterator[Figure]:
    """Ask for so many seconds, wait for the rest, and compare provider and ledger."""
    with cluster() as postgres, place(seconds=1, steps=STEPS) as at:
        url = postgres.new_database()
        at.configure(f'state = "{url}"', SETTINGS.replace("[limits]", f"[limits]\nsteps = {STEPS}"))
        campaign = Campaign(Replicas(at, [free_port() for _ in range(REPLICAS)], options=()), url)
        counts = asyncio.run(_run(campaign, seconds, clients))
        with psycopg.connect(url) as connection:
            settled, held, others = connection.execute(CALLS, [TOKENS]).fetchone() or (0, 0, None)
    whole = len(campaign.asked) - len(campaign.wrong)
    wrong = f" ({campaign.wrong[0][:90]})" if campaign.wrong else ""
    count = len(campaign.asked)
    yield Figure("runs that were finished", f"{whole} of {count}{wrong}", "all", whole == count > 0)
    yield Figure("replicas that were killed", str(len(campaign.killed)))
    delays = campaign.taken or [0.0]
    measured = (
        f"{len(campaign.taken)} runs, p50 {percentile(delays, 0.5):.1f} s, at most "
        f"{max(delays):.1f} s"
    )
    yield Figure(
        "taken over after the kill", measured, f"<= {LEASE + 2:.0f} s", max(delays) <= LEASE + 2
    )
    repeated = f"{counts['repeated']} of {counts['calls']}, {held} in flight at kills"
    yield Figure(
        "calls of the provider that were repeated",
        repeated,
        "<= in flight",
        counts["repeated"] <= held,
    )
    ledger = (
        f"{settled} settled and {held} held, {counts['calls']} made; other tokens than "
        f"billed: {others}"
    )
    exact = settled <= counts["calls"] <= settled + held and not others
    yield Figure("calls in the ledger", ledger, "settled <= made <= all, tokens as billed", exact)


async def _run(campaign: Campaign, seconds: int, clients: int) -> dict[str, int]:
    replicas = campaign.replicas
    await replicas.start_all()
    limits = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(
        timeout=limits, connector=aiohttp.TCPConnector(limit=0)
    ) as client:
        end = time.monotonic() + seconds
        watching = asyncio.create_task(campaign.watch())
        killing = asyncio.create_task(campaign.kill_on())
        asking = [
            asyncio.create_task(campaign.ask_on(client, number, end)) for number in range(clients)
        ]
        await asyncio.sleep(seconds)
        killing.cancel()
        await asyncio.wait_for(asyncio.gather(*asking), 300)
        watching.cancel()
        async with client.get(f"http://127.0.0.1:{replicas.at.port}/counts") as answer:
            return dict(await answer.json())
