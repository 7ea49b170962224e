"""Which stored runs another program may see, and the list of them.

Whoever asks a server may hand on what it reads, to anywhere. A run whose rules kept its texts on
this machine, or from some providers, is therefore shown only to who asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from conductor_cli.core.errors import ConductorError, PolicyError
from conductor_cli.core.events import RunStarted
from conductor_cli.core.policy import Policy
from conductor_cli.core.trace import Trace
from conductor_cli.server.http.access import Principal
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.stored_run import RunQuery, stored_run_data

_ROW: Final = (
    "run",
    "time",
    "state",
    "question",
    "workers",
    "cost",
    "unpriced",
    "tokens",
    "seconds",
    "waits",
    "waited",
    "recovered",
    "problem",
    "shown",
)


def may_see(client: Principal, run: RunStarted | Trace) -> bool:
    """Return whether a run exists for a client: its own ones do.

    Without keys it is the owner, who has all.
    """
    return client.key is None or client.asked_for(run)


def may_read(client: Principal, run: RunStarted | Trace) -> bool:
    """Return whether the texts of a run that `may_see` are shown, too."""
    return client.asked_for(run) or not restricts_texts(run.policy)


def restricts_texts(policy: Policy) -> bool:
    """Return whether a policy says who may read a question or its files."""
    return policy.local_only or bool(policy.files_only) or bool(policy.allow) or bool(policy.deny)


def confidential(run: str) -> PolicyError:
    """Return the error for a run that a client may not see."""
    return PolicyError(
        f"run {run} is not shown to other programs: its rules keep its texts from some recipients",
        hint=f"look at it on a terminal: conductor trace show {run}",
    )


def first_event(store: Traces, run: str) -> RunStarted | None:
    """Return the beginning of a stored run; None where it cannot be read."""
    with suppress(ConductorError, OSError):
        first = next(iter(store.events(run, pieces=False)), None)
        return first if isinstance(first, RunStarted) else None
    return None


def newest_runs(
    store: Traces, query: RunQuery, count: int, is_readable: Callable[[RunStarted], bool]
) -> tuple[list[dict[str, Any]], bool, str | None]:
    """Return the newest runs that match as JSON objects, whether more do, and the last one read.

    Raises `OSError`.
    """
    rows, has_more = store.newest(query, count)
    runs = list[dict[str, Any]]()
    for row in rows:
        is_shown = row.state == "unreadable"
        if not is_shown:
            first = first_event(store, row.run)
            is_shown = first is not None and is_readable(first)
        if not is_shown and query.terms:
            continue  # that a text is found in a run says something about it, too
        description = stored_run_data(row, "") | {"shown": is_shown}
        if not is_shown:
            description["question"] = "(not shown: its rules keep it from other programs)"
            description["recovered"] = []
        runs.append({name: description[name] for name in _ROW})
    return runs, has_more, rows[-1].run if rows else None
