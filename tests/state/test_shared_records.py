"""What replicas know of each other, also behind PgBouncer.

Killed runs, an outage, open circuits, searches.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import Usage
from conductor_cli.run.circuits import BreakerRules, Circuits
from conductor_cli.state.postgres import database as module
from conductor_cli.state.postgres import records, traces
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import SharedCircuits
from conductor_cli.state.postgres.spending import SharedSpend
from conductor_cli.state.postgres.traces import SharedTraces
from conductor_cli.state.stored_run import RunQuery
from tests.server.plain_api import until
from tests.state.cluster import Cluster, bouncer
from tests.state.test_run_index import events, put
from tests.state.test_shared_spend import CENT, reserve_room
from tests.state.test_trace_store import RUN
from tests.traces.stored import begin_run

Two = tuple[Database, Database]
ANN = Worker(name="ann", kind="openai", model="m")


@pytest.fixture
def databases(postgres: Cluster) -> Iterator[Two]:
    """Those of two processes."""
    url = postgres.new_database()
    both = Database(url), Database(url)
    yield both
    for database in both:
        database.close()


def test_a_run_of_a_process_that_was_killed_is_interrupted_when_its_lease_is_over(
    databases: Two,
) -> None:
    """With what happened until then.

    If the process was only late, it goes on writing, and its end counts.
    """
    first, second = databases
    happened = events(RUN, "How many pears?")
    writer = begin_run(SharedTraces(first), RUN, happened[:-1])
    other = SharedTraces(second)
    assert [(row.state, row.answers) for row in other.newest()[0]] == [("running", "twelve")]
    second.call("UPDATE conductor_leases SET until = clock_timestamp() - interval '1 s'")
    assert [(row.state, row.answers) for row in other.newest()[0]] == [("interrupted", "twelve")]
    assert not other.is_running(RUN)
    writer.write(happened[-1])
    assert other.is_running(RUN), "it has renewed its lease"
    writer.close()
    assert [row.state for row in other.newest()[0]] == ["finished"]
    assert other.check(RUN).whole


def test_a_list_reads_all_runs_that_go_on_at_once(
    databases: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is longer than what is read at once."""
    monkeypatch.setattr(traces, "BEGINNING_BLOCKS", 3)
    first, second = databases
    runs = [f"20261102-10000{number}-00000a" for number in range(5)]
    for run in runs:
        writer = begin_run(SharedTraces(first), run, events(run, "How many pears?")[:1])
        for event in events(run, "How many pears?")[1:-1] if run == runs[2] else ():
            writer.write(event)
    calls = list[str]()
    call = second.call

    def counted(statement: str, *values: object) -> list[Any]:
        calls.append(statement)
        return call(statement, *values)

    monkeypatch.setattr(second, "call", counted)
    rows, _ = SharedTraces(second).newest()
    assert [row.run for row in rows] == runs[::-1]
    assert [row.answers for row in rows] == ["", "", "twelve", "", ""]
    assert len(calls) == 5, "interrupted runs, the list, their beginnings; the rest of one, its end"


