"""What is kept between runs, as interfaces: spending, traces, ratings, attachments, circuits.

Files and SQLite are their embedded implementation: `DailySpend`, `TraceStore`, `RatingsFile`, `Attachments` and
`Circuits`. A response of the server is the trace of its run, and a conversation is what follows from it, so both are
read and deleted by `Traces`. The interfaces speak in values of `core`: no path, no file and no type of a database. A
change is there as a whole or not at all, and another process sees it when the call returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import Failure, FailureKind, ModelError, UsageError
from conductor_cli.core.learning import Rating
from conductor_cli.core.ledger import DayBudget, Reservation
from conductor_cli.core.pool import Worker
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.state.stored_run import EVERY_RUN, RunQuery, StoredRun

MAX_WAIT: Final = 1.0
"""Seconds that a piece of streamed text may wait for others before it is written."""


class Spending(Protocol):
    """What all processes spend on each day, held to the limits of a day."""

    @property
    def cost_limit(self) -> Decimal | None:
        """The limit on money that calls are held to."""

    def check(self) -> None:
        """Raise `ConfigError` if there are limits and spending cannot be recorded."""

    def today(self) -> DayBudget:
        """Return what is spent and reserved by now."""

    async def reserve(
        self, decide: Callable[[DayBudget], Reservation | None], release: Callable[[Reservation], None],
        worker: Worker | None = None, leased: str = "",
    ) -> Reservation | None:  # fmt: skip
        """Let `decide` make a reservation for a call of `worker`, the conductor if None; nobody else takes its room.

        It is recorded before this returns. Where that fails, `release` is called, and `LimitReached` raised; so it is
        where another process has the run `leased`, if that is not empty.
        """

    def settle(self, reservation: Reservation, usage: Usage, *, failed: bool = False) -> None:
        """Put what a call used in the place of its reservation. `failed`: nothing of its reply is used.

        Nobody waits for it, but the next reservation does.
        """

    def find_problem(self) -> str:
        """Return why nothing can be recorded; empty where it can."""

    def take_problem(self) -> str:
        """Return why something was not recorded; empty if it was, or if that was asked before."""

    def close(self) -> None:
        """Let go of what is open."""


class EventWriter(Protocol):
    """The trace of one run while it goes on. An event that cannot be written is written again with the next one."""

    @property
    def place(self) -> str:
        """Where the trace is, for messages."""

    @property
    def problem(self) -> str:
        """Why the newest events are not written yet; empty where they are."""

    @property
    def waiting(self) -> int:
        """How many pieces of text wait for others. Whoever writes them calls `flush` after `MAX_WAIT` seconds."""

    def write(self, event: ev.Event) -> Awaitable[None] | None:
        """Append an event; pieces of streamed text may wait for each other, for a second at most.

        What is returned, if anything, ends when that is done. Nothing has to be awaited outside an event loop.
        """

    def flush(self) -> Awaitable[None] | None:
        """Write what waits, as `write` does."""

    def close(self) -> None:
        """Write what waits, and let others read the run as ended or interrupted."""

    def discard(self) -> None:
        """Delete the trace."""


class TraceReader(Protocol):
    """The events of one trace, also while it is written, each once."""

    def read(self) -> list[ev.Event]:
        """Return the next events, not all at once where there are many. Raises `OSError`."""

    def is_behind(self) -> bool:
        """Whether there may be more than was read. Raises `OSError`."""

    def is_written(self) -> bool:
        """Whether some process is writing the trace, or has only just begun it."""

    @property
    def idle(self) -> float:
        """Seconds since the trace was written, when it was last read."""


class Traces(Protocol):
    """The events of all runs. `run` is an id."""

    @property
    def place(self) -> str:
        """Where the traces are, for messages."""

    def open(self, run: str) -> EventWriter:
        """Begin the trace of a new run, which nobody else has. Raises `OSError`."""

    def runs(self) -> list[str]:
        """Return the ids of all stored runs, newest first."""

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """Return the newest matching runs, all for -1, and whether there are more. Raises `OSError`."""

    def find(self, name: str, among: Sequence[str] | None = None) -> str:
        """Return the id of the run called `name`: an id, the beginning of one, `last` or `last~2`.

        `among` are the only runs that may be meant. Raises `UsageError`.
        """

    def location(self, run: str) -> str:
        """Where the trace of a run is, for people: the path of a file, or a name in a database."""

    def events(self, run: str, *, pieces: bool = True) -> Iterator[ev.Event]:
        """Yield the events of a stored run; without `pieces`, no streamed texts."""

    def trace(self, run: str, *, pieces: bool = True) -> Trace:
        """Return the trace of a stored run. Raises `UsageError` as `events` does."""

    def follow(self, run: str) -> TraceReader:
        """Return a reader of the events of a run, from the first one on."""

    def ended(self, name: str, *, pieces: bool = True) -> Trace:
        """Return the trace of the run called `name`. Raises `UsageError`, also while it is being written."""

    def is_running(self, run: str) -> bool:
        """Whether some process is writing this run."""

    def remove(self, run: str) -> None:
        """Delete a stored run. Raises `UsageError` while it is being written."""

    def prune(self, runs: Collection[str]) -> list[UsageError]:
        """Delete stored runs, and return why some of them are still there. Raises nothing for these."""

    def refresh(self) -> None:
        """Let nothing remain of deleted runs in what lists are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRatings:
    """Ratings in the order in which they were given. `problem` says which could not be read."""

    ratings: tuple[Rating, ...] = ()
    problem: str = ""


