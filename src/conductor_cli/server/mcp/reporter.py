"""Telling a client how its call goes: progress for each step, log messages for notices.

A client that does not read must not hold up a run, so the run only leaves messages here; what does not fit is dropped.

Progress of a run for a client: a share done that only grows, and a line for each step's change. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.events import Event, Notice, PlanDelta, StepDelta
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.trace import ENDED, Trace, apply_event
from conductor_cli.server.mcp.results import clean
from conductor_cli.server.narration import describe_event, short_name
from conductor_cli.views.run_text import describe_notice, tokens_so_far

if TYPE_CHECKING:
    from mcp_types import LoggingLevel

    from conductor_cli.server.runs import ShowEvent


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


PERIOD: Final = 10.0
"""Seconds without news after which a client is told that the run goes on: many end a call that is silent."""

WAITING: Final = 1000
"""Messages that wait for the client to read."""

_Progress = tuple[float, str]
_Log = tuple["LoggingLevel", str]


class Reporter:
    """What one call's client is to be told, in order."""

    def __init__(self, wants: Callable[[LoggingLevel], bool]) -> None:
        self._wants = wants
        self._messages: asyncio.Queue[_Progress | _Log | None] = asyncio.Queue(WAITING)
        self._report = ProgressReport()
        self._told: set[Notice] = set()
        self._trace = Trace()

    def show(self, event: Event) -> None:
        """Note what an event is to a client. Never waits."""
        # Not the trace of the run itself, which is ahead of the events that are read.
        self._trace = trace = apply_event(self._trace, event)
        if isinstance(event, PlanDelta | StepDelta):
            return
        for notice in (*trace.notices, *trace.recovered):
            if notice not in self._told:
                self._told.add(notice)
                level: LoggingLevel = "warning" if notice.recovered else "info"
                if self._wants(level):
                    self._add((level, clean(describe_notice(notice))))
        progress = self._report.after(event, trace)
        if progress is not None:
            self._add((progress[0], clean(progress[1])))

    def end(self) -> None:
        """Nothing follows."""
        with suppress(asyncio.QueueFull):
            self._messages.put_nowait(None)

    def _add(self, message: _Progress | _Log) -> None:
        with suppress(asyncio.QueueFull):
            self._messages.put_nowait(message)

    async def tell(self, session: Any, request: Any) -> None:  # noqa: ANN401 - as the SDK gives them
        """Tell the client until the end."""
        while True:
            try:
                message = await asyncio.wait_for(self._messages.get(), PERIOD)
            except TimeoutError:
                message = self._report.meanwhile(self._trace)
            if message is None:
                return
            first, text = message
            if isinstance(first, str):
                await session.send_log_message(first, text, "conductor", request)
            else:
                await session.report_progress(first, 1.0, text)


@asynccontextmanager
async def reporting(context: Any, wants: Callable[[LoggingLevel], bool]) -> AsyncIterator[ShowEvent]:  # noqa: ANN401 - the SDK's
    """While the block runs, its client is told of each event. At its end, everything has been told."""
    reporter = Reporter(wants)
    telling = asyncio.create_task(reporter.tell(context.session, context.request_id))
    try:
        yield reporter.show
        reporter.end()
        await telling
    finally:
        telling.cancel()
