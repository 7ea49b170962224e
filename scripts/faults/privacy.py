"""Keys in other processes, directories that cannot be written, and a keyring that is locked.

What holds: no argument of a process has a key, and no process but the command itself has one in its environment. There
is no traceback, a failure is told in three lines or fewer, and exit code 0 comes only where what was promised is done.
Root may write everywhere, so here it gives up the capabilities that allow that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from scripts.faults.desk import CANARY, Desk, desk, ending_problem
from scripts.faults.prefork import Ended
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import TWO, Done, Stage, says
from tests.keys.bus import bus, gnome_keyring, lock
from tests.servers import SeenStep, Wire
from tests.tiny_gguf import make

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
    """Commands that start others, runs whose keyring is locked, and every command with each directory read-only."""
    with workplace() as at:
        for name in CHILDREN:
            tries.attempt(f"processes, {name}", partial(processes_of, at, name))
    with workplace() as at:
        for when in ("before", "within", "between"):
            tries.attempt(f"the keyring is locked {when}", partial(locked, at, when))
    with workplace() as at:
        for directory in MUST_FAIL:
            for name in SCENES:
                tries.attempt(f"read-only {directory}, {name}", partial(read_only, at, directory, name))


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


ORDINARY: Final = () if os.geteuid() else ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""What makes root an ordinary user, whom permissions bind."""

MUST_FAIL: Final = {
    "state": ("eval",), "data": ("keys", "calibrate", "import"), "config": ("config", "workers", "serve keys"),
    "cache": (),
}  # fmt: skip
"""The directories, and the commands that promise to store something in each; all commands are tried."""


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
