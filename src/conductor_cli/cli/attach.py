"""Looking at a run of another process while it goes on: attaching to it, waiting for it, ending it.

Its trace is followed as it grows. What a person decides here is sent to the process of the run,
which obeys it as if it had been decided there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from conductor_cli.app import traces
from conductor_cli.app.driver import DecidedElsewhere
from conductor_cli.cli.approval import Approver
from conductor_cli.cli.keypress import has_terminal
from conductor_cli.cli.options import GlobalOptions
from conductor_cli.cli.output import print_line, print_notice
from conductor_cli.cli.signals import handle_signal, suspendable
from conductor_cli.config.settings import app_paths
from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Event, InputAsked, PlanOffered, ToolOffered
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_size
from conductor_cli.core.trace import Offer, Trace, apply_event
from conductor_cli.state.interfaces import TraceReader, Traces
from conductor_cli.state.run_messages import RunMessage, is_listening, send_message
from conductor_cli.system.disk import free_bytes
from conductor_cli.views.base import RunView
from conductor_cli.views.output_formats import (
    OutputContext,
    ProgressName,
    open_attention,
    open_views,
)
from conductor_cli.views.run_text import describe_outcome, describe_wait

POLL_SECONDS: Final = 0.1  # Between two looks at a trace that grows
FULL_DISK_BYTES: Final = 64 << 10  # With less room a disk counts as full
CANCEL_SECONDS: Final = 20.0  # Within which a run that was told to end has ended
TIMED_OUT: Final = 124  # The exit code of a wait that took too long, as that of timeout(1)
INTERRUPTED: Final = 1  # The exit code where the process of a run is gone


class FollowedRun:
    """A run of another process, as far as its trace has been read."""

    def __init__(self, store: Traces, run: str) -> None:
        self.store = store
        self.run = run
        self.trace = Trace()
        self._reader: TraceReader = store.follow(run)

    def read(self, show: Callable[[Event, Trace], None] = lambda *_: None) -> bool:
        """Read what has come, and show it; return whether more may come."""
        events = self._reader.read()
        for event in events:
            self.trace = apply_event(self.trace, event)
            show(event, self.trace)
        if self.trace.ended:
            return False
        return bool(events) or self._reader.is_behind() or self._reader.is_written()

    def describe_full_disk(self) -> str:
        """Return that the disk of the traces is full, where it is; else an empty text."""
        directory = Path(self.store.location(self.run)).parent
        room = FULL_DISK_BYTES
        with suppress(OSError):
            if directory.is_absolute():  # and the traces are not in a database
                room = free_bytes(directory)
        if room >= FULL_DISK_BYTES:
            return ""
        return (
            f"the disk of {directory} has {format_size(room)} free: run {self.run} keeps what does "
            "not fit, and stores it once there is room"
        )

    @property
    def is_up_to_date(self) -> bool:
        return not self._reader.is_behind()

    @property
    def exit_code(self) -> int:
        if self.trace.ended:
            return self.trace.exit_code
        return INTERRUPTED


def wait_for_run(run: str, timeout: float | None) -> int:
    """Wait until a run has ended, and return its exit code, or `TIMED_OUT`."""
    followed = FollowedRun(traces.open_trace_store(), run)
    end = None
    if timeout is not None:
        end = time.monotonic() + timeout
    shown_wait = ""
    disk_notice = ""
    while followed.read():
        if not disk_notice:
            disk_notice = followed.describe_full_disk()
            if disk_notice:
                print_notice(disk_notice)
        wait = describe_wait(followed.trace)
        if wait and wait != shown_wait and followed.is_up_to_date:
            print_notice(f"run {run} {wait}: conductor trace attach {run}")
            shown_wait = wait
        if end is not None and time.monotonic() >= end:
            print_notice(f"run {run} goes on after {timeout:g} s; to see it: trace attach {run}")
            return TIMED_OUT
        time.sleep(POLL_SECONDS)
    print_notice(f"run {run}: {describe_outcome(followed.trace)}")
    if followed.trace.answer:
        print_notice(f"to read the answer: conductor trace attach {run}")
    return followed.exit_code


def cancel_run(run: str) -> None:
    """End a run of another process of this user, and print what has ended. Raises `UsageError`."""
    followed = FollowedRun(traces.open_trace_store(), run)
    goes_on = True
    while goes_on and not followed.is_up_to_date:
        goes_on = followed.read()
    if followed.trace.ended:
        outcome = followed.trace.outcome()
        raise UsageError(
            f"run {run} has ended already: {outcome}", hint=f"conductor trace show {run}"
        )
    if not send_message(app_paths(os.environ).messages, run, RunMessage("cancel")):
        raise _not_listening(followed)
    end = time.monotonic() + CANCEL_SECONDS
    while followed.read():
        if time.monotonic() >= end:
            message = f"run {run} was told to end, and has not within {CANCEL_SECONDS:g} s"
            raise UsageError(message, hint=f"conductor trace attach {run} shows what it does")
        time.sleep(POLL_SECONDS)
    print_line(f"{run}: {_describe_cancelled(followed.trace)}")
    if followed.trace.cancelled:
        print_notice(f"to go on with it: conductor ask --resume {run}")


def _describe_cancelled(trace: Trace) -> str:
    steps = f"{len(trace.done())} of {format_count(len(trace.steps), 'step')} done"
    figures = (
        f"{trace.outcome()} after {format_duration(trace.at)}",
        steps,
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
    )
    return ", ".join(filter(None, figures))


def _not_listening(followed: FollowedRun) -> UsageError:
    run = followed.run
    if not followed.store.is_running(run):
        return UsageError(
            f"no process runs {run} any more: it was interrupted",
            hint=f"to go on with it: conductor ask --resume {run}",
        )
    if followed.trace.origin:
        hint = f"press Stop on its page, or: curl -X POST http://HOST:PORT/v1/responses/resp_{run}/cancel"
        return UsageError(f"run {run} belongs to a server, which ends it", hint=hint)
    message = f"the process that runs {run} takes no messages from other programs"
    return UsageError(message, hint="a batch, an evaluation or a program of yours: end it there")


def attach_to_run(options: GlobalOptions, run: str, progress: ProgressName | None) -> int:
    """Show a run until it ends or the user leaves it; return its exit code, 0 if it goes on."""
    settings = traces.display_settings(options.config, {"output.progress": progress})
    store = traces.open_trace_store()
    context = OutputContext(
        color=settings["output.color"],
        quiet=options.quiet,
        notify=settings["output.notify"],
        markdown=settings["output.markdown"],
        trace_path=store.location,
    )
    followed = FollowedRun(store, run)
    if full := followed.describe_full_disk():
        print_notice(full)
    # It does not ring for what happened before somebody looked
    view = open_views("answer", settings["output.progress"], replace(context, notify="off"))
    visit = _Visit(followed, view, context)
    try:
        code = visit.follow()
    finally:
        if visit.has_left:
            view.leave()
        else:
            view.close()
        visit.close()
    if visit.has_left and not options.quiet:
        print_notice(f"run {run} goes on; to see it again: conductor trace attach {run}")
    return code


class _Visit:
    """A person who looks at a run of another process."""

    def __init__(self, followed: FollowedRun, view: RunView, context: OutputContext) -> None:
        self._followed = followed
        self._view = view
        self._attention = open_attention(context)
        self._has_caught_up = False
        self._context = context
        self._has_left = threading.Event()
        self._directory = app_paths(os.environ).messages
        self._last_offer: Offer | None = None  # About what the person was asked last
        self._sent: RunMessage | None = None  # What they decided about it
        self._notices = 0  # Those that the run had told by then

    def follow(self) -> int:
        """Show the run until it ends or the person leaves; return the exit code."""
        with (
            handle_signal(signal.SIGINT, self._leave),
            handle_signal(signal.SIGTERM, self._leave),
            suspendable(),
        ):
            while not self._has_left.is_set():
                may_go_on = self._followed.read(self._show)
                self._has_caught_up = self._has_caught_up or self._followed.is_up_to_date
                self._view.draw()
                if not may_go_on:
                    return self._followed.exit_code
                offer = self._followed.trace.waits_for
                if offer is not None and self._followed.is_up_to_date:
                    self._ask_once(offer)
                self._has_left.wait(POLL_SECONDS)
        return 0

    def _ask_once(self, offer: Offer) -> None:
        """Ask about an offer, and again where the run cannot do what was decided."""
        if offer == self._last_offer and not self._is_refused(offer):
            return
        self._last_offer = offer
        self._sent = None
        self._ask_about(offer)

    def close(self) -> None:
        self._attention.close()

    def _show(self, event: Event, trace: Trace) -> None:
        self._view.show(event, trace)
        if self._has_caught_up:
            self._attention.show(event, trace)

    @property
    def has_left(self) -> bool:
        return self._has_left.is_set()

    def _leave(self, *_: object) -> None:
        self._has_left.set()

    def _ask_about(self, offer: Offer) -> None:
        """Have the person decide, and send that to the run; another one may be quicker."""
        run = self._followed.run
        if not has_terminal():
            print_notice(f"run {run} {describe_wait(self._followed.trace)}")
            return
        # No message holds what a person has to type
        if isinstance(offer, InputAsked) or not is_listening(self._directory, run):
            wait = describe_wait(self._followed.trace)
            print_notice(f"run {run} {wait}, and can only be answered where it runs")
            return
        with closing(Approver(self._context)) as person:
            is_over = threading.Event()
            watching = threading.Thread(
                target=self._watch, args=(offer, person, is_over), daemon=True
            )
            watching.start()
            message: RunMessage | None = None
            with suppress(DecidedElsewhere):
                message = self._decide(offer, person)
            is_over.set()
            watching.join()
        if message is not None:
            send_message(self._directory, run, message)
            self._sent = message
            self._notices = len(self._followed.trace.notices)
        elif not self._has_left.is_set() and self._followed.trace.waits_for == offer:
            print_notice(f"run {run} goes on waiting; to answer it: conductor trace attach {run}")

    def _decide(self, offer: PlanOffered | ToolOffered, person: Approver) -> RunMessage | None:
        """Return what the person decides; None where they leave it to somebody else."""
        if isinstance(offer, PlanOffered):
            trace = self._followed.trace
            return person.ask_about_plan(offer, traces.describe_stored_offer(trace), trace)
        verdict = person.ask_about_tool(offer, may_leave=True)
        if verdict is None:
            return None
        return RunMessage(verdict, offer.at)

    def _is_refused(self, offer: Offer) -> bool:
        """Return whether the run has said why it does not do what the person decided last."""
        is_about_it = self._sent is not None and self._sent.is_about(offer.at)
        return is_about_it and len(self._followed.trace.notices) > self._notices

    def _watch(self, offer: Offer, person: Approver, is_over: threading.Event) -> None:
        """End the question once the person leaves, or the run does not wait any more."""
        followed = FollowedRun(traces.open_trace_store(), self._followed.run)
        while not is_over.wait(POLL_SECONDS):
            if self._has_left.is_set():
                person.wake()
                return
            may_go_on = followed.read()
            if not may_go_on or (followed.is_up_to_date and followed.trace.waits_for != offer):
                person.dismiss(offer)
                return
