"""Telling a client how its call goes: progress for each step, log messages for notices.

A client that does not read must not hold up a run, so the run only leaves messages here; what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.events import Event, Notice, PlanDelta, StepDelta
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.server.mcp.progress import ProgressReport
from conductor_cli.server.mcp.results import clean
from conductor_cli.views.run_text import describe_notice

if TYPE_CHECKING:
    from mcp_types import LoggingLevel

    from conductor_cli.server.runs import ShowEvent

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
