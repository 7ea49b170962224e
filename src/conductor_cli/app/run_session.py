"""Driving a run: events to the store, then to the views; signals to `Run.stop`; the end to an exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import aclosing, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, cast

from conductor_cli.cli.output import leave_stdout, print_error
from conductor_cli.cli.plan_approval import PLAN_DROPPED, PlanApprover
from conductor_cli.core.errors import ConductorError, ConfigError, Failure
from conductor_cli.core.events import Event, PlanOffered, RunStarted
from conductor_cli.store.trace_file import TraceWriter
from conductor_cli.store.trace_store import TraceStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from conductor_cli.run import Run
    from conductor_cli.views import View

TWICE: Final = 2.0
"""Seconds in which a second Ctrl-C ends the process at once."""

_SHOW_CURSOR: Final = b"\r\n\x1b[?25h"


def open_trace(store: TraceStore | None, run: Run) -> TraceWriter | None:
    """The file for a run's trace. A disk that takes none is a failure before anything is paid for."""
    if store is None:
        return None
    try:
        return store.open(run.id)
    except OSError as error:
        raise _cannot_store(store.directory, error) from None


def _cannot_store(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the trace cannot be stored in {directory}: {error.strerror}",
        hint="free the disk or mend its rights, or run with --no-trace",
    )


async def drive(run: Run, view: View, writer: TraceWriter | None, approver: PlanApprover | None = None) -> int:
    """Read the run to its end and return the exit code. The store has an event before any view sees it.

    A run that holds its plan needs an `approver`, which is asked when the views have shown the plan.
    """
    shown = _Shown(run, view, approver)
    listening = _Signals(run)
    listening.listen()
    try:
        async with aclosing(cast("AsyncGenerator[Event, None]", aiter(run))) as events:
            async for event in events:
                if writer is not None:
                    _keep(event, writer)
                shown.show(event)
    finally:
        try:
            await shown.close()
        finally:
            listening.leave()
            if writer is not None:
                writer.close()
    return _told(run, shown, writer)


def _keep(event: Event, writer: TraceWriter) -> None:
    """Store an event. Only a disk that does not take the first one stops a run: nothing is paid for yet."""
    writer.write(event)
    if writer.error is not None and isinstance(event, RunStarted):
        writer.discard()
        raise _cannot_store(writer.path.parent, writer.error)


def _told(run: Run, shown: _Shown, writer: TraceWriter | None) -> int:
    """The exit code, after what could not be written was told."""
    lost = []
    if shown.error is not None:
        hint = (
            "free the disk" if writer is None else f"what there is stands in the trace: conductor trace show {run.id}"
        )
        lost.append(ConductorError(f"standard output cannot be written: {shown.error.strerror}", hint=hint))
    if writer is not None and writer.error is not None:
        said = f"the trace is not whole: {writer.path}: {writer.error.strerror}"
        lost.append(ConductorError(said, hint="free the disk before the next run"))
    for error in lost:
        print_error(error)
    return run.trace.exit_code or (lost[0].exit_code if lost else 0)


class _Shown:
    """The view of a run, on a thread of its own: a reader who stops reading must not hold a worker's stream up.

    Nobody reads standard output, or it takes no more: then the run is stopped.
    """

    def __init__(self, run: Run, view: View, approver: PlanApprover | None) -> None:
        self.run = run
        self.view = view
        self.approver = approver
        self.error: OSError | None = None
        self._fault: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._ended = asyncio.Event()
        threading.Thread(target=self._work, name="view", daemon=True).start()

    def show(self, event: Event) -> None:
        self._events.put(event)

    async def close(self) -> None:
        """Wait until all is shown. Not by joining the thread: a second Ctrl-C must find nothing to wait for."""
        self._events.put(None)
        if self.approver is not None:
            self.approver.wake()
        await self._ended.wait()
        if self._fault is not None:
            raise self._fault

    def _work(self) -> None:
        try:
            while (event := self._events.get()) is not None:
                self._try(partial(self.view.show, event))
                if isinstance(event, PlanOffered):
                    self._try(self._ask)
            self._try(self.view.close)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _ask(self) -> None:
        """Have the plan that is on offer decided about; nothing else happens meanwhile."""
        decision = self.approver.decide(self.run) if self.approver is not None else None
        if decision is None:
            self._stop(PLAN_DROPPED)
        else:
            self._loop.call_soon_threadsafe(self.run.decide, decision)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            leave_stdout()
            gone = isinstance(error, BrokenPipeError)
            self.error = self.error if gone else error
            said = "nobody reads standard output any more" if gone else "standard output cannot be written"
            self._stop(said)
        except Exception as error:  # noqa: BLE001 - a fault of ours; `close` raises it where it is told
            self._fault = self._fault or error
            self._stop("the run cannot be shown any more")

    def _stop(self, said: str) -> None:
        failure = Failure(kind="cancelled", message=said, reason="output_closed")
        self._loop.call_soon_threadsafe(lambda: self.run.stop("cancelled", failure=failure))


class _Signals:
    """The first Ctrl-C, SIGTERM or hang-up stops the run and keeps what is finished; a second Ctrl-C ends the process.

    Plain signal handlers: those of the event loop would wait while a full pipe holds the loop up.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.before: dict[signal.Signals, Any] = {}
        self.last: float | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()

        def interrupt(*_: object) -> None:
            now = time.monotonic()
            if self.last is not None and now - self.last < TWICE:
                _die()
            self.last = now
            loop.call_soon_threadsafe(lambda: self.run.stop("cancelled"))

        def terminate(*_: object) -> None:
            loop.call_soon_threadsafe(lambda: self.run.stop("terminated"))

        handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Windows; nohup
            handlers[signal.SIGHUP] = terminate
        for number, handler in handlers.items():
            before = signal.getsignal(number)
            # Any thread may be given the signal, and a loop that waits would then sleep on: this has it woken.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, lambda: None)
            with suppress(ValueError):  # not the main thread: another program has the signals
                signal.signal(number, handler)
                self.before[number] = before

    def leave(self) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self.before.items():
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _die() -> None:
    """End the process by Ctrl-C, as it would without any handler; a terminal gets its cursor back."""
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
