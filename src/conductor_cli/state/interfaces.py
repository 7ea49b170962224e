"""What is kept between runs, as interfaces: spending, traces and attachments.

Files and SQLite are their embedded implementation, `postgres` the other one. A response of the
server is the trace of its run, and a conversation is what follows from it, so both are read and
deleted by `Traces`. The interfaces speak in values of `core`: no path, no file and no type of a
database. A change is there as a whole or not at all, and another process sees it when the call
returns.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from typing import Final, Literal, NamedTuple, Protocol

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import FailureKind, ModelError, UsageError
from conductor_cli.core.learning import Rating
from conductor_cli.core.ledger import DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.core.usage import Usage
from conductor_cli.state.stored_run import EVERY_RUN, RunQuery, StoredRun

# Seconds that a piece of streamed text may wait for others before it is written
MAX_WAIT: Final = 1.0
CONDUCTOR: Final = "conductor"  # Who calls where that is no worker
NANO: Final = 10**9  # Money is stored in billionths of a dollar, which add up exactly
_LAST: Final = re.compile(r"last(?:~(\d{1,9}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """Who spends.

    A client of a server, by the name of its key, and the US dollars that it may spend on one day.
    """

    name: str = ""
    cost: Decimal | None = None


USER: Final = Spender()  # The user of this machine


class Spending(ABC):
    """What all processes spend on each day, held to `limits`.

    `planner` calls without being a worker.

    Where a `client` of a server asks, its own spending is held to its limit too.
    """

    def __init__(self, limits: DayLimits, planner: Worker | None, client: Spender) -> None:
        self.limits = limits
        self.client = client
        self.expects_calls = False
        """Whether one call soon follows the other, as in a batch: what ends is then recorded with
        the next one.
        """
        self._planner = planner or Worker(name=CONDUCTOR, kind="")
        self._problem = ""

    @property
    def cost_limit(self) -> Decimal | None:
        """The limit on money that calls are held to: the user's, or else the client's."""
        if self.limits.cost is None:
            return self.client.cost
        return self.limits.cost

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigError` if there are limits and spending cannot be recorded.

        Without a database, always.
        """

    @abstractmethod
    def today(self) -> DayBudget:
        """Return what is spent and reserved by now."""

    @abstractmethod
    async def reserve(
        self,
        decide: Callable[[DayBudget], Reservation | None],
        release: Callable[[Reservation], None],
        worker: Worker | None = None,
        leased: str = "",
    ) -> Reservation | None:
        """Let `decide` make a reservation for a call of `worker`, the conductor if None.

        Nobody else takes its room.

        It is recorded before this returns. Where that fails, `release` is called, and
        `LimitReached` or `StateUnavailable` raised; so it is where another process has the run
        `leased`, if that is not empty. In files without limits, a call is made even if it cannot be
        recorded.
        """

    @abstractmethod
    def settle(self, reservation: Reservation, usage: Usage, *, failed: bool = False) -> None:
        """Put what a call used in the place of its reservation.

        `failed`: nothing of its reply is used.

        Nobody waits for it, but the next reservation does. See `take_problem`.
        """

    @abstractmethod
    def find_problem(self) -> str:
        """Return why nothing can be recorded; empty where it can."""

    def take_problem(self) -> str:
        """Return why something was not recorded; empty if it was, or if that was asked before."""
        problem = self._problem
        self._problem = ""
        return problem

    @abstractmethod
    def close(self) -> None:
        """Record what could not be recorded before, if it can be now, and close what is open."""

    def _budget(self, cost: int, tokens: int, calls: int, of_client: int) -> DayBudget:
        """Return the budget of a day by what is spent.

        It has the money of the client where that leaves less.
        """
        budget = DayBudget(
            limits=self.limits, cost=Decimal(cost) / NANO, tokens=tokens, calls=calls
        )
        limit = self.limits.cost
        most = self.client.cost
        spent = Decimal(of_client) / NANO
        if most is None or (limit is not None and limit - budget.cost <= most - spent):
            return budget
        return replace(budget, limits=replace(budget.limits, cost=most), cost=spent)


class EventWriter(Protocol):
    """The trace of one run while it goes on.

    An event that cannot be written is written again with the next one.
    """

    @property
    def place(self) -> str:
        """Where the trace is, for messages."""

    @property
    def problem(self) -> str:
        """Why the newest events are not written yet.

        Empty where they are, also after a later success.
        """

    @property
    def waiting(self) -> int:
        """How many pieces of text wait for others.

        Whoever writes them calls `flush` after `MAX_WAIT` seconds.
        """

    def write(self, event: ev.Event) -> asyncio.Future[None] | None:
        """Append an event; pieces of streamed text may wait for each other, for a second at most.

        What is returned, if anything, ends when that is done. Nothing has to be awaited outside an
        event loop.
        """

    def flush(self) -> asyncio.Future[None] | None:
        """Write what waits, as `write` does."""

    @property
    def is_closed_quickly(self) -> bool:
        """Whether `close` takes so little time that an event loop may wait for it."""

    def close(self) -> None:
        """Write what waits, and let others read the run as ended or interrupted."""

    def discard(self) -> None:
        """Delete the trace."""


