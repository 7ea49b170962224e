"""The index of stored runs always shows what the files contain; and stored runs as lines."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.state import run_index, run_summary
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.run_list import matching_texts, run_lines
from conductor_cli.state.stored_run import (
    EVERY_RUN,
    SEPARATOR,
    RunQuery,
    StoredRun,
    stored_run_data,
)
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.system.terminal_tables import display_width
from tests.traces.stored import begin_run, unpack

STEP = Step(worker="alpha", subtask="Count the pears")


def events(
    run: str, question: str, answer: str = "twelve", mode: ev.Mode = "auto"
) -> list[ev.Event]:
    pool = Pool(workers=(Worker(name="alpha", kind="openai-compatible"),))
    time = f"{run[:4]}-{run[4:6]}-{run[6:8]}T10:00:00.000+00:00"
    return [
        ev.RunStarted(
            at=0.0,
            run=run,
            time=time,
            question=Question(text=question),
            pool=pool,
            limits=Limits(),
            mode=mode,
            conductor="tiny",
            profile="prompted",
        ),
        ev.StepPlanned(at=0.1, step=1, worker="alpha", subtask=STEP.subtask, access=(), last=True),
        ev.PlanReady(at=0.2, plan=Plan(steps=(STEP,)), usage=Usage(calls=1)),
        ev.StepStarted(at=0.3, step=1, worker="alpha", attempt=1, prompt=()),
        ev.StepDelta(at=0.4, step=1, attempt=1, text=answer),
        ev.StepFinished(
            at=0.5, step=1, attempt=1, text=answer, usage=Usage(calls=1), finish="stop"
        ),
        ev.RunFinished(at=0.6, answer=answer, usage=Usage(calls=2)),
    ]


def put(store: Traces, day: int, question: str, *, until: int = 7, **fields: str) -> str:
    run = f"202611{day:02}-100000-00000a"
    begin_run(store, run, events(run, question, **fields)[:until]).close()  # type: ignore[arg-type]
    return run


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path / "traces")


def newest(
    store: TraceStore, wanted: RunQuery = EVERY_RUN, count: int = 20
) -> tuple[list[StoredRun], bool]:
    return RunIndex(str(store.directory)).newest(wanted, count)


def listed(store: TraceStore, wanted: RunQuery = EVERY_RUN, count: int = 20) -> list[str]:
    return [row.title for row in newest(store, wanted, count)[0]]


def file_of(store: TraceStore) -> Path:
    return store.directory.with_name("traces.index")


@pytest.mark.parametrize("damage", ["gone", "garbage", "cut", "newer", "dropped"])
def test_a_damaged_index_is_rebuilt(store: TraceStore, damage: str) -> None:
    put(store, 1, "first")
    put(store, 2, "second")
    before = listed(store)
    file = file_of(store)
    if damage == "gone":
        file.unlink()
    elif damage in {"garbage", "cut"}:
        file.write_bytes(b"no index " * 500 if damage == "garbage" else file.read_bytes()[:5000])
    else:
        statement = {"newer": "PRAGMA user_version = 99", "dropped": "DROP TABLE runs"}
        with sqlite3.connect(file) as database:
            database.execute(statement[damage])
        database.close()
    assert listed(store) == before
    assert listed(store, RunQuery(terms=("second",))) == ["second"]


def test_damaged_files_are_listed_with_the_problem(store: TraceStore) -> None:
    run = put(store, 1, "damaged")
    lines = unpack(store.path(run)).read_text().splitlines()
    lines[2] = lines[2][:-4]
    store.path(run).write_text("\n".join(lines) + "\n")
    store.path("20261102-100000-00000a").write_text("hello\n")
    store.path("20261103-100000-00000a").write_text('{"kind":"run_started","format":99}\n')
    put(store, 4, "whole")
    runs, _ = newest(store)
    assert [row.state for row in runs] == ["finished", "unreadable", "unreadable", "finished"]
    assert all("line 1" in row.problem for row in runs[1:3])
    assert ("line 3" in runs[3].problem, runs[3].title) == (True, "damaged")


def test_a_file_that_the_system_refuses_once_is_read_again(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, for example.

    The run was listed as unreadable until the index was deleted.
    """
    run = put(store, 1, "How many pears?")
    index = RunIndex(str(store.directory))

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        (refused_row,) = index.newest()[0]
        assert (refused_row.state, refused_row.problem) == (
            "unreadable",
            f"{run} cannot be read: Too many open files",
        )
    assert [row.state for row in index.newest()[0]] == ["finished"]


