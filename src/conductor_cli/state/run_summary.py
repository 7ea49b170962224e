"""Trace files as rows of the list, with the texts that are searched.

Many are read by several processes.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import MAX_WHOLE
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import StepRecord, Trace, apply_event, describe_approval
from conductor_cli.state.stored_run import SEPARATOR, SUFFIX, StoredRun
from conductor_cli.state.trace_file import is_live, read_events


def summarize_run(directory: str, run: str) -> StoredRun:
    """Return the row of one run.

    Never raises: an unreadable file is listed with what was read before.
    """
    path = Path(directory) / f"{run}{SUFFIX}"
    try:
        before = path.stat()  # taken first, so that whatever is written from here on is noticed
    except OSError as error:
        return StoredRun(run=run, size=-1, problem=error.strerror or "")
    live = is_live(path)
    trace = Trace()
    problem = ""
    size = before.st_size
    try:
        for event in read_events(path, pieces=False):
            trace = apply_event(trace, event)  # one by one: an error keeps what was read before it
    except UsageError as error:
        problem = error.message.replace(f"{path}", run)
        if isinstance(error.__context__, OSError):
            # The system refused, perhaps only this time: the next list reads the file again
            size = -1
    except Exception as error:  # noqa: BLE001 - one file must not take the list of all others away
        trace = Trace()
        problem = f"{run} cannot be read: {type(error).__name__}"
    row = make_stored_run(trace, run, live=live, problem=problem)
    return row._replace(written=before.st_mtime_ns, size=size)


def make_stored_run(trace: Trace, run: str, *, live: bool, problem: str) -> StoredRun:
    """Return what a list shows of a run, without size and time of its file.

    `problem`: nothing more can be read.
    """
    records = list(_all_steps(trace))
    answers = [one_line(record.text) for record in records]
    # The run's own answer is one of the steps', unless it was put together at the end.
    if trace.answer and one_line(trace.answer) not in answers:
        answers.append(one_line(trace.answer))
    usage = trace.usage
    seconds = trace.at
    # By the clock of this machine: the newest event may be minutes old
    if live and not trace.ended:
        with suppress(ValueError, TypeError):  # a time that was edited by hand
            seconds = max(
                seconds, (datetime.now(UTC) - datetime.fromisoformat(trace.time)).total_seconds()
            )
    damage = [notice.text for notice in trace.notices if notice.reason == "trace_damaged"]
    state: str = trace.outcome(live=live)
    if problem:
        state = "unreadable"
    cost = ""
    if usage.cost is not None:
        cost = f"{usage.cost:f}"
    waits = ""
    if state == "running" and trace.waits_for is not None:
        waits = one_line(describe_approval(trace.waits_for))
    recovered = []
    for notice in trace.all_notices():
        if notice.recovered:
            recovered.append(one_line(_text_of_notice(notice)))
    return StoredRun(
        run=run,
        state=state,
        time=one_line(trace.time),
        workers=SEPARATOR.join(dict.fromkeys(one_line(record.worker) for record in trace.steps)),
        cost=cost,
        unpriced=usage.unpriced,
        tokens=min(usage.tokens, MAX_WHOLE),
        seconds=seconds,
        resumed=one_line(trace.resumed),
        conductor=one_line(trace.conductor),
        problem=one_line(problem or "; ".join(damage)),
        recovered=SEPARATOR.join(recovered),
        question=one_line(trace.question.text),
        subtasks=SEPARATOR.join(one_line(record.step.subtask) for record in records),
        answers=SEPARATOR.join(answers),
        origin=one_line(trace.origin),
        waits=waits,
        waited=trace.seconds_waited(seconds),
    )


def _text_of_notice(notice: ev.Notice) -> str:
    if not notice.step:
        return notice.text
    return f"step {notice.step}: {notice.text}"


def _all_steps(trace: Trace) -> Iterator[StepRecord]:
    """Yield the steps; those of a nested run follow the step that it is."""
    for record in trace.steps:
        yield record
        if record.nested is not None:
            yield from _all_steps(record.nested)


BATCH_RUNS: Final = 200
"""Files that are read and written to the index at once, so that a process that is killed keeps most
of its work.
"""

MAX_PROCESSES: Final = 4


def summarize_runs(directory: str, runs: Sequence[str]) -> Iterator[list[StoredRun]]:
    """Yield the rows of these runs, in batches."""
    batches = [runs[start : start + BATCH_RUNS] for start in range(0, len(runs), BATCH_RUNS)]
    count = min(MAX_PROCESSES, os.cpu_count() or 1, len(batches) // 2)
    done = 0
    # A fork copies no other thread, and whatever such a thread has locked would stay locked.
    if count > 1 and hasattr(os, "fork") and threading.active_count() == 1:
        from concurrent.futures import ProcessPoolExecutor  # a list seldom has so many new runs
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        with suppress(BrokenProcessPool), ProcessPoolExecutor(count, get_context("fork")) as pool:
            for rows in pool.map(partial(_summarize, directory), batches):
                yield rows
                done += 1
    yield from (_summarize(directory, batch) for batch in batches[done:])


def _summarize(directory: str, runs: Sequence[str]) -> list[StoredRun]:
    collecting = gc.isenabled()
    gc.disable()  # looking for circles among so many new objects takes a tenth of the time
    try:
        return [summarize_run(directory, run) for run in runs]
    finally:
        if collecting:
            gc.enable()
