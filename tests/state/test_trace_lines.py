"""How little a trace writes, what it keeps, and how it is checked.

Nothing made up gets by its reader.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.errors import UsageError
from conductor_cli.core.question import Conversation, Question
from conductor_cli.core.redact import Secrets
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.usage import Usage
from conductor_cli.state import format_upgrades as old_lines
from conductor_cli.state import trace_file
from conductor_cli.state.interfaces import MAX_WAIT
from conductor_cli.state.trace_lines import LineReader, LineWriter
from conductor_cli.state.trace_store import TraceStore
from tests.state.test_trace_store import RUN, begun, is_piece, stored

KEY = "sk-proj-4f9Qm27LxTbWcz81"


def written(events: Sequence[ev.Event], secrets: Secrets | None = None) -> list[str]:
    writer = LineWriter(secrets or Secrets())
    return b"".join([*map(writer.add, events), writer.flush()]).decode().splitlines()


def read(lines: Sequence[str], *, pieces: bool = True) -> list[ev.Event]:
    reader = LineReader(pieces=pieces)
    return list(chain.from_iterable(map(reader.read_line, lines)))


def streamed(step: int, text: str, size: int, *, at: float, rate: float = 50.0) -> list[ev.Event]:
    """An answer in pieces of `size` characters, so many a second, and the end of its step."""
    texts = [text[start : start + size] for start in range(0, len(text), size)]
    pieces: list[ev.Event] = [
        ev.StepDelta(at=round(at + number / rate, 3), step=step, attempt=1, text=piece_text)
        for number, piece_text in enumerate(texts)
    ]
    end = round(at + len(texts) / rate, 3)
    return [
        *pieces,
        ev.StepFinished(at=end, step=step, attempt=1, text=text, usage=Usage(), finish="stop"),
    ]


def words(count: int, seed: str) -> str:
    """Text of five bytes a word, another for each seed."""
    return "".join(f"{seed}{number:03d} " for number in range(count))


def one_answer(text: str, size: int) -> list[ev.Event]:
    prompt = (Message(role="user", content="How many?"),)
    start = ev.StepStarted(at=0.5, step=1, worker="alpha", attempt=1, prompt=prompt)
    middle = streamed(1, text, size, at=1.0)
    return [begun(), start, *middle, ev.RunFinished(at=middle[-1].at, answer=text, usage=Usage())]


def long_conversation() -> list[ev.Event]:
    talk = tuple(
        Message(
            role=("user", "assistant")[number % 2], content=f"{number:04d} {'some words here ' * 6}"
        )
        for number in range(200)
    )
    first, start, *rest = one_answer("They were two hundred messages.", 5)
    assert isinstance(first, ev.RunStarted)
    assert isinstance(start, ev.StepStarted)
    question = Question(text="And now?", conversation=Conversation(messages=talk))
    last = Message(role="user", content="And now?")
    return [replace(first, question=question), replace(start, prompt=(*talk, last)), *rest]


def dependent_steps() -> list[ev.Event]:
    events = list[ev.Event]([begun()])
    answer = ""
    for step in range(1, 6):
        prompt = (
            Message(role="user", content=f"Step {step}. The step before said: {answer}\nGo on."),
        )
        events.append(
            ev.StepStarted(at=20.0 * step, step=step, worker="alpha", attempt=1, prompt=prompt)
        )
        answer = words(800, "abcde"[step - 1])
        events += streamed(step, answer, 5, at=20.0 * step)
    return [*events, ev.RunFinished(at=150.0, answer=answer, usage=Usage())]


def text_size(events: Sequence[ev.Event]) -> int:
    """Bytes of the question, of each prompt that was sent, and of the answers.

    What stands in two of them once.
    """
    answers = {event.text for event in events if isinstance(event, ev.StepFinished)}
    prompts = [event.prompt for event in events if isinstance(event, ev.StepStarted)]
    sent = {message.content for message in chain.from_iterable(prompts)}
    return sum(len(text.encode()) for text in {*sent, *answers, "How many?"})


@pytest.mark.parametrize(
    "events",
    [
        one_answer(words(2000, "w"), 5),
        long_conversation(),
        dependent_steps(),
        one_answer("ten bytes.", 5),
    ],
)
def test_a_run_takes_little_more_than_its_text(tmp_path: Path, events: list[ev.Event]) -> None:
    """At most 1.5 times the text and 8 KB, at 50 pieces a second.

    And every event is read back as it was.
    """
    store = stored(events, tmp_path, plain=False)
    assert store.path(RUN).stat().st_size <= 1.5 * text_size(events) + 8192
    assert list(store.events(RUN)) == events
    assert store.check(RUN).whole


def test_a_kill_loses_at_most_the_last_second_of_an_answer() -> None:
    """And nothing waits once something else has happened."""
    writer = LineWriter(Secrets())
    waiting = list[ev.Event]()
    reader = LineReader()
    count = 0
    for number, event in enumerate(one_answer(words(2000, "w"), 5), start=1):
        count += sum(
            len(reader.read_line(line)) for line in writer.add(event).decode().splitlines()
        )
        waiting = [*waiting, event][-(number - count) :] if number > count else []
        assert not waiting or event.at - waiting[0].at < MAX_WAIT
        assert not waiting or isinstance(event, ev.StepDelta)


spots = st.tuples(
    st.sampled_from([(), (2,), (2, 3)]),
    st.sampled_from(["plan", "text", "thinking"]),
    st.integers(1, 2),
    st.text(min_size=1, max_size=5),
    st.integers(0, 700),
)


@given(st.lists(spots, max_size=30))
def test_pieces_of_several_streams_keep_order_time_and_place(drawn: list[tuple[Any, ...]]) -> None:
    """Whatever streams at once, in nested runs too.

    Every piece is read back with its time, among all others.
    """
    events = list[ev.Event]([begun()])
    at = 0
    for path, channel, step, text, wait in drawn:
        at += wait
        event: ev.Event = ev.PlanDelta(at=at / 1000, text=text)
        if channel != "plan":
            event = ev.StepDelta(at=at / 1000, step=step, attempt=1, **{channel: text})
        for number, outer in enumerate(path):
            event = ev.NestedEvent(at=(at + number) / 1000, step=outer, event=event)
        events.append(event)
    assert read(written(events)) == events
    assert read(written(events), pieces=False) == events[:1]


def test_a_secret_that_two_pieces_share_is_not_written() -> None:
    """The texts of its line are one piece each, without it; the step's end has the whole text."""
    answer = f"The key is {KEY}, and there is much more to say about it than can be said here."
    events: list[ev.Event] = [begun(), *streamed(1, answer, 9, at=1.0)]
    lines = written(events, Secrets(KEY))
    assert not any(KEY in line for line in lines)
    *_, end = read(lines)
    assert isinstance(end, ev.StepFinished)
    assert end.text.startswith("The key is ")
    assert KEY not in end.text


