"""What is spent on each day: an append-only file a day, to which every process adds the calls that it makes.

A line is a call that has ended, with what it took, or the room that a call under way holds. Where a day has limits, a
call takes its room under a lock and counts what all others hold, so processes side by side cannot overshoot a limit
together. Room is held for as long as its process lives: each holds a lock on a file of its own, which the system lets
go with the process.

A day is one of the local calendar, and a call counts for the day on which it began. A clock that goes back by up to a
day opens no new one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, LimitReached
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.dayfile import SUFFIX, Day, Entry, entry_line, hold_line
from conductor_cli.models.disk import AppendLog, exclusive_lock
from conductor_cli.models.presets import recipient_of

TURNS: Final = 20
"""Half seconds that a process waits for another one to write its line."""
CONDUCTOR: Final = "conductor"


def local_now() -> datetime:
    """The time by the local calendar."""
    return datetime.now().astimezone()


class DailySpend:
    """The spending of one process among that of all, held to `limits`. `planner` calls without being a worker."""

    def __init__(
        self, directory: Path, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None,
        now: Callable[[], datetime] = local_now,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.limits = limits
        self.problem = ""
        """Why something that was spent is not written down."""
        self._planner = planner
        self._now = now
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._life: Any = None
        self._days: dict[Path, Day] = {}
        self._holds: dict[int, tuple[str, Path]] = {}
        """Of each call under way by its reservation: the name of its hold, empty for none, and the file of its day."""
        self._count = 0

    def check(self) -> None:
        """Raise `ConfigError` where there are limits of a day and no book can be kept."""
        if not self.limits:
            return
        try:
            with self._alone():
                self._today()
        except OSError as error:
            said = f"the limits of a day cannot be kept: {self.directory}: {error.strerror or error}"
            raise ConfigError(said, hint="mend its rights, or take limits.cost_day and its likes out") from None

    def today(self) -> DayBudget:
        """What is spent and held by now. Raises `OSError`."""
        with self._alone():
            return self._today()[1]

    def reserve(
        self, decide: Callable[[DayBudget], Reservation | None], release: Callable[[Reservation], None]
    ) -> Reservation | None:
        """Have a reservation decided on, and hold its room before anybody else looks. Raises `LimitReached`.

        `release` is called with one that could not be written down, and so does not hold.
        """
        if not self.limits:
            return self._begun(decide(NO_DAY_LIMITS))
        reservation = None
        try:
            with self._alone():
                day, today = self._today()
                reservation = decide(today)
                if reservation is not None:
                    self._hold(reservation, day.path)
                return reservation
        except OSError as error:
            if reservation is not None:
                release(reservation)
            said = f"today's limit cannot be kept: {self.directory}: {error.strerror or error}"
            raise LimitReached(said, hint="mend its rights; then go on") from None

    def _begun(self, reservation: Reservation | None) -> Reservation | None:
        """A call that holds no room; it counts for the day on which it began all the same."""
        if reservation is not None:
            self._holds[id(reservation)] = "", self._path()
        return reservation

    def settle(self, reservation: Reservation, usage: Usage, worker: Worker | None) -> None:
        """A call of `worker`, or of the conductor where that is None, has ended. What cannot be written is told."""
        ends, path = self._holds.pop(id(reservation))
        if not ends and usage == NO_USAGE:
            return
        who = worker or self._planner or Worker(name=CONDUCTOR, kind="")
        entry = Entry(
            worker=who.name, provider=recipient_of(who), model=who.model, usage=usage, call=reservation.call, ends=ends
        )
        try:
            self._append(path, entry_line(entry, self._now()))
        except OSError as error:
            self.problem = f"what was spent is not written down: {self.directory}: {error.strerror or error}"

    def close(self) -> None:
        """Let go of what is held."""
        if self._life is not None:
            with suppress(OSError):
                self._life.release()
                Path(self._life.lock_file).unlink(missing_ok=True)
            self._life = None

    # Files

    @contextmanager
    def _alone(self) -> Iterator[None]:
        turns = 0

        def wait() -> None:
            nonlocal turns
            turns += 1
            if turns > TURNS:
                raise OSError(0, "another process holds it")

        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(self.directory / ".lock", wait):
            yield

    def _path(self) -> Path:
        """The file of today; that of tomorrow where the clock was there already."""
        today = self._now().date()
        tomorrow = self.directory / f"{today + timedelta(days=1)}{SUFFIX}"
        return tomorrow if tomorrow.is_file() else self.directory / f"{today}{SUFFIX}"

    def _today(self) -> tuple[Day, DayBudget]:
        path = self._path()
        day = self._days.setdefault(path, Day(path))
        day.read()
        held = [room for hold, room in day.holds.items() if self._is_held(hold)]
        return day, DayBudget(
            limits=self.limits,
            cost=day.cost + sum((room.cost for room in held), Decimal(0)),
            tokens=day.tokens + sum(room.tokens for room in held),
            calls=day.calls + sum(room.call for room in held),
        )

    def _hold(self, reservation: Reservation, path: Path) -> None:
        if self._life is None:
            from filelock import FileLock

            self._life = FileLock(self.directory / f".{self._owner}.life", mode=0o600)
            with suppress(NotImplementedError):
                self._life.acquire(timeout=0)
        self._count += 1
        hold = f"{self._owner}.{self._count}"
        self._append(path, hold_line(hold, reservation))
        self._holds[id(reservation)] = hold, path

    def _is_held(self, hold: str) -> bool:
        """Whether the process that holds this room lives."""
        owner = hold.partition(".")[0]
        if owner == self._owner:
            return True
        path = self.directory / f".{owner}.life"
        return path.parent == self.directory and path.exists() and _is_locked(path)

    def _append(self, path: Path, line: Mapping[str, Any]) -> None:
        journal = AppendLog(path)
        try:
            journal.append(json.dumps(line, ensure_ascii=True, separators=(",", ":")))
        finally:
            journal.close()


def _is_locked(path: Path) -> bool:
    """Whether another holds the lock; a file that nobody holds is taken away."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            path.unlink(missing_ok=True)
    except (Timeout, NotImplementedError, OSError):
        return True
    return False
