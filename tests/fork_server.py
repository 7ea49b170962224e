"""Starts commands for tests as forks of one process that has imported conductor already.

To start Python and to import what a command needs takes half a second of a processor, more than
most commands take for their work. A fork has both. Else it is as if started anew: it has its own
arguments, environment, directory, streams, session and umask, it is a child of the process that
runs the tests, and it runs `conductor_cli` as `python -m` does.

`can_start` says for which commands that holds. The others start anew, and so do all where
CI_REAL_STARTS is set, under a measurement of coverage, and on other systems than Linux.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import runpy
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

SOURCE: Final = str(Path(__file__).resolve().parents[1] / "src")

READ_BY_PYTHON: Final = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "OPENBLAS_", "OPENSSL_", "TZ")
"""How variables begin that Python and its libraries in C read once, when they start."""

MEASURED: Final = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""With these, each process that starts anew notes which of its lines are run."""

USUAL_MODULES: Final = (
    "conductor_cli.cli.command_tree",
    "conductor_cli.cli.ask",
    "conductor_cli.cli.batch",
    "conductor_cli.cli.chat_loop",
    "conductor_cli.cli.trace",
    "conductor_cli.state.run_summary",
    "rich.console",
)
"""With what they import, these are most of what commands need. A command imports the rest itself.

No module stands here that reads a variable which a command sets first, as prometheus_client does.
"""

HTTP_MODULES: Final = (
    "conductor_cli.server.api.apis",
    "conductor_cli.server.http.page",
    "conductor_cli.server.http.process",
    "conductor_cli.server.runs.run_registry",
    "starlette.applications",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.wsproto_impl",
)

BOUNDED_CHILD: Final = f"{SOURCE}/conductor_cli/programs/bounded_child.py"

MODULES_OF_WORDS: Final = {
    f"{SOURCE}/conductor_cli/models/llama/template_sandbox.py": ("jinja2.sandbox", "jinja2.ext"),
    f"{SOURCE}/conductor_cli/state/keyring_process.py": ("keyring", "secretstorage"),
    "acp": ("acp", "conductor_cli.server.acp.process"),
    "launch": HTTP_MODULES,
    "mcp": ("conductor_cli.server.mcp.handlers", "conductor_cli.server.mcp.process"),
    "serve": HTTP_MODULES,
}
"""What is imported for a command with one of these words, when the first such command comes. The
words of a bounded child begin with the path of its module.
"""

SIZE: Final = struct.Struct("!Q")
SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER


class Order(NamedTuple):
    """A command that shall be started."""

    words: list[str]
    environ: dict[str, str]
    directory: str
    umask: int
    has_terminal: bool
    """Its standard input becomes the terminal that controls it."""

    program: str = ""
    """The path of a program in Python that runs in the place of the command."""


# In the process that runs the tests

ENVIRON: Final = dict(os.environ)
"""The variables of the server: those of the tests before any of them has changed some."""


class ForkServer:
    """The process that forks, and the socket by which it is asked to."""

    def __init__(self, usual_modules: Sequence[str]) -> None:
        self._usual_modules = usual_modules
        self._link, end = socket.socketpair()
        with end:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(end.fileno())],
                env={**ENVIRON, "PYTHONPATH": SOURCE},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._imported: frozenset[str] = frozenset()
        self._read_names: frozenset[str] = frozenset()
        Finalize(None, self.close, exitpriority=0)

    def close(self) -> None:
        self._link.close()
        self._process.wait()

    def names_read_for(self, words: Sequence[str]) -> frozenset[str]:
        """The variables that were read while the modules for a command were imported."""
        modules = {*self._usual_modules}
        for word in words:
            modules.update(MODULES_OF_WORDS.get(word, ()))
        with self._lock:
            if not modules <= self._imported:
                self._read_names |= {*self._request(sorted(modules))}
                self._imported |= modules
        return self._read_names

    def start(self, order: Order, streams: Sequence[int]) -> int:
        """Start a command with these three streams; return its process id.

        Its parent ends before it, and for this moment this process adopts such orphans.
        """
        with self._lock:
            adopt_orphans(True)
            try:
                return int(self._request(order._asdict(), streams))
            finally:
                adopt_orphans(False)

    def _request(self, message: object, streams: Sequence[int] = ()) -> Any:
        send(self._link, message, streams)
        return receive(self._link)[0]


def adopt_orphans(yes: bool) -> None:
    from conductor_cli.programs.process_guard import prctl

    prctl(SUBREAPER, int(yes))


@cache
def server() -> ForkServer:
    """The server of this process, which starts when it is first needed."""
    return ForkServer(USUAL_MODULES)


