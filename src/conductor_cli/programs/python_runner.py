"""Runs one Python program again and again, each time in a new process, inside a sandbox. It is a script of its own.

It is started with `python -I -c`, the text of this file, and refuses to work unless it is in a namespace of processes
of its own: after each run it kills every process that it sees. Messages on standard input are a line with a number of
bytes, and these bytes. The first is JSON, the job:

    limits      {"address_space": bytes, "processes", "output": bytes, "files": bytes}
    namespace   the namespace of processes of whoever started the sandbox
    before      code that is run once, before anything that is not trusted; what it defines every run sees
    code, name  the program, and its `__name__`
    after       code that is run after the program, in the same module; it may write to descriptor 3

Each further message is one run: a line of JSON with `seconds`, then the standard input. The reply is a line of JSON
(`end`: exit, signal, time or output; `code`; `output` and `report`: numbers of bytes; `complaint`), then these bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
import types
from typing import Any, BinaryIO, Final

PR_SET_DUMPABLE: Final = 4
COMPLAINT: Final = 2000  # Bytes of standard error that are told
REPORT: Final = 3  # The descriptor for what `after` finds out


def serve_runs() -> None:
    """Read the job and answer each run, until the other end is closed."""
    inbox, outbox = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    job = json.loads(read_message(inbox))
    if os.readlink("/proc/self/ns/pid") == job["namespace"]:  # noqa: PTH115 - not a path
        sys.exit("not in a sandbox")
    set_dumpable(0)  # no run may look into this process
    module = types.ModuleType(job["name"])
    module.__file__ = f"{job['name']}.py"
    exec(compile(job["before"], "<prepare>", "exec"), module.__dict__)  # noqa: S102 - what this script is for
    tell(outbox, {"end": "ready"})
    while message := read_message(inbox):
        head, _, stdin = message.partition(b"\n")
        reply, output, report = run_once(job, module, json.loads(head)["seconds"], stdin, inbox)
        tell(outbox, {**reply, "output": len(output), "report": len(report)}, output, report)


def set_dumpable(value: int) -> None:
    """Whether processes of the same user may trace this one and read its memory."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, value, 0, 0, 0)


def read_message(inbox: BinaryIO) -> bytes:
    """Return the next message, empty at the end."""
    head = b""
    while not head.endswith(b"\n"):
        piece = inbox.read(1)
        if not piece:
            return b""
        head += piece
    left, pieces = int(head), []
    while left:
        piece = inbox.read(left)
        if not piece:
            return b""
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def tell(outbox: BinaryIO, head: dict[str, Any], *bodies: bytes) -> None:
    """Send a reply."""
    rest = memoryview(b"".join((json.dumps(head).encode(), b"\n", *bodies)))
    while rest:
        rest = rest[outbox.write(rest) :]


