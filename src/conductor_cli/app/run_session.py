"""Reading a run to its end: each event is stored, then shown, and a plan on offer is decided about.

Storing a run while it is read: each event before it is shown, a piece of text within a second.

A notice says once what cannot be stored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from conductor_cli.app.telemetry import watch_run
from conductor_cli.config import Settings
from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError, ConfigError, Failure, FailureReason
from conductor_cli.core.events import Event, PlanOffered, ToolOffered, innermost_event
from conductor_cli.core.plan import Decision
from conductor_cli.run import Run
from conductor_cli.run.config import ToolVerdict
from conductor_cli.state.trace_file import TraceWriter
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.base import View

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


PLAN_DROPPED: Final = "the plan was dropped"


class PlanDecider(Protocol):
    """Decides about a plan that a run holds."""

    def decide(self, run: Run) -> Decision | None:
        """What becomes of the plan; None drops it. Blocks, so it is called on its own thread."""

    def wake(self) -> None:
        """The run has ended: nobody waits for a decision any more. Called from any thread."""


class ToolDecider(Protocol):
    """Decides about a call of a tool that may change something."""

    def decide(self, offered: ToolOffered) -> ToolVerdict:
        """What the user says. Blocks, so it is called on its own thread."""

    def wake(self) -> None:
        """The run has ended: nobody waits for an answer any more. Called from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended. `errors` say what could not be written: standard output, or the trace."""

    run: Run
    errors: tuple[ConductorError, ...] = ()

    @property
    def exit_code(self) -> int:
        """The run's own code; where it succeeded, that of the first error in writing."""
        return self.run.trace.exit_code or (self.errors[0].exit_code if self.errors else 0)


async def drive(
    run: Run,
    view: View,
    store: TraceStore | None = None,
    decider: PlanDecider | None = None,
    tool_decider: ToolDecider | None = None,
    *,
    required: bool = False,
    on_output_lost: Callable[[], None] = lambda: None,
) -> RunResult:
    """Read the run to its end. An event is stored before the view sees it.

    A run that holds its plan needs a `decider`, which is asked when the view has shown the plan; one that may ask about
    tools needs a `tool_decider`. `on_output_lost` is
    called on the view's thread when standard output cannot be written. Raises `ConfigError` where a trace is `required`
    and cannot be begun, and whatever the view raised.
    """
    recorder = RunRecorder(run, store, required=required)
    shown = _ViewThread(run, view, decider, tool_decider, on_output_lost, recorder)
    try:
        async with aclosing(record(run, recorder)) as events:
            async for event in events:
                shown.show(event)
    finally:
        await shown.close()
    return RunResult(run=run, errors=tuple(_errors_of(run, shown.error, recorder)))


def _errors_of(run: Run, output_error: ConductorError | None, recorder: RunRecorder) -> Iterator[ConductorError]:
    """What could not be written, other than what the run itself reports as its failure."""
    failure = run.trace.error
    if output_error is not None and (failure is None or failure.reason != "output_failed"):
        yield output_error
    if recorder.error is not None:
        yield recorder.error


class _ViewThread:
    """Shows a run on its own thread, so that a reader who stops reading does not hold a worker's stream up.

    The run is stopped when nobody reads standard output any more, or when it cannot be written.
    """

    def __init__(
        self,
        run: Run,
        view: View,
        decider: PlanDecider | None,
        tool_decider: ToolDecider | None,
        on_output_lost: Callable[[], None],
        recorder: RunRecorder,
    ) -> None:
        self.run = run
        self.view = view
        self.decider = decider
        self.tool_decider = tool_decider
        self.error: ConductorError | None = None
        """Why standard output cannot be written; None also where its reader has gone, which is no error."""
        self._on_output_lost = on_output_lost
        self._recorder = recorder
        self._fault: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._ended = asyncio.Event()
        threading.Thread(target=self._show_all, name="view", daemon=True).start()

    def show(self, event: Event) -> None:
        self._events.put(event)

    async def close(self) -> None:
        """Wait until everything is shown. Raises what the view raised."""
        self._events.put(None)
        for decider in (self.decider, self.tool_decider):
            if decider is not None:
                decider.wake()
        # Not by joining the thread: a second Ctrl-C must not wait for a view that hangs.
        await self._ended.wait()
        if self._fault is not None:
            raise self._fault

    def _show_all(self) -> None:
        try:
            while (event := self._events.get()) is not None:
                self._try(partial(self.view.show, event))
                if isinstance(event, PlanOffered):
                    self._try(self._decide)
                offered = innermost_event(event)
                if isinstance(offered, ToolOffered):
                    self._try(partial(self._decide_tool, offered))
            self._try(self.view.close)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _decide(self) -> None:
        """Have the plan on offer decided about. Nothing else is shown meanwhile."""
        decision = self.decider.decide(self.run) if self.decider is not None else None
        if decision is None:
            self._stop(PLAN_DROPPED)
        else:
            self._loop.call_soon_threadsafe(self.run.decide, decision)

    def _decide_tool(self, offered: ToolOffered) -> None:
        """Have a call of a tool decided about. Nothing else is shown meanwhile."""
        verdict: ToolVerdict = self.tool_decider.decide(offered) if self.tool_decider is not None else "no"
        self._loop.call_soon_threadsafe(self.run.decide_tool, verdict)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokenPipeError:
            self._on_output_lost()
            self._stop("nobody reads standard output any more")
        except OSError as error:
            self._on_output_lost()
            self.error = self._output_error(error)
            self._stop(self.error.message, self.error.hint, "output_failed")
        except Exception as error:  # noqa: BLE001 - a bug in a view; `close` raises it on the event loop's thread
            self._fault = self._fault or error
            self._stop("the run cannot be shown any more")

    def _output_error(self, error: OSError) -> ConductorError:
        hint = "free some disk space"
        if self._recorder.is_storing:
            hint = f"the answer so far is in the trace: conductor trace show {self.run.id}"
        return ConductorError(f"standard output cannot be written: {error.strerror}", hint=hint)

    def _stop(self, message: str, hint: str = "", reason: FailureReason = "output_closed") -> None:
        failure = Failure(kind="cancelled", message=message, hint=hint, reason=reason)
        self._loop.call_soon_threadsafe(lambda: self.run.stop("cancelled", failure=failure))
