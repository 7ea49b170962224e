"""Code that a model wrote is run under bubblewrap, or not at all. Linux only.

Inside there is no network, nothing of the disk but the system's programs and one Python
interpreter, all read-only, and a small directory in memory. `sandbox_runner` runs the code there.
Its limits are enforced by the kernel and from here, where the sandbox is ended as a whole. Time is
processor time, so that a busy machine makes no right program a wrong one; the bound on the clock is
much wider, for code that waits for something that never comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.command.process import ISOLATING_WORDS, SYSTEM_DIRECTORIES, why_not
from conductor_cli.programs.process_guard import LINUX, descendants

PYTHON_SETTING: Final = "eval.python"

SYSTEM_FILES: Final = (
    "alternatives",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
)
"""What of /etc is shown: what the loader and libraries read."""

SCRATCH: Final = "/tmp"  # noqa: S108 - that of the sandbox
"""The only directory that a program can write, and where it starts."""

ENVIRONMENT: Final = {
    "HOME": SCRATCH,
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "TMPDIR": SCRATCH,
    "TZ": "UTC",
}
"""All variables that a program sees."""

_SHARED: Final = "/dev/shm"  # noqa: S108 - that of the sandbox
_SHARED_MEMORY: Final = 16 << 20  # Bytes of it, which Python's own multiprocessing needs
_NO_NESTING: Final = ("--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534")
"""A user without rights, who cannot make a sandbox of his own to get more."""

RUNNER: Final = Path(__file__).with_name("sandbox_runner.py")
START_SECONDS: Final = 60.0  # In which a sandbox starts, by the clock
# Seconds between two looks at the processes, the memory and the time of a sandbox
POLL_SECONDS: Final = 0.05
OWN_PROCESSES: Final = 1  # Those of a sandbox without a program: the runner
MAX_MESSAGE: Final = 80 << 20  # Bytes of a message from the sandbox, beside an output


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a program may use.

    Bytes, of all its processes together unless something else is said.
    """

    memory: int = 2 << 30
    address_space: int = 4 << 30  # Of each process
    processes: int = 64  # Processes and threads
    output: int = 16 << 20  # Of each run
    scratch: int = 64 << 20


def wall_seconds(seconds: float) -> float:
    """Return the seconds by the clock for so many seconds of processor time.

    They are enough on a busy machine.
    """
    return 5 * seconds + 20


End = Literal["exit", "signal", "time", "wall", "output", "memory", "processes", "broken"]
"""Why a run ended: by itself, by a signal, or because of a limit. Broken: what ran the code was
ended from inside.
"""


class Stopped(Exception):
    """Nobody waits for the result any more."""


class SandboxError(Exception):
    """The sandbox could not be started, so the code was not run.

    This says nothing about the code.
    """