ABSURD: list[Any] = [
    10**18,
    10**30,
    10**400,
    2**63 - 1,
    -5,
    -1e30,
    1e308,
    float("inf"),
    float("nan"),
    True,
    None,
    "12",
    "NaN",
    "1E+999999999",
    "1E-999999999",
    "-5",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": {}},
    "\ud800",
]


@pytest.mark.parametrize("name", ["tokens_in", "cost", "seconds"])
def test_no_number_in_a_trace_breaks_the_list(store: TraceStore, name: str) -> None:
    """With an absurd usage the other runs are listed all the same, and its file can be removed."""
    for day, value in enumerate(ABSURD, start=1):
        run = put(store, day, "absurd", until=6)
        ending = ev.to_json(events(run, "absurd")[-1])
        ending["usage"] = {"tokens_in": 2**63 - 1, "tokens_out": 2**63 - 1, "calls": 1, name: value}
        with store.path(run).open("a") as file:
            file.write(json.dumps(ending) + "\n")
    put(store, 30, "whole")
    runs, _ = newest(store, count=-1)
    assert [row.title for row in runs] == ["whole", *["absurd"] * len(ABSURD)]
    lines = run_lines(runs, 80, datetime.now(UTC))
    assert "whole" in lines[1]
    assert max(map(len, lines)) <= 80
    json.dumps([stored_run_data(row, "traces") for row in runs], allow_nan=False).encode()
    assert store.prune([row.run for row in runs[1:]]) == []
    assert [row.title for row in newest(store)[0]] == ["whole"]


def test_deleted_texts_are_removed_from_the_index(store: TraceStore) -> None:
    """Which only its owner can read."""
    run = put(store, 1, "a zeppelin")
    put(store, 2, "other")
    listed(store)
    assert b"zeppelin" in file_of(store).read_bytes()
    assert stat.S_IMODE(file_of(store).stat().st_mode) == 0o600
    store.remove(run)
    store.refresh()
    assert b"zeppelin" not in file_of(store).read_bytes()


