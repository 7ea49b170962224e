"""What other users could read or change, directories that cannot be written, and a keyring that is locked.

What holds: every file and directory that a command makes is its owner's alone, no argument of a process has a key, no
process but the command itself has one in its environment, and a crash leaves no copy of the memory. There is no
traceback, a failure is told in three lines or fewer, and exit code 0 comes only where what was promised is done. Root
may write everywhere, so here it gives up the capabilities that allow that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from scripts.faults.desk import CANARY, Desk, desk, ending_problem
from scripts.faults.prefork import Ended
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import TWO, Done, Stage, says, stalls
from tests.keys.bus import bus, gnome_keyring, lock
from tests.servers import SeenStep, Wire
from tests.tiny_gguf import make

UMASKS: Final = (0o000, 0o002, 0o007, 0o022, 0o077)
PUBLIC: Final = frozenset({"cards.json", "manifest.toml"})
"""Figures of workers and manifests of models: no texts of the user."""

STORED: Final = "sk-stored-0c71d94be2f84a35"  # a key that is given to `keys set`
TOOLS: Final = Path(__file__).resolve().parents[2] / "tests/tools/raw_server.py"


class Scene(NamedTuple):
    """One command, with the commands before it and what it reads."""

    words: tuple[str, ...]
    ready: tuple[tuple[str, ...], ...] = ()
    given: str = ""


ASKED: Final = (("ask", "hi"),)
SCENES: Final = {
    "ask": Scene(words=("ask", "hi", "-f", "notes.txt")),
    "resume": Scene(words=("ask", "--resume", "last"), ready=ASKED),
    "plan": Scene(words=("plan", "hi")),
    "list": Scene(words=("trace", "list"), ready=ASKED),
    "rate": Scene(words=("trace", "rate", "last", "good"), ready=ASKED),
    "eval": Scene(words=("eval", "cases.jsonl", "--yes")),
    "calibrate": Scene(words=("workers", "calibrate", "cases.jsonl", "--yes")),
    "config": Scene(words=("config", "set", "limits.calls", "9")),
    "workers": Scene(words=("workers", "add", "up", "--kind", "command", "--", "true")),
    "keys": Scene(words=("keys", "set", "openai", "--insecure-storage"), given=STORED),
    "serve keys": Scene(words=("serve", "keys", "add", "laptop")),
    "import": Scene(words=("model", "import", "tiny.gguf", "--name", "tiny")),
    "local model": Scene(words=("plan", "hi", "--conductor", "tiny.gguf")),
}


def run(tries: Tries) -> None:
    """Every command under every umask; then processes and crashes."""
    with workplace() as at:
        for umask in UMASKS:
            for name in SCENES:
                tries.attempt(f"umask {umask:03o}, {name}", partial(under_umask, at, umask, SCENES[name]))
        for name in CHILDREN:
            tries.attempt(f"processes, {name}", partial(processes_of, at, name))
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGBUS):
            tries.attempt(f"crash, {number.name}", partial(crash, at, number))


@contextmanager
def workplace() -> Iterator[Desk]:
    """A desk whose directory has files to work with."""
    with desk() as at, tempfile.TemporaryDirectory() as name, chdir(name):
        Path("notes.txt").write_text("private notes")
        Path("cases.jsonl").write_text('{"id": "a", "question": "1 + 1?", "answer": "2"}\n')
        make(Path("tiny.gguf"))
        yield at


def fresh(at: Desk, more: str = "") -> Stage:
    """A home with settings alone, which nobody else can read."""
    shutil.rmtree(at.home, ignore_errors=True)
    at.home.mkdir(mode=0o700)
    at.configure("[limits]\nattempts = 1\ncalls_day = 90\n" + more)
    at.stage.models = {}
    for path in (at.stage.config, *at.stage.config.parents):
        if path.is_relative_to(at.home):
            path.chmod(0o600 if path.is_file() else 0o700)
    return at.stage


def under_umask(at: Desk, umask: int, scene: Scene) -> Outcome:
    """One command under one umask, in a home where it makes everything itself."""
    stage = fresh(at)
    under = ("sh", "-c", f'umask {umask:03o}; exec "$@"', "sh")
    before = set(Path.cwd().rglob("*"))
    for words in scene.ready:
        stage.run(*words, under=under)
    done = stage.run(*scene.words, under=under, given=scene.given)
    found = [path for path in at.home.rglob("*") if path.name not in PUBLIC and path.suffix != ".gguf"]
    # Somebody else could read or change these, were it not for the directories above.
    opened = [path for path in found if not path.is_symlink() and path.stat().st_mode & 0o077]
    wrong = [f"{path.lstat().st_mode & 0o777:03o} {path.relative_to(at.home)}" for path in opened]
    wrong += [f"left in the working directory: {path.name}" for path in set(Path.cwd().rglob("*")) - before]
    if done.code:
        wrong.append(f"exit code {done.code}: {done.err[-200:]}")
    return Outcome(problem="; ".join(wrong))


PROGRAM: Final = '[workers.up]\nkind = "command"\ncommand = ["sh", "-c", "cat >/dev/null; sleep 0.5; env"]\n'
SERVER: Final = f'[tools.t]\ncommand = ["{sys.executable}", "{TOOLS}"]\nabout = "do sums"\nenv = ["DIARY"]\n'
CHILDREN: Final = {
    "a program": (PROGRAM, "up | - | Answer.", ("ask", "hi")),
    "tools": (SERVER, "alpha | - | Answer.", ("ask", "hi", "--tools", "t")),
    "a PDF": ("", "alpha | - | Answer.", ("ask", "hi", "-f", "text.pdf")),
    "a chat template": ("", "", ("plan", "hi", "--conductor", "tiny.gguf")),
    "the keyring": ("", "", ("keys", "set", "openai")),
}
"""Commands that start other processes: settings, plan, words."""


def processes_of(at: Desk, name: str) -> Outcome:
    """Look at all processes that a command starts for as long as it runs, and at what it prints."""
    settings, plan, words = CHILDREN[name]
    stage = fresh(at, settings)
    stage.plan = plan
    Path("text.pdf").write_bytes(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n")
    # A keyring's own process reads the environment for its settings, and is given keys anyway.
    may_have = b"keys/keyring_process.py"
    more = {"OPENAI_API_KEY": STORED, "DIARY": str(at.home / "diary")}
    more |= {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"} if name == "the keyring" else {}
    seen, wrong = set[int](), set[str]()
    with stage.start(*words, env=more, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        if words[0] == "keys":  # any other command would take it for a part of the question
            process.stdin.write(STORED.encode())
        process.stdin.close()
        while process.poll() is None:
            for number, arguments, environ in look(process.pid):
                seen.add(number)
                keys = (CANARY.encode(), STORED.encode())
                if any(key in arguments for key in keys):
                    wrong.add(f"a key in the arguments: {arguments!r}")
                if number != process.pid and may_have not in arguments and any(key in environ for key in keys):
                    wrong.add(f"a key in the environment of {arguments!r}")
        out = (process.stdout.read() if process.stdout else b"") + (process.stderr.read() if process.stderr else b"")
    if CANARY.encode() in out or STORED.encode() in out:
        wrong.add("a key was printed")
    return Outcome(problem="; ".join(sorted(wrong)), hit=len(seen) > 1)


def look(root: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, arguments and environment of a process and of all that descend from it."""
    waiting = [root]
    while waiting:
        number = waiting.pop()
        with suppress(OSError):  # it has ended meanwhile
            place = Path(f"/proc/{number}")
            for task in (place / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
            arguments, environ = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
            # Between fork and exec a child still has the environment of its parent.
            if number == root or (place / "cmdline").read_bytes() != Path(f"/proc/{root}/cmdline").read_bytes():
                yield number, arguments, environ


UNLIMITED: Final = ("bash", "-c", 'ulimit -c unlimited 2>/dev/null; exec "$@"', "bash")  # for core dumps


def crash(at: Desk, number: signal.Signals) -> Outcome:
    """A command ends by a signal that writes a core dump, in the middle of a call, under no limit on its size."""
    stage = fresh(at)
    stage.models = {"alpha": stalls("so")}
    stage.plan = "alpha | - | Answer."
    # A shell starts background jobs with SIGQUIT ignored, and commands inherit that.
    signal.signal(number, signal.SIG_DFL)
    before = set(Path.cwd().iterdir())
    asked = len(stage.asked("alpha"))
    with stage.start("ask", "hi", under=UNLIMITED) as process:
        while len(stage.asked("alpha")) == asked and process.poll() is None:
            time.sleep(0.01)
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        limit = next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4]
        process.send_signal(number)
        process.wait(30)
    left = [path for path in Path.cwd().iterdir() if path not in before]
    keys = [path.name for path in left if CANARY.encode() in path.read_bytes()]
    for path in left:
        path.unlink()
    problem = f"the limit is {limit}; left: {[path.name for path in left]}; with a key: {keys}"
    return Outcome(problem="" if limit == "0" and not left else problem)


