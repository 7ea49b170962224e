"""Verifying a trace names every line that was changed, cut or added; repairing keeps the others and loses no byte."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.usage import Usage
from conductor_cli.state import trace_file
from conductor_cli.state.trace_store import TraceStore
from tests.state.test_trace_store import RUN, begun, stored

LINES = 8


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    """A store with one run of eight lines: no piece of text waits for the next."""
    pieces = [ev.PlanDelta(at=2.0 * number, text=f"piece {number}") for number in range(1, LINES - 1)]
    return stored([begun(), *pieces, ev.RunFinished(at=20.0, answer="twelve", usage=Usage())], tmp_path / "traces")


def rewrite(store: TraceStore, lines: list[bytes]) -> bytes:
    """Put these lines in the place of the trace. Returns its bytes."""
    data = b"".join(line + b"\n" for line in lines)
    store.path(RUN).write_bytes(data)
    return data


def lines_of(store: TraceStore) -> list[bytes]:
    return store.path(RUN).read_bytes().splitlines()


def faults(store: TraceStore) -> list[str]:
    return [fault.text for fault in store.check(RUN).faults]


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], list[str]]] = {
    "a changed word": (lambda old: [*old[:2], old[2].replace(b"piece", b"peace"), *old[3:]], ["line 3 was changed"]),
    "a changed hash": (lambda old: [*old[:2], old[2][:-6] + b"0000" + old[2][-2:], *old[3:]],
                       ["line 3 was changed: its hash does not follow the line before"]),
    "a missing line": (lambda old: [*old[:2], *old[3:]], ["lines are missing before line 3"]),
    "a line twice": (lambda old: [*old[:3], old[1], *old[3:]], ["line 4 was added, or moved here"]),
    "two lines swapped": (lambda old: [*old[:2], old[3], old[2], *old[4:]],
                          ["line 3 was added, or moved here", "lines are missing before line 5"]),
    "a line of somebody else": (lambda old: [*old[:2], b'{"kind":"plan_delta","at":1,"text":"x"}', *old[2:]],
                                ["line 3 was added, or moved here"]),
    "a line after the end": (lambda old: [*old, old[2]], ["line 9 comes after the end of the run"]),
    "no end": (lambda old: old[:5], ["nothing follows line 5: the run was interrupted, or the end was cut off"]),
    "a changed last line": (lambda old: [*old[:-1], old[-1].replace(b"twelve", b"eleven")], ["line 8 was changed"]),
    "NUL bytes": (lambda old: [*old[:2], b"\0" * 40, *old[3:]], ["line 3 was changed: it has NUL bytes"]),
    "another encoding": (lambda old: [*old[:2], old[2].replace(b"piece", b"pi\xe8ce"), *old[3:]],
                         ["line 3 was changed: what is not UTF-8 was replaced"]),
    "a lost line break": (lambda old: [*old[:2], old[2] + old[3], *old[4:]],
                          ["line 3 has 2 records: line breaks are missing"]),
    "a lost beginning": (lambda old: old[1:], [
        "line 1 is not the start of a run in format 3", "lines are missing before line 1",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_wrong_is_said_with_its_line(store: TraceStore, name: str) -> None:
    change, expected = CHANGES[name]
    rewrite(store, change(lines_of(store)))
    assert sorted(faults(store)) == sorted(expected)


def test_a_torn_tail_an_empty_file_and_another_name_are_named(store: TraceStore) -> None:
    path = store.path(RUN)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert "line 8 is incomplete: whatever wrote it was stopped" in faults(store)
    path.write_bytes(b"")
    assert faults(store) == ["the file is empty"]
    store.path("another").write_bytes(whole)
    assert [fault.fault for fault in store.check("another").faults] == ["foreign"]


@given(st.data())
def test_no_changed_byte_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """One byte that is changed, taken out or put in, anywhere, makes the trace not whole; and every reader reads it."""
    folder = tmp_path_factory.mktemp("one")
    store = stored(
        [begun(), ev.PlanDelta(at=0.1, text="né"), ev.RunFinished(at=9.0, answer="12", usage=Usage())], folder
    )
    whole = store.path(RUN).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.binary(min_size=0, max_size=2).filter(lambda byte: byte != whole[place : place + 1]))
    store.path(RUN).write_bytes(whole[:place] + byte + whole[place + 1 :])
    assert faults(store)
    if place > whole.index(b"\n"):  # only the first line is needed
        assert store.trace(RUN).run


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {"no end", "a lost beginning"}))
def test_repairing_keeps_what_is_whole_and_the_old_file(store: TraceStore, name: str) -> None:
    path, before = store.path(RUN), lines_of(store)
    lines = CHANGES[name][0](before)
    damaged = rewrite(store, lines)
    aside = Path(store.repair(RUN, store.check(RUN)))
    assert aside.read_bytes() == damaged
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, aside)] == [0o600, 0o600]
    check = store.check(RUN)
    if name != "a changed last line":
        assert check.whole
        assert store.trace(RUN).state == "finished"
    lost = {"a line after the end": lines[-1], "two lines swapped": lines[2], "a changed hash": lines[2]}.get(name)
    kept = {line[:-42] for line in lines_of(store)}
    assert kept >= {line[:-42] for line in lines if line in before and line != lost}
    if name != "a lost line break":
        assert "the trace was repaired" in store.trace(RUN).notices[0].text
    store.remove(RUN)
    assert list(store.directory.iterdir()) == []


def test_a_trace_without_its_beginning_is_left_as_it_is(store: TraceStore) -> None:
    damaged = store.path(RUN).read_bytes()[3:]
    store.path(RUN).write_bytes(damaged)
    with pytest.raises(UsageError, match="nothing can be kept"):
        store.repair(RUN, store.check(RUN))
    assert store.path(RUN).read_bytes() == damaged


def test_a_whole_trace_is_not_rewritten(store: TraceStore) -> None:
    """Nor is one that was interrupted: nothing is damaged in it."""
    assert store.repair(RUN, store.check(RUN)) == ""
    rewrite(store, lines_of(store)[:4])
    assert store.repair(RUN, store.check(RUN)) == ""
    assert [*store.directory.iterdir()] == [store.path(RUN)]


def test_readers_say_which_lines_they_left_out(store: TraceStore) -> None:
    """What is there is read: the events before and after damaged lines, and the end."""
    lines = lines_of(store)
    lines[2], lines[3], lines[5] = b"\0" * 30, lines[3][:-9], b"\0\0" + lines[5] + lines[6]
    del lines[6]
    rewrite(store, [*lines, lines[1]])
    trace = store.trace(RUN)
    assert (trace.plan_text, trace.state) == ("piece 1piece 4piece 5piece 6", "finished")
    assert [notice.text.split(": ")[1] for notice in trace.notices] == [
        "lines 3 to 4 are incomplete or left out", "line 8 is incomplete or left out",
    ]  # fmt: skip
    row = store.newest()[0][0]
    assert (row.state, "lines 3 to 4 are" in row.problem) == ("finished", True)


def test_a_line_that_is_too_long_is_left_out(store: TraceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never held in memory as a whole; the lines behind it are read."""
    monkeypatch.setattr(trace_file, "MAX_TRACE_LINE", 2000)
    lines = lines_of(store)
    rewrite(store, [*lines[:2], b"[" * 3_000_000, *lines[3:]])
    assert store.trace(RUN).state == "finished"
    assert "longer than" in store.trace(RUN).notices[0].text
    assert ["line 3 was changed" in text for text in faults(store)] == [True]


def test_many_damaged_places_give_few_notices(tmp_path: Path) -> None:
    """The last of them says where the others are named."""
    pieces = [ev.PlanDelta(at=float(number), text="x") for number in range(200)]
    store = stored([begun(), *pieces], tmp_path)
    rewrite(store, [b"?" if place % 2 else line for place, line in enumerate(lines_of(store))])
    notices = store.trace(RUN).notices
    assert len(notices) == trace_file.MAX_NOTICES + 1
    assert "trace verify" in notices[-1].text
