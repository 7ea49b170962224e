"""Storing a run while it is read: each event before it is shown, a piece of text within a second.

A notice says once what cannot be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from conductor_cli.app.telemetry import watch_run
from conductor_cli.config import Settings
from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.run import Run
from conductor_cli.store.trace_file import TraceWriter
from conductor_cli.store.trace_store import TraceStore

ALWAYS: Final = "always"
"""The value of `traces.keep` with which no run takes place that cannot be stored."""

ENDS: Final = (ev.RunFinished, ev.RunFailed)
"""The last event of a run."""


class RunRecorder:
    """Stores the events of one run. Close it.

    A disk that refuses does not stop the run. With `required` it does, as long as nothing was called: `store_event`
    raises `ConfigError`; later it is the `error`.
    """

    def __init__(self, run: Run, store: TraceStore | None, *, required: bool = False) -> None:
        """Without a store nothing is stored, and only spending that cannot be recorded is reported."""
        self._run = run
        self._store = store
        self._required = required
        self._writer: TraceWriter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reported_trace = self._reported_spending = self._reported_images = False

    @property
    def is_storing(self) -> bool:
        """Whether there is a trace, even if it is incomplete."""
        return self._writer is not None

    @property
    def error(self) -> ConductorError | None:
        """What is missing at the end of a trace that is required."""
        if not self._required or self._writer is None or self._writer.error is None:
            return None
        message = f"the trace is incomplete: {self._writer.path}: {self._writer.error.strerror}"
        return ConductorError(message, hint="free some disk space before the next run")

    def store_event(self, event: ev.Event) -> ev.Notice | None:
        """Store an event; returns a notice for the reader where something cannot be stored. Raises `ConfigError`."""
        if isinstance(event, ev.RunStarted):
            return self._begin(event)
        texts = []
        if self._writer is not None:
            self._writer.write(event)
            if self._writer.error is not None and not self._reported_trace:
                self._reported_trace = True
                why = self._writer.error.strerror
                texts.append(f"the trace cannot be written any more: {self._writer.path}: {why}; the run goes on")
        problem = self._store_images(event) if self._writer is not None else ""
        if problem and not self._reported_images:
            self._reported_images = True
            texts.append(problem)
        spending = self._run.config.daily_spend
        problem = spending.take_problem() if spending is not None else ""
        if problem and not self._reported_spending:
            self._reported_spending = True
            texts.append(problem)
        if not texts:
            return None
        notice = self._run.add_notice(event.at, "; ".join(texts))
        # No event follows the end of a run.
        if self._writer is not None and not isinstance(event, ENDS):
            self._writer.write(notice)
        return notice

    def _begin(self, event: ev.RunStarted) -> ev.Notice | None:
        """Begin the trace. Nothing is called before this returns."""
        if self._store is None:
            return None
        error: OSError | None = None
        try:
            self._writer = self._store.open(event.run)
            self._writer.write(event)
            error = self._writer.error
        except OSError as refused:
            error = refused
        if error is None:
            return self._store_attachments(event)
        self._discard()
        if self._required:
            raise ConfigError(
                f"the trace cannot be stored in {self._store.directory}: {error.strerror}",
                hint="free some disk space, fix the permissions, or set traces.keep to auto",
            )
        spending = self._run.config.daily_spend
        self._reported_spending = spending is not None and bool(spending.find_problem())
        if self._reported_spending:
            text = f"no trace and no daily total can be kept of this run: {self._store.directory.parent}"
        else:
            text = f"no trace can be kept of this run: {self._store.directory}"
        return self._run.add_notice(event.at, f"{text}: {error.strerror}", "trace_not_stored")

    def _store_attachments(self, event: ev.RunStarted) -> ev.Notice | None:
        """Store the bytes of what is attached, after the trace that names them: so nobody deletes them meanwhile."""
        source = self._run.config.attachments
        try:
            if source is not None:
                source.store(event.question.attachments)
        except OSError as error:
            if self._required:
                self._discard()
                raise ConfigError(
                    f"the attached files cannot be stored: {error.strerror}",
                    hint="free some disk space, fix the permissions, or set traces.keep to auto",
                ) from None
            text = f"the attached files cannot be stored, so this run cannot be resumed: {error.strerror}"
            return self._run.add_notice(event.at, text)
        return None

    def _discard(self) -> None:
        """Delete the trace: nothing in it is worth keeping."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.discard()
            self._writer = None

    def _store_images(self, event: ev.Event) -> str:
        """Store the images that a tool gave back; returns why that is not possible, else an empty text."""
        returned, source = ev.innermost_event(event), self._run.config.attachments
        try:
            if isinstance(returned, ev.ToolReturned) and returned.attachments and source is not None:
                source.store(returned.attachments)
        except OSError as error:
            return f"an image that a tool gave back cannot be stored: {error.strerror}"
        return ""

    def flush_in_time(self) -> None:
        """Have pieces that wait written after some seconds, also where nothing else comes. Call it after each event."""
        waiting = 0 if self._writer is None else self._writer.waiting
        if waiting < 2 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting == 1 and self._writer is not None:
            self._timer = asyncio.get_running_loop().call_later(self._writer.longest_wait, self._writer.flush)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.close()


def keeps_trace(settings: Settings, *, wanted: bool) -> bool:
    """Whether a run is stored. Raises `ConfigError` where it must be and is not `wanted`."""
    keep = settings["traces.keep"]
    if keep == ALWAYS and not wanted:
        raise ConfigError(
            "a run without a trace is not allowed: traces.keep is always",
            hint="to allow it: conductor config set traces.keep auto",
        )
    return wanted and keep != "never"


async def record(run: Run, recorder: RunRecorder) -> AsyncGenerator[ev.Event, None]:
    """The events of a run, each after it was stored, and notices of what could not be. Closes the run and the recorder.

    Where telemetry is configured, it reads each event too. Raises `ConfigError` before anything is called where a
    trace is required and cannot be stored.
    """
    telemetry = watch_run()
    try:
        async with aclosing(aiter(run)) as events:
            async for event in events:
                notice = recorder.store_event(event)
                recorder.flush_in_time()
                if telemetry is not None:
                    telemetry.read(event)
                if notice is None:
                    yield event
                    continue
                for shown in (notice, event) if isinstance(event, ENDS) else (event, notice):
                    yield shown
    finally:
        recorder.close()
