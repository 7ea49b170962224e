"""Progress of a run for a client: a share done that only grows, and a line for each step's change. Pure."""

from __future__ import annotations

from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.trace import ENDED, Trace
from conductor_cli.server.event_lines import describe_event, short_name
from conductor_cli.views.run_text import tokens_so_far

PLANNING: Final = 0.1
"""The share that is done when the plan is ready."""

LEAST: Final = 0.001
"""The protocol asks for a higher share each time, also where nothing was finished."""

MOST: Final = 0.999
"""The share before the end of the run."""


class ProgressReport:
    """Says of each event whether a client should hear of it, and what."""

    def __init__(self) -> None:
        self._share = 0.0

    def after(self, event: ev.Event, trace: Trace) -> tuple[float, str] | None:
        """The share done, above the last one, and one line; None where there is nothing to tell."""
        text = describe_event(event, trace)
        if not text:
            return None
        return self._grown(
            1.0 if isinstance(event, ev.RunFinished | ev.RunFailed) else min(share_done(trace), MOST)
        ), text

    def meanwhile(self, trace: Trace) -> tuple[float, str]:
        """The same while nothing happens: who is waited for."""
        return self._grown(self._share), describe_waiting(trace)

    def _grown(self, share: float) -> float:
        if share <= self._share:
            # In ever smaller steps, so that it stays below 1 however much there is to tell.
            share = self._share + min(LEAST, (1.0 - self._share) / 2)
        self._share = share
        return share


def share_done(trace: Trace) -> float:
    """How much of a run is done. A step that runs counts a third; a plan that is being written, little."""
    weights = sum(
        1.0 if record.state in ENDED else 0.33 if record.state == "running" else 0.0 for record in trace.steps
    )
    steps = max(len(trace.steps), 1)
    if trace.plan is None:
        return PLANNING * len(trace.steps) / MAX_STEPS + (1 - PLANNING) * weights / max(MAX_STEPS, steps)
    return PLANNING + (1 - PLANNING) * weights / steps


def describe_waiting(trace: Trace) -> str:
    """`waiting for alpha, about 120 tokens so far`, or that the plan is being written."""
    running = [record for record in trace.steps if record.state == "running"]
    parts = [
        f"{short_name(record.worker)} (about {format_count(tokens_so_far(record), 'token')} so far)"
        for record in running
    ]
    return f"waiting for {', '.join(parts)}" if parts else "planning" if trace.plan is None else "waiting"