class Ratings(Protocol):
    """The ratings of runs. They stay when a run is deleted."""

    def add(self, rating: Rating) -> None:
        """Append a rating. Raises `ConfigError`."""

    def read(self) -> StoredRatings:
        """Return the ratings that count, in the order in which they were given. What is damaged is left out."""


class Conversations(Protocol):
    """The names of conversations. What was said in them is in the traces."""

    def read(self) -> dict[str, str]:
        """Return the last run of each conversation by its name, the newest conversation first."""

    def set(self, name: str, run: str) -> None:
        """Let a name stand for the conversation that ends with this run. Raises `ConfigError`."""


class AttachmentStore(Protocol):
    """The bytes of images and documents, by their SHA-256."""

    def add(self, data: bytes) -> str:
        """Keep these bytes in memory and return their hash."""

    def holds(self, attachment: Attachment) -> bool:
        """Whether the bytes of an attachment are there."""

    def read(self, attachment: Attachment) -> bytes:
        """Return the bytes of an attachment. Raises `ModelError` of reason `file` if they are gone or were changed."""

    def store(self, attachments: Iterable[Attachment]) -> None:
        """Keep what is in memory of these for good: a stored run names them. Raises `OSError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCircuit:
    """A circuit that is open until then, by the clock `time.monotonic`, and why."""

    until: float
    failures: int
    reason: str
    kind: FailureKind


class CircuitBoard(Protocol):
    """What processes tell each other of open circuits. A key stands for a circuit; nobody waits for anything here."""

    def publish(self, key: str, circuit: OpenCircuit) -> None:
        """Tell others that a circuit is open."""

    def withdraw(self, key: str) -> None:
        """Tell others that it is closed again."""

    def find(self, key: str) -> OpenCircuit | None:
        """Return what others have said of a circuit that is still open."""


class CircuitStates(Protocol):
    """Which workers are skipped because their last calls failed."""

    def why_skipped(self, worker: Worker) -> Failure | None:
        """Return why a worker is not asked now; None where it may be."""

    def calling(self, worker: Worker) -> AbstractContextManager[None]:
        """Make calls of `worker` for one step inside; after a break the first of them decides for everybody."""

    def succeeded(self, worker: Worker) -> None:
        """Note that a call was answered."""

    def failed(self, worker: Worker, error: ModelError) -> None:
        """Note that a call failed."""
