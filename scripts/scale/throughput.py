"""Requests a second of 1, 2 and 4 replicas with limits on, and of other gateways.

All run on the same cores. The others are found below `build/rivals`, and are left out where they
are not installed:

    python -m venv build/rivals/litellm && build/rivals/litellm/bin/pip install 'litellm[proxy]'
    npm install --prefix build/rivals @portkey-ai/gateway

Each is asked for whole answers of a model that answers at once. A replica makes one call, as
litellm's proxy does, or two, of the planner and of a worker, under the limits of a day in
PostgreSQL. litellm's proxy has two processes, a key, and the budget of a provider in memory: its
database needs a program of Prisma that is no package. On a busy machine the processor time says
more than the rate.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import psutil

from scripts.scale.replicas import SETTINGS, Replicas, free_port, request_body
from scripts.scale.stage import ROOT, Figure, Place, at_most, percentile, place
from tests.state.cluster import cluster

RIVALS: Final = ROOT / "build/rivals"
BUDGET: Final = """\
model_list:
  - {{model_name: conductor, litellm_params: {{model: openai/alpha, api_base: "{url}", api_key: \
none}}}}
general_settings: {{master_key: sk-scale}}
litellm_settings: {{telemetry: false}}
router_settings:
  provider_budget_config: {{openai: {{budget_limit: 1000000, time_period: 1d}}}}