class SandboxEnded(Exception):
    """The sandbox had to be ended, or ended itself, before it replied."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end: End = end


# Which interpreter, and whether it works


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Bubblewrap's path and the Python that it runs.

    `version` is that Python's. `shown` are the directories of it that the system's do not have.
    """

    bwrap: str
    python: str
    version: str = ""
    shown: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What tells it from other Pythons, whose verdicts may be others."""
        return f"{self.python} ({self.version})"

    def words(self, limits: SandboxLimits) -> list[str]:
        """Return the command line that runs the runner in a sandbox."""
        # As the first process of its namespace, the runner cannot be ended or stopped from inside.
        words = [
            self.bwrap,
            *ISOLATING_WORDS,
            *_NO_NESTING,
            "--as-pid-1",
            "--hostname",
            "sandbox",
            "--clearenv",
        ]
        for name, value in ENVIRONMENT.items():
            words += ["--setenv", name, value]
        for directory in SYSTEM_DIRECTORIES:
            if os.path.islink(directory):  # noqa: PTH114 - a text
                words += ["--symlink", os.readlink(directory), directory]  # noqa: PTH115
            else:
                words += ["--ro-bind-try", directory, directory]
        for name in SYSTEM_FILES:
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        # In /proc, root could change the settings of the kernel, even without any capability.
        words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
        # What may be written is in memory and has a size.
        words += ["--size", str(_SHARED_MEMORY), "--tmpfs", _SHARED, "--remount-ro", "/dev"]
        words += ["--size", str(limits.scratch), "--tmpfs", SCRATCH]
        for path in self.shown:
            words += ["--ro-bind", path, path]
        return [
            *words,
            "--remount-ro",
            "/",
            "--chdir",
            SCRATCH,
            "--",
            self.python,
            "-s",
            "-B",
            "-c",
            RUNNER.read_text(encoding="utf-8"),
        ]


def require_sandbox(python: str = "", environ: Mapping[str, str] | None = None) -> Interpreter:
    """Return the interpreter of the sandbox.

    Raises `ConfigError` that says why there is none, and what to install.

    `python` is the path of an interpreter, by default the one that runs this, without its packages.
    """
    if not LINUX:
        message = (
            "the scorer program runs code of models in a sandbox, which needs bubblewrap and so "
            "Linux"
        )
        raise ConfigError(
            message, hint="run it on Linux or in WSL 2; or use Inspect: docs/harnesses.md"
        )
    if environ is None:
        environ = os.environ
    bwrap = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    install = "apt install bubblewrap, or dnf install bubblewrap; or use Inspect: docs/harnesses.md"
    if not bwrap:
        raise ConfigError(
            "the scorer program needs bubblewrap, which is not installed", hint=install
        )
    if problem := why_not(bwrap, *_NO_NESTING):
        hint = (
            "allow user namespaces for it (a container may forbid them); or use Inspect: "
            "docs/harnesses.md"
        )
        raise ConfigError(
            f"the scorer program needs bubblewrap, which does not work here: {problem}", hint=hint
        )
    return _interpreter(bwrap, python or sys.executable)


@cache
def _interpreter(bwrap: str, python: str) -> Interpreter:
    asks = (
        "import json, os, platform, sys; print(json.dumps([os.path.realpath(sys.executable), "
        "sys.prefix, sys.base_prefix, platform.python_version()]))"
    )
    # A plain name must stay one
    path = shutil.which(os.path.expanduser(python)) or python  # noqa: PTH111
    hint = f"conductor config set {PYTHON_SETTING} /path/to/python"
    try:
        answered = subprocess.run(  # noqa: S603 - the user names the interpreter
            [path, "-I", "-c", asks], capture_output=True, timeout=30, check=True
        )
        real, prefix, base, version = json.loads(answered.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = f"{PYTHON_SETTING}: {python} is no Python interpreter: {error!s:.200}"
        raise ConfigError(message, hint=hint) from None
    directories = [prefix, base]
    if path == sys.executable:
        # The environment of conductor itself is not shown: a program needs none of its packages.
        directories = [base]
        path = real
    shown = []
    for directory in dict.fromkeys(directories):
        if any(Path(directory).is_relative_to(system) for system in SYSTEM_DIRECTORIES):
            continue
        if Path.home().is_relative_to(directory):
            message = (
                f"{python} lies in {directory}, so a program in the sandbox would see the home "
                "directory"
            )
            raise ConfigError(message, hint=hint)
        shown.append(directory)
    return Interpreter(bwrap=bwrap, python=path, version=version, shown=tuple(shown))


class _Chosen:
    """The interpreter of this process.

    There is one setting for it, and threads of any origin score with it.
    """

    interpreter: Interpreter | None = None


def use_interpreter(interpreter: Interpreter) -> None:
    """Run code with this interpreter from here on, in all of this process."""
    _Chosen.interpreter = interpreter


def current_interpreter() -> Interpreter:
    """Return the interpreter that was chosen, else that of conductor itself.

    Raises `ConfigError` without a sandbox.
    """
    return _Chosen.interpreter or require_sandbox()


# Threads

_STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)
"""Set when nobody waits any more for what a thread runs."""

_THREADS: Final = ThreadPoolExecutor(max(1, os.cpu_count() or 1), "score")
"""As many sandboxes run at once as there are processors. What waits for its turn holds no thread of
others up.
"""

T = TypeVar("T")


async def run_off_loop(work: Callable[[], T]) -> T:
    """Return what `work` returns, made in a thread of its own.

    Where this is cancelled, what it runs is ended.
    """
    stop = threading.Event()
    context = copy_context()
    context.run(_STOPPED.set, stop)
    try:
        return await asyncio.get_running_loop().run_in_executor(_THREADS, context.run, work)
    except asyncio.CancelledError:
        stop.set()
        raise


def _check_wanted() -> None:
    event = _STOPPED.get()
    if event is not None and event.is_set():
        raise Stopped


# The sandbox


@dataclass(slots=True)
class _Usage:
    """What the processes of a sandbox use.

    Threads, bytes of memory, and seconds of processor time since its start.
    """

    threads: int = 0
    resident: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """A sandbox in which code runs, which stays open for several messages.

    Blocking; to be used in one thread.

    `job` is what `sandbox_runner` is to do. All that comes out of the sandbox may be forged by the
    code in it.
    """

    interpreter: Interpreter
    job: Mapping[str, Any]
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    # Seconds of processor time for all of it, beside those for each reply
    total: float | None = None
    _looked: float = field(init=False, default=0.0)
    _process: subprocess.Popen[bytes] = field(init=False)
    _errors: Any = field(init=False)
    _buffer: bytearray = field(init=False, default_factory=bytearray)

    def __enter__(self) -> Self:
        """Start the sandbox and send it its job; its first message is still to be received.

        Raises `SandboxError`.
        """
        _check_wanted()
        self._errors = tempfile.TemporaryFile()
        words = self.interpreter.words(self.limits)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the sandbox
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,
                env={"PATH": os.defpath},
            )
        except OSError as error:
            self._errors.close()
            raise SandboxError(f"{words[0]} cannot be started: {error.strerror}") from None
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: object) -> None:
        # A namespace ends with its first process, and all that is in it.
        for process in descendants(self._process.pid)[:1]:
            with suppress(ProcessLookupError):
                os.kill(process, 9)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def begin(self, seconds: float) -> bytes:
        """Send the job and return the first message.

        The code has so many seconds of processor time for it.

        Raises `SandboxError` where the sandbox does not start, `SandboxEnded` where its code ends
        it.
        """
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
        job = {**self.job, "limits": asdict(self.limits), "namespace": namespace}
        try:
            return self.exchange(
                json.dumps(job).encode(), seconds, START_SECONDS + wall_seconds(seconds)
            )
        except SandboxEnded as ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            self._errors.seek(0)
            problem = self._errors.read(4000).decode("utf-8", "replace").strip().rpartition("\n")[2]
            if problem:  # bubblewrap or the runner says it; the code has no way to this file
                raise SandboxError(f"the sandbox does not start: {problem[:300]}") from None
            raise ended from None

    def exchange(self, message: bytes, seconds: float, wall: float | None = None) -> bytes:
        """Send a message and return the next one.

        Raises `SandboxEnded` for what ends it, or `Stopped`.

        `seconds` is how much processor time the reply may take, `wall` how long by the clock.
        """
        rest = memoryview(b"%d\n%s" % (len(message), message))
        if wall is None:
            wall = wall_seconds(seconds)
        deadline = time.monotonic() + wall
        cpu_end = None
        while True:
            head, newline, _ = bytes(self._buffer[:20]).partition(b"\n")
            if newline or len(self._buffer) >= 20:
                if not head.isdigit() or int(head) > MAX_MESSAGE + self.limits.output:
                    raise SandboxEnded("broken")
                end = len(head) + 1 + int(head)
                if len(self._buffer) >= end:
                    reply = bytes(self._buffer[len(head) + 1 : end])
                    del self._buffer[:end]
                    return reply
            rest = self._transfer(rest)
            # Most replies come at once, and need no look at what the sandbox uses.
            if (now := time.monotonic()) - self._looked > POLL_SECONDS:
                self._looked = now
                used = self._check_limits()
                if cpu_end is None:
                    cpu_end = used + seconds
                if used > min(cpu_end, self.total or cpu_end):
                    raise SandboxEnded("time")
            if now > deadline:
                raise SandboxEnded("wall")

    def _transfer(self, rest: memoryview) -> memoryview:
        """Write and read what is possible; what is still to be written."""
        _check_wanted()
        stdin = self._process.stdin
        stdout = self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if rest:
                selector.register(stdin, selectors.EVENT_WRITE)
            ready = [key.fileobj for key, _ in selector.select(POLL_SECONDS)]
        with suppress(BlockingIOError, BrokenPipeError):
            if stdin in ready:
                rest = rest[os.write(stdin.fileno(), rest[: 1 << 20]) :]
        if stdout in ready:
            piece = os.read(stdout.fileno(), 1 << 20)
            self._buffer += piece
            if not piece:
                raise SandboxEnded(self._why_gone())
        return rest

    def _why_gone(self) -> End:
        """Return why there will be no message any more: the runner ends as the code did."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1)
            if code == 128 + 24:  # SIGXCPU
                return "time"
            if code > 128:
                return "signal"
            return "exit"
        return "broken"

    def _check_limits(self) -> float:
        """Return the seconds of processor time so far.

        Raises `SandboxEnded` for too many processes or bytes.
        """
        usage = _Usage()
        for process in descendants(self._process.pid):
            _add_usage(usage, process)
        if usage.threads > self.limits.processes + OWN_PROCESSES:
            raise SandboxEnded("processes")
        if usage.resident > self.limits.memory:
            raise SandboxEnded("memory")
        return usage.seconds


