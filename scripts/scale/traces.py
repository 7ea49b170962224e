"""T8: many rows of traces: what lists, searches, new lines and the end of a day take then."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sized
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from conductor_cli.config.files import AppPaths
from conductor_cli.core import events as ev
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.state.opening import open_state
from conductor_cli.state.postgres.records import SharedState
from conductor_cli.state.stored_run import RunQuery
from scripts.scale.stage import Figure, at_most, percentile
from tests.state.cluster import Cluster, cluster

DAYS: Final = 10
LINES: Final = 10  # rows of a run, beside its own
WRITES: Final = 400
FIRST: Final = datetime(2026, 11, 1, tzinfo=UTC)
STARTED: Final = ev.RunStarted(
    at=0.0,
    run="",
    time="2026-11-01T00:00:00.000+00:00",
    question=Question(text="How many pears? " * 20),
    pool=Pool(workers=(Worker(name="ann", kind="openai", model="m"),)),
    limits=Limits(),
    mode="auto",
    conductor="tiny",
    profile="prompted",
)


def run(*, rows: int) -> Iterator[Figure]:
    """Fill ten days of a database with so many rows, and compare it with an empty one."""
    with cluster() as postgres, tempfile.TemporaryDirectory() as name:
        empty, full = (_open(postgres, Path(name) / item) for item in ("empty", "full"))
        began = time.monotonic()
        runs = _fill(full, rows // DAYS // (LINES + 1))
        filled = time.monotonic() - began
        yield Figure(f"rows of traces, {runs:,} runs a day", f"{rows:,} in {filled:.0f} s")
        times = asyncio.run(_write_in_turn([empty, full]))
        before, after = (1000 * percentile(item, 0.95) for item in times)
        yield Figure(
            "p95 of appending a line, without and with them",
            f"{before:.2f} and {after:.2f} ms",
            "<= 1.1",
            after <= 1.1 * before,
            timed=True,
        )
        day, next_day = (f"{FIRST + timedelta(days=number):%Y%m%d}" for number in (5, 6))
        inside = RunQuery(since=day, before=f"{next_day}-000000-000001")
        for title, terms in (
            ("list 100 runs of a day", ()),
            ("search it for one run in a thousand", ("zeppelin",)),
        ):
            query = inside._replace(terms=terms)
            seconds, count = _median(lambda query=query: full.traces.newest(query, 100)[0])  # type: ignore[misc]
            assert count, "nothing was found"
            yield at_most(title, 1000 * seconds, 100, "{:.0f} ms", timed=True)
        began = time.monotonic()
        gone = [item for item in full.traces.runs() if item.startswith(day)]
        listed = time.monotonic() - began
        began = time.monotonic()
        full.traces.prune(gone)
        dropped = time.monotonic() - began
        title = f"drop a day of {len(gone):,} runs, once all are listed in {listed:.1f} s"
        yield at_most(title, dropped, 1, "{:.2f} s", timed=True)


def _open(postgres: Cluster, directory: Path) -> SharedState:
    paths = AppPaths(
        config=directory,
        state=directory,
        data=directory,
        cache=directory,
        database=postgres.new_database(),
    )
    state = open_state(paths)
    assert isinstance(state, SharedState)
    return state


def _fill(state: SharedState, runs: int) -> int:
    """Copy one run so often for each day; every thousandth has a rare word.

    Returns how many a day has.
    """
    first = f"{FIRST:%Y%m%d}-000000-000000"
    writer = state.traces.open(first)
    writer.write(STARTED)
    writer.write(
        ev.RunFinished(at=1.0, answer="4 pears and a zeppelin " * 30, usage=Usage(calls=2))
    )
    writer.close()
    call = state.database.call
    for number in range(DAYS):
        day = (FIRST + timedelta(days=number)).date()
        call("SELECT conductor_add_day(%s)", day)
        call(
            "INSERT INTO conductor_runs SELECT %s, to_char(%s::date, 'YYYYMMDD') || '-'"
            " || lpad((n / 100)::text, 6, '0') || '-' || lpad(n::text, 6, '0'), written + n, size, "
            "state, time,"
            " workers, cost, unpriced, tokens, seconds, resumed, conductor, problem, recovered, "
            "question, subtasks,"
            " answers, origin,"
            " CASE mod(n, 1000) WHEN 0 THEN words ELSE replace(words, 'zeppelin', 'pears') END"
            " FROM conductor_runs, generate_series(1, %s) n WHERE run = %s",
            day,
            day,
            runs,
            first,
        )
        call(
            "INSERT INTO conductor_lines SELECT r.day, r.run, n, l.lines FROM conductor_runs r,"
            " generate_series(1, %s) n, (SELECT lines FROM conductor_lines LIMIT 1) l WHERE r.day "
            "= %s AND r.run <> %s",
            LINES,
            day,
            first,
        )
    call("VACUUM ANALYZE")
    return runs


async def _write_in_turn(states: list[SharedState]) -> list[list[float]]:
    """Append lines to a run of today in each state, one after the other.

    Returns how long each line took.
    """
    today = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-abcdef"
    writers = [state.traces.open(today) for state in states]
    times: list[list[float]] = [[] for _ in states]
    for number in range(WRITES):
        event = STARTED if number == 0 else ev.Notice(at=float(number), text=f"notice {number}")
        for writer, seconds in zip(writers, times, strict=True):
            began = time.perf_counter()
            if (writing := writer.write(event)) is not None:
                await writing
            seconds.append(time.perf_counter() - began)
    for writer in writers:
        await asyncio.to_thread(writer.close)
    return [seconds[10:] for seconds in times]


def _median(work: Callable[[], Sized]) -> tuple[float, int]:
    """Return how long it takes, and how much it finds."""
    seconds = list[float]()
    count = 0
    for _ in range(11):
        began = time.perf_counter()
        count = len(work())
        seconds.append(time.perf_counter() - began)
    return percentile(seconds, 0.5), count
