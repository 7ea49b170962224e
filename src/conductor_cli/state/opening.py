"""The one place that opens what is kept between runs.

Files below a directory, or a PostgreSQL database.
"""

from __future__ import annotations

import secrets
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from conductor_cli.core.ledger import NO_DAY_LIMITS
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.state.interfaces import USER, Spender, Spending
from conductor_cli.state.records import Attachments, Names, RatingsFile, RequestClaims
from conductor_cli.state.served_files import ServedFiles
from conductor_cli.state.spending import DailySpend
from conductor_cli.state.spending_file import SpentRow, checkpoint, read_spent, read_tokens
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.system.disk import exclusive_lock, make_private_directory, write_atomically

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedState

SECRET_BYTES: Final = 32
MAX_FILE_STATES: Final = 8  # States in files that are kept open, by their places


class StatePlace(Protocol):
    """Where the state is: in files, or in the database of a URL where that is not empty."""

    @property
    def database(self) -> str: ...
    @property
    def state(self) -> Path: ...
    @property
    def data(self) -> Path: ...
    @property
    def traces(self) -> Path: ...
    @property
    def attachments(self) -> Path: ...
    @property
    def spending(self) -> Path: ...
    @property
    def ratings(self) -> Path: ...


State: TypeAlias = "FileState | SharedState"
"""What is kept between runs. `attachments` and `spending` belong to whoever opens them."""


def open_state(paths: StatePlace) -> State:
    """Return the state of a user; nothing is read or created before it is used."""
    if paths.database:
        # Only where there is a database
        from conductor_cli.state.postgres.records import shared_state

        return shared_state(paths.database, paths.state, paths.data)
    # Every request to a server opens it several times. It holds the paths, so that no others get
    # their id meanwhile.
    opened = _FILE_STATES.get(id(paths))
    if opened is None:
        opened = FileState(paths)
        if len(_FILE_STATES) >= MAX_FILE_STATES:
            _FILE_STATES.clear()
        _FILE_STATES[id(paths)] = opened
    return opened


class FileState:
    """The state in files and SQLite, as a single user gets it without any server."""

    circuits = None  # What other processes say of failing workers; None where they tell nobody
    leases = None  # Which process has a run; None where no other process goes on with any

    def __init__(self, paths: StatePlace) -> None:
        self.paths = paths
        self.place = str(paths.state)

    # Made on first use: most commands use one part of it.

    @cached_property
    def traces(self) -> TraceStore:
        return TraceStore(self.paths.traces)

    @cached_property
    def _attachments(self) -> Path:
        return self.paths.attachments

    @cached_property
    def ratings(self) -> RatingsFile:
        return RatingsFile(self.paths.ratings)

    @cached_property
    def conversations(self) -> Names:
        """The last run of each conversation by its name. What was said in them is in the traces."""
        return Names(self.paths.state / "conversations.json")

    @cached_property
    def seen_templates(self) -> Names:
        return Names(self.paths.state / "seen-templates.json")

    @cached_property
    def memory_consents(self) -> Names:
        return Names(self.paths.state / "memory-consents.json")

    @cached_property
    def claims(self) -> RequestClaims:
        """The requests with an `Idempotency-Key`, for the processes of one server."""
        return RequestClaims(self.paths.state / "serve" / "requests.sqlite")

    @cached_property
    def served_files(self) -> ServedFiles:
        return ServedFiles(self.paths.state)

    def attachments(self) -> Attachments:
        return Attachments(self._attachments, self.traces.directory)

    def spending(
        self,
        limits: DayLimits = NO_DAY_LIMITS.limits,
        *,
        planner: Worker | None = None,
        client: Spender = USER,
        waits: bool = True,
    ) -> Spending:
        """Return the spending of this process under these limits, of calls for `client`.

        Without `waits`, no call waits for what is written to reach its final place: call
        `tidy_spending` now and then.
        """
        spending = DailySpend(self.paths.spending, limits, planner=planner, client=client)
        spending.checkpoints = waits
        return spending

    def read_spent(
        self, first: date, by: Literal["worker", "key"] = "worker"
    ) -> tuple[SpentRow, ...]:
        """Return what was used from day `first` on. Raises `ConfigError` or `StateUnavailable`."""
        return read_spent(self.paths.spending, first, by)

    def read_tokens(self, day: date) -> int:
        """Return the tokens that limits count on a day, in the time that one row takes.

        Raises `ConfigError` or `StateUnavailable`.
        """
        return read_tokens(self.paths.spending, day)

    def tidy_spending(self) -> None:
        """Move what was spent to its final place. Nobody has to wait; raises nothing."""
        checkpoint(self.paths.spending)

    def prune_attachments(self) -> None:
        self.attachments().prune()

    def batch(self, batch: str, shards: int) -> None:
        """Return the shards of a batch that several machines work on.

        None where no other knows of it.
        """

    def claim_request(
        self,
        key: str,  # noqa: ARG002
        request: str,  # noqa: ARG002
        run: str,
        instead_of: str = "",  # noqa: ARG002
    ) -> tuple[str, float]:
        """Return the run that answers the request of a key, and since how many seconds it is to.

        That is `run` where there was none, or only the failed one `instead_of`. Raises `UsageError`
        where the key was used for another request. All of them are hashes. Files know nothing of
        the requests of other processes.
        """
        return run, 0.0

    def secret(self) -> bytes:
        """Return what the servers of this state sign with; made on first use.

        Raises `OSError`, `StateUnavailable`.
        """
        path = self.paths.state / "serve" / "call-secret"
        if not is_secret(path):
            make_private_directory(path.parent)
            with exclusive_lock(path.parent / ".lock"):
                if not is_secret(path):  # another server may have made it meanwhile
                    write_atomically(path, secrets.token_bytes(SECRET_BYTES), mode=0o600)
        return path.read_bytes()


_FILE_STATES: Final[dict[int, FileState]] = {}


def is_secret(path: Path) -> bool:
    """Return whether a secret is there, and whole. Raises `OSError`."""
    return path.exists() and path.stat().st_size == SECRET_BYTES
