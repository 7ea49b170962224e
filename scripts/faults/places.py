"""Directories that cannot be written, and a keyring that is locked.

What holds: there is no traceback and no key, a failure is told in three lines or fewer, and exit code 0 comes only
where what was promised is done. Root may write everywhere, so here it gives up the capabilities that allow that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from scripts.faults.desk import CANARY, Desk, desk, ending_problem
from scripts.faults.prefork import Ended
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import TWO, Done, Stage, says
from tests.keys.bus import bus, gnome_keyring, lock
from tests.servers import SeenStep, Wire
from tests.tiny_gguf import make

STORED: Final = "sk-stored-0c71d94be2f84a35"  # a key that is given to `keys set`
SCENES: Final[dict[str, tuple[str, ...]]] = {
    "ask": ("ask", "hi", "-f", "notes.txt"), "resume": ("ask", "--resume", "last"), "plan": ("plan", "hi"),
    "list": ("trace", "list"), "rate": ("trace", "rate", "last", "good"), "eval": ("eval", "cases.jsonl", "--yes"),
    "calibrate": ("workers", "calibrate", "cases.jsonl", "--yes"), "config": ("config", "set", "limits.calls", "9"),
    "workers": ("workers", "add", "up", "--kind", "command", "--", "true"),
    "keys": ("keys", "set", "openai", "--insecure-storage"), "serve keys": ("serve", "keys", "add", "laptop"),
    "import": ("model", "import", "tiny.gguf", "--name", "tiny"),
    "local model": ("plan", "hi", "--conductor", "tiny.gguf"),
}  # fmt: skip
AFTER_A_RUN: Final = ("resume", "list", "rate")


def run(tries: Tries) -> None:
    """Runs whose keyring is locked, and every command with each directory read-only."""
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


def fresh(at: Desk) -> Stage:
    """A home with settings alone."""
    shutil.rmtree(at.home, ignore_errors=True)
    at.home.mkdir()
    at.configure("[limits]\nattempts = 1\ncalls_day = 90\n")
    at.stage.models = {}
    return at.stage


ORDINARY: Final = () if os.geteuid() else ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""What makes root an ordinary user, whom permissions bind."""

MUST_FAIL: Final = {
    "state": ("eval",), "data": ("keys", "calibrate", "import"), "config": ("config", "workers", "serve keys"),
    "cache": (),
}  # fmt: skip
"""The directories, and the commands that promise to store something in each; all commands are tried."""


def read_only(at: Desk, directory: str, name: str) -> Outcome:
    """One command in a home of which one directory cannot be written."""
    stage = fresh(at)
    if name in AFTER_A_RUN:
        stage.run("ask", "hi")
    place = at.home / directory
    place.mkdir(exist_ok=True)
    places = [path for path in (place, *place.rglob("*")) if path.is_dir()]
    for path in places:
        path.chmod(0o500)
    try:
        done = stage.run(*SCENES[name], under=ORDINARY, given=STORED if name == "keys" else None)
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
