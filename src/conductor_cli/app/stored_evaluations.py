"""The evaluations that are stored, and what they say of plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.summary import Summary, summarize
from conductor_cli.evals.systems import ALONE, PLANNED


def stored_evaluations(settings: Settings) -> Iterator[Evaluation]:
    """Yield the stored evaluations that can be read, the newest first.

    Their names begin with the time.
    """
    directory = settings.paths.evaluations
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir(), reverse=True):
        with suppress(ConductorError):
            yield Evaluation(path)


def describe_measured_gain(settings: Settings, planner: str) -> str:
    """Return what the newest evaluation says of plans of a planner against the best worker.

    `planner` is its name with its file hash. Empty where none has compared them.
    """
    with suppress(ConductorError, OSError):  # a figure is not worth an error
        for stored in stored_evaluations(settings):
            if stored.spec.conductor != planner or PLANNED not in stored.spec.systems:
                continue
            gain = _describe_gain(summarize(stored.outcomes(), stored.spec.systems))
            if gain:
                return f"{gain} ({stored.id}, {stored.spec.source})"
    return ""


def _describe_gain(summary: Summary) -> str:
    """Return the difference of a plan to the best worker, with its interval; empty without it."""
    for system in summary.systems:
        compared = system.versus_best
        if system.name != PLANNED or compared is None:
            continue
        low, high = compared.interval
        best = one_line(summary.best_worker.removeprefix(f"{ALONE}:"))
        return (
            f"{100 * compared.difference:+.0f} points of right answers against {best}, in "
            f"{format_count(compared.cases, 'case')} (95 % interval {100 * low:+.0f} to "
            f"{100 * high:+.0f})"
        )
    return ""
