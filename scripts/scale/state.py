"""T1 and T4: eight processes on an empty database take the limit of a day, directly and through PgBouncer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from scripts.scale.stage import Figure
from tests.state.cluster import PASSWORD, Cluster, cluster
from tests.state.test_shared_spend import CALLS

PROCESSES: Final = 8
ADMITTED: Final = 100
LIMIT: Final = 10**9  # billionths of a dollar

BOUNCER: Final = """\
[databases]
* = host=127.0.0.1 port={port} user=conductor password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 400
unix_socket_dir =
ignore_startup_parameters = extra_float_digits
"""


def run(*, rounds: int) -> Iterator[Figure]:
    """Have a new database in each round, which one of the processes makes tables in."""
    with cluster() as postgres:
        yield from _rounds("directly", postgres, postgres.port, rounds)
        with _bouncer(postgres) as port:
            yield from _rounds("through PgBouncer", postgres, port, rounds)


def _rounds(how: str, postgres: Cluster, port: int, rounds: int) -> Iterator[Figure]:
    wrong, failed, highest, connections = list[int](), 0, 0, 0
    for _ in range(rounds):
        url = postgres.new_database()
        through = url.replace(f":{postgres.port}/", f":{port}/")
        processes = [
            subprocess.Popen([sys.executable, "-c", CALLS, through], stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        with psycopg.connect(url, autocommit=True) as connection:
            while any(process.poll() is None for process in processes):
                if connection.execute("SELECT to_regclass('conductor_totals')").fetchone() != (None,):
                    row = connection.execute("SELECT sum(cost + held_cost) FROM conductor_totals").fetchone()
                    highest = max(highest, int((row and row[0]) or 0))
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                ).fetchone()
                connections = max(connections, int(row[0]) if row else 0)
                time.sleep(0.01)
        admitted = sum(int(process.communicate()[0] or 0) for process in processes)
        failed += sum(process.returncode != 0 for process in processes)
        wrong += [admitted] if admitted != ADMITTED else []
    right = f"{rounds - len(wrong)} of {rounds} rounds"
    yield Figure(f"{how}: exactly {ADMITTED} calls admitted", right, "all", not wrong)
    yield Figure(f"{how}: processes that failed", str(failed), "0", failed == 0)
    yield Figure(
        f"{how}: the most that was spent and held at once", f"${highest / LIMIT:.2f}", "<= $1.00", highest <= LIMIT
    )
    yield Figure(f"{how}: connections to PostgreSQL at once", str(connections), "< 100", connections < 100)


@contextmanager
def _bouncer(postgres: Cluster) -> Iterator[int]:
    """PgBouncer in transaction mode, in front of a server; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    file = postgres.directory / "pgbouncer.ini"
    file.write_text(BOUNCER.format(port=postgres.port, own=own, password=PASSWORD))
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if program is None:
        raise FileNotFoundError("pgbouncer is not installed")
    process = subprocess.Popen([program, "-q", file], user=postgres.user, cwd=postgres.directory)
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", own)) == 0:
                    break
            time.sleep(0.05)
        yield own
    finally:
        process.terminate()
        process.wait()
