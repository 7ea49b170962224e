"""A PostgreSQL server of the tests' own, on a free port of this machine, stopped at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

PASSWORD = "correct horse"


def _skip(reason: str) -> NoReturn:
    import pytest  # processes of campaigns import this module, and need no test

    pytest.skip(reason)


def program(name: str) -> str:
    """The path of a program of PostgreSQL, which Debian keeps apart."""
    programs = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = shutil.which(name) or (str(programs[-1]) if programs else "")
    if not path:
        _skip(f"{name} of PostgreSQL is not installed")
    return path


class Cluster:
    """A server and its directory. It refuses to be run by root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.user = "postgres" if os.geteuid() == 0 else None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def control(self, *arguments: str, under: tuple[str, ...] = ()) -> None:
        data_directory = str(self.directory / "data")
        subprocess.run(
            [
                *under,
                program("pg_ctl"),
                "--pgdata",
                data_directory,
                "--wait",
                "--silent",
                "--log",
                f"{data_directory}.log",
                *arguments,
            ],
            check=True,
            user=self.user,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let no file grow beyond 2 MB, as on a full disk.

        The server is started again for it, and after it.
        """
        self.control("stop", "--mode", "fast")
        self.control("start", under=("bash", "-c", 'ulimit -S -f 2048; exec "$@"', "limited"))
        try:
            yield
        finally:
            self.control("stop", "--mode", "fast")
            self.control("start")

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        escaped = password.replace(" ", "%20")
        return f"postgresql://conductor:{escaped}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        name = f"d{uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)


@contextmanager
def cluster() -> Iterator[Cluster]:
    if find_spec("psycopg") is None:
        _skip("psycopg is not installed")
    with tempfile.TemporaryDirectory(prefix="conductor-pg-") as name:
        server = Cluster(Path(name))
        if server.user:
            shutil.chown(name, server.user)
        secret = server.directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        options = (
            f"--username=conductor --auth=scram-sha-256 --pwfile={secret} --no-sync -E UTF8 "
            "--wal-segsize=1"
        )
        server.control("init", "-o", options)
        with (server.directory / "data" / "postgresql.auto.conf").open("a") as file:
            file.write(
                f"port={server.port}\nlisten_addresses='127.0.0.1'\n"
                "unix_socket_directories=''\n"
                "fsync=off\n"
            )
        server.control("start")
        try:
            yield server
        finally:
            server.control("stop", "--mode", "immediate")


@contextmanager
def bouncer(server: Cluster, sessions: int = 10) -> Iterator[int]:
    """PgBouncer in transaction mode, which gives each transaction one of so many sessions.

    Gives its port.
    """
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        _skip("pgbouncer is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    # In a place that the user of the server may read
    file = server.directory / f"bouncer-{port}.ini"
    file.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=conductor password='{PASSWORD}'\n"
        "[pgbouncer]\n"
        f"listen_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\npool_mode=transaction\n"
        f"default_pool_size={sessions}\nmax_client_conn=500\nserver_idle_timeout=1\n"
        "unix_socket_dir=\nlogfile=/dev/null\n"
    )
    process = subprocess.Popen(
        [program, "-q", str(file)],
        user=server.user,
        cwd=server.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()
