"""`serve --processes 2` beside two servers that share nothing.

On few cores whoever asks needs some of them, too, so two processes never answer twice as many
requests as one that has a core for itself. Two servers with a home and a provider each have the
same cores and the same clients: what the processes lose beside them is what they share.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from scripts.scale.replicas import Replicas, free_port
from scripts.scale.stage import Figure, place
from scripts.scale.throughput import Target, ask_target

COUNT: Final = 2
LEAST_SHARE: Final = 0.85
SETTINGS: Final = "[limits]\ncalls_day = 100000000\n[serve]\nparallel = 64"


class Turn(NamedTuple):
    """Requests a second, and milliseconds of a processor for each, of the servers alone."""

    per_second: float
    cost: float


def run(*, rounds: int, seconds: int, clients: int) -> Iterator[Figure]:
    """Ask both in turns, and compare them turn by turn."""
    rates = list[float]()
    costs = list[float]()
    with ExitStack() as stack:
        together = stack.enter_context(_servers(1, "--processes", str(COUNT)))
        apart = stack.enter_context(_servers(COUNT))
        for target in (together, apart):
            _take_turn(target, 2, clients)  # what is loaded at the first request
        for number in range(rounds):
            targets = [together, apart]
            if number % 2:
                targets.reverse()
            turns = {id(target): _take_turn(target, seconds, clients) for target in targets}
            ours = turns[id(together)]
            theirs = turns[id(apart)]
            rates.append(ours.per_second / theirs.per_second)
            costs.append(theirs.cost / ours.cost)
            yield Figure(
                f"turn {number + 1}: {COUNT} processes, and {COUNT} servers",
                f"{ours.per_second:.0f}/s, {ours.cost:.2f} ms of a processor; "
                f"{theirs.per_second:.0f}/s, {theirs.cost:.2f} ms",
            )
    for title, shares in (
        ("requests for the same processor time", costs),
        ("requests a second", rates),
    ):
        median = statistics.median(shares)
        yield Figure(
            f"{COUNT} processes beside {COUNT} servers: {title}",
            f"{median:.2f} ({min(shares):.2f} to {max(shares):.2f})",
            f">= {LEAST_SHARE}",
            median >= LEAST_SHARE,
            timed=True,
        )


@contextmanager
def _servers(count: int, *options: str) -> Iterator[Target]:
    """So many servers over files, each with a home and a provider of its own."""
    with ExitStack() as stack:
        urls: list[str] = []
        processes: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            at = stack.enter_context(place())
            at.configure("", SETTINGS)
            replicas = Replicas(at, [free_port()], options=options)
            asyncio.run(replicas.start_all())
            urls += [f"http://127.0.0.1:{port}" for port in replicas.ports]
            processes += replicas.running.values()
        yield Target(urls, processes=tuple(processes))


def _take_turn(target: Target, seconds: float, clients: int) -> Turn:
    before = target.processor_seconds
    times = asyncio.run(ask_target(target, seconds, clients))
    spent = target.processor_seconds - before
    return Turn(len(times) / seconds, 1000 * spent / len(times))
