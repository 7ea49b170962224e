"""Connections to the database of the state, and its tables.

Every statement is in a transaction of its own connection, and nothing outlives a transaction: no prepared statement, no
setting of a session, no lock. That is what PgBouncer asks for in transaction mode, which was not tried.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString, NoReturn

from conductor_cli.core.errors import ConfigError, StateUnavailable

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_SECONDS: Final = 2
"""How long a new connection may take. The least that libpq allows."""

AWAY_SECONDS: Final = 1.0
"""After a connection has failed, nobody waits for another one for so long: the answer is the same error at once."""

MAX_IDLE: Final = 4
"""Open connections that are kept for the next transaction."""

_LOCK: Final = 0x636F6E6475637400
"""The number of the lock of migrations."""

MIGRATIONS: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE conductor_calls (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        day date NOT NULL,
        owner text,  -- the process of a call that has not ended, NULL once it has. Such a row is a hold
        released boolean NOT NULL DEFAULT false,  -- somebody has said that this hold counts nothing
        expires_at timestamptz NOT NULL,  -- from then on, it is not known what an open call did
        worker text NOT NULL,
        client text NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        worker_call integer NOT NULL,
        failed integer NOT NULL DEFAULT 0,
        calls bigint NOT NULL,
        unpriced bigint NOT NULL,
        tokens_in bigint NOT NULL,
        tokens_out bigint NOT NULL DEFAULT 0,
        cost bigint,  -- billionths of a dollar
        imported text UNIQUE  -- the file and the row of a call that came from a file
    );
    CREATE INDEX conductor_calls_by_day ON conductor_calls (day);
    CREATE INDEX conductor_calls_open ON conductor_calls (expires_at) WHERE owner IS NOT NULL;
    CREATE TABLE conductor_totals (
        day date NOT NULL,
        scope text NOT NULL,  -- '' for everybody, 'key:NAME' for a client of a server
        cost bigint NOT NULL DEFAULT 0,  -- of calls that have ended
        tokens bigint NOT NULL DEFAULT 0,
        calls bigint NOT NULL DEFAULT 0,
        held_cost bigint NOT NULL DEFAULT 0,  -- of calls that have not
        held_tokens bigint NOT NULL DEFAULT 0,
        held_calls bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (day, scope)
    );
    """,
)
"""What makes each version of the tables of the one before. A version that was released is never changed."""

VERSION: Final = len(MIGRATIONS)


class Database:
    """The database at a URL. `place` is the URL without its password."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.place = re.sub(r"(//[^/@:]*):[^/@]*@", r"\1@", url).partition("?")[0]
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._away_until = 0.0
        self._away = ""
        self._ahead = timedelta(0)
        """By how much the clock of the database is before that of this machine."""

    def now(self) -> datetime:
        """The time by the clock of the database, which all replicas share, in the time zone of this machine."""
        return (datetime.now(UTC) + self._ahead).astimezone()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction, which is committed at the end. Raises `StateUnavailable` and `ConfigError`."""
        psycopg = _psycopg()
        connection = self._begin()
        try:
            yield connection
            connection.commit()
        except psycopg.Error as error:
            connection.close()
            self._raise(error)
        except BaseException:
            with suppress(psycopg.Error):
                connection.rollback()
            self._give_back(connection)
            raise
        self._give_back(connection)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def version(self) -> int:
        """The version of the tables; 0 where there are none."""
        with self._connect() as connection:
            return _version(connection)

    def migrate(self) -> int:
        """Bring the tables to the version of this program, all or nothing, and return the version that they had.

        Where several processes do so at once, one works and the others wait. Raises `ConfigError` for a newer version.
        """
        psycopg = _psycopg()
        try:
            with self._connect() as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                before = _version(connection)
                if before > VERSION:
                    self._refuse(before)
                if before == 0:
                    connection.execute("CREATE TABLE conductor_version (version integer NOT NULL)")
                    connection.execute("INSERT INTO conductor_version VALUES (0)")
                for number, statements in enumerate(MIGRATIONS[before:], start=before + 1):
                    connection.execute(statements)
                    connection.execute("UPDATE conductor_version SET version = %s", [number])
                return before
        except psycopg.Error as error:
            self._raise(error)

    def _begin(self) -> Connection:
        """A connection whose transaction has begun. One that broke while nobody used it is replaced."""
        psycopg = _psycopg()
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._checked()
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:
                connection.close()
            else:
                return connection

    def _checked(self) -> Connection:
        """A new connection to tables of the version of this program. An empty database gets them."""
        connection = self._connect()
        try:
            found = _version(connection)
            if found == 0:
                connection.rollback()
                self.migrate()
            elif found != VERSION:
                self._refuse(found)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse(self, found: int) -> NoReturn:
        if found > VERSION:
            message = f"{self.place} is of version {found}; this program knows {VERSION}"
            raise ConfigError(message, hint="update conductor here too; nothing was changed")
        message = f"{self.place} is of version {found}; this program needs {VERSION}"
        raise ConfigError(message, hint="nothing was changed; use the version of conductor that made it")

    def _connect(self) -> Connection:
        if time.monotonic() < self._away_until:
            raise StateUnavailable(self._away, hint=_HINT)
        psycopg = _psycopg()
        try:
            # Prepared statements belong to a session, which PgBouncer gives to another client.
            connection: Connection = psycopg.connect(self._url, connect_timeout=CONNECT_SECONDS, prepare_threshold=None)
            try:
                row = connection.execute(
                    "SELECT clock_timestamp(), current_setting('transaction_read_only')"
                ).fetchone()
                connection.rollback()
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            self._raise(error)
        assert row is not None
        if row[1] == "on":
            connection.close()
            raise StateUnavailable(f"{self.place} is read-only", hint="name the primary in the setting state")
        self._ahead = row[0] - datetime.now(UTC)
        self._away_until = 0.0
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not connection.closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _raise(self, error: Exception) -> NoReturn:
        """Raise what psycopg says as an error of ours, without any password."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        said = next((line for line in lines if "FATAL" in line), lines[0]).rpartition("FATAL:")[2].strip()
        self._away = f"{self.place}: {_without_password(said, self._url)}"
        if isinstance(error, _psycopg().OperationalError):
            self._away_until = time.monotonic() + AWAY_SECONDS
        raise StateUnavailable(self._away, hint=_HINT) from None


_HINT: Final = "nothing is called before the database of the setting state answers again"


def _version(connection: Connection) -> int:
    row = connection.execute("SELECT to_regclass('conductor_version') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute("SELECT version FROM conductor_version").fetchone()
    return int(row[0]) if row is not None else 0


def _without_password(text: str, url: str) -> str:
    found = re.search(r"//[^/@:]*:([^/@]+)@", url)
    return text.replace(found[1], "…") if found is not None else text


def _psycopg() -> Any:  # noqa: ANN401 - the module
    try:
        import psycopg
    except ImportError:
        message = "the setting state names PostgreSQL, and psycopg is not installed"
        raise ConfigError(message, hint="pip install 'conductor-llm[postgres]'") from None
    return psycopg
