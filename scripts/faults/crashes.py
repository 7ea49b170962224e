"""Random lives of processes over one store, each ended by a crash.

Then what was acknowledged must still be there.

A life is a process of its own that writes traces, spends, rates, lists, changes settings. It ends
without closing anything: between two operations, or in one of them after some of its writes, the
last of which may be half done. The system takes its locks away, as it does after a kill. Hypothesis
draws the lives and makes a failure short.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from conductor_cli.config.files import edit_settings_file, read_toml
from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.learning import Rating
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.pool import DayLimits, Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.state.records import RatingsFile
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.spending import DailySpend
from conductor_cli.state.spending_file import read_spent
from conductor_cli.state.trace_file import TraceWriter
from conductor_cli.state.trace_store import TraceStore
from scripts.faults.tries import Outcome, Tries

ROUNDS: Final = 100

EXAMPLES: Final = 25  # sequences of lives in one try
OPERATIONS: Final = (
    "begin",
    "event",
    "finish",
    "remove",
    "spend",
    "reserve",
    "rate",
    "list",
    "set",
)

# The time of all lives, so that none of them sees midnight
NOW: Final = datetime(2026, 11, 22, 20, 15, tzinfo=UTC)
# Tokens of a reservation. One whose process died counts as spent: the call may have been made.
RESERVED: Final = 10
Operation = tuple[str, int]  # what is done, and with which run or amount


def run(tries: Tries) -> None:
    """Try sequences of lives; each try is made from one number."""
    for number in range(ROUNDS):
        tries.attempt(f"lives {number}", partial(try_lives, tries.seed * 1000 + number, EXAMPLES))


def try_lives(number: int, examples: int) -> Outcome:
    """Some sequences of lives, drawn from `number`."""
    options = settings(
        max_examples=examples,
        stateful_step_count=8,
        deadline=None,
        database=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    before = Lives.lived
    try:
        run_state_machine_as_test(seed(number)(Lives), settings=options)
    except Exception as error:  # noqa: BLE001 - whatever breaks is what is looked for
        notes = " ".join(" ".join(getattr(error, "__notes__", ())).split())
        return Outcome(
            problem=f"{type(error).__name__}: {error} {notes}"[:1500], weight=Lives.lived - before
        )
    return Outcome(weight=Lives.lived - before)


@dataclass
class Known:
    """What the lives so far were told is done, and what the last one had begun."""

    events: dict[str, list[str]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    tokens: int = 0
    calls: int = 0
    ratings: list[str] = field(default_factory=list)
    setting: str = ""
    begun: tuple[str, str, int] = ("", "", 0)
    cut_off: set[str] = field(default_factory=set)


class Lives(RuleBasedStateMachine):
    """One store, and one life after the other."""

    lived = 0

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
        self.home = Path(
            tempfile.mkdtemp(prefix="conductor-lives-", dir=memory if memory.is_dir() else None)
        )
        self.known = Known()
        self.number = 0

    @rule(
        operations=st.lists(
            st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 2)), min_size=1, max_size=8
        ),
        last=st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 2)),
        writes=st.integers(0, 25),
    )
    def live(self, operations: list[Operation], last: Operation, writes: int) -> None:
        """A process does `operations`, then begins `last` and dies after so many writes of it; 0.

        It never begins.
        """
        type(self).lived += 1
        self.number += 1
        for done in live(self.home, self.number, [*operations, last], writes):
            learn(self.known, done)
        check(self.home, self.known)

    def teardown(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)


def live(home: Path, number: int, operations: Sequence[Operation], writes: int) -> list[Any]:
    """Run a life in a process of its own; what it said it would do and had done, in order.

    Raises what broke in it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _live(home, number, operations, writes, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        records = [json.loads(line) for line in file if line.endswith(b"\n")]
    os.waitpid(child, 0)
    broken = [record["broke"] for record in records if "broke" in record]
    assert not broken, broken[0]
    return records


def _live(
    home: Path, number: int, operations: Sequence[Operation], writes: int, pipe: int
) -> NoReturn:
    write = os.write

    def say(**fields: object) -> None:
        write(pipe, json.dumps(fields).encode() + b"\n")

    try:
        life = Life(home, number)
        for position, (name, value) in enumerate(operations):
            if position == len(operations) - 1:
                if writes == 0:
                    break
                crash_after(writes)
            begun = life.describe(name, value)
            if begun is not None:
                say(begins=begun)
                life.do(name, begun)
                say(done=begun)
    except BaseException as error:  # noqa: BLE001 - told to the parent, which knows what it means
        say(broke=f"{type(error).__name__}: {error}")
    finally:
        os._exit(9)


def crash_after(writes: int) -> None:
    """End this process at its write number `writes`.

    A file's, whose bytes are half written, or a statement's.
    """
    left = writes

    def count() -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            if count():
                if function is write:
                    function(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os._exit(9)
            return function(*arguments, **named)

        return act

    write = os.write
    connect = sqlite3.connect

    def traced(*arguments: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **named)
        database.set_trace_callback(lambda _: os._exit(9) if count() else None)
        return database

    for name in ("write", "open", "replace", "rename", "unlink", "fsync", "link", "ftruncate"):
        setattr(os, name, dying(getattr(os, name)))
    sqlite3.connect = traced  # type: ignore[assignment]


class Life:
    """What one process has open. Nothing of it is ever closed."""

    def __init__(self, home: Path, number: int) -> None:
        self._home = home
        self._number = number
        self._writers: dict[str, TraceWriter] = {}
        self._runs: set[str] = set()
        self._spend = DailySpend(home / "spending", DayLimits(calls=100_000), now=lambda: NOW)
        self._count = 0

    def describe(self, name: str, value: int) -> tuple[str, str, int] | None:
        """The operation with the run that it is about; None where there is no such run."""
        self._count += 1
        identity = self._number * 100 + self._count
        run = f"20261122-201500-{self._number:02x}{value:02x}"
        if name == "begin":
            again = run in self._runs  # an id is never used twice, even after its run was removed
            self._runs.add(run)
            return None if again else (name, run, identity)
        if name in {"event", "finish"}:
            return (name, run, identity) if run in self._writers else None
        if name == "remove":
            ended = [
                run_id
                for run_id in TraceStore(self._home / "traces").runs()
                if run_id not in self._writers
            ]
            return (name, ended[value], identity) if value < len(ended) else None
        return name, run, identity

    def do(self, name: str, begun: tuple[str, str, int]) -> None:
        """Do it. Whoever calls says afterwards that it is done."""
        _, run, identity = begun
        if name == "begin":
            self._writers[run] = TraceStore(self._home / "traces").open(run)
            question = Question(text=f"question {identity}")
            pool = Pool(workers=(Worker(name="a", kind="openai"),))
            self._write(
                run,
                ev.RunStarted(
                    at=0.0,
                    run=run,
                    time="2026-11-22T20:15:00Z",
                    question=question,
                    pool=pool,
                    limits=Limits(),
                    mode="auto",
                    conductor="c",
                    profile="p",
                ),
            )
        elif name == "event":
            self._write(run, ev.Notice(at=1.0, text=f"notice {identity}"))
        elif name == "finish":
            self._write(run, ev.RunFinished(at=2.0, answer="yes", usage=Usage()))
            self._writers.pop(run).close()
        elif name == "remove":
            TraceStore(self._home / "traces").remove(run)
            TraceStore(self._home / "traces").refresh()
        elif name in {"spend", "reserve"}:
            room = Reservation(answer=5, tokens=RESERVED, cost=Decimal("0.01"), call=True)
            held = asyncio.run(self._spend.reserve(lambda _: room, lambda _: None))
            if name == "spend" and held is not None:
                self._spend.settle(held, Usage(tokens_in=identity, calls=1, cost=Decimal("0.001")))
                assert not self._spend.take_problem(), "what was spent was not recorded"
        elif name == "rate":
            rating = Rating(
                run=f"{identity}", step=0, verdict="good", by="user", time=1.0, shares=()
            )
            RatingsFile(self._home / "ratings.jsonl").add(rating)
        elif name == "list":
            RunIndex(str(self._home / "traces")).newest(count=-1)
        else:
            with edit_settings_file(self._home / "settings.toml") as values:
                values["planner"] = {"model": f"{identity}"}

    def _write(self, run: str, event: ev.Event) -> None:
        self._writers[run].write(event)
        assert not self._writers[run].problem, f"{run}: {self._writers[run].problem}"


def learn(acknowledged: Known, record: dict[str, Any]) -> None:
    """Take in what a life said: that it begins something, or has done it."""
    if "begins" in record:
        acknowledged.begun = tuple(record["begins"])
        return
    name, run, identity = record["done"]
    acknowledged.begun = ("", "", 0)
    if name in {"begin", "event", "finish"}:
        acknowledged.events.setdefault(run, []).append(
            "finish" if name == "finish" else f"{name} {identity}"
        )
        acknowledged.finished |= {run} if name == "finish" else set()
    elif name == "remove":
        acknowledged.removed.add(run)
    elif name in {"spend", "reserve"}:
        acknowledged.tokens = acknowledged.tokens + (identity if name == "spend" else RESERVED)
        acknowledged.calls = acknowledged.calls + 1
    elif name == "rate":
        acknowledged.ratings.append(f"{identity}")
    elif name == "set":
        acknowledged.setting = f"{identity}"


def check(home: Path, acknowledged: Known) -> None:
    """What was acknowledged is there, in order, and nothing else but what the last life began."""
    begun, run, identity = acknowledged.begun
    acknowledged.begun = ("", "", 0)
    _check_traces(
        home, acknowledged, run if begun in {"begin", "event", "finish", "remove"} else ""
    )
    _check_spending(
        home / "spending",
        acknowledged,
        {"reserve": {RESERVED}, "spend": {RESERVED, identity}}.get(begun, set()),
    )
    rated = [rating.run for rating in RatingsFile(home / "ratings.jsonl").read().ratings]
    extra = [f"{identity}"] if begun == "rate" else []
    assert rated in (acknowledged.ratings, acknowledged.ratings + extra), (
        f"rated {rated}, acknowledged {acknowledged.ratings}"
    )
    acknowledged.ratings = rated
    stored = read_toml(home / "settings.toml").values.get("planner", {}).get("model", "")
    assert stored in {
        acknowledged.setting,
        f"{identity}" if begun == "set" else acknowledged.setting,
    }, f"{stored} is set"
    acknowledged.setting = stored


def _check_spending(directory: Path, acknowledged: Known, begun: set[int]) -> None:
    """All that was spent is recorded once.

    Of a call that had `begun`, its reservation or what it used may be.
    """
    with closing(DailySpend(directory, DayLimits(calls=100_000), now=lambda: NOW)) as spend:
        today = spend.today().calls
    spent = read_spent(directory, date(2000, 1, 1))
    tokens = sum(row.usage.tokens_in for row in spent)
    calls = sum(row.calls for row in spent)
    possible = {
        (acknowledged.tokens, acknowledged.calls),
        *((acknowledged.tokens + tokens_begun, acknowledged.calls + 1) for tokens_begun in begun),
    }
    assert (tokens, calls) in possible, (
        f"{tokens} tokens of {calls} calls are recorded, not one of {possible}"
    )
    assert today == calls, f"{today} calls count today, {calls} are recorded"
    acknowledged.tokens = tokens
    acknowledged.calls = calls


def _acknowledgement(event: ev.Event) -> str:
    """Return what a writer says once an event is stored."""
    if isinstance(event, ev.RunStarted):
        return f"begin {event.question.text.removeprefix('question ')}"
    if isinstance(event, ev.Notice):
        return f"event {event.text.removeprefix('notice ')}"
    return "finish"


def _check_traces(home: Path, acknowledged: Known, begun: str) -> None:
    """Each trace begins with what was acknowledged.

    The list shows each once, ended or interrupted.
    """
    store = TraceStore(home / "traces")
    if begun not in acknowledged.events and store.path(begun or "-").exists():
        try:
            acknowledged.events |= {begun: []} if any(store.events(begun)) else {}
        except UsageError:  # its first line was cut off, so nobody was told of it
            acknowledged.cut_off.add(begun)
    for run, events in acknowledged.events.items():
        if run in acknowledged.removed or (run == begun and not store.path(run).exists()):
            assert not store.path(run).exists(), f"{run} was removed and is there"
            acknowledged.removed.add(run)
            continue
        stored = [_acknowledgement(event) for event in store.events(run)]
        problem = f"{run} has {stored}, acknowledged were {events}"
        assert stored[: len(events)] == events, problem
        # Of the run that was being written, one event may be stored and not acknowledged.
        most_unacknowledged = 1 if run == begun else 0
        assert len(stored) - len(events) <= most_unacknowledged, problem
        acknowledged.events[run] = stored
        if stored[-1].startswith("finish"):
            acknowledged.finished.add(run)
    listed = {row.run: row.state for row in RunIndex(str(home / "traces")).newest(count=-1)[0]}
    there = set(acknowledged.events) - acknowledged.removed
    with suppress(UsageError):
        assert set(listed) - there - acknowledged.cut_off <= {begun}, (
            f"listed are {sorted(listed)}, stored are {sorted(there)}"
        )
    for run in there:
        wanted = "finished" if run in acknowledged.finished else "interrupted"
        assert listed.get(run) == wanted, f"{run} is listed as {listed.get(run)} and is {wanted}"
