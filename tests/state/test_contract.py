"""What every state does, in files as in PostgreSQL, by interfaces.

Traces, lists, ratings, limits, secrets.
"""

from __future__ import annotations

import ast
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import reduce
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import conductor_cli
from conductor_cli.config.files import AppPaths
from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import LimitReached, ModelError, UsageError
from conductor_cli.core.learning import Rating, RatingShare
from conductor_cli.core.pool import DayLimits
from conductor_cli.core.question import File, Question
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.core.usage import Usage
from conductor_cli.state import records
from conductor_cli.state.interfaces import USER, Spender
from conductor_cli.state.opening import FileState, State, open_state
from conductor_cli.state.postgres import records as shared_records
from conductor_cli.state.postgres import traces as shared
from conductor_cli.state.stored_run import RunQuery, StoredRun
from tests.state.cluster import Cluster
from tests.state.test_run_index import events, put
from tests.state.test_shared_spend import CENT, reserve
from tests.state.test_trace_store import RUN, begun, streams
from tests.traces.stored import begin_run

RUNS = [
    "20261118-101112-aaaaaa",
    "20261119-101112-bbbbbb",
    "20261120-101112-abcdef",
    "20261120-101112-abc000",
]


@pytest.fixture(params=["files", "postgres"])
def state(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[State]:
    """An empty state.

    A reader of a database looks at once, and a lease ends at once where its run is closed.
    """
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
        monkeypatch.setattr(shared, "LOOK_SECONDS", 0.0)
    paths = AppPaths(
        config=tmp_path, state=tmp_path / "state", data=tmp_path, cache=tmp_path, database=url
    )
    opened = open_state(paths)
    yield opened
    if not isinstance(opened, FileState):
        opened.database.close()


def stored(state: State, happened: list[ev.Event], run: str = RUN) -> None:
    writer = begin_run(state.traces, run, happened)
    writer.close()
    assert writer.problem == ""


def titles(state: State, wanted: RunQuery, count: int = 20) -> list[str]:
    return [row.title for row in state.traces.newest(wanted, count)[0]]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
@given(streams)
def test_written_events_can_be_read_back_and_removed(
    state: State, happened: list[ev.Event]
) -> None:
    """With NUL and lone surrogates in any text: JSON allows them, PostgreSQL and UTF-8 do not."""
    stored(state, happened)
    traces = state.traces
    assert list(traces.events(RUN)) == happened
    assert traces.ended("last") == reduce(apply_event, happened, Trace())
    assert traces.check(RUN).whole
    (row,), has_more = traces.newest()
    assert (row.run, row.state, has_more) == (RUN, traces.trace(RUN).outcome(), False)
    traces.remove(RUN)
    traces.refresh()
    assert (traces.runs(), traces.newest()) == ([], ([], False))


def test_nul_and_lone_surrogates_survive(state: State) -> None:
    happened: list[ev.Event] = [
        begun(Question(text="a\0b \ud83d ¿ß?")),
        ev.PlanDelta(at=0.1, text="\0half \ud83d \u2028"),
        ev.RunFinished(at=1.0, answer="x\0y", usage=Usage()),
    ]
    stored(state, happened)
    assert list(state.traces.events(RUN)) == happened
    assert [
        row.run for row in state.traces.newest(RunQuery(terms=("¿SS?".replace("SS", "ß"),)))[0]
    ] == [RUN]


def test_a_run_is_running_while_its_writer_is_open(state: State) -> None:
    """It is followed, listed and kept meanwhile; without an end it was interrupted."""
    traces = state.traces
    events = list[ev.Event]()
    happened: list[ev.Event] = [
        begun(),
        ev.PlanDelta(at=0.1, text="a"),
        ev.PlanDelta(at=0.2, text="b"),
        ev.Notice(at=3.0, text="c"),
    ]
    writer = begin_run(traces, RUN, happened[:1])
    reader = traces.follow(RUN)
    for event in happened[1:]:
        writer.write(event)
        events += reader.read()
        assert not reader.is_behind()
        assert reader.is_written()
    assert events == happened
    assert traces.is_running(RUN)
    assert [row.state for row in traces.newest()[0]] == ["running"]
    assert [len(traces.newest(RunQuery(state=name))[0]) for name in ("running", "interrupted")] == [
        1,
        0,
    ]
    with pytest.raises(UsageError, match="still being written"):
        traces.remove(RUN)
    with pytest.raises(UsageError, match="still running"):
        traces.ended(RUN)
    assert [error.message for error in traces.prune([RUN])] == [f"run {RUN} is still being written"]
    writer.close()
    assert not traces.is_running(RUN)
    assert [row.state for row in traces.newest()[0]] == ["interrupted"]
    begin_run(traces, "20261120-101113-abcdef", [begun()]).discard()
    assert traces.runs() == [RUN]


def test_an_id_is_used_once(state: State) -> None:
    stored(state, [begun()])
    with suppress(FileExistsError) if isinstance(state, FileState) else nullcontext():
        writer = begin_run(state.traces, RUN, [begun(Question(text="Again?"))])
        assert writer.problem
        writer.close()
    assert list(state.traces.events(RUN)) == [begun()]


def test_the_run_that_was_begun_last_is_known(state: State) -> None:
    traces = state.traces
    assert traces.last_begun() == ""
    for run in sorted(RUNS):
        stored(state, [begun()], run)
        assert traces.last_begun() == run
    traces.remove(run)
    assert traces.last_begun() == traces.newest_ids()[0]


def test_runs_are_found_by_the_beginning_of_their_id_and_counted_back(state: State) -> None:
    traces = state.traces
    with pytest.raises(UsageError, match="there is no run"):
        traces.find("last")
    for run in RUNS:
        stored(state, [begun()], run)
    # The clock of a file system may be too coarse to tell two writes apart
    if isinstance(state, FileState):
        os.utime(state.traces.path(RUNS[3]), (time.time() + 1,) * 2)
    assert traces.runs() == [RUNS[3], RUNS[2], RUNS[1], RUNS[0]], (
        "within a second, the time of writing decides"
    )
    assert [traces.newest_ids(count) for count in range(6)] == [
        traces.runs()[:count] for count in range(6)
    ]
    assert [traces.find(name) for name in ("last", "last~0", "last~2", "last~3")] == [
        RUNS[at] for at in (3, 3, 1, 0)
    ]
    assert (traces.find("20261119"), traces.find("20261120-101112-abcd")) == (RUNS[1], RUNS[2])
    assert traces.find("last", RUNS[:1]) == RUNS[0]
    refused = {
        "20261120": "2 runs begin",
        "2025": "there is no run",
        "": "there is no run",
        "last~9": "there is no",
    }
    for name, message in {**refused, "%": "there is no run"}.items():
        with pytest.raises(UsageError, match=message):
            traces.find(name)
    with pytest.raises(UsageError):
        traces.trace("20250101-000000-000000")


@pytest.mark.parametrize("whole", [True, False])
def test_pruned_runs_are_gone_and_others_are_not(state: State, *, whole: bool) -> None:
    """Whole days or parts of them; new runs of such a day can be stored afterwards."""
    for run in RUNS:
        stored(state, [begun()], run)
    gone = RUNS[:1] + (RUNS[2:] if whole else RUNS[2:3])
    assert state.traces.prune(gone) == []
    assert set(state.traces.runs()) == set(RUNS) - set(gone)
    stored(state, [begun()], "20261120-235959-ffffff")
    assert state.traces.find("last") == "20261120-235959-ffffff"


SELECTED: dict[RunQuery, list[str]] = {
    RunQuery(): ["Äpfel und pears", "two", "one"],
    RunQuery(state="finished"): ["Äpfel und pears", "two"],
    RunQuery(state="interrupted"): ["one"],
    RunQuery(worker="alpha"): ["Äpfel und pears", "two", "one"],
    RunQuery(worker="alph"): [],
    RunQuery(since="20261102-100000"): ["Äpfel und pears", "two"],
    RunQuery(terms=("TWELVE",)): ["two"],
    RunQuery(terms=("äpfel",)): ["Äpfel und pears"],
    RunQuery(terms=("pears", "und")): ["Äpfel und pears"],
    RunQuery(terms=("count the pears",)): ["Äpfel und pears", "two", "one"],
    RunQuery(terms=("pears count",)): [],
    RunQuery(terms=("wo",)): ["two"],
    RunQuery(terms=('"', "x")): [],
    RunQuery(terms=("pears",), state="interrupted"): ["one"],
    RunQuery(before="gone"): [],
    RunQuery(before="\0"): [],
    RunQuery(worker="\0"): [],
    RunQuery(before="20261102-100000-00000a"): ["one"],
    RunQuery(origins=("key anna",)): [],
}


def test_runs_are_selected_by_what_they_are_and_have(state: State) -> None:
    """By state, worker, time, origin and the texts that they have, in any case."""
    put(state.traces, 1, "one", until=5)
    put(state.traces, 2, "two")
    put(state.traces, 3, "Äpfel und pears", answer="eleven")
    for count in (20, 1, -1):
        titles_by_selection = {wanted: titles(state, wanted, count) for wanted in SELECTED}
        assert titles_by_selection == {
            wanted: runs[:count] if count > 0 else runs for wanted, runs in SELECTED.items()
        }


def test_a_list_says_how_long_a_run_only_waited(state: State) -> None:
    """While it goes on as well as when it has ended, among some and among all."""
    asked, planned, *later = events(RUN, "How many?")
    happened = [
        asked,
        planned,
        ev.PlanOffered(at=1.0),
        ev.PlanDecided(at=601.0, verdict="approved"),
        *(replace(event, at=601.0 + event.at) for event in later),
    ]
    writer = begin_run(state.traces, RUN, happened[:4])
    lists = [state.traces.newest(count=count)[0] for count in (1, -1)]
    for event in happened[4:]:
        writer.write(event)
    writer.close()
    lists += [state.traces.newest(count=count)[0] for count in (1, -1)]
    assert [row.waited for (row,) in lists] == [600.0] * 4
    assert [row.waits for (row,) in lists] == [""] * 4


def test_a_list_of_one_origin_goes_on_behind_its_last_run(state: State) -> None:
    for day in (1, 2, 3):
        put(state.traces, day, "How many pears?")
    first, *others = events(RUN, "How many plums?")
    assert isinstance(first, ev.RunStarted)
    stored(state, [replace(first, origin="key anna"), *others])
    (newest, *_), has_more = state.traces.newest(count=1)
    assert (newest, has_more) == (
        StoredRun(
            run=RUN,
            written=newest.written,
            size=newest.size,
            state="finished",
            time="2026-11-20T10:00:00.000+00:00",
            workers="alpha",
            seconds=0.6,
            conductor="tiny",
            question="How many plums?",
            subtasks="Count the pears",
            answers="twelve",
            origin="key anna",
        ),
        True,
    )
    assert newest.size > 0
    rows, has_more = state.traces.newest(RunQuery(before=newest.run), count=1)
    assert ([row.run[:8] for row in rows], has_more) == (["20261103"], True)
    assert [
        row.run for row in state.traces.newest(RunQuery(origins=("key anna", "key otto")))[0]
    ] == [RUN]


def test_ratings_are_read_in_the_order_in_which_they_were_given(state: State) -> None:
    share = RatingShare(worker="a\0", key="k", step=1, kind="math", weight=0.5, good=True)
    given = [
        Rating(run=f"{n}", step=0, verdict="bad", by="user", time=float(n), shares=(share,))
        for n in (2, 1, 3)
    ]
    assert state.ratings.read().ratings == ()
    for rating in given:
        state.ratings.add(rating)
    assert state.ratings.read().ratings == tuple(given)


def test_a_name_stands_for_the_end_of_its_conversation(state: State) -> None:
    names = state.conversations
    for name, run in (("pears", "1"), ("plums", "2"), ("pears", "3")):
        names.set(name, run)
    assert [*names.read().items()] == [("pears", "3"), ("plums", "2")]
    for name in ("pears", "nobody"):
        names.forget(name)
    assert [*names.read().items()] == [("plums", "2")]


def test_names_of_editors_displace_none_of_a_person(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor has a new one whenever it is opened."""
    for module in (records, shared_records):
        monkeypatch.setattr(module, "MAX_NAMES", 3)
    sessions = [f"acp-{number:016x}" for number in range(5)]
    for name in ("plums", "pears", "acp-mine", *sessions, "apples"):
        state.conversations.set(name, RUNS[0])
    assert [*state.conversations.read()] == ["apples", *sessions[:1:-1], "acp-mine", "pears"]


def test_attachments_are_kept_as_long_as_a_run_names_them(state: State) -> None:
    content = b"\0png"
    named = Attachment(
        name="a.png",
        media_type="image/png",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )
    first = state.attachments()
    second = state.attachments()
    first.add(content)
    assert (first.read(named), second.holds(named)) == (content, False)
    question = Question(text="?", files=(File(name="a.png", text="", attachment=named),))
    for run in RUNS[:2]:
        stored(state, [begun(question)], run)
    first.store([named])
    assert (second.holds(named), second.read(named)) == (True, content)
    assert [state.attachments().prunable(runs) for runs in ((), RUNS[:1], RUNS[:2])] == [
        0,
        0,
        len(content),
    ]
    for run in RUNS[:2]:
        state.prune_attachments()
        assert second.holds(named)
        state.traces.remove(run)
    state.prune_attachments()
    with pytest.raises(ModelError, match=r"a\.png cannot be read"):
        second.read(named)
    for digest in ("../secret", "", "x\0"):
        assert not second.holds(replace(named, sha256=digest))


def test_limits_of_a_day_hold_for_all_and_for_a_client(state: State) -> None:
    """The answer is shortened to what is left; what was not used is free again."""

    def call(limits: DayLimits, answer: int, client: Spender = USER) -> int:
        spend = state.spending(limits, client=client)
        room = reserve(spend, answer)
        spend.settle(room, CENT)
        spend.close()
        return room.answer

    dollars = DayLimits(cost=Decimal(5))
    app = Spender(name="app", cost=Decimal("2.99"))
    assert [call(dollars, 600), call(dollars, 400, app), call(DayLimits(calls=3), 1)] == [
        500,
        299,
        1,
    ]
    used_up = [(dollars, Spender(name="app", cost=Decimal("0.01"))), (DayLimits(calls=3), USER)]
    for limits, client in (*used_up, (DayLimits(cost=Decimal("0.03")), USER)):
        with pytest.raises(LimitReached):
            call(limits, 299, client)
    assert state.spending().today().calls == 3
    rows = state.read_spent(date(2020, 1, 1), "key")
    assert [(row.key, row.usage.cost, row.calls, row.open) for row in rows] == [
        ("", Decimal("0.02"), 2, 0),
        ("app", Decimal("0.01"), 1, 0),
    ]
    tokens = sum(row.usage.tokens for row in rows)
    assert tokens > 0
    assert state.read_tokens(rows[0].day) == tokens
    assert state.read_tokens(date(2020, 1, 1)) == 0


def test_all_servers_of_a_state_sign_with_one_secret(state: State, postgres: Cluster) -> None:
    assert len(state.secret()) == 32
    assert state.secret() == state.secret()


SOURCE = Path(conductor_cli.__file__).parent


def test_interfaces_speak_in_values_of_core() -> None:
    """No path, no database and nothing of another package stands in them."""
    imported = _imports(SOURCE / "state" / "interfaces.py")
    # The latter has the rows of lists
    own_modules = ("conductor_cli.core", "conductor_cli.state.stored_run")
    assert {name for name in imported if "." in name and not name.startswith(own_modules)} == {
        "collections.abc"
    }
    assert not {"pathlib", "sqlite3", "os"} & imported


def test_nothing_outside_state_opens_a_database_or_a_trace() -> None:
    """Whoever needs the state opens it with `open_state`, so that one setting says where it is."""
    inner_modules = ("trace_lines", "old_lines", "trace_store", "run_index", "records")
    kept_inside = {"sqlite3", *(f"conductor_cli.state.{name}" for name in inner_modules)}
    for path in SOURCE.rglob("*.py"):
        if SOURCE / "state" in path.parents:
            continue
        text = path.read_text("utf-8")
        if any(name in text for name in kept_inside):  # most files need not be parsed
            assert not kept_inside & _imports(path), path
        assert "open_trace(" not in text.replace("def open_trace(", ""), path


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    aliases = chain.from_iterable(node.names for node in nodes if isinstance(node, ast.Import))
    named = {alias.name for alias in aliases}
    return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
