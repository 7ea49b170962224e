"""Reading a run to its end: each event is stored, then shown, and a plan on offer is decided about."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Protocol

from conductor_cli.core.errors import ConductorError, ConfigError, Failure, FailureReason
from conductor_cli.core.events import Event, PlanOffered, RunStarted
from conductor_cli.core.plan import Decision
from conductor_cli.run import Run
from conductor_cli.store.trace_file import TraceWriter
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views.base import View

PLAN_DROPPED: Final = "the plan was dropped"


class PlanDecider(Protocol):
    """Decides about a plan that a run holds."""

    def decide(self, run: Run) -> Decision | None:
        """What becomes of the plan; None drops it. Blocks, so it is called on its own thread."""

    def wake(self) -> None:
        """The run has ended: nobody waits for a decision any more. Called from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended. `errors` say what could not be written: standard output, or the trace."""

    run: Run
    errors: tuple[ConductorError, ...] = ()

    @property
    def exit_code(self) -> int:
        """The run's own code; where it succeeded, that of the first error in writing."""
        return self.run.trace.exit_code or (self.errors[0].exit_code if self.errors else 0)


def open_trace(store: TraceStore | None, run: Run) -> TraceWriter | None:
    """The file for a run's trace, None without a store. Raises `ConfigError` before anything is paid for."""
    if store is None:
        return None
    try:
        return store.open(run.id)
    except OSError as error:
        raise _cannot_store(store.directory, error) from None


async def record(run: Run, writer: TraceWriter | None) -> AsyncGenerator[Event, None]:
    """The events of a run, each after it was stored. Closes the run and the writer.

    Only a disk that refuses the first event stops the run, since nothing is paid for yet. Later `writer.error` says
    what went wrong, and the run goes on. Raises `ConfigError`.
    """
    try:
        async with aclosing(aiter(run)) as events:
            async for event in events:
                if writer is not None:
                    writer.write(event)
                    # Nothing is paid for at the first event; after it, a full disk must not cost the answer.
                    if writer.error is not None and isinstance(event, RunStarted):
                        writer.discard()
                        raise _cannot_store(writer.path.parent, writer.error)
                yield event
    finally:
        if writer is not None:
            writer.close()


async def drive(
    run: Run,
    view: View,
    store: TraceStore | None = None,
    decider: PlanDecider | None = None,
    *,
    on_output_lost: Callable[[], None] = lambda: None,
) -> RunResult:
    """Read the run to its end. An event is stored before the view sees it.

    A run that holds its plan needs a `decider`, which is asked when the view has shown the plan. `on_output_lost` is
    called on the view's thread when standard output cannot be written. Raises `ConfigError` where no trace can be
    begun, and whatever the view raised.
    """
    writer = open_trace(store, run)
    shown = _ViewThread(run, view, decider, on_output_lost)
    try:
        async with aclosing(record(run, writer)) as events:
            async for event in events:
                shown.show(event)
    finally:
        await shown.close()
    return RunResult(run=run, errors=tuple(_errors_of(run, shown.error, writer)))


def _errors_of(run: Run, output_error: OSError | None, writer: TraceWriter | None) -> list[ConductorError]:
    errors = []
    if output_error is not None:
        hint = "free some disk space"
        if writer is not None:
            hint = f"the answer so far is in the trace: conductor trace show {run.id}"
        errors.append(ConductorError(f"standard output cannot be written: {output_error.strerror}", hint=hint))
    if writer is not None and writer.error is not None:
        message = f"the trace is incomplete: {writer.path}: {writer.error.strerror}"
        errors.append(ConductorError(message, hint="free some disk space before the next run"))
    return errors


def _cannot_store(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the trace cannot be stored in {directory}: {error.strerror}",
        hint="free some disk space or fix the permissions, or run with --no-trace",
    )


class _ViewThread:
    """Shows a run on its own thread, so that a reader who stops reading does not hold a worker's stream up.

    The run is stopped when nobody reads standard output any more, or when it cannot be written.
    """

    def __init__(self, run: Run, view: View, decider: PlanDecider | None, on_output_lost: Callable[[], None]) -> None:
        self.run = run
        self.view = view
        self.decider = decider
        self.error: OSError | None = None
        """Why standard output cannot be written; None also where its reader has gone, which is no error."""
        self._on_output_lost = on_output_lost
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
        if self.decider is not None:
            self.decider.wake()
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

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokenPipeError:
            self._on_output_lost()
            self._stop("nobody reads standard output any more")
        except OSError as error:
            self._on_output_lost()
            self.error = error
            self._stop("standard output cannot be written", "output_failed")
        except Exception as error:  # noqa: BLE001 - a bug in a view; `close` raises it on the event loop's thread
            self._fault = self._fault or error
            self._stop("the run cannot be shown any more")

    def _stop(self, message: str, reason: FailureReason = "output_closed") -> None:
        failure = Failure(kind="cancelled", message=message, reason=reason)
        self._loop.call_soon_threadsafe(lambda: self.run.stop("cancelled", failure=failure))