@cache
def server_of_children() -> ForkServer:
    """The same for bounded children, which has imported little, so that it forks fast."""
    return ForkServer(())


def can_start(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a command with these variables is the same whether forked or started anew."""
    if not are_forks_wanted():
        return False
    defaults = {**ENVIRON, "PYTHONPATH": SOURCE}
    changed = {name for name in {*defaults, *environ} if defaults.get(name) != environ.get(name)}
    if any(name.startswith(READ_BY_PYTHON) for name in changed):
        return False
    return not changed & server().names_read_for(words)


def can_start_child(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this starts a bounded child whose modules the server can have imported already.

    It gets few variables, and none may differ that Python reads.
    """
    if command[:4] != [sys.executable, "-P", "-B", BOUNDED_CHILD] or not are_forks_wanted():
        return False
    changed = {name for name, text in environ.items() if ENVIRON.get(name) != text}
    if any(name.startswith(READ_BY_PYTHON) for name in changed):
        return False
    script = command[4]
    if script not in MODULES_OF_WORDS:
        return False
    return not changed & server_of_children().names_read_for([script])


def are_forks_wanted() -> bool:
    if sys.platform != "linux" or "CI_REAL_STARTS" in os.environ:
        return False
    return not any(name in os.environ for name in MEASURED)


def start(
    words: Sequence[str],
    environ: Mapping[str, str],
    streams: Sequence[int],
    directory: str | os.PathLike[str] | None = None,
    has_terminal: bool = False,
    program: str = "",
) -> int:
    """Start `conductor WORDS`, or `PROGRAM WORDS`, in a session of its own; return its process id."""
    directory = os.fspath(directory or Path.cwd())
    order = Order([*words], {**environ}, directory, own_umask(), has_terminal, program)
    chosen_server = server_of_children() if program == BOUNDED_CHILD else server()
    return chosen_server.start(order, streams)


def own_umask() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("Umask:")]
    return int(line.split()[1], 8)


