"""Traces and attachments on disk: what was written can be read, also from a truncated file."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import Failure, ModelError, UsageError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import File, PastTurn, Question
from conductor_cli.core.usage import Usage
from conductor_cli.state.records import Attachments
from conductor_cli.state.run_summary import summarize_run
from conductor_cli.state.trace_file import GZIP, MAX_BLOCK_BYTES, TraceFollower, read_events
from conductor_cli.state.trace_store import TraceStore
from tests.traces.stored import begin_run, trace_bytes, unpack

TRACES = Path(__file__).parents[1] / "traces"
RUN = "20261120-101112-abcdef"

numbers = st.integers(1, 5)
words = st.text(max_size=40)
usages = st.builds(
    Usage,
    tokens_in=st.integers(0, 9999),
    tokens_out=st.integers(0, 9999),
    cost=st.none() | st.decimals(0, 10, allow_nan=False, places=6),
    seconds=st.floats(0, 1e6),
)
steps = st.builds(
    Step, worker=words, subtask=words, access=st.lists(numbers, max_size=3).map(tuple)
)
failures = st.builds(
    Failure, kind=st.sampled_from(["worker", "limit", "key"]), message=words, hint=words
)
at = st.floats(0, 1e6)
plans = st.builds(Plan, steps=st.lists(steps).map(tuple), reasoning=words)
middles = st.one_of(
    st.builds(ev.PlanDelta, at=at, text=words),
    st.builds(ev.PlanReady, at=at, plan=plans, usage=usages),
    st.builds(ev.StepDelta, at=at, step=numbers, attempt=numbers, text=words, thinking=words),
    st.builds(
        ev.StepFailed,
        at=at,
        step=numbers,
        attempt=numbers,
        error=failures,
        usage=usages,
        retry_in=st.none(),
    ),
    st.builds(
        ev.StepFinished,
        at=at,
        step=numbers,
        attempt=numbers,
        text=words,
        usage=usages,
        finish=st.sampled_from(["stop", "length"]),
    ),
    st.builds(
        ev.NestedEvent, at=at, step=numbers, event=st.builds(ev.PlanDelta, at=at, text=words)
    ),
    st.builds(ev.Notice, at=at, text=words, step=numbers),
)
questions = st.builds(
    Question,
    text=words,
    system=words,
    files=st.lists(st.builds(File, name=words, text=words), max_size=2).map(tuple),
    history=st.lists(st.builds(PastTurn, question=words, answer=words), max_size=2).map(tuple),
)


HOW_MANY = Question(text="How many?")


def begun(question: Question = HOW_MANY, **fields: object) -> ev.RunStarted:
    worker = Worker(
        name="alpha", kind="openai-compatible", options={"base_url": "http://127.0.0.1:1/v1"}
    )
    return ev.RunStarted(
        at=0.0,
        run=RUN,
        time="2026-11-20T10:11:12.000+00:00",
        question=question,
        pool=Pool(workers=(worker,)),
        limits=Limits(),
        mode="auto",
        conductor="tiny",
        profile="prompted",
        **fields,  # type: ignore[arg-type]
    )


ended = st.one_of(
    st.builds(ev.RunFinished, at=at, answer=words, usage=usages, partial=st.booleans()),
    st.builds(ev.RunFailed, at=at, error=failures, usage=usages),
)
streams = st.builds(
    lambda first, middle, last: [first, *middle, last],
    questions.map(begun),
    st.lists(middles, max_size=8),
    ended,
)


def state_of(store: TraceStore) -> str:
    return summarize_run(str(store.directory), RUN).state


def stored(
    events: list[ev.Event], folder: Path, run: str = RUN, *, plain: bool = True
) -> TraceStore:
    """Store events as a run.

    With `plain` its file is not compressed, so that a test can change its lines.
    """
    store = TraceStore(folder)
    begin_run(store, run, events).close()
    if plain:
        unpack(store.path(run))
    return store


@given(streams, st.data())
def test_a_truncated_file_has_the_events_before_the_cut(
    events: list[ev.Event], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = stored(events, Path(folder))
        whole = store.path(RUN).read_bytes()
        cut = data.draw(st.integers(0, len(whole) - 1))
        store.path(RUN).write_bytes(whole[:cut])
        kept = list(read_events(store.path(RUN)))
        assert kept == events[: len(kept)]
        assert len(kept) >= whole[:cut].count(b"\n")
        state = state_of(store)
        assert (
            state == "interrupted"
            if len(kept) < len(events)
            else state == store.trace(RUN).outcome()
        )
        if kept:
            assert store.trace(RUN).run == RUN


@pytest.mark.parametrize("content", [b"", b'{"kind"', b'{"a":' * 50_000, b"hello"])
def test_a_file_without_a_complete_event_can_be_listed_and_removed(
    tmp_path: Path, content: bytes
) -> None:
    store = TraceStore(tmp_path)
    store.path(RUN).write_bytes(content)
    assert state_of(store) == "interrupted"
    assert list(read_events(store.path(RUN))) == []
    with pytest.raises(UsageError, match="has no complete event"):
        store.trace(RUN)
    store.remove(RUN)
    assert store.runs() == []


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"\n",
        b'{"kind":"other"}\n',
        b"[1]\n",
        b"\xff\xfe\n",
        b'{"a":' * 50_000 + b"\n",
        ev.to_line(ev.PlanDelta(at=0.1, text="x")).encode() + b"\n",
    ],
)
def test_a_foreign_file_is_reported(tmp_path: Path, content: bytes) -> None:
    store = TraceStore(tmp_path)
    store.path(RUN).write_bytes(content)
    assert state_of(store) == "unreadable"
    with pytest.raises(UsageError, match=r"line 1|does not begin"):
        list(store.events(RUN))


def test_who_follows_a_trace_reads_nothing_again_when_it_is_compressed(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    answer = "12 " * MAX_BLOCK_BYTES
    events: list[ev.Event] = [begun(), ev.RunFinished(at=4.0, answer=answer, usage=Usage())]
    writer = store.open(RUN)
    follower = TraceFollower(store.path(RUN))
    for event in events:
        writer.write(event)
    assert follower.read() == events
    writer.close()
    assert follower.is_behind()
    assert follower.read() == []
    assert not follower.is_behind()
    assert TraceFollower(store.path(RUN)).read() == events


def test_the_run_that_was_begun_last_is_found_without_a_list_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TraceStore(tmp_path / "traces")
    for number in range(300):
        run = f"20261120-101112-{number:06x}"
        begin_run(store, run, [begun()]).close()
    monkeypatch.setattr(store, "_names", lambda: pytest.fail("the directory was listed"))
    assert store.last_begun() == run


@pytest.mark.parametrize(
    "announced", [b"", b"20261120-101112-0000", b"../outside\n", b"gone\t\n", b"x" * 9000 + b"\n"]
)
def test_announcements_that_name_no_run_are_not_believed(tmp_path: Path, announced: bytes) -> None:
    store = TraceStore(tmp_path / "traces")
    begin_run(store, RUN, [begun()]).close()
    (tmp_path / "outside.jsonl").write_text("")
    (tmp_path / "traces.new").write_bytes(announced)
    assert store.last_begun() == RUN


def test_a_trace_that_fills_no_more_than_a_block_stays_as_its_lines(tmp_path: Path) -> None:
    """Compressed it would take a block of the disk as well; a byte more is compressed."""
    store = TraceStore(tmp_path)
    smallest = len(trace_bytes(ended_run(store, "none", answer_bytes=0)))
    for run, excess in (("fits", 0), ("larger", 1)):
        answer_bytes = MAX_BLOCK_BYTES + excess - smallest
        path = ended_run(store, run, answer_bytes=answer_bytes)
        is_compressed = path.read_bytes().startswith(GZIP)
        assert (len(trace_bytes(path)), is_compressed) == (MAX_BLOCK_BYTES + excess, bool(excess))


def ended_run(store: TraceStore, run: str, *, answer_bytes: int) -> Path:
    answer = "x" * answer_bytes
    begin_run(store, run, [begun(), ev.RunFinished(at=4.0, answer=answer, usage=Usage())]).close()
    return store.path(run)


def test_a_damaged_end_of_a_compressed_trace_is_named(tmp_path: Path) -> None:
    pieces = [
        ev.PlanDelta(at=2.0 * number, text=f"{number} {hash((number,))}") for number in range(2000)
    ]
    store = stored(
        [begun(), *pieces, ev.RunFinished(at=9999.0, answer="x", usage=Usage())],
        tmp_path,
        plain=False,
    )
    path = store.path(RUN)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-9] + b"12345" + whole[-4:]):
        path.write_bytes(damaged)
        trace = store.trace(RUN)
        assert (trace.notices[-1].reason, "compressed" in trace.notices[-1].text) == (
            "trace_damaged",
            True,
        )
        assert not store.check(RUN).whole
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match="end-of-stream"):
        TraceFollower(path).read()
    store.repair(RUN, store.check(RUN))
    assert [fault.fault for fault in store.check(RUN).faults] == ["no_end"]
    assert len(list(store.events(RUN))) > 500


@pytest.mark.parametrize(("pieces", "is_quick"), [(1, True), (2000, False)])
def test_only_a_small_trace_is_closed_on_the_event_loop(
    tmp_path: Path, pieces: int, *, is_quick: bool
) -> None:
    """A small one is compressed from memory, a large one from its file: both are whole."""
    text = "How many? " * 500
    events: list[ev.Event] = [begun(Question(text=text))]
    events += [ev.PlanDelta(at=2.0 * number, text=f"{number} ") for number in range(pieces)]
    events.append(ev.RunFinished(at=9999.0, answer="12", usage=Usage()))
    store = TraceStore(tmp_path)
    writer = begin_run(store, RUN, events)
    assert writer.is_closed_quickly is is_quick
    plain = store.path(RUN).read_bytes()
    writer.close()
    assert trace_bytes(store.path(RUN)) == plain


def test_a_file_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    writer = begin_run(store, RUN, [begun(), ev.RunFinished(at=1.0, answer="12", usage=Usage())])
    store.path(RUN).unlink()
    writer.close()
    assert store.runs() == []


def test_reading_without_pieces_gives_the_same_trace(tmp_path: Path) -> None:
    for path in sorted(TRACES.glob("*.jsonl")):
        events = list(read_events(path, pieces=False))
        assert [event for event in read_events(path) if not is_piece(event)] == events, path.stem


def is_piece(event: ev.Event) -> bool:
    inner = event.event if isinstance(event, ev.NestedEvent) else event
    return isinstance(inner, (ev.StepDelta, ev.PlanDelta)) or (
        inner is not event and is_piece(inner)
    )


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    fields = ev.to_json(begun()) | {"weather": "fine"}
    store.path(RUN).write_text(json.dumps(fields) + "\n")
    assert list(store.events(RUN)) == [begun()]


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("in the way")
    with pytest.raises(UsageError, match="traces cannot be read"):
        TraceStore(tmp_path / "traces").runs()


def test_a_run_that_disappears_is_not_an_error(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    assert state_of(store) == "unreadable"
    store.remove(RUN)
    with pytest.raises(UsageError, match="cannot be read"):
        store.trace(RUN)


def test_a_broken_link_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000-000000.jsonl").symlink_to(tmp_path / "gone")
    (tmp_path / "20260102-000000-000000.jsonl").write_text("x")
    assert TraceStore(tmp_path).runs() == ["20260102-000000-000000", "20260101-000000-000000"]


def named(content: bytes, name: str = "a.png") -> Attachment:
    digest = hashlib.sha256(content).hexdigest()
    return Attachment(name=name, media_type="image/png", sha256=digest, size=len(content))


def test_missing_and_changed_bytes_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    kept = Attachments(tmp_path, tmp_path / "traces")
    kept.add(b"one")
    attachment = named(b"one", "chart.png")
    kept.store([attachment])
    [path] = [path for path in tmp_path.glob("??/*") if path.is_file()]
    path.write_bytes(b"two")
    with pytest.raises(ModelError, match=r"chart\.png was changed"):
        kept.read(attachment)
    path.unlink()
    with pytest.raises(ModelError, match=r"chart\.png cannot be read"):
        kept.read(attachment)


def test_a_hash_that_is_a_path_reads_nothing(tmp_path: Path) -> None:
    """A plan file is edited by hand: its hash never leads out of the directory."""
    (tmp_path / "secret").write_bytes(b"secret")
    kept = Attachments(tmp_path / "kept", tmp_path / "traces")
    for digest in ("../secret", "../../secret", str(tmp_path / "secret"), ""):
        assert not kept.holds(Attachment(name="x", media_type="image/png", sha256=digest, size=6))


def test_traces_that_cannot_be_read_keep_all_bytes(tmp_path: Path) -> None:
    """Where it is not known what a trace names, nothing is deleted."""
    traces = tmp_path / "traces"
    kept = Attachments(tmp_path / "kept", traces)
    kept.add(b"one")
    kept.store([named(b"one")])
    traces.mkdir()
    (traces / "a.jsonl").mkdir()  # reading it is an OSError
    kept.prune()
    assert kept.holds(named(b"one"))
