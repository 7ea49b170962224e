"""Runs files of tests in several processes that share what was imported and collected once.

`pytest -p tests.forks --forks 5` does what `-n 5 --dist loadfile` of pytest-xdist does, whose
processes import and collect everything each, ten seconds of a processor. It needs a system that
forks well, so Linux.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any, Final

import pytest

FORK: Final = get_context("fork") if sys.platform == "linux" else None
NEXT: Final = "next"
"""A process asks for the number of the next file with this."""

Batch = list[pytest.Item]
"""The tests of one file, which run in one process in their order."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=0, metavar="N", help="run files of tests in N processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in forks; else, as without this plugin, in this process."""
    count = session.config.option.forks
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    if FORK is None:
        raise pytest.UsageError("--forks needs Linux: use -n of pytest-xdist instead")
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate()[1:])
        message = f"--forks: a module of tests started a thread while it was imported: {names}"
        raise pytest.UsageError(message)
    batches = [[*items] for _, items in groupby(session.items, lambda item: item.path)]
    Distributor(session, batches).run(min(count, len(batches)))
    return True


@dataclass
class Worker:
    """A process, the pipe to it, and the tests that it was given and has not run yet."""

    process: BaseProcess
    pipe: Connection
    left: deque[pytest.Item]


class Distributor:
    """Gives files to processes, one after the other, and tells pytest what comes of each test."""

    def __init__(self, session: pytest.Session, batches: list[Batch]) -> None:
        self.session = session
        self.config = session.config
        self.batches = batches
        self.next_batch = 0
        self.workers: list[Worker] = []
        self.started = 0

    def run(self, count: int) -> None:
        """Run all tests. Raises as pytest does where a failure or Ctrl-C ends the session."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # tests of several files come in turns
        self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # made once
        try:
            for _ in range(count):
                self._start(self._take_batch()[1])
            while self.workers:
                ready = wait([worker.pipe for worker in self.workers])
                for worker in [*self.workers]:
                    if worker.pipe in ready:
                        self._hear(worker)
        finally:
            # Whoever still works ends with the test that it runs
            for worker in self.workers:
                worker.pipe.close()
            for worker in self.workers:
                worker.process.join()

    def _start(self, batch: Batch) -> None:
        assert FORK is not None
        here, there = FORK.Pipe()
        self.started += 1
        others = [worker.pipe for worker in self.workers]
        process = FORK.Process(
            target=run_batches,
            args=(self.session, self.started, self.batches, batch, there, [here, *others]),
        )
        process.start()
        there.close()
        self.workers.append(Worker(process, here, deque(batch)))

    def _take_batch(self) -> tuple[int | None, Batch]:
        """Return the number of the next file, and its tests; None and no test after the last."""
        number = self.next_batch
        if number == len(self.batches):
            return None, []
        self.next_batch += 1
        return number, self.batches[number]

    def _hear(self, worker: Worker) -> None:
        """Take the next message of a process: a test has run, or it asks for another file."""
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._note_end(worker)
            return
        if message == NEXT:
            number, batch = self._take_batch()
            worker.left.extend(batch)
            worker.pipe.send(number)
            return
        reports, warned = message
        hook = self.config.hook
        for content in reports:
            hook.pytest_runtest_logreport(
                report=hook.pytest_report_from_serializable(config=self.config, data=content)
            )
        for details in warned:
            hook.pytest_warning_recorded.call_historic(kwargs=details)
        worker.left.popleft()
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def _note_end(self, worker: Worker) -> None:
        """A process has ended: it had nothing more to run, or a test has ended it."""
        self.workers.remove(worker)
        worker.process.join()
        if not worker.left:
            return
        item = worker.left.popleft()
        text = f"the process of this test ended with exit code {worker.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self.config.hook.pytest_runtest_logreport(report=report)
        if worker.left:
            self._start([*worker.left])


# In the processes


def run_batches(
    session: pytest.Session,
    number: int,
    batches: list[Batch],
    batch: Batch,
    pipe: Connection,
    pipes_of_others: list[Connection],
) -> None:
    """Run tests and then those of further files, until there are none or nobody wants any more."""
    for other in pipes_of_others:
        other.close()
    _settle(session.config, number)
    results = Results(session.config)
    items = deque(batch)
    try:
        while items:
            if len(items) == 1:  # what the next file shares with this one is kept
                pipe.send(NEXT)
                following = pipe.recv()
                items.extend([] if following is None else batches[following])
            item = items.popleft()
            next_item = items[0] if items else None
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            pipe.send(results.take())
    except (BrokenPipeError, EOFError, KeyboardInterrupt):
        session._setupstate.teardown_exact(None)


def _settle(config: pytest.Config, number: int) -> None:
    """Give this process directories of its own, files for what tests print, and no reports."""
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process{number}"
    factory._basetemp.mkdir(mode=0o700)
    _separate_captured(config.pluginmanager.get_plugin("capturemanager"))
    writer = config.get_terminal_writer()
    config.pluginmanager.unregister(name="terminalreporter")
    # pytest-timeout shows stacks there
    config.pluginmanager.register(SimpleNamespace(_tw=writer), "terminalreporter")


def _separate_captured(manager: Any) -> None:
    """Have what tests print written to other files than that of other processes.

    The objects stay: libraries have kept the `sys.stderr` of the time when they were imported.
    """
    captured: Any = getattr(manager, "_global_capturing", None)
    for name in ("out", "err"):
        # Without a file, as with `-s` and `--capture=sys`, nothing is shared
        with suppress(AttributeError, OSError), tempfile.TemporaryFile(buffering=0) as own_file:
            shared: int = getattr(captured, name).tmpfile.fileno()
            os.dup2(own_file.fileno(), shared, inheritable=False)


class Results:
    """What the process that shows them is told of tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[Any] = []
        self.warned: list[dict[str, Any]] = []
        config.pluginmanager.register(self)
        self.take()  # the warnings of the collection, which are shown already

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(
            self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        )

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        plain_warning = warnings.WarningMessage(
            str(warning_message.message),
            Warning,
            warning_message.filename,
            warning_message.lineno,
        )
        self.warned.append(
            {"warning_message": plain_warning, "when": when, "nodeid": nodeid, "location": location}
        )

    def take(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """Return what came since the last time."""
        latest = (self.reports, self.warned)
        self.reports = []
        self.warned = []
        return latest
