"""The tool `trace`: stored runs as a client may see them.

A client hands what it reads to its own model, which may be anywhere. A run whose rules kept its texts on this machine,
or from some providers, is therefore not shown, unless this server has run it for its client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.traces import earliest_run_id
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.events import RunStarted
from conductor_cli.core.formatting import format_count
from conductor_cli.core.sanitize import one_line
from conductor_cli.server.mcp.results import LONGEST_TEXT, Result, clean, run_data, step_data, whole_step_data
from conductor_cli.server.visibility import confidential, restricts_texts
from conductor_cli.store.run_index import RunIndex
from conductor_cli.store.stored_run import RunQuery, StoredRun, normalize_terms, stored_run_data
from conductor_cli.store.trace_file import unreadable
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views.run_text import describe_outcome, find_step

COUNT: Final = 20
"""Runs in a list where the client names no number."""

_SHOWN: Final = ("run", "time", "state", "question", "workers", "cost", "tokens", "seconds")


def look_at_runs(store: TraceStore, arguments: Mapping[str, Any], own: Collection[str]) -> Result:
    """A list, one run, or one step of it. `own` are the runs of this server. Raises `UsageError` or `PolicyError`."""
    if "run" not in arguments:
        if "step" in arguments:
            raise UsageError("step needs run", hint="call trace without arguments for a list of runs")
        return _list(store, arguments, own)
    try:
        run = store.find(arguments["run"])
    except UsageError as error:
        raise UsageError(error.message, hint="call trace without arguments for a list of runs") from None
    return _show(store, run, arguments.get("step"), own)


def _list(store: TraceStore, arguments: Mapping[str, Any], own: Collection[str]) -> Result:
    terms = normalize_terms([arguments["search"]] if "search" in arguments else [])
    since = earliest_run_id(arguments["since"], datetime.now(UTC)) if "since" in arguments else ""
    directory = str(store.directory)
    try:
        rows, more = RunIndex(directory).newest(RunQuery(since=since, terms=terms), arguments.get("count", COUNT))
    except OSError as error:
        raise unreadable(Path(directory), error) from None
    hidden = {row.run for row in rows if row.run not in own and _is_confidential(store, row.run)}
    # That a text is found in a run says something about it, too.
    shown = [row for row in rows if not (terms and row.run in hidden)]
    runs = clean([_row_data(row, directory, hidden) for row in shown])
    lines = [f"{row['run']}  {row['state']}  {one_line(row['question'])[:100]}" for row in runs]
    text = "\n".join(lines) or "there are no stored runs that match"
    return Result(texts=(text,), data={"runs": runs, "more": more})


def _row_data(row: StoredRun, directory: str, hidden: Collection[str]) -> dict[str, Any]:
    data = stored_run_data(row, directory)
    if row.run in hidden:
        data["question"] = "(not shown: its rules keep it from other programs)"
    return {name: data[name] for name in _SHOWN}


def _show(store: TraceStore, run: str, step: int | None, own: Collection[str]) -> Result:
    if run not in own and _is_confidential(store, run):
        raise confidential(run)
    live = store.is_running(run)
    trace = store.trace(run)
    if step is not None:
        record = find_step(trace, step)
        if record is None:
            raise UsageError(f"run {run} has no step {step}", hint=f"it has {format_count(len(trace.steps), 'step')}")
        data = clean(whole_step_data(record, trace.at))
        return Result(texts=(data["text"] or "(no text)",), data={"step": data})
    state = trace.state if trace.ended else "running" if live else "interrupted"
    data = clean(run_data(trace, stored=True, state=state) | {"answer": trace.answer[:LONGEST_TEXT]})
    lines = [f"{describe_outcome(trace, live=live)}. Question: {one_line(trace.question.text)[:300]}"]
    lines += [_step_line(step_data(record, trace.at)) for record in trace.steps]
    texts = [clean("\n".join(lines)), *([data["answer"]] if data["answer"] else [])]
    return Result(texts=tuple(texts), data={"run": data, "question": clean(trace.question.text)})


def _step_line(step: Mapping[str, Any]) -> str:
    return f"{step['number']}. {step['worker']}, {step['state']}: {one_line(step['subtask'])}"


def _is_confidential(store: TraceStore, run: str) -> bool:
    """Whether a run had a rule about who may read its texts. One that cannot be read is treated as if it had."""
    with suppress(ConductorError, OSError):
        first = next(iter(store.events(run, pieces=False)), None)
        if isinstance(first, RunStarted):
            return restricts_texts(first.policy)
    return True
