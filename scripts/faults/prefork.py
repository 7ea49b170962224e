"""Runs commands of conductor in forks of a process that has imported everything.

If a fault is wanted, they run under strace. A fresh process spends most of its time, and most of
its system calls, on importing. Here a server process imports what the first command needed; each
later command is a fork of it, which waits until strace is attached. So the Nth system call is one
of the command's own.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]

COLUMNS: Final = 200  # the width of a terminal, which wraps no explanation with a long path
# A control sequence of a terminal
_CONTROL: Final = re.compile(r"\x1b(\[[0-9;?=>]*[ -/]*[@-~]|\][^\x07]*\x07|.)")
_ANY_TRACER: Final = (0x59616D61, ctypes.c_ulong(-1))
"""Arguments of `prctl` that let any process of this user trace this one, where the system restricts
that.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended.

    `code` is negative for a signal, None where it was still running when its time was over.

    `hits` are the lines of strace about the calls that were made to fail.
    """

    code: int | None
    out: str
    err: str
    hits: tuple[str, ...] = ()


class Screen:
    """A pseudo-terminal.

    What a command writes there is read at once, so that it never has to wait.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.name = os.ttyname(self._theirs)
        self._typed: set[str] = set()
        self._read = b""
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that was written so far, with its control sequences."""
        return self._read.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        self._typed.add(text.strip())
        with suppress(OSError):
            os.write(self._ours, text.encode())

    def last_lines(self, count: int) -> list[str]:
        """The last lines that a user sees, but for empty ones and the echo of what was typed."""
        lines = re.split(r"[\r\n]+", _CONTROL.sub("", self.text))
        return [line for line in lines if line.strip() and line.strip() not in self._typed][-count:]

    def close(self) -> str:
        """Close it once nothing writes there any more. Returns all that was written."""
        os.close(self._theirs)  # the reader then finds the end
        self._reader.join(5)
        os.close(self._ours)
        return self.text

    def _read_all(self) -> None:
        with suppress(OSError):
            while piece := os.read(self._ours, 65536):
                self._read += piece


LONGEST_SECONDS: Final = 45.0
"""How long a command may take. A download waits 20 s in all for a hub that cannot be reached."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that has been forked."""

    pid: int
    place: Path
    streams: Sequence[int]
    tracer: subprocess.Popen[str] | None
    server: Prefork
    screen: Screen | None

    @property
    def is_running(self) -> bool:
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"}

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self, seconds: float = LONGEST_SECONDS) -> Ended:
        """Wait for its end; a command that takes longer is killed."""
        code = self.server.wait(self.pid, seconds)
        if code is None:
            self.signal(signal.SIGKILL)
            self.server.wait(self.pid, 5.0)
        hits: tuple[str, ...] = ()
        if self.tracer is not None:
            self.tracer.communicate(timeout=10)
            lines = (self.place / "strace").read_text("utf-8", "replace").splitlines()
            hits = tuple(
                line for line in lines if "(INJECTED)" in line or "+++ killed by SIGKILL" in line
            )
        out, err = map(_read_all, self.streams)
        if self.screen is not None:
            out = self.screen.close()
            err = "\n".join(self.screen.last_lines(3))
        return Ended(code=code, out=out, err=err, hits=hits)


def _read_all(stream: int) -> str:
    with os.fdopen(stream, "rb") as pipe:
        return (pipe.read() or b"").decode("utf-8", "replace")


