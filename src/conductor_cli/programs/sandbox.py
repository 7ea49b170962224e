"""Code that a model wrote is run in a sandbox, or not at all: in bubblewrap, else in Docker or Podman.

Inside there is no network, nothing of the disk but the system's programs, all read-only, and a small scratch in memory.
`python_runner` runs the program there. Its limits are enforced three times: by the kernel, by the runner, and from
outside by `SandboxProcess`, which ends the sandbox as a whole.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from sys import executable
from typing import Any, Final, Literal, Self

from conductor_cli.programs.process_guard import LINUX, descendants

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
"""Where programs and libraries are. Some are links into others."""

ISOLATED: Final = ("--die-with-parent", "--new-session", "--unshare-all", "--cap-drop", "ALL")
"""Namespaces of its own, no network, no terminal, no rights, and an end together with whoever started it."""


def system_mounts(files: Sequence[str]) -> Iterator[str]:
    """Show the system's programs and libraries, and these files of /etc, all read-only."""
    for place in SYSTEM:
        if os.path.islink(place):  # noqa: PTH114 - a text
            yield from ("--symlink", os.readlink(place), place)  # noqa: PTH115 - the same
        else:
            yield from ("--ro-bind-try", place, place)
    for name in files:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


@cache
def why_not(bwrap: str, *words: str, before: tuple[str, ...] = ()) -> str:
    """Return why bubblewrap cannot make a sandbox with these options, empty where it can. A container may forbid it.

    `before` are the words of a program that starts it.
    """
    shown = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program
            [*before, bwrap, *ISOLATED, *words, *shown, "true"],
            capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error!s:.200}"
    said = tried.stderr.decode("utf-8", "replace").strip()
    return "" if not tried.returncode else said[:200] or f"exit code {tried.returncode}"


KINDS: Final = ("bubblewrap", "docker", "podman")
IMAGE: Final = "python:3.12-slim"  # What a container runs unless an image is named. It is never fetched by itself
HINT: Final = "install bubblewrap (apt install bubblewrap, dnf install bubblewrap), or start Docker or Podman"

SYSTEM_FILES: Final = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types")
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
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TMPDIR": SCRATCH,
    "TZ": "UTC",
}
"""All variables that a program sees."""

_SHARED: Final = "/dev/shm"  # noqa: S108 - that of the sandbox
_SHARED_MEMORY: Final = 16 << 20  # Bytes of it, which Python's own multiprocessing needs
_NO_NESTING: Final = ("--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534")
"""A user without rights, who cannot make a sandbox of his own to get more."""


