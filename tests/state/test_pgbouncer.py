"""The state behind PgBouncer in transaction mode, which gives each transaction another session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from conductor_cli.core.pool import DayLimits
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.spending import SharedSpend
from conductor_cli.state.postgres.traces import SharedTraces
from tests.state.cluster import Cluster, bouncer
from tests.state.test_run_index import put
from tests.state.test_shared_spend import CENT, reserve_room


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
    others = database.call("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert others[0][0] <= 8
    database.close()
