"""Several processes that serve one address: `conductor serve --processes N`.

The first process only starts the others, passes signals on, and starts again whichever died. It
holds every socket, so what waits at the socket of a process that died is answered by the next one.

On Linux each process has a socket of its own at the port, among which the system divides the
connections evenly. Elsewhere they share one.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.server.http.process import ENDING, listen_at
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.siblings import Shared, Siblings

MAX_PROCESSES: Final = 64
FIRST_WAIT_SECONDS: Final = 0.25  # Before a process that died is started again; doubled each time
MAX_WAIT_SECONDS: Final = 4.0
STEADY_SECONDS: Final = 30.0  # How long a process must have lived for the first wait to count again


def check_processes(count: int, options: ServerOptions) -> None:
    """Raise `UsageError` or `ConfigError` where so many processes cannot serve exactly."""
    if count == 1:
        return
    if not hasattr(os, "fork"):
        message = "--processes needs a system that can divide a process, which Windows cannot"
        raise UsageError(message, hint="start one server for each port, behind a balancer")
    settings = options.settings()
    parallel = settings["serve.parallel"]
    if parallel < count:
        message = f"serve.parallel is {parallel}, so {count} processes cannot have a run each"
        raise UsageError(message, hint=f"conductor config set serve.parallel {32 * count}")
    keeps_traces = options.stores_traces and settings["traces.keep"] != "never"
    if not (keeps_traces or settings.paths.database):
        message = "without stored traces, no process of a server knows the runs of the others"
        raise ConfigError(message, hint="omit --no-trace, or omit --processes")


def listen_for_processes(host: str, port: int | None, count: int) -> list[socket.socket]:
    """Return a socket for each process, all at one port. Raises `UsageError`."""
    first = listen_at(host, port)
    if count == 1:
        return [first]
    if sys.platform != "linux":
        return [first] * count
    # The first one, which shares with nobody, has shown that the port is nobody else's.
    number = first.getsockname()[1]
    first.close()
    return [listen_at(host, number, shares_port=True) for _ in range(count)]


class ProcessGroup:
    """The processes of a server, for the process that starts them."""

    def __init__(self, sockets: list[socket.socket], say: Callable[[str], None]) -> None:
        """`say` tells the user which process died."""
        self._sockets = sockets
        self._say = say
        self._metrics = Path(tempfile.mkdtemp(prefix="conductor-metrics-"))
        self._shared = Shared(len(sockets))
        # A process whose parent is gone reads the end of this pipe, and ends.
        self._parent_reads, self._parent_writes = os.pipe()
        self._processes: dict[int, int] = {}  # The index of each process by its id
        self._started_at: dict[int, float] = {}
        self._deaths = 0
        # How often the process in a place ended soon after its start, without a pause
        self._quick_deaths: dict[int, int] = {}
        self._has_served = False
        self._code: int | None = None

    def run(self, serve: Callable[[socket.socket, Siblings, int], int]) -> int:
        """Start the processes, and return the exit code when all have ended.

        In each of them, call `serve` with its socket, what it shares, and a pipe that ends when
        its parent does; and return what that returns.
        """
        gc.freeze()  # What is loaded by now is shared by all processes, and stays so
        index = self._supervise()
        if index is not None:
            return self._serve(index, serve)
        shutil.rmtree(self._metrics, ignore_errors=True)
        return self._code or 0

    def _supervise(self) -> int | None:
        """Start processes until all have ended. Returns None; in each of them, its index."""
        handle_with(self._pass_on)
        for index in range(len(self._sockets)):
            if self._start(index) == 0:
                return index
        while self._processes:
            ended = self._wait()
            if ended is not None and self._start(ended) == 0:
                return ended
        return None

    def _start(self, index: int) -> int | None:
        """Start a process. Returns its id here, and 0 in the process itself.

        None where the server ends: nobody would tell the process.
        """
        self._shared.ready.set(index, 0)
        self._shared.running.set(index, 0)
        # No signal may come between the two: the process would have no handler for it. One that
        # came before has been handled when this returns.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        if self._code is not None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            return None
        process = os.fork()
        if process:
            self._processes[process] = index
            self._started_at[index] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return process

    def _serve(self, index: int, serve: Callable[[socket.socket, Siblings, int], int]) -> int:
        handle_with(signal.SIG_DFL)
        # Ctrl-C is for the first process, which passes it on once.
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.close(self._parent_writes)
        for other, opened in enumerate(self._sockets):
            if other != index and opened is not self._sockets[index]:
                opened.close()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self._metrics)
        return serve(self._sockets[index], Siblings(index, self._shared), self._parent_reads)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        """Tell every process to end, as this one was told: once more means at once."""
        if self._code is None:
            self._code = 128 + number
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def _wait(self) -> int | None:
        """Wait until a process has ended. Returns which one is to be started again, if any."""
        process, status = os.wait()
        index = self._processes.pop(process)
        self._has_served = self._has_served or self._shared.ready.total() > 0
        self._shared.running.set(index, 0)
        self._shared.ready.set(index, 0)
        _forget_metrics(process, self._metrics)
        if self._code is not None:
            return None
        code = os.waitstatus_to_exitcode(status)
        if not self._has_served:
            # The others would fail for the same reason, which it has told.
            self._code = code if code > 0 else 1
            self._pass_on(signal.SIGTERM, None)
            return None
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._deaths += 1
        quick_deaths = self._quick_deaths.get(index, 0) + 1
        if time.monotonic() - self._started_at[index] >= STEADY_SECONDS:
            quick_deaths = 0
        self._quick_deaths[index] = quick_deaths
        self._say(
            f"process {process} of the server ended with {ending}, and another one takes its "
            f"place: {format_count(self._deaths, 'process')} so far. Its runs are interrupted: "
            "conductor trace list"
        )
        time.sleep(min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**quick_deaths))
        return None if self._code is not None else index


def handle_with(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Have this handle each signal that ends a server, but for those that are ignored."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _forget_metrics(process: int, directory: Path) -> None:
    """Let what a process was doing not count any more. What it has done goes on counting."""
    for file in directory.glob(f"gauge_live*_{process}.db"):
        file.unlink(missing_ok=True)