class NoSandbox(Exception):
    """There is none here, or not the one that was named. `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a program may use: bytes, of all its processes together unless something else is said."""

    memory: int = 2 << 30
    address_space: int = 4 << 30
    """Of each process."""
    processes: int = 64
    """Processes and threads."""
    output: int = 16 << 20
    """Of each run."""
    scratch: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEngine:
    """One way to make a sandbox.

    `program` is its path, `python` an interpreter for bubblewrap, else an image. `shown` are the directories of this
    interpreter that are not the system's.
    """

    kind: Literal["bubblewrap", "docker", "podman"]
    program: str
    python: str
    shown: tuple[str, ...] = ()

    @property
    def local(self) -> bool:
        """Whether the processes of the sandbox are children of whoever starts it."""
        return self.kind == "bubblewrap"

    def words(self, name: str, limits: SandboxLimits, script: str) -> list[str]:
        """Return the command line that runs a Python script in a sandbox with this name."""
        around = self._bubblewrap(limits) if self.local else self._container(name, limits)
        return [self.program, *around, self.python if self.local else "python3", "-I", "-c", script]

    @property
    def environ(self) -> dict[str, str] | None:
        """The variables of bubblewrap itself, which what is inside might read; None for all of this process."""
        return {"PATH": os.defpath} if self.local else None

    def end(self, name: str) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - Docker or Podman
                [self.program, "rm", "--force", name], capture_output=True, timeout=20, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _bubblewrap(self, limits: SandboxLimits) -> Iterator[str]:
        # As the first process of its namespace, the runner cannot be ended or stopped from inside.
        yield from (*ISOLATED, *_NO_NESTING, "--as-pid-1", "--hostname", "sandbox", "--clearenv")
        for name, value in ENVIRONMENT.items():
            yield from ("--setenv", name, value)
        yield from system_mounts(SYSTEM_FILES)
        for path in self.shown:
            yield from ("--ro-bind", path, path)
        # What is writable in /dev gets a size, since it could else take half of the memory.
        # In /proc, root could change the settings of the kernel, even without any capability.
        yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
        # What may be written is in memory and has a size.
        yield from ("--size", str(_SHARED_MEMORY), "--tmpfs", _SHARED, "--remount-ro", "/dev")
        yield from ("--size", str(limits.scratch), "--tmpfs", SCRATCH, "--remount-ro", "/", "--chdir", SCRATCH, "--")

    def _container(self, name: str, limits: SandboxLimits) -> Iterator[str]:
        yield from ("run", "--rm", "--interactive", "--name", name, "--pull", "never", "--network", "none")
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534")
        yield from ("--pids-limit", str(limits.processes), "--memory", str(limits.memory))
        yield from ("--memory-swap", str(limits.memory), "--cpus", "1", "--shm-size", str(_SHARED_MEMORY))
        yield from ("--tmpfs", f"{SCRATCH}:rw,nosuid,nodev,size={limits.scratch}", "--workdir", SCRATCH)
        for variable, value in ENVIRONMENT.items():
            yield from ("--env", f"{variable}={value}")
        yield from ("--entrypoint", "", self.python)


def find_engine(choice: str, environ: Mapping[str, str]) -> SandboxEngine:
    """Return the engine that `choice` names, or the first that works here if it is empty.

    `choice` is `bubblewrap`, `docker` or `podman`, with an interpreter or an image after a colon. Raises `NoSandbox`
    that says why none works.
    """
    kind, _, python = choice.partition(":")
    if kind and kind not in KINDS:
        raise NoSandbox(f"unknown sandbox {kind!r:.60}", hint=f"known: {', '.join(KINDS)}")
    why = []
    for each in (kind,) if kind else KINDS:
        program = shutil.which("bwrap" if each == "bubblewrap" else each, path=environ.get("PATH", os.defpath))
        if not program:
            why.append(f"{each} is not installed")
        elif each == "bubblewrap":
            if not (problem := why_not(program, *_NO_NESTING)):
                return _with_python(program, python or executable)
            why.append(f"bubblewrap does not work here: {problem}")
        elif not (problem := _why_no_image(program, python or IMAGE)):
            return SandboxEngine(
                kind="docker" if each == "docker" else "podman", program=program, python=python or IMAGE
            )
        else:
            why.append(f"{each}: {problem}")
    raise NoSandbox(f"code is run only in a sandbox, and there is none here: {'; '.join(why)}", hint=HINT)


@cache
def _with_python(bwrap: str, python: str) -> SandboxEngine:
    asks = "import json, os, sys; print(json.dumps([os.path.realpath(sys.executable), sys.prefix, sys.base_prefix]))"
    path = shutil.which(python) or python
    try:
        said = subprocess.run([path, "-I", "-c", asks], capture_output=True, timeout=30, check=True)  # noqa: S603
        real, prefix, base = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NoSandbox(f"{python} is no Python interpreter: {error!s:.200}", hint="name its path") from None
    # The virtual environment of conductor itself is not shown: a program needs none of its packages.
    own = path == executable
    places = dict.fromkeys([base] if own else [prefix, base])
    shown = tuple(place for place in places if not any(Path(place).is_relative_to(each) for each in SYSTEM))
    for place in shown:
        if Path.home().is_relative_to(place):
            raise NoSandbox(f"{python} would show the home directory in the sandbox", hint="use another interpreter")
    return SandboxEngine(kind="bubblewrap", program=bwrap, python=real if own else path, shown=shown)


