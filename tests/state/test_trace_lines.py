"""How little a trace writes, what it keeps all the same, and that nothing made up gets through its reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
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
from conductor_cli.state import old_lines
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
    return [event for line in lines for event in reader.read_line(line)]


def streamed(step: int, text: str, size: int, *, at: float, rate: float = 50.0) -> list[ev.Event]:
    """An answer in pieces of `size` characters, so many a second, and the end of its step."""
    texts = [text[start : start + size] for start in range(0, len(text), size)]
    pieces: list[ev.Event] = [
        ev.StepDelta(at=round(at + number / rate, 3), step=step, attempt=1, text=each)
        for number, each in enumerate(texts)
    ]
    end = round(at + len(texts) / rate, 3)
    return [*pieces, ev.StepFinished(at=end, step=step, attempt=1, text=text, usage=Usage(), finish="stop")]


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
        Message(role=("user", "assistant")[number % 2], content=f"{number:04d} {'some words here ' * 6}")
        for number in range(200)
    )
    first, start, *rest = one_answer("They were two hundred messages.", 5)
    assert isinstance(first, ev.RunStarted)
    assert isinstance(start, ev.StepStarted)
    question = Question(text="And now?", conversation=Conversation(messages=talk))
    last = Message(role="user", content="And now?")
    return [replace(first, question=question), replace(start, prompt=(*talk, last)), *rest]


def chain() -> list[ev.Event]:
    events, answer = list[ev.Event]([begun()]), ""
    for step in range(1, 6):
        prompt = (Message(role="user", content=f"Step {step}. The step before said: {answer}\nGo on."),)
        events.append(ev.StepStarted(at=20.0 * step, step=step, worker="alpha", attempt=1, prompt=prompt))
        answer = words(800, "abcde"[step - 1])
        events += streamed(step, answer, 5, at=20.0 * step)
    return [*events, ev.RunFinished(at=150.0, answer=answer, usage=Usage())]


def text_size(events: Sequence[ev.Event]) -> int:
    """Bytes of the question, of each prompt that was sent, and of the answers; what stands in two of them once."""
    answers = {event.text for event in events if isinstance(event, ev.StepFinished)}
    sent = {message.content for event in events if isinstance(event, ev.StepStarted) for message in event.prompt}
    return sum(len(text.encode()) for text in {*sent, *answers, "How many?"})


@pytest.mark.parametrize(
    "events", [one_answer(words(2000, "w"), 5), long_conversation(), chain(), one_answer("ten bytes.", 5)]
)
def test_a_run_takes_little_more_than_its_text(tmp_path: Path, events: list[ev.Event]) -> None:
    """At most 1.5 times the text and 8 KB, at 50 pieces a second; and every event is read back as it was."""
    store = stored(events, tmp_path, plain=False)
    assert store.path(RUN).stat().st_size <= 1.5 * text_size(events) + 8192
    assert list(store.events(RUN)) == events
    assert store.check(RUN).whole


def test_a_kill_loses_at_most_the_last_second_of_an_answer() -> None:
    """And nothing waits once something else has happened."""
    writer, waiting, reader, found = LineWriter(Secrets()), list[ev.Event](), LineReader(), 0
    for number, event in enumerate(one_answer(words(2000, "w"), 5), start=1):
        found += sum(len(reader.read_line(line)) for line in writer.add(event).decode().splitlines())
        waiting = [*waiting, event][-(number - found) :] if number > found else []
        assert not waiting or event.at - waiting[0].at < MAX_WAIT
        assert not waiting or isinstance(event, ev.StepDelta)


spots = st.tuples(
    st.sampled_from([(), (2,), (2, 3)]), st.sampled_from(["plan", "text", "thinking"]), st.integers(1, 2),
    st.text(min_size=1, max_size=5), st.integers(0, 700),
)  # fmt: skip


@given(st.lists(spots, max_size=30))
def test_pieces_of_several_streams_keep_order_time_and_place(drawn: list[tuple[Any, ...]]) -> None:
    """Whatever streams at once, in nested runs too: every piece is read back with its time, among all others."""
    events, at = list[ev.Event]([begun()]), 0
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
    """The texts of such a line are one piece each, without it, and the end of the step has its whole text."""
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
    for data in ({"repeated": "98c8dbe3c863"}, {"a": [{"repeated_item": "x"}]}, {"repeats": 1}, {"kind": "pieces"}):
        step = ev.StepFinished(
            at=1.0, step=1, attempt=1, text="12", usage=Usage(), finish="stop", provider_data={"x": "y", **data}
        )
        assert read(written([begun(), step])) == [begun(), step]


PLAN = ev.to_json(ev.PlanDelta(at=1.0, text="…"))
NESTED = ev.to_json(ev.NestedEvent(at=1.0, step=2, event=ev.PlanDelta(at=0.5, text="…")))
PIECES = {"kind": "pieces", "streams": [PLAN, NESTED], "pieces": [[0, "a", 1.0], [1, "b", 1.5, 1.0]]}
OLD_PIECES = {"kind": "pieces", "events": [ev.to_json(ev.PlanDelta(at=1.0, text="abc"))], "cuts": "DA"}


@pytest.mark.parametrize(
    "change",
    [
        {"streams": None}, {"streams": [7]}, {"streams": [ev.to_json(ev.Notice(at=1.0, text="x"))]}, {"pieces": None},
        *({"pieces": [piece]} for piece in (
            7, [], [2, "a", 1.0], [-1, "a", 1.0], [0, 1, 1.0], [0, "a"], [0, "a", 1.0, 1.0], [1, "b", 1.0],
            [0, "a", "1"], [0, "a", 10**400], [0, "a", float("nan")],
        )),
        *(OLD_PIECES | {"cuts": cuts} for cuts in ("CA", "EA", "AADA", "!", "g", "_" * 99, 1)),
        *(OLD_PIECES | {"events": events} for events in (None, [], [7], [ev.to_json(ev.Notice(at=1.0, text="x"))])),
    ],
)  # fmt: skip
def test_made_up_pieces_are_refused(change: dict[str, Any]) -> None:
    """As they are written now, and as older versions wrote them."""
    first, second = read([json.dumps(PIECES)])
    assert first == ev.PlanDelta(at=1.0, text="a")
    assert second == ev.NestedEvent(at=1.5, step=2, event=ev.PlanDelta(at=1.0, text="b"))
    assert read([json.dumps(OLD_PIECES)]) == [ev.PlanDelta(at=1.0, text="abc")]
    with pytest.raises(DecodeError):
        read([json.dumps(PIECES | change)])


OLD = Path(__file__).with_name("old")
OLD_RUN = "20261124-101112-abcdef"


def test_a_trace_with_named_texts_is_read_as_it_was(tmp_path: Path) -> None:
    """As versions before December 2026 wrote them: names for texts, parts and messages, cuts of several streams."""
    events = [ev.from_line(line) for line in (OLD / "events.txt").read_text("utf-8").splitlines()]
    store = TraceStore(OLD)
    assert list(store.events(OLD_RUN)) == events
    assert list(store.events(OLD_RUN, pieces=False)) == [event for event in events if not is_piece(event)]
    assert store.check(OLD_RUN).whole
    # A text whose line is damaged is not made up, by readers and by a repair.
    damaged = TraceStore(tmp_path)
    lines = (OLD / f"{OLD_RUN}.jsonl").read_bytes().splitlines(keepends=True)
    damaged.path(OLD_RUN).write_bytes(b"".join([lines[0].replace(b"some words", b"some swords", 1), *lines[1:]]))
    assert "repeats a text" in damaged.trace(OLD_RUN).notices[0].text
    with pytest.raises(UsageError, match="nothing can be kept"):
        damaged.repair(OLD_RUN, damaged.check(OLD_RUN))


def test_a_text_that_names_others_cannot_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up trace whose lines double is refused before it fills the memory."""
    monkeypatch.setattr(old_lines, "MAX_REPEATED", 100_000)
    reader, text = LineReader(), "x" * 64
    reader.read({"kind": "plan_delta", "at": 0.0, "text": text})

    def double(text: str) -> list[ev.Event]:
        named = {"repeated": [[old_lines.name_of(text)]] * 2}
        return reader.read({"kind": "plan_delta", "at": 0.0, "text": named, "repeats": 1})

    for _ in range(9):
        assert double(text)
        text *= 2
    with pytest.raises(DecodeError, match="more text"):
        [double(text * 2**number) for number in range(3)]