def test_a_new_run_is_listed_without_reading_a_large_directory_again(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody else puts there is found when the last reading is long enough ago."""
    put(store, 1, "first")
    listed(store)
    monkeypatch.setattr(run_index, "MAX_LISTING_SHARE", 10**9)  # so the last one is not long ago
    put(store, 2, "second")
    copied = store.path("20261103-100000-00000a")
    copied.write_bytes(store.path("20261102-100000-00000a").read_bytes())
    assert listed(store) == ["second", "first"]
    monkeypatch.setattr(run_index, "MAX_LISTING_SHARE", 0)
    assert len(listed(store)) == 3


def put_for(store: TraceStore, day: int, question: str, origin: str, *, until: int = 7) -> str:
    """Store a run that somebody asked for."""
    run = f"202611{day:02}-100000-00000a"
    begin, *others = events(run, question)
    assert isinstance(begin, ev.RunStarted)
    begin_run(store, run, [replace(begin, origin=origin), *others][:until]).close()
    return run


@pytest.mark.parametrize("listing_share", [0, 10**9], ids=["listed again", "announced"])
def test_a_client_waits_for_the_reading_of_its_own_runs_alone(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch, listing_share: int
) -> None:
    """What others sent may be large. It is read at the first list that has it."""
    monkeypatch.setattr(run_index, "MAX_LISTING_SHARE", listing_share)
    put_for(store, 1, "before", "key bob")
    listed(store)
    foreign = put_for(store, 2, "theirs", "key ann")
    put_for(store, 3, "theirs, too", "key ann", until=3)
    put_for(store, 4, "mine", "key bob")
    read = list[str]()
    summarize = run_summary.summarize_run

    def watched(directory: str, run: str) -> StoredRun:
        read.append(run)
        return summarize(directory, run)

    monkeypatch.setattr(run_summary, "summarize_run", watched)
    mine = RunQuery(origins=("key bob",))
    for _ in range(2):
        rows, _ = store.newest(mine)
        assert [row.question for row in rows] == ["mine", "before"]
    assert read == ["20261104-100000-00000a"]
    rows, _ = store.newest(RunQuery(origins=("key ann",)))
    assert [row.question for row in rows] == ["theirs, too", "theirs"]
    assert [row.state for row in rows] == ["interrupted", "finished"]
    assert foreign in read
    assert listed(store) == ["mine", "theirs, too", "theirs", "before"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the bytes that a process has read")
def test_a_list_for_one_client_reads_no_texts_of_others(store: TraceStore) -> None:
    for day in range(1, 9):
        put_for(store, day, "x" * 1_000_000, "key ann")
    put_for(store, 9, "mine", "key bob")
    listed(store)
    before = bytes_read()
    rows, _ = store.newest(RunQuery(origins=("key bob",)))
    assert [row.question for row in rows] == ["mine"]
    assert bytes_read() - before < 500_000


def bytes_read() -> int:
    """Return how many bytes this process has read from files so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, number = line.partition(": ")
        if name == "rchar":
            return int(number)
    raise AssertionError("no count of the bytes that were read")


def test_announcements_do_not_grow_without_end(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "MAX_ANNOUNCED_BYTES", 40)
    monkeypatch.setattr(run_index, "MAX_LISTING_SHARE", 0)
    for day in range(1, 6):
        put(store, day, f"question {day}")
        assert len(listed(store)) == day
    assert file_of(store).with_name("traces.new").stat().st_size <= 40


def test_runs_are_listed_without_an_index_file(store: TraceStore) -> None:
    put(store, 1, "first")
    file_of(store).mkdir()
    assert listed(store) == ["first"]
    assert listed(store, RunQuery(terms=("fir",))) == ["first"]


def _look(directory: str) -> list[str]:
    return listed(TraceStore(Path(directory)))


def test_processes_may_query_at_the_same_time(store: TraceStore) -> None:
    for day in range(1, 29):
        put(store, day, f"question {day}")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        lists = pool.map(_look, [str(store.directory)] * 8)
    assert lists == [[f"question {day}" for day in range(28, 8, -1)]] * 8


def test_creating_the_index_takes_no_lock_from_another_thread(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may create it first.

    What that thread is writing stays locked for all other processes.
    """
    put(store, 1, "first")
    file = file_of(store)
    open_file = os.open
    others = list[sqlite3.Connection]()

    def overtaken(path: Any, *rest: Any, **options: Any) -> int:
        if path == str(file) and not others:
            others.append(sqlite3.connect(file, isolation_level=None))
            others[0].execute("BEGIN IMMEDIATE")
        return open_file(path, *rest, **options)

    monkeypatch.setattr(os, "open", overtaken)
    monkeypatch.setattr(run_index, "PATIENCE_SECONDS", 0.0)
    assert listed(store) == ["first"]
    (other,) = others
    begin = (
        f"sqlite3.connect({str(file)!r}, timeout=0, isolation_level=None).execute('BEGIN "
        "IMMEDIATE')"
    )
    command = [sys.executable, "-c", f"import sqlite3; {begin}"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    other.close()
    assert process.stderr.endswith("database is locked\n")


def test_a_process_that_dies_while_indexing_keeps_its_work(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were read before a crash are kept, and the next query continues from there."""
    for day in range(1, 6):
        put(store, day, f"question {day}")
    whole = run_summary.summarize_run
    read = list[str]()

    def dies_once(directory: str, run: str) -> object:
        read.append(run)
        if len(read) == 4:
            raise KeyboardInterrupt
        return whole(directory, run)

    monkeypatch.setattr(run_summary, "BATCH_RUNS", 2)
    monkeypatch.setattr(run_summary, "summarize_run", dies_once)
    with pytest.raises(KeyboardInterrupt):
        listed(store)
    assert len(listed(store)) == 5
    assert [run[:8] for run in read[4:]] == ["20261103", "20261102", "20261101"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_many_files_are_read_by_several_processes(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those that one process makes.

    None is missing where a process dies, and none remains.
    """
    monkeypatch.setattr(run_summary, "BATCH_RUNS", 2)
    runs = [put(store, day, f"question {day}") for day in range(1, 13)]
    own_pid = os.getpid()
    children = Path(f"/proc/{own_pid}/task/{threading.get_native_id()}/children")
    before = children.read_text()
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    whole = run_summary.summarize_run
    summarized = list[str]()

    def dies_elsewhere(directory: str, run: str) -> StoredRun:
        if run == runs[7] and os.getpid() != own_pid:
            os._exit(1)
        summarized.append(run)
        return whole(directory, run)

    expected = [whole(str(store.directory), run) for run in runs]
    for summarize in (whole, dies_elsewhere):
        monkeypatch.setattr(run_summary, "summarize_run", summarize)
        batches = run_summary.summarize_runs(str(store.directory), runs)
        rows = list(chain.from_iterable(batches))
        assert rows == expected
    assert runs[7] in summarized
    assert len(summarized) < len(runs)
    assert children.read_text() == before


NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ROW = StoredRun(
    run="20261122-100000-00000a",
    state="finished",
    time="2026-11-22T10:00:00.000+00:00",
    workers=f"alpha{SEPARATOR}beta",
    conductor="qwen2.5-7b-q4_k_m sha256-ends:0123456789abcdef",
    cost="0.0042",
    unpriced=1,
    tokens=1200,
    seconds=42.4,
    question="How many pears? " * 10,
)


def test_all_columns_are_shown_if_there_is_room() -> None:
    head, row = run_lines([ROW], 140, NOW)
    assert head.split() == [
        "RUN",
        "WHEN",
        "RESULT",
        "PLANNER",
        "WORKERS",
        "COST",
        "TOOK",
        "QUESTION",
    ]
    shown = (
        "20261122-100000-00000a  2 h ago  finished  qwen2.5-7b-q4_k_m  alpha, beta  $0.0042+  "
        "42 s  How many pears?"
    )
    assert row.startswith(shown)
    assert (len(row), row[-1]) == (140, "…")
    _, row = run_lines([ROW._replace(recovered="step 1: beta answered instead of alpha")], 140, NOW)
    assert "  finished, recovered  " in row


@pytest.mark.parametrize("width", [30, 40, 59, 60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = run_lines([ROW, StoredRun(run="x", problem="世界" * 60)], width, NOW)
    assert max(map(display_width, shown)) <= width
    assert any("20261122-100000-00000a" in line for line in shown)
    assert width < 60 or "How many pears?" in shown[1]


def test_matches_are_shown_under_their_run() -> None:
    row = ROW._replace(
        question="How many PEARS?",
        subtasks=f"Count{SEPARATOR}Count pears",
        answers=f"two pears{SEPARATOR}three",
    )
    assert run_lines([row], 0, NOW, ["pears"])[2:] == [
        "    question: How many PEARS?",
        "    subtask 2: Count pears",
        "    answer 1: two pears",
    ]
    many = ROW._replace(answers=SEPARATOR.join(["pears"] * 9))
    assert len(run_lines([many], 0, NOW, ["pears"])) == 2 + 4
    ((name, part),) = matching_texts(
        StoredRun("x", question=f"{'a ' * 200}Zeppelin{' b' * 200}"), ["zeppelin"], 40
    )
    assert (name, "Zeppelin" in part, part[0], part[-1], display_width(part)) == (
        "question",
        True,
        "…",
        "…",
        40,
    )


def test_a_run_that_waits_for_a_person_says_so_and_its_time_is_without_the_wait(
    store: TraceStore,
) -> None:
    run = "20261104-100000-00000a"
    begun = events(run, "May it run?")[:3]
    writer = begin_run(store, run, [*begun, ev.PlanOffered(at=0.2)])
    rows, _ = store.newest()
    assert [(row.state, row.waits) for row in rows] == [("running", "approval of the plan")]
    (line,) = [line for line in run_lines(rows, 0, datetime.now(UTC)) if run in line]
    assert "waits for approval of the plan" in line
    writer.write(ev.PlanDecided(at=90.2, verdict="approved"))
    writer.write(ev.RunFinished(at=95.2, answer="yes", usage=Usage()))
    writer.close()
    rows, _ = store.newest()
    assert [(row.waits, row.waited, row.seconds) for row in rows] == [("", 90.0, 95.2)]
    (line,) = [line for line in run_lines(rows, 0, datetime.now(UTC)) if run in line]
    assert "5.2 s" in line


def test_a_run_whose_process_is_gone_waits_for_nobody(store: TraceStore) -> None:
    run = "20261104-100000-00000a"
    begin_run(store, run, [*events(run, "Still there?")[:3], ev.PlanOffered(at=0.2)]).close()
    rows, _ = store.newest()
    assert [(row.state, row.waits) for row in rows] == [("interrupted", "")]