ORDINARY: Final = () if os.geteuid() else ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""What makes root an ordinary user, whom permissions bind."""

MUST_FAIL: Final = {
    "state": ("eval",), "data": ("keys", "calibrate", "import"), "config": ("config", "workers", "serve keys"),
    "cache": (),
}  # fmt: skip
"""The directories, and the commands that promise to store something in each; all commands are tried."""


def run_places(tries: Tries) -> None:
    """Every command with each directory read-only, and the keyring."""
    with workplace() as at:
        for when in ("before", "within", "between"):
            tries.attempt(f"the keyring is locked {when}", partial(locked, at, when))
    with workplace() as at:
        for directory in MUST_FAIL:
            for name in SCENES:
                tries.attempt(f"read-only {directory}, {name}", partial(read_only, at, directory, name))


def read_only(at: Desk, directory: str, name: str) -> Outcome:
    """One command in a home of which one directory cannot be written."""
    scene: Scene = SCENES[name]
    stage = fresh(at)
    for words in scene.ready:
        stage.run(*words)
    place = at.home / directory
    place.mkdir(exist_ok=True)
    places = [path for path in (place, *place.rglob("*")) if path.is_dir()]
    for path in places:
        path.chmod(0o500)
    try:
        done = stage.run(*scene.words, under=ORDINARY, given=scene.given)
    finally:
        for path in places:
            path.chmod(0o700)
    problem = told(done)
    if name in MUST_FAIL[directory] and not done.code:
        problem += "; exit code 0, and nothing can be stored"
    return Outcome(problem=problem)


def told(done: Done) -> str:
    """What is wrong with how a command ended."""
    if any(key in done.out + done.err for key in (CANARY, STORED)):
        return "a key was printed"
    return ending_problem(Ended(code=done.code, out=done.out, err=done.err))


def locked(at: Desk, when: str) -> Outcome:
    """A key of the keyring is needed, which is locked before the run, within its first step, or between two runs."""
    stage = fresh(at)
    stage.configure("[limits]\nattempts = 1", workers=("alpha", "beta"))
    stage.plan = TWO
    gate = threading.Event()

    async def wait(seen: SeenStep, wire: Wire) -> None:
        await asyncio.to_thread(gate.wait, 60)
        await says("alpha answers")(seen, wire)

    stage.models = {"alpha": wait}
    home = at.home / "bus"
    home.mkdir()
    os.environ.pop("PYTHON_KEYRING_BACKEND", None)  # which is put back with the rest when the desk is left
    with bus(home) as address, gnome_keyring(address, at.home):
        more = {"DBUS_SESSION_BUS_ADDRESS": address, "CONDUCTOR_LLM_KEYRING_SECONDS": "20"}  # on a busy machine
        kept = stage.run("keys", "set", "openai-compatible", "--base-url", stage.url, given=STORED, env=more)
        if kept.code:
            return Outcome(problem=f"the key was not stored: {kept.err}")
        if when == "before":
            lock(address)
        if when != "within":
            gate.set()
        asked = len(stage.asked("alpha"))
        with stage.start("ask", "hi", env=more) as process:
            while when == "within" and len(stage.asked("alpha")) == asked and process.poll() is None:
                threading.Event().wait(0.02)
            if when == "within":
                lock(address)
                gate.set()
            out, err = process.communicate(timeout=60)
        first = Done(code=process.returncode, out=out.decode(), err=err.decode())
        if when == "between":
            lock(address)
        second = stage.run("ask", "hi", env=more) if when != "before" else first
    sent = {seen.headers.get("authorization", "") for seen in stage.asked("beta")[-1:]}
    problem = told(first) or told(second)
    if second.code != 4:
        problem += f"; with a locked keyring the exit code is {second.code}: {second.err[-200:]!r}"
    if when != "before" and (first.code or first.out != "beta answers\n" or sent != {f"Bearer {STORED}"}):
        problem += f"; the run that had its key ended with {first.code}: {first.err[-200:]!r}"
    return Outcome(problem=problem)