def test_an_object_that_looks_like_one_of_ours_is_none() -> None:
    """What a provider or a tool sends is read back as it was."""
    for fields in (
        {"repeated": "98c8dbe3c863"},
        {"a": [{"repeated_item": "x"}]},
        {"repeats": 1},
        {"kind": "pieces"},
    ):
        step = ev.StepFinished(
            at=1.0,
            step=1,
            attempt=1,
            text="12",
            usage=Usage(),
            finish="stop",
            provider_data={"x": "y", **fields},
        )
        assert read(written([begun(), step])) == [begun(), step]


PLAN = ev.to_json(ev.PlanDelta(at=1.0, text="…"))
NESTED = ev.to_json(ev.NestedEvent(at=1.0, step=2, event=ev.PlanDelta(at=0.5, text="…")))
PIECES = {
    "kind": "pieces",
    "streams": [PLAN, NESTED],
    "pieces": [[0, "a", 1.0], [1, "b", 1.5, 1.0]],
}
OLD_PIECES = {
    "kind": "pieces",
    "events": [ev.to_json(ev.PlanDelta(at=1.0, text="abc"))],
    "cuts": "DA",
}


@pytest.mark.parametrize(
    "change",
    [
        {"streams": None},
        {"streams": [7]},
        {"streams": [ev.to_json(ev.Notice(at=1.0, text="x"))]},
        {"pieces": None},
        *(
            {"pieces": [piece]}
            for piece in (
                7,
                [],
                [2, "a", 1.0],
                [-1, "a", 1.0],
                [0, 1, 1.0],
                [0, "a"],
                [0, "a", 1.0, 1.0],
                [1, "b", 1.0],
                [0, "a", "1"],
                [0, "a", 10**400],
                [0, "a", float("nan")],
            )
        ),
        *(OLD_PIECES | {"cuts": cuts} for cuts in ("CA", "EA", "AADA", "!", "g", "_" * 99, 1)),
        *(
            OLD_PIECES | {"events": events}
            for events in (None, [], [7], [ev.to_json(ev.Notice(at=1.0, text="x"))])
        ),
    ],
)
def test_made_up_pieces_are_refused(change: dict[str, Any]) -> None:
    """As they are written now, and as older versions wrote them."""
    first, second = read([json.dumps(PIECES)])
    assert first == ev.PlanDelta(at=1.0, text="a")
    assert second == ev.NestedEvent(at=1.5, step=2, event=ev.PlanDelta(at=1.0, text="b"))
    assert read([json.dumps(OLD_PIECES)]) == [ev.PlanDelta(at=1.0, text="abc")]
    with pytest.raises(DecodeError):
        read([json.dumps(PIECES | change)])