@cache
def _why_no_image(program: str, image: str) -> str:
    """Return why this image cannot be run here, empty where it can."""
    for words in (("version",), ("image", "inspect", image)):
        try:
            tried = subprocess.run([program, *words], capture_output=True, timeout=20, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{error!s:.200}"
        if tried.returncode:
            said = tried.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            missing = f"the image {image} is not here ({Path(program).name} pull {image})"
            return missing if words[0] == "image" else said[:200] or "it does not answer"
    return ""


RUNNER: Final = Path(__file__).with_name("python_runner.py")

START: Final = 60.0  # Seconds in which a sandbox starts and prepares; a container's image may have to be read from disk
SLACK: Final = 3.0  # Seconds in which the runner answers after the time of a run is over
POLL: Final = 0.1  # Seconds between two looks at the processes and the memory of a sandbox
OWN_PROCESSES: Final = 1  # Those of a sandbox without a program, bubblewrap itself not counted: the runner
MAX_HEAD: Final = 20_000  # Bytes of the first line of a reply

End = Literal["exit", "signal", "time", "output", "memory", "processes", "broken"]
"""Why a run ended: by itself, by a signal, or because of a limit. Broken: the sandbox itself was ended from inside."""

STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)
"""Set when nobody waits any more for what a thread runs."""

_TURNS: Final = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))
"""Sandboxes at the same time. With more, a program would run out of time because of the others."""


class Stopped(Exception):
    """Nobody waits for the result any more."""


class SandboxError(Exception):
    """The sandbox could not be started; the program was not run. It says nothing about the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProgram:
    """Python code and its surroundings, all run in the same module, whose `__name__` is `name`.

    `before` is trusted and is run once for all runs, `after` is run after the code in each of them. It may write what
    it finds out to descriptor 3.
    """

    code: str
    before: str = ""
    after: str = ""
    name: str = "__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEnding:
    """What became of one run. `code` is the exit code or the number of the signal."""

    end: End
    code: int = 0
    output: bytes = b""
    report: bytes = b""
    complaint: str = ""

    @property
    def fine(self) -> bool:
        return self.end == "exit" and self.code == 0


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Until its end, setting the event stops what is run here, and in threads that are started from here."""
    event = threading.Event()
    token = STOPPED.set(event)
    try:
        yield event
    finally:
        STOPPED.reset(token)


