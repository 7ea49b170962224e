"""The state behind PgBouncer in transaction mode, which gives each transaction another session."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from conductor_cli.core.errors import LimitReached
from conductor_cli.core.pool import DayLimits
from conductor_cli.core.usage import Usage
from conductor_cli.state.postgres.database import Database, migrations
from conductor_cli.state.postgres.spending import SharedSpend
from conductor_cli.state.postgres.traces import SharedTraces
from tests.state.cluster import PASSWORD, Cluster
from tests.state.test_run_index import put
from tests.state.test_shared_spend import CENT, reserve

SESSIONS = 3


@pytest.fixture(scope="module")
def bouncer(postgres: Cluster) -> Iterator[int]:
    """A port of PgBouncer, which has three sessions for all."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = postgres.directory  # which the user of the server may read
    (place / "users.txt").write_text(f'"conductor" "{PASSWORD}"\n')
    (place / "bouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres.port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
        f"listen_port={port}\nauth_type=plain\nauth_file={place}/users.txt\npool_mode=transaction\n"
        f"default_pool_size={SESSIONS}\nmax_client_conn=500\nunix_socket_dir=\nlogfile=/dev/null\n"
    )
    process = subprocess.Popen(
        [program, "-q", str(place / "bouncer.ini")], user=postgres.user, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield port
    process.terminate()
    process.wait()


def through(bouncer: int, url: str) -> str:
    return url.replace(f":{urlsplit(url).port}/", f":{bouncer}/")


def test_eight_start_at_once_on_an_empty_database_and_share_its_limits(postgres: Cluster, bouncer: int) -> None:
    """One migrates; of 80 calls of a cent the limit allows exactly 40, with 8 connections on 3 sessions."""
    databases = [Database(through(bouncer, postgres.new_database()))]
    databases += [Database(databases[0]._url) for _ in range(7)]

    def spend_all(database: Database) -> int:
        spend, admitted = SharedSpend(database, DayLimits(cost=Decimal("0.40"))), 0
        for _ in range(10):
            try:
                spend.settle(reserve(spend), CENT)
                admitted += 1
            except LimitReached:
                continue
        spend.close()
        return admitted

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(Database.migrate, databases)) == [0] + [len(migrations())] * 7
        assert sum(threads.map(spend_all, databases)) == 40
    assert SharedSpend(databases[0]).today().cost == Decimal("0.40")
    for database in databases:
        database.close()


def test_traces_are_written_listed_and_pruned(postgres: Cluster, bouncer: int) -> None:
    database = Database(through(bouncer, postgres.new_database()))
    traces = SharedTraces(database)
    run = put(traces, 1, "How many pears?")  # type: ignore[arg-type]
    assert [row.title for row in traces.newest()[0]] == ["How many pears?"]
    assert traces.check(run).whole
    assert traces.prune([run]) == []
    assert traces.runs() == []
    database.close()


def test_two_hundred_calls_at_once_wait_for_eight_connections(postgres: Cluster) -> None:
    """However many ask at once, a process has eight connections; nobody is refused."""
    database = Database(postgres.new_database())
    spend = SharedSpend(database, DayLimits())

    async def ask() -> list[object]:
        free = Usage()

        async def one() -> object:
            from conductor_cli.core.ledger import Ledger
            from conductor_cli.core.pool import Limits

            ledger = Ledger(Limits())
            room = await spend.reserve(lambda today: ledger.reserve(0, 1, None, today=today), ledger.release)
            assert room is not None
            spend.settle(room, free)
            return room

        return await asyncio.gather(*(one() for _ in range(200)))

    assert len(asyncio.run(ask())) == 200
    spend.close()
    others = database.call("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert others[0][0] <= 8
    database.close()
