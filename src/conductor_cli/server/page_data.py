"""What the page in a browser draws of a run, as JSON values. Pure.

The tree is that of every other view (`views/run_tree.py`); the page only draws its nodes. Every text is cleaned here,
and bounded: a frame goes out several times a second, and a step is opened one at a time.

Runs of this server that no file has, as the page shows them: from memory, while they go on and shortly after.

Server-sent events about one run for the page: its events, the run as it looks, and its replay.

Reading a trace while it is written: by this server, or by another process.

Every event is in the file before anything shows it, and a piece of text at most a second later, so the file is the one
source of both. Nobody is asked to announce what they write: the file is looked at a few times a second, which costs a
call to the system each time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.terminal_text import escape_json, one_line, sanitize
from conductor_cli.core.trace import ENDED, StepRecord, ToolUse, Trace, apply_event, changed
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import recipient_of
from conductor_cli.server.run_registry import ServedRun
from conductor_cli.server.runs import may_read, may_see
from conductor_cli.state.run_summary import make_stored_run
from conductor_cli.state.stored_run import RunQuery, StoredRun
from conductor_cli.state.trace_file import is_live
from conductor_cli.state.trace_lines import LineReader
from conductor_cli.views.html import TimelineRow, markdown_html, timeline, usage_rows
from conductor_cli.views.run_text import (
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    message_text,
    tool_name,
)
from conductor_cli.views.run_tree import Node, run_tree
from conductor_cli.views.trace_text import usage_text

LONGEST_LABEL: Final = 1_000
"""Characters of a question, a subtask or a remark in the tree."""

LONGEST_TAIL: Final = 600
"""Characters of a response in the tree: the last ones while it is written, the first ones later."""

MOST_WORKERS: Final = 100
"""Rows of the table of workers."""

LONGEST_TEXT: Final = 200_000
"""Characters of each text of an opened step."""

Data = dict[str, Any]


def frame_data(trace: Trace, *, now: float | None = None, live: bool = False, stored: bool = True) -> Data:
    """A run at a time by its own clock (seconds; without one, its newest event), as the page draws it.

    `state` is planning, running, finished, partial, failed or interrupted. `tree` is a node as `node_data` gives it.
    `times` are rows of bars in percent of the time so far. `usage` are rows of a table: who, tokens read, tokens
    written, calls, cost. `workers` are rows too: name, model, who reads what it is sent, and what a million tokens of
    input and of output cost. `stored` says whether a file has the run.
    """
    trace = trace if now is None else changed(trace, at=now)
    state: str = "partial" if trace.partial else trace.state
    times = timeline(trace)
    return {
        "run": one_line(trace.run),
        "time": one_line(trace.time),
        "at": round(trace.at, 3),
        "state": state if trace.ended or live else "interrupted",
        "ended": trace.ended,
        "outcome": describe_outcome(trace, live=live),
        "setup": describe_setup(trace),
        "totals": describe_totals(trace, stored=stored),
        "stored": stored,
        "notices": [describe_notice(notice)[:LONGEST_LABEL] for notice in trace.told()],
        "tree": node_data(run_tree(trace)),
        "times": {"rows": [_row_data(row) for row in times.rows], "ticks": list(times.ticks)},
        "usage": [list(row) for row in usage_rows(trace)],
        "workers": [_worker_data(worker) for worker in trace.pool][:MOST_WORKERS],
    }


def _worker_data(worker: Worker) -> list[str]:
    names = (worker.name, worker.model_name, recipient_of(worker))
    price = worker.price
    if price is None:
        return [*map(_label, names), "unknown", "unknown"]
    if not any(price.amounts()):
        return [*map(_label, names), "free", "free"]
    prefix = "from " if price.longer else ""  # long calls cost more
    return [*map(_label, names), *(f"{prefix}{format_money(amount)}" for amount in (price.input, price.output))]


def _label(text: str) -> str:
    return one_line(text[: 4 * LONGEST_LABEL])[:LONGEST_LABEL]


def _row_data(row: TimelineRow) -> Data:
    bars = [
        {"kind": bar.kind, "start": round(bar.start, 2), "length": round(bar.length, 2), "title": bar.title}
        for bar in row.bars
    ]
    return {"label": row.label, "took": row.took, "bars": bars}


def node_data(node: Node) -> Data:
    """A node of the tree with everything below it. Its texts are safe to show, and short."""
    text = sanitize(node.text[-LONGEST_TAIL:] if node.state in _GROWING else node.text[:LONGEST_TAIL])
    return {
        "kind": node.kind, "state": node.state, "number": node.number, "name": one_line(node.name)[:LONGEST_LABEL],
        "label": one_line(node.label[: 4 * LONGEST_LABEL])[:LONGEST_LABEL], "remark": one_line(node.remark),
        "status": node.status, "figures": [figure for figure in node.figures if figure],
        "text": "" if node.answers else text.strip("\n"), "thinking": node.thinking, "answers": node.answers,
        "children": [node_data(child) for child in node.children],
    }  # fmt: skip


_GROWING: Final = frozenset({"planning", "running", "answering", "retrying"})


# One step, or the whole run, opened


def find_record(trace: Trace, number: str) -> tuple[StepRecord, Trace] | None:
    """The step of a number such as `2` or `2.1`, and the run that it belongs to; None where there is none."""
    first, _, rest = number.partition(".")
    record = next((record for record in trace.steps if str(record.number) == first), None)
    if record is None or not rest:
        return (record, trace) if record is not None else None
    return find_record(record.nested, rest) if record.nested is not None else None


def step_data(trace: Trace, number: str) -> Data | None:
    """A step as it is opened: `title`, `facts` (a line each), and `sections`. None where there is none.

    A section has a title and a text, as `text` or as `html`, which is safe to put into a page. `more` is how many
    characters were left out at its end.
    """
    found = find_record(trace, number)
    if found is None:
        return None
    record, run = found
    facts = [
        one_line(record.step.subtask)[: 10 * LONGEST_LABEL],
        f"{record.state}, {describe_access(record.step.access)}",
        _describe_usage(record, run),
    ]
    sections = [
        *(_section(f"Prompt ({message.role})", message_text(message)) for message in record.prompt),
        *_failed(record),
        *(section for use in record.tools for section in _tool_sections(use)),
        *([_section("Thinking", record.thinking)] if record.thinking else []),
        *([] if record.nested is not None else [_rendered("Response", record.text)]),
    ]
    return {"number": number, "title": f"{number}. {describe_worker(record)}", "facts": facts, "sections": sections}


def question_data(trace: Trace) -> Data:
    """The question, the plan and the answer, in the shape of `step_data`. Its number is 0."""
    question, plan = trace.question, trace.plan
    sections = [_rendered("Question", question.text)]
    sections += [_section("Earlier question", f"{turn.question}\n\n{turn.answer}") for turn in question.history]
    sections += [_section("System text", question.system)] if question.system else []
    sections += [_section(f"File {describe_file(file)}", file.text) for file in question.files]
    sections += [_section("Plan", _plan_text(trace))] if trace.steps or plan is not None else []
    if isinstance(plan, Plan) and plan.reasoning:
        sections.append(_section("The planner's reasoning", plan.reasoning))
    sections += [_section("As the planner wrote it", trace.plan_text)] if trace.plan_text else []
    sections += [
        _section(f"Plan {event.attempt} was not valid: {one_line(event.problem)[:LONGEST_LABEL]}", event.text)
        for event in trace.rejected
    ]
    return {
        "number": "0", "title": "Question and plan", "sections": sections,
        "facts": [describe_setup(trace), f"planning: {usage_text(trace.planning)}", f"all: {usage_text(trace.usage)}"],
    }  # fmt: skip


def answer_data(trace: Trace) -> Data | None:
    """The answer as a section; None where there is none."""
    if not trace.answer:
        return None
    as_text = trace.question.schema is not None
    return _section("Answer", trace.answer) if as_text else _rendered("Answer", trace.answer)


def _plan_text(trace: Trace) -> str:
    if isinstance(trace.plan, KeepAnswer):
        return "the given answer is kept"
    return "\n".join(
        f"{record.number}. {one_line(record.step.worker)} ({describe_access(record.step.access)}): "
        f"{one_line(record.step.subtask)[: 10 * LONGEST_LABEL]}"
        for record in trace.steps
    )


def _describe_usage(record: StepRecord, run: Trace) -> str:
    took = format_duration(record.seconds(run.at), tenths=record.state in ENDED)
    return f"{took}, {usage_text(record.usage)}"


def _failed(record: StepRecord) -> Iterator[Data]:
    for attempt in record.failed:
        took = "" if attempt.started is None else f", after {format_duration(attempt.ended - attempt.started)}"
        hint = f"\n{attempt.error.hint}" if attempt.error.hint else ""
        title = f"Failed attempt {attempt.attempt}, {one_line(attempt.worker)}{took}"
        yield _section(title, f"{attempt.message}{hint}\n{usage_text(attempt.usage)}", "failed")


def _tool_sections(use: ToolUse) -> Iterator[Data]:
    yield _section(f"Tool call {tool_name(use)} (attempt {use.attempt}, reply {use.turn})", use.call.arguments)
    took = "no result" if use.ended is None else format_duration(use.ended - use.started)
    title = f"{'Error' if use.error else 'Result'} ({took})"
    yield _section(title, use.text, "failed" if use.error else "")


def _section(title: str, text: str, kind: str = "") -> Data:
    """A text as it was written. `kind` says how it is marked."""
    return {"title": one_line(title), "text": sanitize(text[:LONGEST_TEXT]), "more": _left_out(text), "kind": kind}


def _rendered(title: str, text: str) -> Data:
    """A text of a model as the Markdown that it mostly is."""
    return {"title": title, "html": markdown_html(text[:LONGEST_TEXT]), "more": _left_out(text), "kind": "rendered"}


def _left_out(text: str) -> str:
    left = len(text) - LONGEST_TEXT
    return format_count(left, "more character") if left > 0 else ""


BLOCK: Final = 256 << 10
"""Bytes that are read at once."""

STARTING: Final = 1.0
"""Seconds that a writer may take between making a file and locking it."""


class TraceTail:
    """The complete lines of one trace file, each once. It holds no open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._changed = time.time()

    def read(self) -> list[bytes]:
        """The lines that are complete by now and have not been read, up to about `BLOCK` bytes. Raises `OSError`."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(BLOCK)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == BLOCK:  # one line is longer than a block
                data += file.readline()
                end = len(data) if data.endswith(b"\n") else 0
            # Taken after the text: it is then never older than that.
            self._changed = self._path.stat().st_mtime
        self._position += end
        return data[:end].split(b"\n")[:-1]

    def is_behind(self) -> bool:
        """Whether the file has more than was read. Raises `OSError`."""
        return self._path.stat().st_size > self._position

    @property
    def idle(self) -> float:
        """Seconds since the file was written, when it was last read."""
        return max(0.0, time.time() - self._changed)

    def is_written(self) -> bool:
        """Whether some process is writing the file, or has only just made it."""
        return is_live(self._path) or self.idle < STARTING


TICK: Final = 1 / 8
"""Seconds between two looks at the file, and between two frames, as on a terminal."""

IDLE: Final = 1.0
"""Seconds between two frames while only time passes."""

RATE: Final = 1_000_000
"""Bytes of frames a second: a large tree is drawn less often."""

HEARTBEAT: Final = 10.0
"""Seconds without anything after which a comment is sent, so that a proxy does not close the connection."""

_ENDS: Final = ("run_finished", "run_failed")


def _message(kind: str, data: str, number: int | None = None) -> bytes:
    """One server-sent event. `data` is one line of JSON."""
    identity = "" if number is None else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


def keyless_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A JSON value in one line, without keys."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if KNOWN_SECRETS.holds(line):
        line = json.dumps(KNOWN_SECRETS.redact_data(value), ensure_ascii=False, separators=(",", ":"))
    return escape_json(line)


def frame_message(frame: str, number: int) -> bytes:
    """A frame, one line of JSON, as a server-sent event."""
    return _message("frame", frame, number)


def end_message(state: str) -> bytes:
    """The end of a stream about a run."""
    return _message("end", json.dumps({"state": state}))


# The events


async def event_stream(path: Path, after: int) -> AsyncIterator[bytes]:
    """Each event of a trace from number `after` + 1 on, named by its kind, and `end` when no more will come."""
    number, reader = 0, LineReader()
    async for lines in _blocks(TraceTail(path)):
        if not lines:
            yield b": \n\n"
            continue
        events = await anyio.to_thread.run_sync(_named_events, lines, reader)
        messages = [
            _message(kind, text, place) for place, (kind, text) in enumerate(events, number + 1) if place > after
        ]
        number += len(events)
        if messages:
            yield b"".join(messages)
        if events and events[-1][0] in _ENDS:
            yield end_message("finished" if events[-1][0] == "run_finished" else "failed")
            return
    yield end_message("interrupted")


def _named_events(lines: list[bytes], reader: LineReader) -> list[tuple[str, str]]:
    """The kind and the line of JSON of each event. A damaged line, which is none, is left out."""
    found = list[ev.Event]()
    for line in lines:
        with suppress(DecodeError):
            found += reader.read_line(line.decode("utf-8", "replace"))
    # A file may have been edited by hand: nothing in it may end the line of `data`.
    return [(event.kind, ev.to_line(event, KNOWN_SECRETS, brief=True)) for event in found]


async def _blocks(tail: TraceTail) -> AsyncIterator[list[bytes]]:
    """New lines as they come, and an empty list after each `HEARTBEAT` without one. It ends with its writer."""
    waited = 0.0
    while True:
        try:
            lines = await anyio.to_thread.run_sync(tail.read) if tail.is_behind() else []
        except OSError:  # the run was deleted
            return
        if lines:
            waited = 0.0
            yield lines
            continue
        if not tail.is_written() and not tail.is_behind():
            return
        await asyncio.sleep(TICK)
        waited += TICK
        if waited >= HEARTBEAT:
            waited = 0.0
            yield []


# The run as it looks


async def frame_stream(path: Path) -> AsyncIterator[bytes]:
    """A `frame` now, and again whenever the run has changed, until it has ended."""
    tail, reader, trace, number, last = TraceTail(path), LineReader(), Trace(), 0, ""
    since = 0.0
    while True:
        try:
            live = tail.is_written()
            lines = await anyio.to_thread.run_sync(tail.read) if tail.is_behind() else []
            if lines:
                trace = await anyio.to_thread.run_sync(_folded, trace, lines, reader)
        except (OSError, DecodeError):  # the run was deleted, or the file is damaged from here on
            yield end_message("unreadable")
            return
        number += len(lines)
        if lines and tail.is_behind():
            continue
        over = trace.ended or (not live and not lines)
        since += TICK
        if trace.run and (lines or over or since >= IDLE):
            since = 0.0
            now = trace.at if over else trace.at + tail.idle
            frame = await anyio.to_thread.run_sync(_stream_frame, trace, now, live and not over)
            if frame != last:
                last = frame
                yield frame_message(frame, number)
                await asyncio.sleep(len(frame) / RATE)
        if over:
            yield end_message(trace.state if trace.ended else "interrupted")
            return
        await asyncio.sleep(TICK)


def _folded(trace: Trace, lines: list[bytes], reader: LineReader) -> Trace:
    for line in lines:
        # A damaged line is left out, as by every reader; without the first one there is no run.
        with suppress(DecodeError):
            for event in reader.read_line(line.decode("utf-8", "replace")):
                trace = apply_event(trace, event)
    if not trace.run:
        raise DecodeError("the first line is not the start of a run")
    return trace


def _stream_frame(trace: Trace, now: float, live: bool) -> str:  # noqa: FBT001 - called on a thread, which takes no names
    return keyless_json(frame_data(trace, now=now, live=live))


# Replay


async def replay_stream(events: Callable[[], Iterator[ev.Event]], speed: float, start: float) -> AsyncIterator[bytes]:
    """Frames of a stored run as it looked from `start` seconds on, `speed` times as fast as it was."""
    loop = asyncio.get_running_loop()
    replay = _Replay(events())
    begun = loop.time()
    while True:
        now = start + (loop.time() - begun) * speed
        try:
            over = await anyio.to_thread.run_sync(replay.advance, now)
            frame = await anyio.to_thread.run_sync(replay.frame, now)
        except (UsageError, OSError):
            yield end_message("unreadable")
            return
        if frame:
            yield frame_message(frame, replay.number)
        if over:
            yield end_message(replay.trace.state if replay.trace.ended else "interrupted")
            return
        await asyncio.sleep(max(TICK, len(frame) / RATE))


class _Replay:
    """A stored run up to a time, which only moves on."""

    def __init__(self, events: Iterator[ev.Event]) -> None:
        self._events = events
        self._next: ev.Event | None = None
        self._last = ""
        self.trace = Trace()
        self.number = 0

    def advance(self, now: float) -> bool:
        """Apply the events up to `now`, in seconds of the run. Returns whether that was all. Raises `UsageError`."""
        while True:
            event = self._next if self._next is not None else next(self._events, None)
            self._next = event
            if event is None:
                return True
            if event.at > now:
                return False
            self.trace = apply_event(self.trace, event)
            self.number += 1
            self._next = None

    def frame(self, now: float) -> str:
        """How the run looked; empty where it looks as before."""
        over = self._next is None
        text = keyless_json(frame_data(self.trace, now=None if over else now, live=not over))
        if not self.trace.run or text == self._last:
            return ""
        self._last = text
        return text


def find_run(runs: Iterable[ServedRun], run: str, origin: str) -> ServedRun | None:
    """The run of this id that a client may see."""
    return next((each for each in runs if each.id == run and may_see(origin, each.narrator.trace)), None)


def select_runs(traces: Iterable[Trace], query: RunQuery, origin: str) -> Iterator[tuple[StoredRun, bool]]:
    """The rows of a list, and whether their texts may be shown; the list begins with them, so they have no `before`."""
    for trace in traces:
        if not trace.run or query.before or not may_see(origin, trace):
            continue
        row, shown = make_stored_run(trace, trace.run, live=True, problem=""), may_read(origin, trace)
        texts = f"{row.question} {row.subtasks} {row.answers}".casefold()
        # That a text is found in a run says something about it, too.
        found = all(shown and term.casefold() in texts for term in query.terms)
        if found and query.state in ("", row.state):
            yield row, shown


async def live_frames(served: ServedRun) -> AsyncIterator[bytes]:
    """A `frame` now, and again whenever the run has changed, until it has ended."""
    loop = asyncio.get_running_loop()
    trace, changed_at, drawn_at, last, number = Trace(), loop.time(), 0.0, "", 0
    while True:
        over, now = served.ended is not None, loop.time()
        if served.narrator.trace is not trace:
            trace, changed_at, drawn_at = served.narrator.trace, now, 0.0
        if trace.run and (over or now - drawn_at >= IDLE):
            drawn_at = now
            frame = await anyio.to_thread.run_sync(_frame, trace, None if over else now - changed_at)
            if frame != last:
                last, number = frame, number + 1
                yield frame_message(frame, number)
                await asyncio.sleep(len(frame) / RATE)
        if over:
            yield end_message(trace.state if trace.ended else "interrupted")
            return
        await asyncio.sleep(TICK)


def _frame(trace: Trace, idle: float | None) -> str:
    """The run as it looks `idle` seconds after its newest event; None where nothing follows."""
    now = None if idle is None else trace.at + idle
    return keyless_json(frame_data(trace, now=now, live=idle is not None, stored=False))