class SandboxProcess:
    """A program in a sandbox that stays open for several runs. Blocking; to be used in one thread."""

    def __init__(self, engine: SandboxEngine, program: SandboxProgram, limits: SandboxLimits | None = None) -> None:
        self._engine = engine
        self._program = program
        self._limits = limits or SandboxLimits()
        self._ended: End | None = None
        self._buffer = bytearray()
        self._name = f"conductor-{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        """Start the sandbox once there is a turn. Raises `SandboxError`, or `Stopped`."""
        while not _TURNS.acquire(timeout=POLL):
            _check_wanted()
        try:
            self._start()
        except BaseException:
            _TURNS.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close()
        finally:
            _TURNS.release()

    def run(self, stdin: bytes, seconds: float) -> SandboxEnding:
        """Run the program with this standard input for at most so many seconds. Raises `Stopped`.

        Once a sandbox was ended, each further run ends in the same way.
        """
        if self._ended is None:
            body = json.dumps({"seconds": seconds}).encode() + b"\n" + stdin
            head = self._exchange(b"%d\n%s" % (len(body), body), seconds + SLACK)
            if head is not None:
                output, report = self._body(int(head["output"])), self._body(int(head["report"]))
                if self._ended is None:
                    end: End = head["end"]
                    return SandboxEnding(
                        end=end, code=int(head["code"]), output=output, report=report, complaint=str(head["complaint"])
                    )
        return SandboxEnding(end=self._ended or "broken")

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        words = self._engine.words(self._name, self._limits, RUNNER.read_text(encoding="utf-8"))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the sandbox
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
                env=self._engine.environ, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise SandboxError(f"{words[0]} cannot be started: {error.strerror}") from None
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
        limits = {**asdict(self._limits), "files": self._limits.scratch}
        namespace = ""  # the runner works only in another one
        with suppress(OSError):
            namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
        job = json.dumps({"limits": limits, "namespace": namespace, **asdict(self._program)}).encode()
        ready, why = None, ""
        try:
            ready = self._exchange(b"%d\n%s" % (len(job), job), START)
        finally:
            if not ready:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
                self._errors.seek(0)
                why = self._errors.read(4000).decode("utf-8", "replace").strip().rpartition("\n")[2]
                self._close()
        if not ready:
            raise SandboxError(f"the sandbox does not start: {why[:300] or self._ended or 'no reason given'}")

    def _close(self) -> None:
        # End everything in the sandbox: a namespace ends with its first process.
        if LINUX and self._engine.local:
            for process in descendants(self._process.pid)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(process, 9)
        else:
            self._engine.end(self._name)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr] # both are pipes

    def _exchange(self, message: bytes, seconds: float) -> dict[str, Any] | None:
        """Send a message and read the first line of the reply; None where there is none."""
        rest, deadline = memoryview(message), time.monotonic() + seconds
        while b"\n" not in self._buffer:
            rest = self._wait(rest, deadline, MAX_HEAD)
            if self._ended is not None:
                return None
        line, _, after = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(after)
        try:
            head = json.loads(line)
            return head if isinstance(head, dict) else None
        except ValueError:
            self._ended = "broken"
            return None

    def _body(self, count: int) -> bytes:
        deadline = time.monotonic() + SLACK + count / 1e6
        if not 0 <= count <= self._limits.output + 1:
            self._ended = "broken"
        while len(self._buffer) < count and self._ended is None:
            self._wait(memoryview(b""), deadline, count)
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def _wait(self, rest: memoryview, deadline: float, most: int) -> memoryview:
        """Write and read what is possible, and look after the limits; what is still to be written."""
        _check_wanted()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if rest:
                selector.register(stdin, selectors.EVENT_WRITE)
            ready = [key.fileobj for key, _ in selector.select(POLL)]
        with suppress(BlockingIOError, BrokenPipeError):
            if stdin in ready:
                rest = rest[os.write(stdin.fileno(), rest[: 1 << 20]) :]
        if stdout in ready:
            piece = os.read(stdout.fileno(), 1 << 20)
            self._buffer += piece
            if not piece or (len(self._buffer) > most and b"\n" not in self._buffer[:most]):
                self._ended = "broken"
        if not ready and LINUX and self._engine.local:  # a container counts by itself
            # The limit that the processes of the sandbox exceed together.
            processes = descendants(self._process.pid)
            threads, resident = zip((0, 0), *map(_threads_and_bytes, processes), strict=True)
            if sum(threads) > self._limits.processes + OWN_PROCESSES:
                self._ended = self._ended or "processes"
            elif sum(resident) > self._limits.memory:
                self._ended = self._ended or "memory"
        if time.monotonic() > deadline:
            self._ended = self._ended or "time"
        return rest


def _check_wanted() -> None:
    event = STOPPED.get()
    if event is not None and event.is_set():
        raise Stopped


def _threads_and_bytes(process: int) -> tuple[int, int]:
    """Return how many threads a process has and how many bytes of memory it uses, 0 where it has just ended."""
    threads = resident = 0
    with suppress(OSError, ValueError, IndexError):
        threads = len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208 - pathlib is slower
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123 - the same
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return threads, resident
