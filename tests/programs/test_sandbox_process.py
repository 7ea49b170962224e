"""Hostile programs in the sandbox: each stays within its limits, and nothing of it is left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conductor_cli.programs import sandbox
from conductor_cli.programs.sandbox import (
    NoSandbox,
    SandboxEnding,
    SandboxEngine,
    SandboxLimits,
    SandboxProcess,
    SandboxProgram,
    Stopped,
    find_engine,
    stoppable,
)

SMALL = SandboxLimits(
    memory=150 << 20, address_space=1 << 30, processes=12, output=100_000, scratch=4 << 20
)  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> SandboxEngine | None:
    """The sandbox of this system; None where it can make none, and then it must say why and what to do."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        return find_engine("bubblewrap", os.environ)
    except NoSandbox:
        with pytest.raises(NoSandbox, match=r"^code is run only in a sandbox, and there is none here: bubblewrap"):
            find_engine("bubblewrap", os.environ)
        return None


def play(
    engine: SandboxEngine, code: str, *, seconds: float = 3, stdin: bytes = b"", limits: SandboxLimits = SMALL
) -> SandboxEnding:
    with SandboxProcess(engine, SandboxProgram(code=code), limits) as confined:
        ending = confined.run(stdin, seconds)
        process = confined._process.pid
    assert not Path(f"/proc/{process}").exists()
    return ending


TRY = (
    "def attempt(do):\n    try:\n        print('YES', do())\n    except BaseException as error:\n        print('no')\n"
)
"""Prints YES if something is possible."""

FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
THREADS = "import threading, time\nfor _ in range(500):\n    threading.Thread(target=time.sleep, args=(9,)).start()\n"
MEMORY = "import os, time\nfor _ in range(5):\n    os.fork()\nkept = bytearray(60 << 20)\ntime.sleep(9)"
DISK = """
import os
written = 0
for place in ("/tmp/a", "/dev/shm/b", "/dev/c", "/d", "/usr/e", "/proc/f", "/var/tmp/g", "/run/h", "/root/i"):
    try:
        with open(place, "wb", 0) as file:
            while True:
                written += file.write(b"x" * 65536)
    except OSError:
        pass
print(written)
"""


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        pytest.param(FORKS, {"processes", "time"}, id="fork bomb"),
        pytest.param(THREADS, {"processes", "exit"}, id="thread bomb"),
        pytest.param("x = []\nwhile True:\n    x.append(bytearray(1 << 20))", {"memory", "exit"}, id="memory"),
        pytest.param(MEMORY, {"memory", "processes"}, id="memory of many processes"),
        pytest.param("import time\ntime.sleep(60)", {"time"}, id="sleep"),
        pytest.param("while True: pass", {"time"}, id="endless loop"),
        pytest.param("while True: print('x' * 9999)", {"output"}, id="flood"),
        pytest.param("import os\nos.kill(os.getpid(), 11)", {"signal"}, id="crash"),
        pytest.param("import signal\nsignal.alarm(0)\nwhile 1:\n  try:\n    while 1: pass\n  except: pass",
                     {"time"}, id="catches everything"),
    ],
)  # fmt: skip
def test_a_hostile_program_is_ended_within_its_limits(code: str, ends: set[str], engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    ending = play(engine, code, seconds=0.3 if "time" in ends else 4)
    assert ending.end in ends
    assert not ending.fine
    assert len(ending.output) <= SMALL.output + 1


def test_a_program_that_fills_the_disk_fills_only_its_scratch(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    with SandboxProcess(engine, SandboxProgram(code=DISK), SMALL) as confined:
        first, second = confined.run(b"", 5), confined.run(b"x" * 100_000, 5)
    assert 0 < int(first.output) <= SMALL.scratch + (16 << 20)
    assert second.fine


def test_a_program_reads_nothing_of_the_user(
    engine: SandboxEngine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine is None:
        return
    (tmp_path / "key").write_text("sk-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    places = [str(tmp_path / "key"), str(Path.home() / ".bashrc"), "/etc/shadow", "/etc/hosts", "/var/log", __file__]
    code = TRY + (
        f"import os\nread = lambda place: os.listdir(place) if place == '/var/log' else open(place).read()\n"
        f"for place in {places!r}:\n    attempt(lambda: read(place))\n"
        f"attempt(lambda: [x for x in os.listdir({str(Path.home())!r}) if x != '.pyenv'][0])\nprint(sorted(os.environ))"
    )
    said = play(engine, code).output.decode()
    assert "YES" not in said
    assert "secret" not in said
    assert "OPENAI_API_KEY" not in said


def test_a_program_reaches_no_network(engine: SandboxEngine | None, tmp_path: Path) -> None:
    if engine is None:
        return
    abstract = f"\0conductor-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(abstract)
        unix.listen()
        code = TRY + (
            "import socket\ndef to(family, address):\n    s = socket.socket(family)\n    s.settimeout(1)\n"
            "    s.connect(address)\n"
            f"attempt(lambda: to(socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})))\n"
            f"attempt(lambda: to(socket.AF_UNIX, {abstract!r}))\n"
            "attempt(lambda: to(socket.AF_INET, ('1.1.1.1', 53)))\n"
            "attempt(lambda: socket.getaddrinfo('example.org', 80))\n"
        )
        assert play(engine, code).output.decode().split() == ["no"] * 4


WAYS_OUT = """
import ctypes, os
libc, parent = ctypes.CDLL(None, use_errno=True), os.getppid()
def call(function, *words):
    if function(*words) < 0: raise OSError
attempt(lambda: os.listdir("/proc/1/root"))
attempt(lambda: open("/proc/1/environ", "rb").read()[0])
attempt(lambda: os.readlink(f"/proc/{parent}/fd/0"))
attempt(lambda: open(f"/proc/{parent}/mem", "r+b"))
attempt(lambda: open("/proc/1/maps").read(1))
attempt(lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))  # only opened: it would be the real one
attempt(lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY))
attempt(lambda: call(libc.ptrace, 16, parent, 0, 0))  # PTRACE_ATTACH
attempt(lambda: call(libc.unshare, 0x10000000))  # CLONE_NEWUSER
attempt(lambda: call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None))
attempt(lambda: call(libc.setuid, 0))
attempt(lambda: os.mknod("/tmp/disk", 0o060600, os.makedev(8, 0)))
attempt(lambda: os.nice(-5))
for fd in range(4, 300):
    try: os.write(fd, b"{}"); print("YES")
    except OSError: pass
print(len([x for x in os.listdir("/proc") if x.isdecimal()]) < 6)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))])
"""


def test_proc_and_rights_offer_no_way_out(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    lines = play(engine, TRY + WAYS_OUT).output.decode().splitlines()
    assert lines == ["no"] * 13 + ["True", "['0000000000000000', '1']"]


def test_children_that_are_left_behind_end_with_their_run(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    code = (
        "import glob, os, time\nstates = [open(path).read().split()[2] for path in glob.glob('/proc/[0-9]*/stat')]\n"
        "print(len([x for x in states if x != 'Z']), flush=True)\n"
        "if not os.fork():\n    os.setsid()\n    if not os.fork():\n"
        "        os.closerange(0, 9)\n        time.sleep(60)\n"
        "    os._exit(0)\nos.wait()\n"
    )
    with SandboxProcess(engine, SandboxProgram(code=code), SMALL) as confined:
        first, second = confined.run(b"", 3), confined.run(b"", 3)
    assert (first.fine, second.fine, first.output) == (True, True, second.output)


def test_a_program_is_run_like_any_other(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    code = (
        "import atexit, sys, threading, time\natexit.register(lambda: print('end'))\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\n"
        "print(input(), sys.stdin.read().split(), open('/dev/null').read() == '', __name__)\n"
        "print('why', file=sys.stderr)\nsys.exit(3)\n"
    )
    ending = play(engine, code, stdin="ä b\n1 2\n".encode())
    assert ending.output.decode().splitlines() == ["ä b ['1', '2'] True __main__", "thread", "end"]
    assert (ending.end, ending.code, ending.complaint.strip(), ending.fine) == ("exit", 3, "why", False)


def test_what_comes_after_a_program_reports_apart_from_its_output(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    program = SandboxProgram(
        before="import math", code="def f(): return math.floor(2.5)\nprint('noise')",
        after="import os\nos.write(3, b'%d' % f())", name="solution",
    )  # fmt: skip
    with SandboxProcess(engine, program) as confined:
        ending = confined.run(b"", 3)
    assert (ending.output, ending.report) == (b"noise\n", b"2")


@pytest.mark.parametrize("number", ["9", "signal.SIGSTOP"])
def test_a_program_cannot_end_or_stop_its_runner(number: str, engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    code = f"import os, signal\nos.kill(os.getppid(), {number})\nprint('on')"
    with SandboxProcess(engine, SandboxProgram(code=code), SMALL) as confined:
        assert [confined.run(b"", 3).output for _ in range(2)] == [b"on\n"] * 2


def test_after_a_sandbox_was_ended_each_run_fails(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    with SandboxProcess(engine, SandboxProgram(code=f"if input() == 'bomb':\n  exec({FORKS!r})\n"), SMALL) as confined:
        ends = [confined.run(word, 3).end for word in (b"go\n", b"bomb\n", b"go\n")]
    assert ends[0] == "exit"
    assert ends[1] == ends[2] != "exit"


def test_a_sandbox_ends_with_whoever_started_it(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    code = (
        "import os\nfrom conductor_cli.programs.sandbox import *\nfrom conductor_cli.programs.sandbox import *\n"
        "with SandboxProcess(find_engine('', os.environ), SandboxProgram(code='while True: pass')) as confined:\n"
        "    print(*descendants(os.getpid()), flush=True)\n    confined.run(b'', 60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout is not None
        processes = starter.stdout.readline().split()
        starter.kill()
    assert processes
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{process.decode()}").exists() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [process for process in processes if Path(f"/proc/{process.decode()}").exists()]


def test_a_run_that_nobody_waits_for_is_stopped(engine: SandboxEngine | None) -> None:
    if engine is None:
        return
    with stoppable() as stop:
        threading.Timer(0.3, stop.set).start()
        with pytest.raises(Stopped):
            play(engine, "while True: pass", seconds=600)


def test_the_runner_refuses_to_work_outside_a_sandbox() -> None:
    if not Path("/proc/self/ns/pid").exists():
        return
    job = b'{"namespace": "%s"}' % str(Path("/proc/self/ns/pid").readlink()).encode()
    done = subprocess.run(
        [sys.executable, "-I", str(sandbox.RUNNER)],
        input=b"%d\n%s" % (len(job), job),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (1, b"not in a sandbox")
