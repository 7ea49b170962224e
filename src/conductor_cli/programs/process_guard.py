"""Runs one program, and ends it together with everything that it has started.

It is a script: `guard.py FD PROGRAM ARGUMENT…`. FD is one end of a socket pair. When its other end
is closed, on purpose or because that process is gone, everything is ended: SIGTERM, and SIGKILL for
what is left half a second later. The same happens to what is left when the program itself has
ended. One line on FD says which process it is, `child NUMBER`, and at the end another how it ended:
`exit CODE`, `signal NUMBER`, `error REASON` (it could not be started) or `ended`.

On Linux orphans of the program become children of this process (PR_SET_CHILD_SUBREAPER), so those
with a session of their own are found too, and the program gets SIGKILL if this process is killed
(PR_SET_PDEATHSIG). On other systems only the program's process group is ended. It imports little,
because it is started for each call.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

GRACE_SECONDS: Final = 0.5  # Seconds between SIGTERM and SIGKILL

PATIENCE_SECONDS: Final = 8.0
"""Seconds in which killed processes disappear, however many. Only one that waits for a device takes
longer.
"""

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36

LINUX: Final = sys.platform.startswith("linux")

CHILDREN_LIST: Final = "/proc/thread-self/children"
"""A file that is there where the kernel lists the children of each thread."""


def run_guarded(control: int, words: list[str]) -> None:
    """Run the program and report its end."""
    os.set_inheritable(control, False)  # noqa: FBT003 - the call has no name for it
    woken = wake_on_signals()
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    child, problem = start_program(words, control)
    # Standard input and output are left to the program alone, so that their ends are seen.
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    if problem:
        report(control, f"error {problem}")
        return
    status = wait_for(child, control, woken)
    end_all(child, woken)
    if status is None:
        report(control, "ended")
    elif os.WIFSIGNALED(status):
        report(control, f"signal {os.WTERMSIG(status)}")
    else:
        report(control, f"exit {os.WEXITSTATUS(status)}")


def prctl(option: int, value: int) -> None:
    """Set an option of this process by the system call that Python does not have."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def wake_on_signals() -> int:
    """Return a pipe that has a byte for each signal that arrives.

    Of a child that ended, or to end this process.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def start_program(words: list[str], control: int) -> tuple[int, str]:
    """Start the program in a session of its own.

    Its process, and why it could not be started or an empty text.
    """
    reading, writing = os.pipe()
    waiting, reported = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            if LINUX:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # It begins once somebody else knows its process, since it may kill this one.
            os.close(reported)
            os.read(waiting, 1)
            os.execvp(words[0], words)  # noqa: S606 - the program that the user names
        except OSError as error:
            os.write(writing, (error.strerror or "unknown error").encode())
        finally:
            os._exit(127)
    report(control, f"child {child}")
    for end in (writing, waiting, reported):
        os.close(end)
    with os.fdopen(reading, "rb") as problem:
        return child, problem.read().decode()


def wait_for(child: int, control: int, woken: int) -> int | None:
    """Return the program's status; None where it must be ended before it has one."""
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if control in ready:
            return None
        numbers = os.read(woken, 4096)
        if any(number != signal.SIGCHLD for number in numbers):
            return None
        for process, status in ended_children():
            if process == child:
                return status


def ended_children() -> Iterator[tuple[int, int]]:
    """Children that have ended, with their status.

    Raises `ChildProcessError` where there are none at all.
    """
    while (child := os.waitpid(-1, os.WNOHANG))[0]:
        yield child


def end_all(child: int, woken: int) -> None:
    """End every descendant.

    With SIGTERM, after `GRACE_SECONDS` with SIGKILL, as often as new ones appear.
    """
    started = time.monotonic()
    with suppress(ChildProcessError):  # nothing is left
        list(ended_children())
        send(signal.SIGTERM, child)
        while (passed := time.monotonic() - started) < GRACE_SECONDS + PATIENCE_SECONDS:
            if passed >= GRACE_SECONDS:
                send(signal.SIGKILL, child)
            select.select([woken], [], [], 0.02)  # until a child has ended, and not long
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            list(ended_children())


def send(number: int, child: int) -> None:
    """Send a signal to all descendants, or without /proc to the program's process group."""
    processes = [-child]
    if LINUX:
        processes = descendants(os.getpid())
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def descendants(ancestor: int) -> list[int]:
    """Return all processes that descend from this one, parents before their children.

    Linux only. One whose parent ends at this moment may be missing, so whoever watches or ends
    them looks again.
    """
    list_children: Callable[[int], list[int]] = children_of
    if not os.path.exists(CHILDREN_LIST):  # noqa: PTH110 - pathlib is slow to load
        list_children = children_by_parent()
    family = [ancestor]
    for process in family:
        family += list_children(process)
    return family[1:]


def children_of(process: int) -> list[int]:
    """Return the children of all threads of a process; none where it has ended."""
    children: list[int] = []
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208 - the same
    for thread in threads:
        # A thread that has just ended hides no child of the others.
        with suppress(OSError), open(f"/proc/{process}/task/{thread}/children", "rb") as file:  # noqa: PTH123
            children += map(int, file.read().split())
    return children


def children_by_parent() -> Callable[[int], list[int]]:
    """Return what gives the children of a process, for kernels that keep no list of them.

    It reads all processes of the machine, once.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - the same
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                # The name in parentheses may hold spaces and parentheses itself.
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    return lambda process: children.get(process, [])


def report(control: int, line: str) -> None:
    """Tell how it ended; nobody may be there any more."""
    with suppress(OSError):
        os.write(control, f"{line}\n".encode())


if __name__ == "__main__":
    run_guarded(int(sys.argv[1]), sys.argv[2:])
