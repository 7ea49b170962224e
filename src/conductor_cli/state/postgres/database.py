"""Connections to the database of the state, and its tables.

A call is one statement in a transaction of its own, and so one round trip; what may be lost on the
way is said again, so each statement that changes something does so once, however often it is said.
Nothing outlives a transaction: no prepared statement, no setting of a session, no lock. So a
PgBouncer in transaction mode may stand in between.

What a client may read names neither an address nor a role: `conductor state check` and the log of
`--debug` do.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from conductor_cli.core.errors import ConfigError, StateUnavailable, TakenOver
from conductor_cli.system.installation import extra_command
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 4
"""How long a new connection may take: a server that is busy needs seconds, and one that is gone
says so at once.
"""

SILENT_SECONDS: Final = 10
"""How long a database may say nothing, and how long somebody may wait for one of the
connections.
"""

AWAY_SECONDS: Final = 1.0
"""After a connection has failed, nobody waits for another one for so long: the answer is the same
error at once.
"""

MAX_CONNECTIONS: Final = 8  # Connections of one process
AWAY_MESSAGE: Final = "the database of the state does not answer"

_LOCK: Final = 0x636F6E6475637400  # The number of the lock of migrations

_SAID: Final = {
    "password authentication failed": "the database of the state refuses the password",
    "no password supplied": "the database of the state asks for a password",
    "read-only transaction": "the database of the state is read-only",
    "too many": "the database of the state has no connection left",
    '(database|role) "[^"]*" does not exist': (
        "the database or the role of the setting state does not exist"
    ),
    "permission denied": "the role of the setting state may not do that in its database",
    "could not extend file": "the disk of the database of the state is full",
}
"""What is told of PostgreSQL's own words, by a pattern of a part of them."""

T = TypeVar("T")


@cache
def migrations() -> tuple[str, ...]:
    """Return what makes each version of the tables of the one before."""
    text = files(__package__).joinpath("schema.sql").read_text("utf-8")
    return tuple(re.split(r"(?m)^-- version \d+\b.*$", text)[1:])


def storable(text: str, most: int | None = None) -> str:
    """Return the text, at most so many characters of it, as PostgreSQL takes it.

    Without NUL and lone surrogates.
    """
    return text[:most].replace("\0", "").encode("utf-8", "replace").decode()