OLD_TRACES = Path(__file__).with_name("old")
OLD_RUN = "20261124-101112-abcdef"


def test_a_trace_with_named_texts_is_read_as_it_was(tmp_path: Path) -> None:
    """As versions before December 2026 wrote them.

    Names for texts, parts and messages, cuts of several streams.
    """
    events = [
        ev.from_line(line) for line in (OLD_TRACES / "events.txt").read_text("utf-8").splitlines()
    ]
    store = TraceStore(OLD_TRACES)
    assert list(store.events(OLD_RUN)) == events
    assert list(store.events(OLD_RUN, pieces=False)) == [
        event for event in events if not is_piece(event)
    ]
    assert store.check(OLD_RUN).whole
    # A text whose line is damaged is not made up, by readers and by a repair.
    damaged = TraceStore(tmp_path)
    lines = (OLD_TRACES / f"{OLD_RUN}.jsonl").read_bytes().splitlines(keepends=True)
    damaged.path(OLD_RUN).write_bytes(
        b"".join([lines[0].replace(b"some words", b"some swords", 1), *lines[1:]])
    )
    assert "repeats a text" in damaged.trace(OLD_RUN).notices[0].text
    with pytest.raises(UsageError, match="nothing can be kept"):
        damaged.repair(OLD_RUN, damaged.check(OLD_RUN))