class Command(subprocess.Popen[bytes]):
    """A command that ends with the block of `with` in which a test fails.

    `subprocess.Popen` would wait there for the end of a server that nobody stops.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)


class ForkedCommand(Command):
    """A command that was forked, as `subprocess.Popen` has any other."""

    program = ""

    def _execute_child(self, words: Any, *details: Any) -> None:
        self.pid = start_for(details, words, self.program)
        self._child_created = True
        self._close_pipe_fds(*details[9:15])  # type: ignore[attr-defined]


def start_for(details: Sequence[Any], words: Sequence[str], program: str) -> int:
    """Fork what `subprocess.Popen` would execute, as it says how; return its process id."""
    _, _, _, _, directory, environ = details[:6]
    stdin, _, _, stdout, _, stderr = details[9:15]
    streams = [
        standard if given == -1 else given for standard, given in enumerate((stdin, stdout, stderr))
    ]
    return start(words, environ, streams, directory, program=program)


class ForkedProgram(ForkedCommand):
    """A program in Python that uses conductor, forked likewise: a script, and its arguments."""

    def __init__(self, words: Sequence[str], **how: Any) -> None:
        self.program = words[0]
        super().__init__(words[1:], **how)


class ChildOrOther(subprocess.Popen[bytes]):
    """What a test starts: a bounded child as a fork, and anything else as it is."""

    def _execute_child(self, words: Any, *details: Any) -> None:
        if not isinstance(words, list) or not can_start_child(words, details[5] or {}):
            super()._execute_child(words, *details)  # type: ignore[misc]
            return
        self.pid = start_for(details, words[4:], BOUNDED_CHILD)
        self._child_created = True
        self._close_pipe_fds(*details[9:15])  # type: ignore[attr-defined]


# In the server


def serve(link: socket.socket) -> Order:
    """Import and fork as the messages say. Returns, in each fork, the order to carry out."""
    while True:
        try:
            message, streams = receive(link)
        except EOFError:
            os._exit(0)
        if not streams:
            send(link, sorted(import_modules(message)))
            continue
        order = Order(**message)
        process = fork()
        if process == 0:
            link.detach()
            take(order, streams)
            return order
        send(link, process)
        for stream in streams:
            os.close(stream)


def fork() -> int:
    """Return the process id of a fork whose parent has ended; 0 in the fork itself."""
    adopted, adopt = os.pipe()
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(adopt)
        process = os.fork()
        if process:
            os.write(write_end, SIZE.pack(process))
            os._exit(0)
        os.read(adopted, 1)
        return 0
    os.waitpid(between, 0)
    (process,) = SIZE.unpack(os.read(read_end, SIZE.size))
    for descriptor in (adopted, adopt, read_end, write_end):
        os.close(descriptor)
    return int(process)


def import_modules(modules: Sequence[str]) -> set[str]:
    """Import modules; return the names of the variables that were read by this."""
    # It asks where packages of the user lie, in HOME, and no command asks it for that
    importlib.import_module("zoneinfo")
    names = set[str]()
    environ: Any = type(os.environ)
    read = environ.__getitem__

    def note(self: Any, name: str) -> Any:
        names.add(name)
        return read(self, name)

    environ.__getitem__ = note
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        environ.__getitem__ = read
    assert threading.active_count() == 1, "a thread would be missing in each fork"
    gc.collect()
    gc.freeze()  # a collection would copy the pages of all that it looks at
    return names


def take(order: Order, streams: Sequence[int]) -> None:
    """Take what makes this process another than the server."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 65536)
    if order.has_terminal:
        import fcntl  # Windows has neither of these
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(order.umask)
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environ)
    sys.path[0] = order.directory
    if order.program:
        sys.path[0] = str(Path(order.program).parent)
    if order.program == BOUNDED_CHILD:
        del sys.path[0]  # `python -P`
    sys.argv = [order.program or "conductor", *order.words]
    if "--bg" in order.words:
        prepare_background()
    sys.stdin = sys.__stdin__ = opened(0, sys.stdin, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = opened(1, sys.stdout, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = opened(2, sys.stderr, "w")  # type: ignore[misc]
    with suppress(AttributeError):
        logging._startTime = time.time()  # type: ignore[attr-defined]


def prepare_background() -> None:
    """Fork the process that `ask --bg` will start; it waits until that happens.

    Returns in both: in the other one once it is started, and never where the command has ended.
    """
    here, there = socket.socketpair()
    process = os.fork()
    if process:
        there.close()
        BackgroundCommand.link = here
        BackgroundCommand.process = process
        subprocess.Popen = BackgroundCommand  # type: ignore[misc,assignment]
        return
    here.close()
    os.setsid()
    try:
        order, descriptors = receive(there)
    except EOFError:
        os._exit(0)
    there.close()
    os.environ.clear()
    os.environ.update(order["environ"])
    give_numbers(descriptors, order["numbers"])
    del sys.path[0]  # `python -P`


def give_numbers(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Have these descriptors under these numbers, some of which they may have themselves."""
    import fcntl  # Windows has it not

    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
        os.close(copy)


class BackgroundCommand(subprocess.Popen[bytes]):
    """What a command that was forked starts: itself in the background, or anything else."""

    link: socket.socket
    process: int

    def _execute_child(self, words: Any, *details: Any) -> None:
        _, _, _, passed, _, environ = details[:6]
        if not isinstance(words, list) or words[1:4] != ["-P", "-m", "conductor_cli"]:
            super()._execute_child(words, *details)  # type: ignore[misc]
            return
        pipes = details[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        streams = {0: stdin, 1: stdout, 2: stderr, **{number: number for number in passed}}
        given = {number: stream for number, stream in streams.items() if stream != -1}
        order = {"environ": {**environ}, "numbers": [*given]}
        send(self.link, order, [*given.values()])
        self.link.close()
        self.pid = self.process
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def opened(number: int, earlier: Any, mode: str) -> Any:
    """A standard stream as Python opens it."""
    stream: Any = open(  # noqa: SIM115
        number, mode, encoding=earlier.encoding, errors=earlier.errors, newline="\n", closefd=False
    )
    stream.buffer.raw.name = earlier.name
    stream.reconfigure(line_buffering=number == 2 or os.isatty(number))
    return stream


# Both


def send(link: socket.socket, message: object, streams: Sequence[int] = ()) -> None:
    text = json.dumps(message).encode()
    socket.send_fds(link, [SIZE.pack(len(text))], [*streams])
    link.sendall(text)


def receive(link: socket.socket) -> tuple[Any, list[int]]:
    """The next message, and its streams. Raises `EOFError` where the other side has ended."""
    head, streams, _, _ = socket.recv_fds(link, SIZE.size, 3)
    if not head:
        raise EOFError("the fork server has ended")
    (size,) = SIZE.unpack(head)
    text = b""
    while len(text) < size:
        text += link.recv(size - len(text))
    return json.loads(text), streams


if __name__ == "__main__":
    sys.path[0] = SOURCE
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    if order.program:
        runpy.run_path(order.program, run_name="__main__")
    else:
        runpy.run_module("conductor_cli", run_name="__main__", alter_sys=True)
