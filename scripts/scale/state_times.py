"""How long the state takes, in files and in PostgreSQL: a hold, its end, a line of a trace, lists of a day.

`python -m scripts.scale.state_times [RUNS]` starts a PostgreSQL server of its own, and fills a day with so many runs.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from conductor_cli.config.files import AppPaths
from conductor_cli.core import events as ev
from conductor_cli.core.ledger import Ledger
from conductor_cli.core.pool import DayLimits, Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Price, Usage
from conductor_cli.state.home import SharedState, State, open_state
from conductor_cli.state.stored_run import RunQuery
from tests.state.cluster import cluster

ROUNDS = 300
PRICE = Price(input=Decimal(1), output=Decimal(1))
ANN = Worker(name="ann", kind="openai", model="m", price=PRICE)
STARTED = ev.RunStarted(
    at=0.0, run="", time="2026-11-20T10:11:12.000+00:00", question=Question(text="How many pears? " * 20),
    pool=Pool(workers=(ANN,)), limits=Limits(), mode="auto", conductor="tiny", profile="prompted",
)  # fmt: skip


def milliseconds(times: list[float]) -> str:
    """The median and the 95th of a hundred."""
    return f"{statistics.median(times) * 1e3:8.3f}  {sorted(times)[int(len(times) * 0.95)] * 1e3:8.3f}"


async def spending_times(state: State) -> dict[str, list[float]]:
    """Holds under limits and their ends, one after the other."""
    spend, ledger = state.spending(DayLimits(cost=Decimal(1000))), Ledger(Limits())
    holds, ends = list[float](), list[float]()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        room = await spend.reserve(lambda today: ledger.reserve(9, 9, PRICE, today=today), ledger.release, ANN)
        held = time.perf_counter()
        assert room is not None
        ledger.settle(room, Usage(calls=1))
        spend.settle(room, Usage(tokens_in=9, calls=1, cost=Decimal("0.001")))
        holds.append(held - began)
        ends.append(time.perf_counter() - held)
    spend.close()
    return {"hold a call, with the end of the last": holds, "settle it: the caller waits": ends}


async def trace_times(state: State) -> dict[str, list[float]]:
    """One run with many events, each awaited as a server does."""
    writer, found = state.traces.open("20261120-101112-abcdef"), list[float]()
    for number in range(ROUNDS):
        event = STARTED if number == 0 else ev.Notice(at=float(number), text=f"notice {number}")
        began = time.perf_counter()
        if (writing := writer.write(event)) is not None:
            await writing
        found.append(time.perf_counter() - began)
    began = time.perf_counter()
    await asyncio.to_thread(writer.close)
    return {"append a line of a trace": found[1:], "end a trace": [time.perf_counter() - began]}


def list_times(state: State) -> dict[str, list[float]]:
    """Lists of a day, of which each run has been listed before."""
    found = dict[str, list[float]]()
    for name, query in (
        ("list 100 runs", RunQuery()), ("search, one run in a thousand", RunQuery(terms=("zeppelin",))),
    ):  # fmt: skip
        state.traces.newest(query, 100)
        for _ in range(20):
            began = time.perf_counter()
            state.traces.newest(query, 100)
            found.setdefault(name, []).append(time.perf_counter() - began)
    return found


def fill(state: State, runs: int) -> None:
    """Runs of one day, every thousandth with a rare word."""
    for number in range(runs):
        run = f"20261121-{number // 3600 % 24:02}{number // 60 % 60:02}{number % 60:02}-{number:06x}"
        writer = state.traces.open(run)
        writer.write(STARTED)
        word = "zeppelin" if number % 1000 == 0 else "pears"
        writer.write(ev.RunFinished(at=1.0, answer=f"{number} {word} " * 30, usage=Usage(calls=2)))
        writer.close()


def fill_database(state: SharedState, runs: int) -> None:
    """The same by copies of one run, ten lines each."""
    fill(state, 1)
    state.database.call(
        "INSERT INTO conductor_runs SELECT day, '20261121-' || lpad((n / 100)::text, 6, '0') || '-' || n, written + n,"
        " size, state, time, workers, cost, unpriced, tokens, seconds, resumed, conductor, problem, recovered,"
        " question, subtasks, answers, origin,"
        " CASE mod(n, 1000) WHEN 0 THEN words ELSE replace(words, 'zeppelin', 'pears') END"
        " FROM conductor_runs, generate_series(1, %s) n",
        runs - 1,
    )
    state.database.call(
        "INSERT INTO conductor_lines SELECT r.day, r.run, n, l.lines FROM conductor_runs r, generate_series(1, 10) n,"
        " (SELECT lines FROM conductor_lines LIMIT 1) l WHERE r.run <> '20261121-000000-000000'"
    )
    state.database.call("ANALYZE")


def main() -> None:
    """Print a table for each kind of state."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with cluster() as server, tempfile.TemporaryDirectory() as name:
        for kind, url in (("files", ""), ("PostgreSQL", server.new_database())):
            place = Path(name) / kind
            state = open_state(AppPaths(config=place, state=place, data=place, cache=place, database=url))
            times = asyncio.run(spending_times(state)) | asyncio.run(trace_times(state))
            if isinstance(state, SharedState):
                fill_database(state, runs)
            else:
                fill(state, min(runs, 2000))
            times |= list_times(state)
            if isinstance(state, SharedState):
                began = time.perf_counter()
                state.traces.prune(state.traces.runs())
                times["prune that day whole"] = [time.perf_counter() - began]
            print(f"\n{kind}: milliseconds, median and p95")
            for what, found in times.items():
                print(f"  {what:38} {milliseconds(found)}")


if __name__ == "__main__":
    main()