_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def _add_usage(usage: _Usage, process: int) -> None:
    """Add what a process uses, and what its ended children have used.

    Nothing where it has just ended.
    """
    # Pathlib is slower
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
        # The name in parentheses may hold spaces and parentheses itself. The first field after it
        # is the third.
        fields = file.read().rpartition(b")")[2].split()
        usage.seconds += sum(map(int, fields[11:15])) / _TICKS
        usage.threads += int(fields[17])
        usage.resident += int(fields[21]) * _PAGE


@contextmanager
def open_sandboxes(*sandboxes: Sandbox) -> Iterator[tuple[Sandbox, ...]]:
    """Start several sandboxes at once, which takes hardly longer than one."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(sandbox) for sandbox in sandboxes)


def run_once(
    interpreter: Interpreter, code: str, stdin: bytes, seconds: float, limits: SandboxLimits
) -> dict[str, Any]:
    """Run a program once and return how it ended: `end`, `code`, `complaint`, `output` (bytes)."""
    job = {"way": "run", "code": code}
    with Sandbox(interpreter=interpreter, job=job, limits=limits) as sandbox:
        try:
            sandbox.begin(seconds)
            return read_run(
                sandbox.exchange(json.dumps({"seconds": seconds}).encode() + b"\n" + stdin, seconds)
            )
        except SandboxEnded as ended:
            return {"end": ended.end, "code": 0, "complaint": "", "output": b""}


def read_run(message: bytes) -> dict[str, Any]:
    """Return the reply to one run. It comes from the runner, which the program cannot reach."""
    head, _, output = message.partition(b"\n")
    ending: dict[str, Any] = json.loads(head)
    return {**ending, "output": output}


@cache
def missing_modules(interpreter: Interpreter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of these modules that the interpreter of the sandbox does not have.

    Raises `SandboxError`.
    """
    code = (
        f"import importlib.util\nprint(*[x for x in {names!r} if importlib.util.find_spec(x) "
        "is "
        "None])"
    )
    ending = run_once(interpreter, code, b"", 30, SandboxLimits())
    if ending["end"] != "exit" or ending["code"]:
        raise SandboxError(
            f"{interpreter.python} could not be asked for its modules: "
            f"{ending['complaint'].strip()}"
        )
    return tuple(ending["output"].decode("utf-8", "replace").split())
