"""The one place that opens what is kept between runs: files below a directory, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from conductor_cli.core.ledger import NO_DAY_LIMITS
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.state.attachments import Attachments
from conductor_cli.state.conversations import ConversationNames
from conductor_cli.state.interfaces import AttachmentStore, Ratings, Spending
from conductor_cli.state.ratings import RatingsFile
from conductor_cli.state.seen_texts import SeenTexts
from conductor_cli.state.spending import USER, DailySpend, Spender, SpentRow, checkpoint, read_spent
from conductor_cli.state.trace_check import CheckedTraces
from conductor_cli.state.trace_store import TraceStore

if TYPE_CHECKING:
    from conductor_cli.state.postgres.database import Database


class StatePlace(Protocol):
    """Where the state is: in files, or in the database of a URL where that is not empty."""

    @property
    def database(self) -> str: ...
    @property
    def state(self) -> Path: ...
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
    def conversations(self) -> ConversationNames: ...
    @property
    def seen_templates(self) -> SeenTexts: ...

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


def open_state(paths: StatePlace) -> State:
    """Return the state of a user; nothing is read or created before it is used."""
    return SharedState(paths) if paths.database else FileState(paths)


class FileState:
    """The state in files and SQLite, as a single user gets it without any server."""

    def __init__(self, paths: StatePlace) -> None:
        self._paths = paths

    @property
    def place(self) -> str:
        return str(self._paths.state)

    @cached_property
    def traces(self) -> TraceStore:
        return TraceStore(self._paths.traces)

    @cached_property
    def ratings(self) -> RatingsFile:
        return RatingsFile(self._paths.ratings)

    @cached_property
    def conversations(self) -> ConversationNames:
        return ConversationNames(self._paths.state / "conversations.json")

    @cached_property
    def seen_templates(self) -> SeenTexts:
        return SeenTexts(self._paths.state / "seen-templates")

    def attachments(self) -> Attachments:
        return Attachments(self._paths.attachments)

    def spending(
        self, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None, client: Spender = USER,
        waits: bool = True,
    ) -> Spending:  # fmt: skip
        spending = DailySpend(self._paths.spending, limits, planner=planner, client=client)
        spending.checkpoints = waits
        return spending

    def read_spent(self, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
        return read_spent(self._paths.spending, first, by)

    def tidy_spending(self) -> None:
        checkpoint(self._paths.spending)

    def prune_attachments(self) -> None:
        self.attachments().prune(self._paths.traces)

    def size_of_attachments(self, runs: Collection[str]) -> int:
        return self.attachments().prunable(self._paths.traces, runs) if runs else 0


class SharedState(FileState):
    """The state of several replicas: spending and its limits in PostgreSQL, everything else in files."""

    @property
    def place(self) -> str:
        return self.database.place

    @property
    def database(self) -> Database:
        """The database, open for everybody in this process."""
        return _open_database(self._paths.database)

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


@cache
def _open_database(url: str) -> Database:
    from conductor_cli.state.postgres.database import Database

    return Database(url)
