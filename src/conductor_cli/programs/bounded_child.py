"""A piece of our own work in a child process with bounded time and memory.

Bytes in, JSON values out.

What reads foreign data or runs foreign code may take for ever, ask for gigabytes, print, or end its
process. So it is a module of its own with a function `answer`, which takes bytes and gives JSON
values. This module is both sides: the parent starts it as a script, and the child limits itself,
loads the other module by its path and writes a line for each value. `-P` keeps files in the working
directory from being imported in the place of libraries, `-B` writes no bytecode.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:  # the child imports little, so that it starts fast
    from collections.abc import Mapping
    from pathlib import Path

_VARIABLES: Final = frozenset({"PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
"""The variables that a child gets, besides Python's own: no keys."""

_SESSION_NICENESS: Final = "/proc/self/autogroup"
NICENESS: Final = 5  # Of a bounded child, so that it gives way to the loop of whoever waits for it
LONG_NICENESS: Final = 10
LONG_SECONDS: Final = 0.5
"""The processor time after which the child of a client gives way to those that have just begun.

Most documents and checks take less. So the first work of one client is not held up by the long work
of another, as in multilevel feedback queues of schedulers.
"""


class ChildLimits(NamedTuple):
    """The seconds until the parent ends the child, and what the system holds it to.

    A `memory` of 0 is no limit.

    `memory` is in bytes of address space, `cpu_seconds` is processor time. Then it cannot write
    files either.
    """

    seconds: float
    memory: int = 0
    cpu_seconds: int = 0


class ChildStopped(Exception):
    """A child did not end by itself as it should.

    It could not be started, needed too much time, or broke down.

    `values` are those that it gave before.
    """

    def __init__(
        self, why: Literal["start", "time", "broken"], message: str, written: bytes = b""
    ) -> None:
        super().__init__(message)
        self.why = why
        self.values = _parse_lines(written)


def run_child(
    script: Path,
    job: bytes,
    limits: ChildLimits,
    *,
    environ: Mapping[str, str] | None = None,
    session: bool = True,
) -> list[Any]:
    """Return what the `answer` of a module gives for `job`. Raises `ChildStopped`.

    Without an `environ` the child has few variables. It is in a session of its own, so that a
    Ctrl-C at the terminal is for conductor alone, unless it may have to ask at the terminal.
    """
    import subprocess

    if environ is None:
        environ = _environment()
    try:
        child = subprocess.Popen(  # noqa: S603 - ourselves
            _command(script, limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=session,
        )
    except OSError as error:
        raise ChildStopped("start", error.strerror or "unknown error") from None
    try:
        written = child.communicate(job, timeout=limits.seconds)[0]
    except subprocess.TimeoutExpired as late:
        raise ChildStopped(
            "time", f"no end within {limits.seconds:g} s", late.output or b""
        ) from None
    finally:
        if child.returncode is None:
            _end(child.pid, session=session)
        # What it has started may hold the pipes open: close our ends instead of reading to the end.
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr] # both are pipes
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)
    return _read_values(child.returncode, written)


async def run_child_beside(script: Path, job: bytes, limits: ChildLimits) -> list[Any]:
    """Return the same beside other tasks. The child ends with the task that waits for it.

    Raises `ChildStopped`.
    """
    import asyncio
    from asyncio.subprocess import DEVNULL, PIPE

    try:
        child = await asyncio.create_subprocess_exec(
            *_command(script, limits),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise ChildStopped("start", error.strerror or "unknown error") from None
    try:
        async with asyncio.timeout(limits.seconds):
            written, _ = await child.communicate(job)
    except TimeoutError:
        raise ChildStopped("time", f"no end within {limits.seconds:g} s") from None
    finally:
        if child.returncode is None:
            _end(child.pid, session=True)
        await child.wait()
    return _read_values(child.returncode, written)


def _command(script: Path, limits: ChildLimits) -> list[str]:
    numbers = (limits.memory, limits.cpu_seconds, int(bool(limits.memory) and _works_for_client()))
    return [sys.executable, "-P", "-B", __file__, str(script), *map(str, numbers)]


def _works_for_client() -> bool:
    """Return whether this work is for one of several clients, who share the processors."""
    from conductor_cli.programs.turns import CURRENT_CLIENT  # a child starts without asyncio

    return bool(CURRENT_CLIENT.get())


def _environment() -> dict[str, str]:
    kept = {}
    for name, text in os.environ.items():
        if name in _VARIABLES or name.startswith("PYTHON"):
            kept[name] = text
    return kept


def _end(process: int, *, session: bool) -> None:
    """Kill a child, and what it has started, as far as that is in its session."""
    import signal

    with suppress(ProcessLookupError, PermissionError):
        if session and os.name == "posix":
            os.killpg(process, signal.SIGKILL)
        else:
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _read_values(code: int | None, written: bytes) -> list[Any]:
    if code != 0:
        raise ChildStopped("broken", f"it ended with {code}", written)
    return _parse_lines(written)


def _parse_lines(written: bytes) -> list[Any]:
    values = []
    for line in written.splitlines():
        with suppress(ValueError):  # a line that is not whole
            values.append(json.loads(line))
    return values


def answer_as_child(script: str, memory: int, cpu_seconds: int, *, has_neighbours: bool) -> None:
    """Limit this process, and write what a module answers to the bytes on stdin.

    Where it `has_neighbours`, it gives way to them when it takes long.
    """
    from importlib.util import module_from_spec, spec_from_file_location

    # Some libraries print. Only our values may reach the parent.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = sys.stdin.buffer.read()
    if memory and os.name == "posix":
        os.nice(NICENESS)
    if has_neighbours and os.name == "posix":
        _give_way_when_long()
    if memory:
        _limit_resources(memory, cpu_seconds)
    spec = spec_from_file_location("answering", script)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for value in module.answer(job):
        out.write(json.dumps(value) + "\n")
        out.flush()


def _give_way_when_long() -> None:
    """Let other processes go first once this one has worked for long."""
    import signal

    def give_way(*_: object) -> None:
        _set_niceness_of_session(os.nice(LONG_NICENESS - NICENESS))

    signal.signal(signal.SIGPROF, give_way)
    signal.setitimer(signal.ITIMER_PROF, LONG_SECONDS)


def _set_niceness_of_session(niceness: int) -> None:
    """Let other sessions go first.

    Linux shares processors among sessions before it looks at the processes in them (autogroups),
    and a child is in a session of its own: its own niceness alone would change nothing.
    """
    if os.getsid(0) != os.getpid() or not os.path.exists(_SESSION_NICENESS):  # noqa: PTH110
        return
    for _ in range(5):
        try:
            with open(_SESSION_NICENESS, "wb", buffering=0) as file:  # noqa: PTH123
                file.write(b"%d" % niceness)
        except BlockingIOError:  # Linux changes one for all users in a tenth of a second
            time.sleep(0.1)
        except OSError:  # it has none for this process
            return
        else:
            return


def _limit_resources(memory: int, cpu_seconds: int) -> None:
    with suppress(ImportError):
        import resource  # POSIX only

        limits = {
            "RLIMIT_AS": memory,
            "RLIMIT_CPU": cpu_seconds,
            "RLIMIT_FSIZE": 0,
            "RLIMIT_CORE": 0,
        }
        for name, most in limits.items():
            # There may be a stricter limit already, and not every system has each of them.
            with suppress(ValueError, OSError, AttributeError):
                resource.setrlimit(getattr(resource, name), (most, most))


if __name__ == "__main__":
    answer_as_child(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), has_neighbours=sys.argv[4] == "1"
    )
