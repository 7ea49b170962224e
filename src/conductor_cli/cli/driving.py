"""Driving a run: events to the store, then to the views; signals to `Run.stop`; the end to an exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import leave_stdout, remark, tell
from conductor_cli.core.errors import Failure
from conductor_cli.store import Store, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from conductor_cli.run import Run
    from conductor_cli.views import View

TWICE: Final = 2.0
"""Seconds in which a second Ctrl-C ends the process at once."""


def open_trace(store: Store | None, run: Run) -> Writer | None:
    """The file for a run's trace. A disk that takes none is a failure before anything is paid for."""
    if store is None:
        return None
    try:
        return store.open(run.id)
    except OSError as error:
        from conductor_cli.core.errors import ConfigError  # noqa: PLC0415 - rare

        raise ConfigError(
            f"the trace cannot be stored in {store.directory}: {error.strerror}",
            hint="free the disk or mend its rights, or run with --no-trace",
        ) from None


async def drive(run: Run, view: View, writer: Writer | None) -> int:
    """Read the run to its end and return the exit code. The store has an event before any view sees it."""
    listening = _Signals(run)
    listening.listen()
    try:
        async for event in run:
            if writer is not None:
                writer.write(event)
            try:
                view.show(event)
            except BrokenPipeError:
                leave_stdout()
                run.stop("cancelled", message="nobody reads standard output any more")
    finally:
        listening.leave()
        with suppress(BrokenPipeError):
            view.close()
        if writer is not None:
            writer.close()
    return _told(run, writer)


def _told(run: Run, writer: Writer | None) -> int:
    """The exit code, after a trace that could not be written was told."""
    if writer is None or writer.error is None:
        return run.trace.exit_code
    tell(
        Failure(
            kind="internal",
            message=f"the trace is not whole: {writer.path}: {writer.error.strerror}",
            hint="the answer above is; free the disk before the next run",
        )
    )
    return run.trace.exit_code or 1


class _Signals:
    """The first Ctrl-C or SIGTERM stops the run and keeps what is finished; a second Ctrl-C ends the process."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.before: dict[int, object] = {}
        self.last: float | None = None

    def listen(self) -> None:
        self._on(signal.SIGINT, self.interrupt)
        self._on(signal.SIGTERM, lambda: self.run.stop("terminated", message="terminated"))

    def _on(self, number: signal.Signals, action: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(number, action)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            with suppress(ValueError):
                self.before[number] = signal.signal(number, lambda *_: loop.call_soon_threadsafe(action))

    def interrupt(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.last is not None and now - self.last < TWICE:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.stderr.flush()
            signal.raise_signal(signal.SIGINT)
        self.last = now
        self.run.stop("cancelled", message="interrupted")

    def leave(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)


def say_remarks(remarks: list[str], *, quiet: bool) -> None:
    """What the user should know before a run begins."""
    for text in remarks if not quiet else ():
        if text:
            remark(text)