class ClaimsRequests(Protocol):
    """What knows which run answers the request of an `Idempotency-Key`."""

    def claim_request(
        self, key: str, request: str, run: str, instead_of: str = ""
    ) -> tuple[str, float]:
        """Return the run that answers the request, and since how many seconds it is to do so.

        That is `run` where there was none, or only the failed one `instead_of`. Raises `UsageError`
        where the key was used for another request. All of them are hashes.
        """
        ...


class TraceReader(Protocol):
    """The events of one trace, also while it is written, each once."""

    def read(self) -> list[ev.Event]:
        """Return the next events, not all at once where there are many. Raises `OSError`."""

    def is_behind(self) -> bool:
        """Return whether there may be more than was read. Raises `OSError`."""

    def is_written(self) -> bool:
        """Return whether some process is writing the trace, or has only just begun it."""

    @property
    def idle(self) -> float:
        """Seconds since the trace was written, when it was last read."""


Fault = Literal[
    "changed",
    "added",
    "missing",
    "incomplete",
    "joined",
    "behind_end",
    "no_end",
    "foreign",
    "empty",
    "old",
]
"""What is wrong with a line, or before it (`missing`), or behind it (`no_end`). `old`: nothing has
a hash yet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFault:
    """One fault, as a sentence. `line` is 0 for the whole file."""

    line: int
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCheck:
    """What was found in a trace.

    `link` is the end of the chain: it stands for all that is before it.
    """

    run: str
    lines: int
    link: str
    running: bool = False
    faults: tuple[TraceFault, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.faults


def find_run(name: str, runs: Sequence[str]) -> str:
    """Return the one of these runs, newest first, that is called `name`.

    Raises `UsageError` for none or several.
    """
    back = runs_back(name)
    matches = list[str]()
    if back is not None:
        matches += runs[back : back + 1]
    elif name in runs:
        matches.append(name)
    elif name:
        matches += [run for run in runs if run.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    problem = f"there is no run {name!r}"
    if matches:
        problem = f"{len(matches)} runs begin with {name!r}"
    raise UsageError(problem, hint="conductor trace list shows the stored runs")


def runs_back(name: str) -> int | None:
    """Return how many runs before the last one `last~2` is; None for any other name."""
    match = _LAST.fullmatch(name)
    if match is None:
        return None
    return int(match[1] or 0)


class Traces(ABC):
    """The events of all runs. `run` is an id."""

    place: str  # Where the traces are, for messages

    @abstractmethod
    def open(self, run: str) -> EventWriter:
        """Begin the trace of a new run, which nobody else has. Raises `OSError`."""

    @abstractmethod
    def runs(self) -> list[str]:
        """Return the ids of all stored runs, newest first.

        Raises `UsageError` where they cannot be read.
        """

    def newest_ids(self, count: int = 1) -> list[str]:
        """Return the ids of so many runs, the newest first.

        Raises `UsageError` where they cannot be read.
        """
        return self.runs()[:count]

    def last_begun(self) -> str:
        """Return the id of the run that was begun last, empty where there is none.

        It takes the same time among many runs; one that was copied here may be newer. Raises
        `UsageError` where runs cannot be read.
        """
        newest = self.newest_ids()
        return newest[0] if newest else ""

    @abstractmethod
    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """Return the newest matching runs, all for -1, and whether there are more.

        Raises `OSError`.
        """

    def find(self, name: str, among: Sequence[str] | None = None) -> str:
        """Return the id of the run called `name`.

        An id, the beginning of one, `last`, or `last~2`, two before it. Where the clock was wrong,
        now or then, `last` is the run that was begun last, whatever its id says.

        `among` are the only runs that may be meant, newest first. Raises `UsageError` for none or
        several.
        """
        if among is not None:
            return find_run(name, among)
        back = runs_back(name)
        if back is not None:
            newest = self.newest_ids(back + 1)
            if back == 0 and newest and newest[0] > f"{datetime.now(UTC):%Y%m%d-%H%M%S}.":
                newest = [self.last_begun()]
            return find_run(name, newest)
        return find_run(name, self.runs())

    @abstractmethod
    def location(self, run: str) -> str:
        """Return where the trace of a run is, for people.

        The path of a file, or a name in a database.
        """

    @abstractmethod
    def _read(self, run: str, *, pieces: bool) -> Iterator[ev.Event]:
        """Yield the events of a stored run, up to its last complete line. Raises `UsageError`."""

    def events(self, run: str, *, pieces: bool = True) -> Iterator[ev.Event]:
        """Yield the events of a stored run, up to its last complete line.

        Without `pieces`, no streamed texts.

        Raises `UsageError` where there is none, or nothing of it can be read.
        """
        is_empty = True
        for event in self._read(run, pieces=pieces):  # some look only at the first one
            is_empty = False
            yield event
        if is_empty:
            hint = f"conductor trace rm {run} deletes it"
            raise UsageError(f"{self.location(run)} has no complete event", hint=hint)

    def trace(self, run: str, *, pieces: bool = True) -> Trace:
        """Return the trace of a stored run. Raises `UsageError` as `events` does."""
        return reduce(apply_event, self.events(run, pieces=pieces), Trace())

    @abstractmethod
    def follow(self, run: str) -> TraceReader:
        """Return a reader of all events of a run, also while it is written."""

    def ended(self, name: str, *, pieces: bool = True) -> Trace:
        """Return the trace of the run called `name`.

        Raises `UsageError`, also while it is being written.
        """
        run = self.find(name)
        if self.is_running(run):
            raise UsageError(
                f"run {run} is still running", hint="wait until it ends, or stop it first"
            )
        return self.trace(run, pieces=pieces)

    @abstractmethod
    def is_running(self, run: str) -> bool:
        """Return whether some process is writing this run."""

    @abstractmethod
    def check(self, run: str) -> TraceCheck:
        """Return whether the trace of a run is whole.

        Raises `UsageError` when it cannot be read.
        """

    @abstractmethod
    def repair(self, run: str, check: TraceCheck) -> str:
        """Keep what is whole of a trace.

        Returns where it is as it was before; empty where nothing had to be done.

        Raises `UsageError` where nothing can be kept, while it is being written, or when the system
        refuses.
        """

    @abstractmethod
    def remove(self, run: str) -> None:
        """Delete a stored run.

        Raises `UsageError` while it is being written, or when the system refuses.
        """

    @abstractmethod
    def prune(self, runs: Collection[str]) -> list[UsageError]:
        """Delete stored runs, and return why some of them are still there.

        Raises nothing for these.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Let nothing remain of deleted runs in what lists are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRatings:
    """Ratings in the order in which they were given. `problem` says which could not be read."""

    ratings: tuple[Rating, ...] = ()
    problem: str = ""


