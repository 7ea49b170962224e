"""What a campaign tries, and what came of it.

One line for each try in a file, so that a campaign can be continued.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

Case = TypeVar("Case")


class OutOfTime(Exception):
    """The minutes of a campaign are over; the next call continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one try.

    `problem` is empty where everything promised held; else it says what did not, in a line.

    `hit` is false where the fault had no place to strike, so that nothing was tried. `weight` is
    how many things one try stands for, such as the runs of a soak.
    """

    problem: str = ""
    hit: bool = True
    weight: int = 1


class Report(NamedTuple):
    """One campaign in numbers.

    `first` is the name of the first failed try, which reproduces it, and its problem.
    """

    campaign: str
    tried: int
    failed: int
    seconds: float
    first: str = ""

    @property
    def line(self) -> str:
        return (
            f"{self.campaign:<12} {self.tried:>7,} {self.failed:>7,} {self.seconds:>8.0f}  "
            f"{self.first or '-'}"
        )


class Tries:
    """The tries of one campaign.

    `seed` is where its random choices begin; `only` limits it to some names.
    """

    def __init__(
        self, campaign: str, directory: Path, *, seed: int, minutes: float, only: str = ""
    ) -> None:
        self.campaign = campaign
        self.seed = seed
        self._only = only
        self._end = time.monotonic() + 60 * minutes
        # A campaign may change the directory
        self._file = (directory / f"{campaign}-{seed}.jsonl").absolute()
        self._done: dict[str, Outcome] = {}
        self._seconds = 0.0
        self._read()

    def wants(self, name: str) -> bool:
        return name not in self._done and self._only in name

    def attempt(self, name: str, check: Callable[[], Outcome]) -> Outcome:
        """Try one thing, unless that was done before. `name` is unique and says how to do it again.

        What `check` raises is a failed try too. Raises `OutOfTime` before a try for which no time
        is left.
        """
        if name in self._done:
            return self._done[name]
        if self._only not in name:
            return Outcome()
        if time.monotonic() > self._end:
            raise OutOfTime
        begun = time.monotonic()
        try:
            outcome = check()
        except Exception as error:  # noqa: BLE001
            # A fault in what is tried or in the campaign: somebody has to look
            outcome = Outcome(problem=f"{type(error).__name__}: {error}")
        self.add(name, outcome, time.monotonic() - begun)
        return outcome

    async def in_lanes(
        self, queue: Iterable[Case], lanes: int, check: Callable[[Case], Awaitable[Outcome | None]]
    ) -> None:
        """Try cases that are named by `str`, so many at the same time.

        An outcome of None does not count.
        """
        cases = iter(queue)

        async def lane() -> None:
            for case in cases:
                if time.monotonic() > self._end:
                    return
                began = time.monotonic()
                try:
                    outcome = await check(case)
                except Exception as error:  # noqa: BLE001
                    # A fault in what is tried or in the campaign
                    outcome = Outcome(problem=f"{type(error).__name__}: {error}")
                if outcome is not None:
                    self.add(str(case), outcome, time.monotonic() - began)

        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def skips(self, group: str) -> bool:
        """Whether nothing is wanted of the tries whose names begin with the word `group`."""
        return bool(self._only) and self._only.split()[0] != group

    def report(self) -> Report:
        hits = [outcome for outcome in self._done.values() if outcome.hit]
        failed = [(name, outcome) for name, outcome in self._done.items() if outcome.problem]
        first = f"{failed[0][0]}: {failed[0][1].problem}" if failed else ""
        tried = sum(outcome.weight for outcome in hits)
        return Report(
            campaign=self.campaign,
            tried=tried,
            failed=len(failed),
            seconds=self._seconds,
            first=first,
        )

    def _read(self) -> None:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for line in lines:
            with suppress(ValueError):  # a call that was killed left the last line incomplete
                row = json.loads(line)
                self._seconds += row.pop("seconds")
                name = row.pop("name")
                self._done[name] = Outcome(**row)

    def add(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Keep what came of a try, for campaigns that try several things at the same time."""
        if outcome.problem:
            print(f"FAILED {name}: {outcome.problem}", flush=True)
        self._done[name] = outcome
        self._seconds += seconds
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(
                json.dumps({"name": name, "seconds": round(seconds, 3), **asdict(outcome)}) + "\n"
            )