def run_once(
    job: dict[str, Any], module: types.ModuleType, seconds: float, stdin: bytes, inbox: BinaryIO
) -> tuple[dict[str, Any], bytes, bytes]:
    """One run: how it ended, its output and its report."""
    given = os.memfd_create("stdin")
    with os.fdopen(os.dup(given), "wb") as file:
        file.write(stdin)
    os.lseek(given, 0, os.SEEK_SET)
    pipes = [os.pipe() for _ in range(3)]
    child = os.fork()
    if not child:
        become_program(job, module, seconds, given, [writing for _, writing in pipes])
    for descriptor in (given, *(writing for _, writing in pipes)):
        os.close(descriptor)
    readers = [reading for reading, _ in pipes]
    taken = {descriptor: bytearray() for descriptor in readers}
    end, status = collect(child, taken, job["limits"]["output"], time.monotonic() + seconds, inbox)
    for descriptor in readers:
        os.close(descriptor)
    output, complaint, report = (bytes(taken[descriptor]) for descriptor in readers)
    code = 0
    if end == "exit":
        end, code = ("signal", os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ("exit", os.WEXITSTATUS(status))
    return {"end": end, "code": code, "complaint": complaint[-COMPLAINT:].decode("utf-8", "replace")}, output, report


def collect(child: int, taken: dict[int, bytearray], most: int, deadline: float, inbox: BinaryIO) -> tuple[str, int]:
    """Read what the program writes until it ends or must be ended; why it ended, and its status.

    Everything that it has left behind is killed.
    """
    end, status, pending, gone = "", 0, set(taken), inbox.fileno()
    while not end:
        left = deadline - time.monotonic()
        if left <= 0:
            end = "time"
            break
        ready, _, _ = select.select([*pending, gone], [], [], min(left, 0.02 if pending else 0.002))
        if gone in ready:  # nobody waits for the reply any more
            os._exit(0)
        pending -= {descriptor for descriptor in ready if not take(descriptor, taken[descriptor], most)}
        if any(len(each) > most for each in taken.values()):
            end = "output"
        process, found = os.waitpid(child, os.WNOHANG)
        if process and not end:
            end, status = "exit", found
    end_everything()
    for descriptor in pending:  # what was written before the end
        while len(taken[descriptor]) <= most and take(descriptor, taken[descriptor], most):
            pass
    if end == "exit" and any(len(each) > most for each in taken.values()):
        end = "output"
    return end, status


def take(descriptor: int, taken: bytearray, most: int) -> bool:
    """Read once; false at the end."""
    piece = os.read(descriptor, 1 << 16)
    taken += piece[: most + 1 - len(taken)]
    return bool(piece)


def end_everything() -> None:
    """Kill all other processes of the sandbox, as often as new ones appear."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def become_program(
    job: dict[str, Any], module: types.ModuleType, seconds: float, given: int, writers: list[int]
) -> None:
    """Turn this new process into the program; it does not return."""
    code = 1
    try:
        output, complaint, report = writers
        # The descriptors 0 to 3 are used by nothing that is still to be copied: the pipes were made after them.
        copies = [os.dup(each) for each in (given, output, complaint, report)]
        for number, copy in enumerate(copies):
            os.dup2(copy, number)
        os.closerange(REPORT + 1, 1 << 12)
        os.setsid()
        limit(job["limits"], seconds)
        set_dumpable(1)
        sys.modules[module.__name__] = module
        sys.argv = [module.__file__ or ""]
        code = execute(job, module)
    except BaseException as error:  # noqa: BLE001 - it also may not go on as this script
        os.write(2, f"{type(error).__name__}\n".encode())
    finally:
        os._exit(code)


def execute(job: dict[str, Any], module: types.ModuleType) -> int:
    """Run the program as Python would, its threads and its functions for the end included; the exit code."""
    code = 0
    try:
        for part in ("code", "after"):
            exec(compile(job[part], module.__file__ or "", "exec"), module.__dict__)  # noqa: S102 - what this script is for
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises
        code = 1
        try:
            sys.stderr.write(f"{type(error).__name__}: {error}\n"[-COMPLAINT:])
        except BaseException:  # noqa: BLE001 - its own text may fail, too
            sys.stderr.write(f"{type(error).__name__}\n")
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - waits for threads, as at the end of a program
    atexit._run_exitfuncs()  # noqa: SLF001 - likewise
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code & 0xFF


def limit(limits: dict[str, int], seconds: float) -> None:
    """Set what the kernel enforces for this process and its children. A limit cannot be raised again."""
    wanted = {
        resource.RLIMIT_CPU: int(seconds) + 2,
        resource.RLIMIT_AS: limits["address_space"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits["files"],
        resource.RLIMIT_NOFILE: 256,
    }
    # Before Linux 5.14 the number is that of all processes of the user, not only of those in this sandbox.
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (5, 14):
        wanted[resource.RLIMIT_NPROC] = limits["processes"]
    for what, value in wanted.items():
        hard = resource.getrlimit(what)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    serve_runs()