class Database:
    """The database at a URL.

    `place` is the URL without its password, and `owner` stands for this process.

    `find_password` is asked for that of `place` where neither the URL nor the environment has one.
    """

    def __init__(
        self, url: str, find_password: Callable[[str], str | None] = lambda _: None
    ) -> None:
        self._url = url
        self._find_password = find_password
        self._password: str | None = None
        # What PostgreSQL said last of what it would not do, with addresses, for whoever looks after
        # it
        self.last_reply = ""
        self.place = re.sub(r"(//[^/@:]*):[^/@]*@", r"\1@", url).partition("?")[0]
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        # Seconds by which the clock of the database is before that of this machine
        self.clock_ahead = 0.0
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        # Which starts none before there is work
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, "state")
        self._away_until = 0.0
        self._away = AWAY_MESSAGE
        self._started = 0.0
        self._answered = -AWAY_SECONDS

    def now(self) -> datetime:
        """Return the time by the clock of the database, in the time zone of this machine.

        All replicas share that clock. Raises as `call` where no connection was made yet.
        """
        if not self._started:
            self.call("SELECT 1")
        return datetime.fromtimestamp(self._started + _seconds(), UTC).astimezone()

    def call(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Raises `StateUnavailable` and `ConfigError`.

        It is said again where the connection broke, so it must do once what it does.
        """
        psycopg = _psycopg()
        for attempt in (1, 2):
            with self._connection() as connection:
                try:
                    cursor = connection.execute(statement.encode(), values or None)
                    self._answered = time.monotonic()
                    if cursor.description is not None:
                        return cursor.fetchall()
                except psycopg.Error as error:
                    if attempt == 2 or not connection.broken:
                        self._raise(error)
                else:
                    return []
        raise AssertionError

    def check(self) -> None:
        """Raise `StateUnavailable` where it does not answer.

        Whoever asks again within a second is told the same.
        """
        if time.monotonic() - self._answered > AWAY_SECONDS:
            self.call("SELECT 1")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction, which is committed at the end.

        Raises `StateUnavailable` and `ConfigError`.
        """
        psycopg = _psycopg()
        with self._connection() as connection:
            try:
                with connection.transaction():
                    yield connection
            except psycopg.Error as error:
                self._raise(error)

    def soon(self, work: Callable[..., T], *values: object) -> Future[T]:
        """Do some work with the database on a thread, so that nobody else waits for it."""
        return self._threads.submit(work, *values)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle = self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def version(self) -> int:
        """Return the version of the tables; 0 where there are none.

        Raises `ConfigError` where a migration is half done.
        """
        with closing(self._connect()) as connection:
            return _version(connection)

    def migrate(self) -> int:
        """Bring the tables to the version of this program, and return the version that they had.

        It is done as a whole or not at all. Where several processes do so at once, one works and
        the others wait. Raises `ConfigError` for a newer version.
        """
        psycopg = _psycopg()
        try:
            with closing(self._connect()) as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                before = _version(connection)
                if before > len(migrations()):
                    _refuse(before)
                if before == 0:
                    connection.execute("CREATE TABLE conductor_version (version integer NOT NULL)")
                    connection.execute("INSERT INTO conductor_version VALUES (0)")
                for number, statements in enumerate(migrations()[before:], start=before + 1):
                    connection.execute(statements.encode())
                    connection.execute("UPDATE conductor_version SET version = %s", [number])
                return before
        except psycopg.Error as error:
            self._raise(error)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Yield a connection that nobody else uses meanwhile."""
        if not self._free.acquire(timeout=SILENT_SECONDS):
            raise StateUnavailable(
                f"{AWAY_MESSAGE}: all connections of this process wait for it",
                hint=_HINT,
                reason="state",
            )
        try:
            connection = self._take_idle() or self._checked()
            try:
                yield connection
            finally:
                with self._lock:
                    self._idle.append(connection)
        finally:
            self._free.release()

    def _take_idle(self) -> Connection | None:
        """One that is open.

        Where the other side has closed it, there is something to read: the end.
        """
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not connection.closed:
                with selectors.DefaultSelector() as selector:
                    selector.register(connection.fileno(), selectors.EVENT_READ)
                    if not selector.select(0):
                        return connection
            connection.close()

    def _checked(self) -> Connection:
        """Return a new connection to tables of the version of this program.

        An empty database gets them.
        """
        connection = self._connect()
        try:
            version = _version(connection)
            if version == 0:
                self.migrate()
            elif version != len(migrations()):
                _refuse(version)
        except BaseException as error:
            connection.close()
            if isinstance(error, _psycopg().Error):
                self._raise(error)
            raise
        return connection

    def _connect(self) -> Connection:
        if time.monotonic() < self._away_until:
            raise StateUnavailable(self._away, hint=_HINT, reason="state")
        psycopg = _psycopg()
        given: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "tcp_user_timeout": SILENT_SECONDS * 1000,
        }
        given |= psycopg.conninfo.conninfo_to_dict(self._url)
        # The password is that of the URL, of libpq's environment and files, or a stored key.
        is_in_url = any(name in given for name in ("password", "passfile", "service"))
        is_in_environment = any(name in os.environ for name in ("PGPASSWORD", "PGPASSFILE"))
        if not is_in_url and not is_in_environment:
            if self._password is None:
                self._password = self._find_password(self.place) or ""
            if self._password:
                given["password"] = self._password
        KNOWN_SECRETS.add(*filter(None, (given.get("password"), os.environ.get("PGPASSWORD"))))
        try:
            # Prepared statements belong to a session, which PgBouncer gives to another client.
            connection: Connection = psycopg.connect(
                **given, autocommit=True, prepare_threshold=None
            )
            try:
                row = connection.execute(
                    "SELECT extract(epoch FROM clock_timestamp())::float8, "
                    "current_setting('transaction_read_only')"
                ).fetchone()
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            self._raise(error)
        assert row is not None
        if row[1] == "on":
            connection.close()
            hint = "name the primary in the setting state"
            raise StateUnavailable(
                "the database of the state is read-only", hint=hint, reason="state"
            )
        self._started = row[0] - _seconds()
        self.clock_ahead = row[0] - time.time()
        self._away_until = 0.0
        return connection

    def _raise(self, error: Exception) -> NoReturn:
        """Raise what psycopg says as an error of ours, which says no address; the log has that."""
        psycopg = _psycopg()
        reply = KNOWN_SECRETS.redact(" ".join(str(error).split()))
        self.last_reply = reply
        log.info("%s: %s", self.place, reply)
        message = AWAY_MESSAGE
        for part, text in _SAID.items():
            if re.search(part, reply):
                message = text
                break
        # What PostgreSQL says of a statement names neither an address nor a role.
        if message == AWAY_MESSAGE and not isinstance(error, psycopg.OperationalError):
            message = f"the database of the state refuses: {str(error).splitlines()[0]:.200}"
        if message.endswith("another process has this run"):  # see `conductor_fence`
            raise TakenOver from None
        if isinstance(error, psycopg.OperationalError):
            self._answered = -AWAY_SECONDS
            self._away = message
            self._away_until = time.monotonic() + AWAY_SECONDS
        raise StateUnavailable(message, hint=_HINT, reason="state") from None


_HINT: Final = "nothing is called before it answers; conductor state check says more"


def _seconds() -> float:
    """Return the seconds of a clock that goes on while this machine sleeps, where it has one.

    A database on the same machine keeps its connections meanwhile, so nobody asks it for the time
    again.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _refuse(version: int) -> NoReturn:
    newest = len(migrations())
    message = f"the database of the state is of version {version}; this program knows {newest}"
    if version > newest:
        raise ConfigError(message, hint="update conductor here too; nothing was changed")
    raise ConfigError(
        message, hint="once all replicas are updated: conductor state migrate; nothing was changed"
    )


def _version(connection: Connection) -> int:
    row = connection.execute(
        "SELECT to_regclass('conductor_version'), to_regclass('conductor_calls')"
    ).fetchone()
    assert row is not None
    if row == (None, None):
        return 0
    version = None
    if row[0]:
        version = connection.execute("SELECT version FROM conductor_version").fetchone()
    if version is None or row[1] is None:
        message = (
            "the database of the state has only some of its tables: half of a migration was "
            "undone by hand"
        )
        raise ConfigError(
            message, hint="restore it, or remove what begins with conductor_; nothing was changed"
        )
    return int(version[0])


def _psycopg() -> Any:  # noqa: ANN401 - the module
    try:
        import psycopg
    except ImportError:
        message = "the setting state names PostgreSQL, and psycopg is not installed"
        raise ConfigError(message, hint=extra_command("postgres")) from None
    return psycopg
