"""Reading a run to its end: each event is stored, then shown, and a plan on offer is decided about."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from conductor_cli.app.run_recorder import RunRecorder, record
from conductor_cli.core.errors import ConductorError, Failure, FailureReason
from conductor_cli.core.events import Event, PlanOffered, ToolOffered, innermost_event
from conductor_cli.core.plan import Decision
from conductor_cli.run import Run
from conductor_cli.run.tool_approval import ToolVerdict
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views.base import View

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