def test_a_text_that_names_others_cannot_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up trace whose lines double is refused before it fills the memory."""
    monkeypatch.setattr(old_lines, "MAX_REPEATED", 100_000)
    reader = LineReader()
    text = "x" * 64
    reader.read({"kind": "plan_delta", "at": 0.0, "text": text})

    def double(text: str) -> list[ev.Event]:
        named = {"repeated": [[old_lines.name_of(text)]] * 2}
        return reader.read({"kind": "plan_delta", "at": 0.0, "text": named, "repeats": 1})

    for _ in range(9):
        assert double(text)
        text *= 2
    with pytest.raises(DecodeError, match="more text"):
        [double(text * 2**number) for number in range(3)]


LINES = 8


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    """A store with one run of eight lines: no piece of text waits for the next."""
    pieces = [
        ev.PlanDelta(at=2.0 * number, text=f"piece {number}") for number in range(1, LINES - 1)
    ]
    return stored(
        [begun(), *pieces, ev.RunFinished(at=20.0, answer="twelve", usage=Usage())],
        tmp_path / "traces",
    )


def rewrite(store: TraceStore, lines: list[bytes]) -> bytes:
    """Put these lines in the place of the trace. Returns its bytes."""
    content = b"".join(line + b"\n" for line in lines)
    store.path(RUN).write_bytes(content)
    return content


def lines_of(store: TraceStore) -> list[bytes]:
    return store.path(RUN).read_bytes().splitlines()


def faults(store: TraceStore) -> list[str]:
    return [fault.text for fault in store.check(RUN).faults]


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], list[str]]] = {
    "a changed word": (
        lambda old: [*old[:2], old[2].replace(b"piece", b"peace"), *old[3:]],
        ["line 3 was changed"],
    ),
    "a changed hash": (
        lambda old: [*old[:2], old[2][:-6] + b"0000" + old[2][-2:], *old[3:]],
        ["line 3 was changed: its hash does not follow the line before"],
    ),
    "a missing line": (lambda old: [*old[:2], *old[3:]], ["lines are missing before line 3"]),
    "a line twice": (lambda old: [*old[:3], old[1], *old[3:]], ["line 4 was added, or moved here"]),
    "two lines swapped": (
        lambda old: [*old[:2], old[3], old[2], *old[4:]],
        ["line 3 was added, or moved here", "lines are missing before line 5"],
    ),
    "a line of somebody else": (
        lambda old: [*old[:2], b'{"kind":"plan_delta","at":1,"text":"x"}', *old[2:]],
        ["line 3 was added, or moved here"],
    ),
    "a line after the end": (lambda old: [*old, old[2]], ["line 9 comes after the end of the run"]),
    "no end": (
        lambda old: old[:5],
        ["nothing follows line 5: the run was interrupted, or the end was cut off"],
    ),
    "a changed last line": (
        lambda old: [*old[:-1], old[-1].replace(b"twelve", b"eleven")],
        ["line 8 was changed"],
    ),
    "NUL bytes": (
        lambda old: [*old[:2], b"\0" * 40, *old[3:]],
        ["line 3 was changed: it has NUL bytes"],
    ),
    "another encoding": (
        lambda old: [*old[:2], old[2].replace(b"piece", b"pi\xe8ce"), *old[3:]],
        ["line 3 was changed: what is not UTF-8 was replaced"],
    ),
    "a lost line break": (
        lambda old: [*old[:2], old[2] + old[3], *old[4:]],
        ["line 3 has 2 records: line breaks are missing"],
    ),
    "a lost beginning": (
        lambda old: old[1:],
        [
            "line 1 is not the start of a run in format 3",
            "lines are missing before line 1",
        ],
    ),
}


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
def test_no_changed_byte_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """One byte that is changed, taken out or put in, anywhere, makes the trace not whole.

    And every reader reads it.
    """
    folder = tmp_path_factory.mktemp("one")
    store = stored(
        [
            begun(),
            ev.PlanDelta(at=0.1, text="né"),
            ev.RunFinished(at=9.0, answer="12", usage=Usage()),
        ],
        folder,
    )
    whole = store.path(RUN).read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(
        st.binary(min_size=0, max_size=2).filter(
            lambda byte: byte != whole[position : position + 1]
        )
    )
    store.path(RUN).write_bytes(whole[:position] + byte + whole[position + 1 :])
    assert faults(store)
    if position > whole.index(b"\n"):  # only the first line is needed
        assert store.trace(RUN).run


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {"no end", "a lost beginning"}))
def test_repairing_keeps_what_is_whole_and_the_old_file(store: TraceStore, name: str) -> None:
    path = store.path(RUN)
    before = lines_of(store)
    lines = CHANGES[name][0](before)
    damaged = rewrite(store, lines)
    aside = Path(store.repair(RUN, store.check(RUN)))
    assert aside.read_bytes() == damaged
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, aside)] == [0o600, 0o600]
    check = store.check(RUN)
    if name != "a changed last line":
        assert check.whole
        assert store.trace(RUN).state == "finished"
    lost = {
        "a line after the end": lines[-1],
        "two lines swapped": lines[2],
        "a changed hash": lines[2],
    }.get(name)
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
    lines[2] = b"\0" * 30
    lines[3] = lines[3][:-9]
    lines[5] = b"\0\0" + lines[5] + lines[6]
    del lines[6]
    rewrite(store, [*lines, lines[1]])
    trace = store.trace(RUN)
    assert (trace.plan_text, trace.state) == ("piece 1piece 4piece 5piece 6", "finished")
    assert [notice.text.split(": ")[1] for notice in trace.notices] == [
        "lines 3 to 4 are incomplete or left out",
        "line 8 is incomplete or left out",
    ]
    row = store.newest()[0][0]
    assert (row.state, "lines 3 to 4 are" in row.problem) == ("finished", True)


def test_a_line_that_is_too_long_is_left_out(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    rewrite(store, [b"?" if number % 2 else line for number, line in enumerate(lines_of(store))])
    notices = store.trace(RUN).notices
    assert len(notices) == trace_file.MAX_NOTICES + 1
    assert "trace verify" in notices[-1].text
