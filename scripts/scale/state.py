"""T1 and T4.

Eight processes on an empty database take the limit of a day, directly and through PgBouncer.
"""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, Final

import psycopg

from conductor_cli.core.errors import LimitReached, StateUnavailable
from conductor_cli.core.ledger import Ledger
from conductor_cli.core.pool import DayLimits, Limits
from conductor_cli.core.usage import Price, Usage
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.spending import SharedSpend
from scripts.scale.stage import ROOT, Figure, at_most, none_of, percentile
from tests.state.cluster import Cluster, bouncer, cluster

PROCESSES: Final = 8
CALLS: Final = 25  # of each process, all in flight at once
ADMITTED: Final = 100
LIMIT: Final = 10**9  # billionths of a dollar
CENT: Final = Usage(tokens_out=1, calls=1, cost=Decimal("0.01"))


def run(*, rounds: int) -> Iterator[Figure]:
    """Have a new database in each round, which one of the processes makes tables in."""
    with cluster() as postgres, ExitStack() as stack:
        words = [sys.executable, "-m", "scripts.scale.state"]
        pipe = subprocess.PIPE
        processes = [
            stack.enter_context(
                subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
            )
            for _ in range(PROCESSES)
        ]
        yield from _rounds("directly", postgres, postgres.port, rounds, processes)
        with bouncer(postgres) as port:
            yield from _rounds("through PgBouncer", postgres, port, (rounds + 1) // 2, processes)


def _rounds(
    how: str, postgres: Cluster, port: int, rounds: int, processes: list[subprocess.Popen[str]]
) -> Iterator[Figure]:
    wrong = 0
    failed = list[str]()
    migrated = 0
    highest = 0
    connections = 0
    holds = list[float]()
    for _ in range(rounds):
        url = postgres.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            while _connections(connection) > 1:  # the last ones of the round before
                time.sleep(0.05)
            for process in processes:
                assert process.stdin is not None
                print(
                    url.replace(f":{postgres.port}/", f":{port}/"), file=process.stdin, flush=True
                )
            done = list[dict[str, Any]]()
            while len(done) < PROCESSES:
                for process in processes[len(done) :]:
                    assert process.stdout is not None
                    if not select.select([process.stdout], [], [], 0)[0]:
                        break
                    if not (line := process.stdout.readline()):
                        raise RuntimeError("a process has ended")
                    done.append(json.loads(line))
                if connection.execute("SELECT to_regclass('conductor_totals')").fetchone() != (
                    None,
                ):
                    row = connection.execute(
                        "SELECT sum(cost + held_cost) FROM conductor_totals"
                    ).fetchone()
                    highest = max(highest, int((row and row[0]) or 0))
                connections = max(connections, _connections(connection))
                time.sleep(0.01)
        wrong += sum(result["admitted"] for result in done) != ADMITTED
        migrated += sum(result["migrated"] for result in done) == 1
        failed += [result["failed"] for result in done if result["failed"]]
        holds += [result["held"] for result in done]
    yield Figure(
        f"{how}: exactly {ADMITTED} of 200 calls admitted",
        f"{rounds - wrong} of {rounds} rounds",
        "all",
        not wrong,
    )
    yield Figure(
        f"{how}: rounds in which one migrated", f"{migrated} of {rounds}", "all", migrated == rounds
    )
    yield none_of(f"{how}: failures", failed)
    yield at_most(f"{how}: the most that was spent and held at once", highest / LIMIT, 1, "${:.2f}")
    yield at_most(f"{how}: connections to PostgreSQL at once", connections, 99, "{}")
    yield Figure(
        f"{how}: a hold, of 200 at once, at the median", f"{1000 * percentile(holds, 0.5):.0f} ms"
    )


def _connections(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    ).fetchone()
    return int(row[0]) if row else 0


async def _take_all(url: str) -> dict[str, Any]:
    """Make the calls of one process; returns how many were admitted, and what went wrong."""
    database = Database(url)
    price = Price(input=Decimal(0), output=Decimal(10_000))
    spend = SharedSpend(database, DayLimits(cost=Decimal(1)))
    held = list[float]()
    failed = list[str]()

    async def call() -> bool:
        ledger = Ledger(Limits())
        began = time.monotonic()
        try:
            room = await spend.reserve(
                lambda today: ledger.reserve(0, 1, price, today=today), ledger.release
            )
        except StateUnavailable as error:
            failed.append(error.message)
            return False
        except LimitReached:
            return False
        assert room is not None
        held.append(time.monotonic() - began)
        await asyncio.sleep(0)
        spend.settle(room, CENT)
        return True

    migrated = await asyncio.to_thread(database.migrate) == 0
    admitted = sum(await asyncio.gather(*(call() for _ in range(CALLS))))
    # Else one of its threads opens another connection
    await asyncio.to_thread(database._threads.shutdown)  # noqa: SLF001
    spend.close()
    database.close()
    middle = percentile(held, 0.5) if held else 0.0
    return {"admitted": admitted, "migrated": migrated, "failed": "; ".join(failed), "held": middle}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_take_all(line.strip()))), flush=True)
