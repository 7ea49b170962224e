"""A trace file as one row of the list, with the texts that are searched.

Many trace files as rows of the list: by several processes where that is quicker, which reads 10,000 in seconds.
"""

from __future__ import annotations

import gc
import marshal
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Notice
from conductor_cli.core.serialization import LARGEST_WHOLE
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import StepRecord, Trace, apply_event
from conductor_cli.state.stored_run import SEPARATOR, SUFFIX, StoredRun
from conductor_cli.state.trace_file import is_live, read_events


def summarize_run(directory: str, run: str) -> StoredRun:
    """The row of one run. Never raises: an unreadable file is listed with what was read before."""
    path = Path(directory) / f"{run}{SUFFIX}"
    try:
        before = path.stat()  # taken first, so that whatever is written from here on is noticed
    except OSError as error:
        return StoredRun(run=run, size=-1, problem=error.strerror or "")
    live, trace, problem, size = is_live(path), Trace(), "", before.st_size
    try:
        for event in read_events(path, pieces=False):
            trace = apply_event(trace, event)
    except UsageError as error:
        problem = error.message.replace(f"{path}", run)
        if isinstance(error.__context__, OSError):
            size = -1  # the system refused, perhaps only this time: the next list reads the file again
    except Exception as error:  # noqa: BLE001 - one file must not take the list of all others away
        trace, problem = Trace(), f"{run} cannot be read: {type(error).__name__}"
    row = make_stored_run(trace, run, live=live, problem=problem)
    return row._replace(written=before.st_mtime_ns, size=size)


def make_stored_run(trace: Trace, run: str, *, live: bool, problem: str) -> StoredRun:
    """What a list shows of a run, without the size and time of its file. `problem`: nothing more can be read of it."""
    if problem:
        state = "unreadable"
    elif trace.state == "finished":
        state = "partial" if trace.partial else "finished"
    else:
        state = "failed" if trace.state == "failed" else "running" if live else "interrupted"
    records = list(_all_steps(trace))
    answers = [one_line(record.text) for record in records]
    # The run's own answer is one of the steps', unless it was put together at the end.
    if trace.answer and one_line(trace.answer) not in answers:
        answers.append(one_line(trace.answer))
    usage = trace.usage
    damage = [notice.text for notice in trace.notices if notice.reason == "trace_damaged"]
    return StoredRun(
        run=run, state=state, time=one_line(trace.time),
        workers=SEPARATOR.join(dict.fromkeys(one_line(record.worker) for record in trace.steps)),
        cost="" if usage.cost is None else f"{usage.cost:f}", unpriced=usage.unpriced,
        tokens=min(usage.tokens, LARGEST_WHOLE),
        seconds=trace.at, resumed=one_line(trace.resumed), conductor=one_line(trace.conductor),
        problem=one_line(problem or "; ".join(damage)),
        recovered=SEPARATOR.join(one_line(_recovered_text(notice)) for notice in trace.told() if notice.recovered),
        question=one_line(trace.question.text),
        subtasks=SEPARATOR.join(one_line(record.step.subtask) for record in records), answers=SEPARATOR.join(answers),
        origin=one_line(trace.origin),
    )  # fmt: skip


def _all_steps(trace: Trace) -> Iterator[StepRecord]:
    """The steps; those of a nested run follow the step that it is."""
    for record in trace.steps:
        yield record
        if record.nested is not None:
            yield from _all_steps(record.nested)


def _recovered_text(notice: Notice) -> str:
    return f"step {notice.step}: {notice.text}" if notice.step else notice.text


BATCH: Final = 200
"""Files that are read and written to the index at once, so that a process that is killed keeps most of its work."""

MOST_PROCESSES: Final = 4


def summarize_runs(directory: str, runs: Sequence[str]) -> Iterator[list[StoredRun]]:
    """The rows of these runs, in batches."""
    batches = [runs[start : start + BATCH] for start in range(0, len(runs), BATCH)]
    count = min(MOST_PROCESSES, os.cpu_count() or 1, len(batches) // 2)
    # A fork copies no other thread, and whatever such a thread has locked would stay locked.
    if count < 2 or not hasattr(os, "fork") or threading.active_count() > 1:
        yield from (_summarize(directory, batch) for batch in batches)
        return
    children = [_Child(directory, batches[first::count]) for first in range(count)]
    try:
        for number, batch in enumerate(batches):
            yield children[number % count].read() or _summarize(directory, batch)
    finally:
        for child in children:
            child.close()


def _summarize(directory: str, runs: Sequence[str]) -> list[StoredRun]:
    collecting = gc.isenabled()
    gc.disable()  # looking for circles among so many new objects takes a tenth of the time
    try:
        return [summarize_run(directory, run) for run in runs]
    finally:
        if collecting:
            gc.enable()


class _Child:
    """A process that reads batches and sends their rows through a pipe. Close it."""

    def __init__(self, directory: str, batches: Sequence[Sequence[str]]) -> None:
        source, target = os.pipe()
        self._process = os.fork()
        if not self._process:
            # Nothing of the parent's may run here: neither its handlers at exit nor the buffers of its files.
            try:
                os.close(source)
                with os.fdopen(target, "wb") as pipe:
                    for batch in batches:
                        data = marshal.dumps([tuple(row) for row in _summarize(directory, batch)])
                        pipe.write(len(data).to_bytes(8, "big") + data)
                        pipe.flush()
            finally:
                os._exit(0)
        os.close(target)
        self._pipe = os.fdopen(source, "rb")

    def read(self) -> list[StoredRun]:
        """The rows of the next batch; none where the process has died."""
        size = int.from_bytes(self._pipe.read(8), "big")
        data = self._pipe.read(size)
        return [StoredRun(*row) for row in marshal.loads(data)] if size and len(data) == size else []  # noqa: S302 - our own

    def close(self) -> None:
        self._pipe.close()  # what it still writes ends it
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)
