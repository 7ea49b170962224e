"""What calls and plans usually take, from the user's own records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, timedelta
from statistics import median_high
from typing import Final, NamedTuple

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.trace import NO_PLANNER, PLAN_FILE, StepRecord, Trace
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import local_now
from conductor_cli.state.stored_run import SEPARATOR, RunQuery

# What is usual is taken from the calls and runs of so many days, and not from fewer
USUAL_DAYS: Final = 30
MIN_USUAL_CALLS: Final = 5
MIN_USUAL_RUNS: Final = 5
MAX_USUAL_RUNS: Final = 200  # The newest ones, of which the steps are counted
MAX_TIMED_RUNS: Final = 50  # The newest ones, whose traces are read whole


def read_usual_replies(settings: Settings) -> Mapping[str, int]:
    """Return the tokens of a usual reply of each worker, by its name.

    That is the mean over its calls of the last `USUAL_DAYS` days, where the record has enough.
    """
    if settings.rehearsal:
        return {}
    written: dict[str, int] = {}
    calls: dict[str, int] = {}
    first_day = local_now().date() - timedelta(days=USUAL_DAYS)
    with suppress(ConductorError, OSError):  # an estimate is not worth an error
        for row in open_state(settings.paths).read_spent(first_day):
            written[row.worker] = written.get(row.worker, 0) + row.usage.tokens_out
            calls[row.worker] = calls.get(row.worker, 0) + row.usage.calls - row.open
    usual = {}
    for worker, tokens in written.items():
        if calls[worker] >= MIN_USUAL_CALLS:
            usual[worker] = round(tokens / calls[worker])
    return usual


def read_usual_steps(settings: Settings) -> int | None:
    """Return the median of the steps of planned runs; None where too few are stored.

    Those are the newest runs of the last `USUAL_DAYS` days, whoever planned them.
    """
    if settings.rehearsal:
        return None
    since = f"{local_now().astimezone(UTC) - timedelta(days=USUAL_DAYS):%Y%m%d-%H%M%S}"
    numbers: list[int] = []
    with suppress(ConductorError, OSError):  # an estimate is not worth an error
        rows, _ = open_state(settings.paths).traces.newest(RunQuery(since=since), MAX_USUAL_RUNS)
        for row in rows:
            is_planned = row.conductor not in {"", NO_PLANNER, PLAN_FILE}
            if is_planned and row.subtasks:
                numbers.append(row.subtasks.count(SEPARATOR) + 1)
    if len(numbers) < MIN_USUAL_RUNS:
        return None
    return median_high(numbers)


class CallTime(NamedTuple):
    """How long the calls of a worker took: the mean of so many `calls`, in seconds."""

    seconds: float
    calls: int


def read_call_times(settings: Settings, pool: Pool) -> Mapping[str, CallTime]:
    """Return how long calls of each worker took in the user's newest runs, by its name.

    Those are runs of the last `USUAL_DAYS` days. A worker is left out where they have fewer than
    `MIN_USUAL_CALLS` calls of the same model; steps that called tools do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in pool.names}
    for trace in _read_newest_traces(settings, set(pool.names)):
        for record in trace.steps:
            if record.worker in pool and _is_timed(record, trace, pool[record.worker]):
                seconds[record.worker].append(record.usage.seconds)
    times = {}
    for name, values in seconds.items():
        if len(values) >= MIN_USUAL_CALLS:
            times[name] = CallTime(sum(values) / len(values), len(values))
    return times


def _read_newest_traces(settings: Settings, workers: set[str]) -> Iterable[Trace]:
    """Yield the newest runs in which one of these workers took part, as far as they can be read."""
    if settings.rehearsal:
        return
    since = f"{local_now().astimezone(UTC) - timedelta(days=USUAL_DAYS):%Y%m%d-%H%M%S}"
    with suppress(ConductorError, OSError):  # an estimate is not worth an error
        traces = open_state(settings.paths).traces
        rows, _ = traces.newest(RunQuery(since=since), MAX_TIMED_RUNS)
        for row in rows:
            if workers.isdisjoint(row.workers.split(SEPARATOR)):
                continue
            with suppress(ConductorError, OSError):  # one that is damaged
                yield traces.trace(row.run, pieces=False)


def _is_timed(record: StepRecord, trace: Trace, worker: Worker) -> bool:
    """Return whether a step of a run is one call of the model that this worker has now."""
    if record.worker not in trace.pool or record.state != "done" or record.tools:
        return False
    before = trace.pool[record.worker]
    is_same_model = (before.kind, before.model) == (worker.kind, worker.model)
    return is_same_model and record.usage.calls == 1 and record.usage.seconds > 0