def test_who_flushes_waits_for_pieces_that_a_thread_is_writing(
    databases: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes on with the run would not know a piece that was shown before it was committed."""
    first, second = databases
    writer = begin_run(SharedTraces(first), RUN, events(RUN, "How many pears?")[:-1])
    call = first.call
    go = threading.Event()
    monkeypatch.setattr(first, "call", lambda *arguments: call(*arguments) if go.wait(30) else [])

    async def flush_twice() -> None:
        writer.write(ev.StepDelta(at=9.0, step=1, attempt=1, text="and a plum"))
        flushed = [writer.flush(), writer.flush()]
        go.set()
        assert flushed[1] is not None
        await flushed[1]
        assert b"and a plum" in SharedTraces(second).lines_of(RUN)

    asyncio.run(flush_twice())


def test_a_trace_is_taken_by_one_process_and_lost_by_no_other(databases: Two) -> None:
    """Lines of a process whose run another has are refused, and those of the other stay whole."""
    first, second = databases
    happened = events(RUN, "How many pears?")
    late = begin_run(SharedTraces(first), RUN, happened[:3])
    other = SharedTraces(second)
    second.call("UPDATE conductor_leases SET owner = %s", second.owner)
    late.write(happened[3])
    assert late.problem == "another process has this run"
    late.close()
    assert list(other.events(RUN)) == happened[:3]
    assert other.is_running(RUN)


def test_a_run_that_was_handed_over_is_free_at_once(
    databases: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process renews the leases of its other runs meanwhile."""
    monkeypatch.setattr(traces, "BEAT_SECONDS", 0.01)
    first, second = databases
    shared = SharedTraces(first)
    leases = records.Leases(first, shared)
    for run in (RUN, f"{RUN}1"):
        leases.announce(run, "{}")
    renewed = list[list[str]]()
    call = first.call

    def counted(statement: str, *values: object) -> list[Any]:
        rows = call(statement, *values)
        if "ANY" in statement:
            renewed.append(list(values[1]))  # type: ignore[call-overload]
        return rows

    monkeypatch.setattr(first, "call", counted)
    leases.hand_over(RUN)
    count = len(renewed)
    until(lambda: len(renewed) > count + 2)
    is_kept = "SELECT run, until > clock_timestamp() FROM conductor_leases ORDER BY run"
    assert second.call(is_kept) == [(RUN, False), (f"{RUN}1", True)]


def test_what_an_outage_kept_from_a_trace_is_written_after_it(
    databases: Two, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    first, second = databases
    happened = events(RUN, "How many pears?")
    writer = begin_run(SharedTraces(first), RUN, happened[:3])
    postgres.control("stop", "--mode", "immediate")
    for event in happened[3:]:
        writer.write(event)
    assert "does not answer" in writer.problem
    writer.close()
    postgres.control("start")
    writer.try_again()  # as is done every few seconds
    other = SharedTraces(second)
    assert list(other.events(RUN)) == happened
    assert [row.state for row in other.newest()[0]] == ["finished"]


def test_what_a_full_disk_kept_from_a_trace_is_written_when_it_has_room(
    databases: Two, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said what is full; what was stored before is whole."""
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    first, second = databases
    happened = events(RUN, "How many pears?", answer=random.Random(1).randbytes(2 << 20).hex())
    earlier = "20261101-100000-00000b"
    after = SharedTraces(first)
    begin_run(SharedTraces(second), earlier, events(earlier, "?")[:1]).close()
    with postgres.full_disk():
        writer = begin_run(after, RUN, happened)
        assert writer.problem == "the disk of the database of the state is full"
        assert len(list(after.events(earlier))) == 1
        writer.close()
    writer.try_again()
    assert list(after.events(RUN)) == happened


def test_a_circuit_that_one_replica_has_opened_is_open_for_all(
    databases: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within two seconds, until a call is answered; no name and no address of a worker is told."""
    monkeypatch.setattr(records, "NEWS_SECONDS", 0.0)
    first, second = (Circuits(BreakerRules(failures=1)) for _ in range(2))
    first.shared_circuits, second.shared_circuits = (
        SharedCircuits(database) for database in databases
    )

    assert second.why_skipped(ANN) is None
    first.failed(ANN, ModelError("overloaded", "503"))
    why = until(lambda: second.why_skipped(ANN), "the failure")
    assert (why.reason, "a server error" in why.message) == ("circuit_open", True)
    assert "ann" not in str(databases[0].call("SELECT * FROM conductor_circuits"))
    first.succeeded(ANN)
    until(lambda: second.why_skipped(ANN) is None, "the answer")


def test_without_an_index_of_letters_searches_find_the_same(databases: Two) -> None:
    """A role that may not make the extension gets the tables without it.

    Signs of patterns are letters.
    """
    first, _ = databases
    first.migrate()
    first.call("DROP INDEX conductor_runs_words")
    traces = SharedTraces(first)
    happened = events(RUN, "50 % of_all \\ pears")
    begin_run(
        traces, RUN, [*happened[:-1], ev.RunFinished(at=1.0, answer="12", usage=Usage())]
    ).close()
    counts = {
        term: len(traces.newest(RunQuery(terms=(term,)))[0])
        for term in ("0 %", "F_ALL", "\\", "5_ %", "%%")
    }
    assert counts == {"0 %": 1, "F_ALL": 1, "\\": 1, "5_ %": 0, "%%": 0}


@pytest.fixture(scope="module")
def pooled(postgres: Cluster) -> Iterator[int]:
    """A port of PgBouncer, which has three sessions for all."""
    with bouncer(postgres, sessions=3) as port:
        yield port


def test_traces_are_written_listed_and_pruned(postgres: Cluster, pooled: int) -> None:
    database = Database(postgres.new_database().replace(f":{postgres.port}/", f":{pooled}/"))
    traces = SharedTraces(database)
    run = put(traces, 1, "How many pears?")
    assert [row.title for row in traces.newest()[0]] == ["How many pears?"]
    assert traces.check(run).whole
    assert traces.prune([run]) == []
    assert traces.runs() == []
    database.close()


def test_two_hundred_calls_at_once_wait_for_eight_connections(postgres: Cluster) -> None:
    """However many ask at once, a process has eight connections; nobody is refused."""
    database = Database(postgres.new_database())
    spend = SharedSpend(database, DayLimits())

    async def ask() -> None:
        for room in await asyncio.gather(*(reserve_room(spend) for _ in range(200))):
            spend.settle(room, CENT)

    asyncio.run(ask())
    spend.close()
    assert spend.today().calls == 200
    others = database.call(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    )
    assert others[0][0] <= 8
    database.close()