"""


@dataclass
class Target:
    """Who is asked: its addresses, and the headers that it wants."""

    urls: list[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = "conductor"
    processes: Sequence[subprocess.Popen[bytes]] = ()

    @property
    def processor_seconds(self) -> float:
        """What its processes and their children have taken so far."""
        seconds = 0.0
        for process in self.processes:
            parent = psutil.Process(process.pid)
            for member in (parent, *parent.children(recursive=True)):
                seconds += sum(member.cpu_times()[:2])
        return seconds


class Rate(NamedTuple):
    """Requests a second, and the milliseconds of a processor that each took of who was asked."""

    per_second: float
    cost: float


def run(*, seconds: int, clients: int) -> Iterator[Figure]:
    """Ask each as fast as it answers, and the first replica at half of that rate."""
    rates = dict[str, Rate]()
    with place() as at:
        double = Target([f"http://127.0.0.1:{at.port}"], model="alpha")
        direct = percentile(asyncio.run(ask_target(double, seconds / 2, 1)), 0.99)
    for count in (1, 2, 4):
        with _replicas(count) as target:
            name = f"{count} replica{'s' * (count > 1)}, limits on"
            yield from _measure(name, target, seconds, clients, rates)
            if count < 4:
                rate = rates[name].per_second / 2
                times = asyncio.run(ask_target(target, seconds, clients, rate))
                added = 1000 * (percentile(times, 0.99) - direct)
                yield at_most(
                    f"{name}: p99 added at half of that", added, 20, "{:.0f} ms", timed=True
                )
    with _replicas(2, plans=True) as target:
        yield from _measure("2 replicas that plan, limits on", target, seconds, clients, rates)
    for name, start in (("litellm", _litellm), ("Portkey", _portkey)):
        with place() as at, start(at) as rival:
            if rival is None:
                yield Figure(f"{name}'s gateway", "is not installed")
                continue
            yield from _measure(f"{name}'s gateway", rival, seconds, clients, rates)
        if name == "litellm":
            yield from _compare(rates["2 replicas, limits on"], rates["litellm's gateway"])


def _compare(ours: Rate, theirs: Rate) -> Iterator[Figure]:
    """How much more two replicas do than two processes of another gateway."""
    for measure, times in (
        ("requests a second", ours.per_second / theirs.per_second),
        ("requests for the same processor time", theirs.cost / ours.cost),
    ):
        yield Figure(
            f"2 replicas beside 2 processes of litellm: {measure}",
            f"{times:.1f} times",
            ">= 4",
            times >= 4,
            timed=True,
        )


@contextmanager
def _replicas(count: int, *, plans: bool = False) -> Iterator[Target]:
    """Replicas over a new database, which ask a planner first where `plans`."""
    with cluster() as postgres, place() as at:
        at.configure(f'state = "{postgres.new_database()}"', SETTINGS)
        options = ("--no-trace", *at.planned) if plans else ("--no-trace",)
        replicas = Replicas(at, [free_port() for _ in range(count)], options=options)
        asyncio.run(replicas.start_all())
        urls = [f"http://127.0.0.1:{port}" for port in replicas.ports]
        yield Target(urls, processes=tuple(replicas.running.values()))


def _measure(
    name: str, target: Target, seconds: float, clients: int, rates: dict[str, Rate]
) -> Iterator[Figure]:
    asyncio.run(ask_target(target, 1, clients))  # what is loaded at the first request
    before = target.processor_seconds
    times = asyncio.run(ask_target(target, seconds, clients))
    cost = 1000 * (target.processor_seconds - before) / len(times)
    rate = Rate(len(times) / seconds, cost)
    rates[name] = rate
    p50, p99 = (1000 * percentile(times, part) for part in (0.5, 0.99))
    measured = f"{rate.per_second:,.0f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    yield Figure(f"{name}, {clients} clients", measured)
    yield Figure(f"{name}: processor time of a request", f"{cost:.1f} ms")


async def ask_target(
    target: Target, seconds: float, clients: int, rate: float = 0.0
) -> list[float]:
    """Return how long each answer took.

    With a `rate`, so many requests a second begin, however long others take.
    """
    times = list[float]()
    refused = list[str]()
    began_at = time.monotonic()
    begun = 0
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=target.headers
    ) as client:

        async def keep_on(number: int) -> None:
            nonlocal begun
            url = f"{target.urls[number % len(target.urls)]}/v1/chat/completions"
            while (began := time.monotonic()) < began_at + seconds:
                if rate:
                    began = began_at + begun / rate
                    begun += 1
                    if began > began_at + seconds:
                        return
                    await asyncio.sleep(max(0.0, began - time.monotonic()))
                async with client.post(
                    url, json=request_body(number) | {"model": target.model}
                ) as answer:
                    text = await answer.text()
                if answer.status == 200:
                    times.append(time.monotonic() - began)
                else:
                    refused.append(f"{answer.status} {text}")

        await asyncio.gather(*map(keep_on, range(clients)))
    if len(refused) > len(times):
        raise RuntimeError(refused[0])
    return times


@contextmanager
def _litellm(at: Place) -> Iterator[Target | None]:
    program = RIVALS / "litellm/bin/litellm"
    port = free_port()
    if not program.exists():
        yield None
        return
    file = at.home / "litellm.yaml"
    file.write_text(BUDGET.format(url=f"http://127.0.0.1:{at.port}/v1"))
    process = at.start(
        program,
        "--config",
        file,
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--num_workers",
        2,
        log="litellm",
    )
    headers = {"authorization": "Bearer sk-scale"}
    asyncio.run(_wait_for(f"http://127.0.0.1:{port}/health/liveliness", at.home / "litellm"))
    yield Target([f"http://127.0.0.1:{port}"], headers, processes=(process,))


@contextmanager
def _portkey(at: Place) -> Iterator[Target | None]:
    program = RIVALS / "node_modules/@portkey-ai/gateway/build/start-server.js"
    port = free_port()
    if not program.exists():
        yield None
        return
    process = at.start("node", program, "--headless", f"--port={port}", log="portkey")
    asyncio.run(_wait_for(f"http://127.0.0.1:{port}/", at.home / "portkey"))
    headers = {
        "authorization": "Bearer none",
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{at.port}/v1",
    }
    yield Target([f"http://127.0.0.1:{port}"], headers, model="alpha", processes=(process,))


async def _wait_for(url: str, log: Path) -> None:
    """Return when somebody answers. Raises `RuntimeError` after two minutes."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as client:
        for _ in range(600):
            with suppress(aiohttp.ClientError, TimeoutError):
                async with client.get(url):
                    return
            await asyncio.sleep(0.2)
    raise RuntimeError(f"{url} does not answer; {log} says why")