class SharedCircuit(NamedTuple):
    """A circuit that is open for some more seconds, and why."""

    seconds: float
    failures: int
    reason: str
    kind: FailureKind


class AttachmentStore(ABC):
    """The bytes of images and documents, once each, by their SHA-256.

    In memory until a run is stored.

    A trace names what it needs; what no trace names any more is deleted with the traces. A run
    without a trace keeps its bytes in memory.
    """

    def __init__(self) -> None:
        self._in_memory = dict[str, bytes]()

    def add(self, content: bytes) -> str:
        """Keep these bytes in memory and return their hash."""
        digest = hashlib.sha256(content).hexdigest()
        self._in_memory[digest] = content
        return digest

    def holds(self, attachment: Attachment) -> bool:
        # The hash may come from an edited plan file.
        digest = attachment.sha256
        return digest in self._in_memory or (is_sha256(digest) and self._is_stored(digest))

    def read(self, attachment: Attachment) -> bytes:
        """Return the bytes of an attachment.

        Raises `ModelError` of reason `file` if they are gone or were changed.
        """
        digest = attachment.sha256
        if (in_memory := self._in_memory.get(digest)) is not None:
            return in_memory
        if not is_sha256(digest):
            digest = "invalid"
        try:
            content = self._load(digest)
        except OSError as error:
            why = f"{error.strerror or error}: {self._place_of(digest)}"
            raise ModelError("file", f"{attachment.name} cannot be read: {why}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            why = f"{attachment.name} was changed after it was attached: {self._place_of(digest)}"
            raise ModelError("file", why)
        return content

    def store(self, attachments: Iterable[Attachment]) -> None:
        """Keep what is in memory of these for good, and in memory no longer. Raises `OSError`.

        Called once the trace that names them exists: nothing is deleted that a trace names.
        """
        contents = dict[str, bytes]()
        for attachment in attachments:
            if attachment.sha256 in self._in_memory:
                contents[attachment.sha256] = self._in_memory[attachment.sha256]
        if contents:
            self.keep(contents)
        for digest in contents:
            del self._in_memory[digest]

    @abstractmethod
    def _place_of(self, digest: str) -> str: ...
    @abstractmethod
    def _is_stored(self, digest: str) -> bool: ...
    @abstractmethod
    def _load(self, digest: str) -> bytes:
        """Return stored bytes. Raises `OSError`."""

    @abstractmethod
    def keep(self, wanted: dict[str, bytes]) -> None:
        """Store bytes by their hashes. Raises `OSError`."""

    @abstractmethod
    def prune(self) -> None:
        """Delete what no trace names any more."""

    @abstractmethod
    def prunable(self, without: Collection[str]) -> int:
        """Return how many bytes `prune` would free if the traces of these runs were deleted."""


EDITOR_PREFIX: Final = "acp-"  # How the name of an editor's conversation begins
EDITOR_SESSION: Final = re.compile(rf"{EDITOR_PREFIX}[0-9a-f]{{16}}")


def is_editor_session(name: str) -> bool:
    """Return whether a conversation has the name that `acp` gave it, and not one of a person's."""
    return EDITOR_SESSION.fullmatch(name) is not None


def is_sha256(text: str) -> bool:
    """Return whether a text is such a hash, in small letters."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None
