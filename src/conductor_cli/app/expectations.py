"""What calls and plans usually take, from the user's own records."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, timedelta
from statistics import median_high
from typing import Final

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.trace import NO_PLANNER, PLAN_FILE
from conductor_cli.state.opening import open_state
from conductor_cli.state.spending import local_now
from conductor_cli.state.stored_run import SEPARATOR, RunQuery

# What is usual is taken from the calls and runs of so many days, and not from fewer
USUAL_DAYS: Final = 30
MIN_USUAL_CALLS: Final = 5
MIN_USUAL_RUNS: Final = 5
MAX_USUAL_RUNS: Final = 200  # The newest ones, of which the steps are counted


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
