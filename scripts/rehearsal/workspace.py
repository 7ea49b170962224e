"""The directory of a rehearsal: what is made in it, what each stage was begun with, and the calls of stages."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.rehearsal.stages import Stage

OVER, MISSED, NOT_OVER = 0, 1, 3
"""How a call of a stage ends: all done; a table with a bound that is missed; its minutes are over and it is not."""

SPEAKING: Final = threading.Lock()


class Ended(NamedTuple):
    """How a call of a stage ended. `wall` and `processor` are in seconds."""

    stage: Stage
    code: int
    wall: float
    processor: float
    lines: tuple[str, ...]

    @property
    def over(self) -> bool:
        """A program that breaks ends with the code of a missed bound, too."""
        return self.code == OVER or (self.missed and self.stage.prints)

    @property
    def missed(self) -> bool:
        return self.code == MISSED and any("MISSED" in line for line in self.lines)

    @property
    def goes_on(self) -> bool:
        """A setting that cannot be used ends with the same code, and is told as an error."""
        return self.code == NOT_OVER and not any(line.startswith("error: ") for line in self.lines)


class Work:
    """`stages` in the directory `out`."""

    def __init__(self, out: Path, stages: Sequence[Stage]) -> None:
        self.out = out
        self.stages = stages
        self._begun_with = out / "made.json"
        self._log = out / "stages.jsonl"
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._held: tuple[int, ...] = ()
        self._alive: set[int] = set()
        self._running: set[str] = set()
        self._stopped = False
        self._changing = threading.Lock()

    # What is there

    def found(self, pattern: str) -> Path | None:
        """The file of a pattern, if it is there."""
        return next(iter(sorted(self.out.glob(pattern))), None)

    def is_done(self, stage: Stage) -> bool:
        """Whether what it makes is there, made of what it needs as that is now.

        The file of a stage that still runs may be half written, so the stage is not done until its call has ended.
        """
        if stage.name in self._running:
            return False
        there = self.found(stage.makes) is not None and all(map(self.is_done, self._before(stage)))
        return there and self._begun().get(stage.name, "") == self._needed(stage)

    def is_ready(self, stage: Stage) -> bool:
        """Whether it can be done next."""
        return not self.is_done(stage) and all(map(self.is_done, self._before(stage)))

    def _before(self, stage: Stage) -> list[Stage]:
        return [other for other in self.stages if other.makes in stage.needs]

    def _needed(self, stage: Stage) -> str:
        """What tells the files that a stage needs from others."""
        files = [self.found(pattern) for pattern in stage.needs]
        return "-".join("" if file is None else self._hash(file)[:16] for file in files)

    def _hash(self, file: Path) -> str:
        told = file.stat()
        key = file, told.st_mtime_ns, told.st_size
        if key not in self._hashes:
            self._hashes[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._hashes[key]

    def _begun(self) -> dict[str, str]:
        return dict(json.loads(self._begun_with.read_text())) if self._begun_with.exists() else {}

    # Calls

    def prepare(self, stage: Stage) -> None:
        """Keep what it begins with, before `call`; what was begun with other files is taken away."""
        now, begun = self._needed(stage), self._begun()
        if begun.get(stage.name, now) != now:
            say(f"{stage.name}: its input files have changed, so it starts over")
            if stage.leaves:
                shutil.rmtree(self.out / stage.leaves, ignore_errors=True)
            if (old := self.found(stage.makes)) is not None:
                old.unlink()
        write(self._begun_with, json.dumps({**begun, stage.name: now}, indent=1))
        self._running.add(stage.name)

    def call(self, stage: Stage) -> Ended:
        """Call a prepared stage once, its lines to our output. For a thread of its own."""
        try:
            return self._call(stage)
        finally:
            self._running.discard(stage.name)

    def _call(self, stage: Stage) -> Ended:
        at, began, command = datetime.now(UTC), time.monotonic(), self._command(stage)
        say(f"{stage.name}: python {shlex.join(command[1:])}")
        with self._changing:
            if self._stopped:
                return Ended(stage, -signal.SIGTERM, 0.0, 0.0, ())
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", env=environment(self.out), start_new_session=True, pass_fds=self._held,
            )  # fmt: skip
            self._alive.add(process.pid)
        lines = self._read(stage, process)
        _, status, used = os.wait4(process.pid, 0)
        with self._changing:
            self._alive.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall, processor = time.monotonic() - began, used.ru_utime + used.ru_stime
        ended = Ended(stage, process.returncode, wall, processor, lines)
        if stage.prints and ended.over:
            write(self.out / stage.makes, "\n".join(lines) + "\n")
        self._keep(ended, at)
        return ended

    def _command(self, stage: Stage) -> list[str]:
        return [str(self.found(word[1:])) if word.startswith("@") else word for word in stage.command]

    def _read(self, stage: Stage, process: subprocess.Popen[str]) -> tuple[str, ...]:
        assert process.stdout is not None
        lines: deque[str] = deque(maxlen=10_000)
        with process.stdout as told:
            for line in map(str.rstrip, told):
                lines.append(line)
                say(line if line.startswith(f"{stage.name}: ") else f"{stage.name}: {line}")
        return tuple(lines)

    def _keep(self, ended: Ended, at: datetime) -> None:
        line = {
            "stage": ended.stage.name, "at": at.isoformat(timespec="milliseconds"), "wall": round(ended.wall, 2),
            "processor": round(ended.processor, 2), "exit": ended.code,
        }  # fmt: skip
        with self._changing, self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def stop(self) -> None:
        """End the calls that run, and begin no other. What they have kept stays."""
        with self._changing:
            self._stopped = True
            for pid in self._alive:
                os.kill(pid, signal.SIGTERM)

    def calls(self) -> list[Mapping[str, Any]]:
        """The log, without a line that was cut off."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits for what an earlier call has left running: it writes the same files.

        What we start holds the lock too, so that it is held as long as a stage lives, though we may be killed.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting: somebody else, or a stage of an earlier call, is at work in {self.out}")
                fcntl.flock(file, fcntl.LOCK_EX)
            self._held = (file.fileno(),)
            yield


def environment(out: Path) -> dict[str, str]:
    """Nothing of the user's settings takes part, and nothing is left among them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_LLM_")}
    homes = {
        f"CONDUCTOR_LLM_{kind.upper()}_DIR": str(out / "home" / kind) for kind in ("config", "state", "data", "cache")
    }
    return {**kept, **homes, "CONDUCTOR_LLM_REHEARSAL_DIR": str(out), "PYTHONUNBUFFERED": "1"}


def say(line: str) -> None:
    """Print a line, uninterrupted by other threads."""
    with SPEAKING:
        print(line, flush=True)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