class Prefork:
    """The server process and the way to talk to it. One command at a time."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        """`directory` takes the streams of the commands."""
        self._place = directory
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("out", "err"):
            os.mkfifo(directory / name)
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(theirs.fileno())],
            env={**environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            cwd=directory,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        # Python looks once whether its streams are files: theirs are pipes, as those of the
        # commands will be.
        theirs.close()
        self._replies = self._socket.makefile("r")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.communicate(timeout=10)
        self._replies.close()
        self._socket.close()

    def start(
        self,
        words: Sequence[str],
        *,
        given: str = "",
        fault: str = "",
        limit: int = -1,
        on_terminal: bool = False,
    ) -> Command:
        """Fork a command.

        `fault` is strace's `-e inject=`, `limit` the bytes to which a file may grow.
        """
        (self._place / "in").write_text(given)
        screen = Screen() if on_terminal else None
        # Pipes, because a limit on the size of files must not hold for the streams.
        streams = [
            os.open(self._place / name, os.O_RDONLY | os.O_NONBLOCK) for name in ("out", "err")
        ]
        for stream in streams:
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 1 << 20)
        pid = self._ask(
            {"words": list(words), "limit": limit, "terminal": screen.name if screen else ""}
        )
        tracer = _attach(pid, fault, self._place / "strace") if fault else None
        os.kill(pid, signal.SIGUSR1)
        return Command(pid, self._place, streams, tracer, self, screen)

    def run(self, words: Sequence[str], *, given: str = "") -> Ended:
        return self.start(words, given=given).ended()

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Import in the server what the command imports that runs meanwhile."""
        (self._place / "modules").unlink(missing_ok=True)
        yield
        self._ask({"import": True})

    def wait(self, pid: int, seconds: float) -> int | None:
        """The exit code of a fork, negative for a signal; None where it runs on."""
        code: int | None = self._ask({"wait": pid, "seconds": seconds})
        return code

    def _ask(self, request: Mapping[str, Any]) -> Any:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(self._replies.readline())


def _attach(pid: int, fault: str, log: Path) -> subprocess.Popen[str]:
    """Attach strace to a process and wait until it is attached."""
    options = ["-e", f"trace={fault.partition(':')[0]}", "-e", f"inject={fault}", "-p", str(pid)]
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "60", "-o", str(log), *options],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        tracer.kill()
        raise RuntimeError(f"strace does not attach: {line}")
    return tracer


def _serve(control: socket.socket) -> None:
    """Answer requests until the other side closes.

    Returns in each fork, which is to run its command.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    requests = control.makefile("r")
    answer = None
    while line := requests.readline():
        request = json.loads(line)
        if "words" in request:
            reading, writing = os.pipe()
            pid = os.fork()
            if not pid:
                requests.close()
                control.close()
                os.close(reading)
                _become(request, ready=writing)
                return
            os.close(writing)
            os.read(reading, 1)  # until it is ready
            os.close(reading)
            answer = pid
        elif "wait" in request:
            answer = None
            end = time.monotonic() + request["seconds"]
            while answer is None and time.monotonic() < end:
                ended, status = os.waitpid(request["wait"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
                time.sleep(0 if ended else 0.002)
        else:
            answer = _import_all(Path("modules"))
        control.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _become(request: Mapping[str, Any], ready: int) -> None:
    """Take the command's streams, words and limits, and wait for the start."""
    import resource

    os.setsid()  # so that a terminal which is opened next is the one of this process
    terminal = request["terminal"]
    for number, (name, flags) in enumerate(
        (("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))
    ):
        opened = os.open(terminal or name, os.O_RDWR if terminal else flags)
        os.dup2(opened, number)
        os.close(opened)
    # Ignored where a shell runs a campaign in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(*_ANY_TRACER, 0, 0, 0)
    sys.argv = ["conductor", *request["words"]]
    if request["limit"] >= 0:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (request["limit"], resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
    os.close(ready)
    signal.sigwait({signal.SIGUSR1})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def _import_all(listed: Path) -> int:
    """Import the modules whose names the last command left.

    Returns how many threads that started.
    """
    for name in listed.read_text().split() if listed.exists() else ():
        if name.startswith("_"):
            continue  # a part in C of another module, which has to be imported first
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork then copies fewer pages
    return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208


def _main() -> None:
    sys.path.remove(str(Path(__file__).parent))  # its modules would hide others, such as a `queue`
    cold = Path("modules").absolute()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from conductor_cli.__main__ import main

    try:
        main()
    finally:
        if not cold.exists():
            cold.write_text("\n".join(sorted(set(sys.modules) - {"__main__"})))


if __name__ == "__main__":
    _main()
