"""The one place that opens what is kept between runs: files below a directory, or a PostgreSQL database."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from conductor_cli.core.ledger import NO_DAY_LIMITS
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.models.disk import exclusive_lock, make_private_directory, write_atomically
from conductor_cli.state.attachments import Attachments
from conductor_cli.state.interfaces import AttachmentStore, CircuitBoard, Conversations, Ratings, Spending
from conductor_cli.state.names import Names
from conductor_cli.state.ratings import RatingsFile
from conductor_cli.state.spending import USER, DailySpend, Spender, SpentRow, checkpoint, read_spent
from conductor_cli.state.trace_check import CheckedTraces
from conductor_cli.state.trace_store import TraceStore

if TYPE_CHECKING:
    from conductor_cli.state.postgres.database import Database
    from conductor_cli.state.postgres.records import Leases, SharedAttachments, SharedConversations, SharedRatings
    from conductor_cli.state.postgres.traces import SharedTraces


SECRET_BYTES: Final = 32


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


class State(Protocol):
    """What is kept between runs. `attachments` and `spending` belong to whoever opens them."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""

    @property
    def traces(self) -> CheckedTraces: ...
    @property
    def ratings(self) -> Ratings: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def seen_templates(self) -> Names: ...
    @property
    def circuits(self) -> CircuitBoard | None:
        """What other processes know of failing workers; None where they tell nobody."""

    @property
    def leases(self) -> Leases | None:
        """Which process has a run; None where no other process goes on with any."""

    def attachments(self) -> AttachmentStore: ...

    def spending(
        self, limits: DayLimits = ..., *, planner: Worker | None = None, client: Spender = USER, waits: bool = True
    ) -> Spending:
        """Return the spending of this process under these limits, of calls for `client`.

        Without `waits`, no call waits for what is written to reach its final place: call `tidy_spending` now and then.
        """

    def read_spent(self, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
        """Return what was used from day `first` on. Raises `ConfigError` or `StateUnavailable`."""

    def tidy_spending(self) -> None:
        """Move what was spent to its final place. Nobody has to wait; raises nothing."""

    def prune_attachments(self) -> None:
        """Delete the bytes that no trace names any more."""

    def size_of_attachments(self, runs: Collection[str]) -> int:
        """Return how many bytes would be deleted with the traces of these runs."""

    def claim_request(self, key: str, request: str, run: str, instead_of: str = "") -> tuple[str, float]:
        """Return the run that answers the request of a key, and for how many seconds it is to do so.

        That is `run` where there was none, or only the failed one `instead_of`. Raises `UsageError` where the key was
        used for another request. All of them are hashes. Files know nothing of the requests of other processes.
        """

    def secret(self) -> bytes:
        """Return what the servers of this state sign with; made on first use. Raises `OSError`, `StateUnavailable`."""


def open_state(paths: StatePlace) -> State:
    """Return the state of a user; nothing is read or created before it is used."""
    return _shared_state(paths.database, paths.state, paths.data) if paths.database else FileState(paths)


class FileState:
    """The state in files and SQLite, as a single user gets it without any server."""

    def __init__(self, paths: StatePlace) -> None:
        self.paths = paths

    @property
    def place(self) -> str:
        return str(self.paths.state)

    @cached_property
    def traces(self) -> TraceStore:
        return TraceStore(self.paths.traces)

    @cached_property
    def ratings(self) -> RatingsFile:
        return RatingsFile(self.paths.ratings)

    @cached_property
    def conversations(self) -> Names:
        return Names(self.paths.state / "conversations.json")

    @cached_property
    def seen_templates(self) -> Names:
        return Names(self.paths.state / "seen-templates.json")

    def attachments(self) -> Attachments:
        return Attachments(self.paths.attachments)

    def spending(
        self, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None, client: Spender = USER,
        waits: bool = True,
    ) -> Spending:  # fmt: skip
        spending = DailySpend(self.paths.spending, limits, planner=planner, client=client)
        spending.checkpoints = waits
        return spending

    def read_spent(self, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
        return read_spent(self.paths.spending, first, by)

    def tidy_spending(self) -> None:
        checkpoint(self.paths.spending)

    def prune_attachments(self) -> None:
        self.attachments().prune(self.paths.traces)

    def size_of_attachments(self, runs: Collection[str]) -> int:
        return self.attachments().prunable(self.paths.traces, runs) if runs else 0

    circuits = None
    leases = None

    def claim_request(self, key: str, request: str, run: str, instead_of: str = "") -> tuple[str, float]:  # noqa: ARG002
        return run, 0.0

    def secret(self) -> bytes:
        return load_secret(self.paths.state)


class SharedState:
    """The state of several replicas, in a PostgreSQL database. Models, settings and caches stay in files."""

    def __init__(self, url: str, state: Path, data: Path) -> None:
        self._url = url
        self._state = state
        self._data = data

    @property
    def place(self) -> str:
        return self.database.place

    @cached_property
    def database(self) -> Database:
        """The database, open for everybody in this process."""
        from conductor_cli.keys.key_store import POSTGRESQL, KeyStore  # only where there is a database
        from conductor_cli.state.postgres.database import Database

        return Database(self._url, lambda place: KeyStore(self._data, os.environ)(POSTGRESQL, place))

    @cached_property
    def traces(self) -> SharedTraces:
        from conductor_cli.state.postgres.traces import SharedTraces

        return SharedTraces(self.database)

    @cached_property
    def circuits(self) -> CircuitBoard:
        from conductor_cli.state.postgres.records import SharedCircuits

        return SharedCircuits(self.database)

    @cached_property
    def leases(self) -> Leases:
        from conductor_cli.state.postgres.records import Leases

        return Leases(self.database, self.traces)

    @cached_property
    def ratings(self) -> SharedRatings:
        from conductor_cli.state.postgres.records import SharedRatings

        return SharedRatings(self.database)

    @property
    def conversations(self) -> SharedConversations:
        from conductor_cli.state.postgres.records import SharedConversations

        return SharedConversations(self.database)

    @cached_property
    def seen_templates(self) -> Names:
        """What this user was shown on this machine is nobody else's."""
        return Names(self._state / "seen-templates.json")

    def attachments(self) -> SharedAttachments:
        from conductor_cli.state.postgres.records import SharedAttachments

        return SharedAttachments(self.database)

    def spending(
        self, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None, client: Spender = USER,
        waits: bool = True,  # noqa: ARG002 - the database does that by itself
    ) -> Spending:  # fmt: skip
        from conductor_cli.state.postgres.spending import SharedSpend

        return SharedSpend(self.database, limits, planner=planner, client=client)

    def read_spent(self, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
        from conductor_cli.state.postgres.spending import read_shared_spent

        return read_shared_spent(self.database, first, by)

    def tidy_spending(self) -> None:
        """The database does so by itself."""

    def prune_attachments(self) -> None:
        self.attachments().prune()

    def size_of_attachments(self, runs: Collection[str]) -> int:
        return self.attachments().prunable(runs) if runs else 0

    def claim_request(self, key: str, request: str, run: str, instead_of: str = "") -> tuple[str, float]:
        from conductor_cli.state.postgres.records import claim_request

        return claim_request(self.database, key, request, run, instead_of)

    def secret(self) -> bytes:
        from conductor_cli.state.postgres.records import shared_secret

        return shared_secret(self.database)


@cache
def _shared_state(url: str, state: Path, data: Path) -> SharedState:
    """One for each database in a process, whose connections everybody shares."""
    return SharedState(url, state, data)


def load_secret(state: Path) -> bytes:
    """The secret of this user's servers, from the directory of state; made on first use. Raises `OSError`."""
    path = state / "serve" / "call-secret"
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) == SECRET_BYTES:
        return found
    make_private_directory(path.parent)
    with exclusive_lock(path.parent / ".lock"):
        # Another server may have made it meanwhile.
        found = path.read_bytes() if path.is_file() else b""
        if len(found) != SECRET_BYTES:
            found = secrets.token_bytes(SECRET_BYTES)
            write_atomically(path, found, mode=0o600)
    return found
