"""The directory of a rehearsal: the files of each stage, the input files that it started with, a log of its calls."""

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

DONE, MISSED, UNFINISHED = 0, 1, 3
"""Exit codes of a stage: it is done; its table misses a bound; its minutes are over before it is done."""

PRINT_LOCK: Final = threading.Lock()


class StageCall(NamedTuple):
    """One call of a stage that has ended. `wall` and `processor` are in seconds."""

    stage: Stage
    code: int
    wall: float
    processor: float
    lines: tuple[str, ...]

    @property
    def done(self) -> bool:
        """A crashed program has the exit code of a missed bound, so its output is checked, too."""
        return self.code == DONE or (self.missed and self.stage.prints)

    @property
    def missed(self) -> bool:
        return self.code == MISSED and any("MISSED" in line for line in self.lines)

    @property
    def unfinished(self) -> bool:
        """A wrong setting has the same exit code, and prints an error."""
        return self.code == UNFINISHED and not any(line.startswith("error: ") for line in self.lines)


class Workspace:
    """The `stages` whose files are in the directory `out`."""

    def __init__(self, out: Path, stages: Sequence[Stage]) -> None:
        self.out = out
        self.stages = stages
        self._inputs_file = out / "made.json"
        self._log = out / "stages.jsonl"
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._lock_fds: tuple[int, ...] = ()
        self._pids: set[int] = set()
        self._running: set[str] = set()
        self._stopped = False
        self._lock = threading.Lock()

    # Files

    def found(self, pattern: str) -> Path | None:
        """The file that matches a pattern, if there is one."""
        return next(iter(sorted(self.out.glob(pattern))), None)

    def is_done(self, stage: Stage) -> bool:
        """Whether its file exists and was made from the input files as they are now.

        The file of a stage that still runs may be half written, so the stage is not done until its call has ended.
        """
        if stage.name in self._running:
            return False
        there = self.found(stage.makes) is not None and all(map(self.is_done, self._before(stage)))
        return there and self._read_inputs().get(stage.name, "") == self._hash_inputs(stage)

    def is_ready(self, stage: Stage) -> bool:
        """Whether it can be called next."""
        return not self.is_done(stage) and all(map(self.is_done, self._before(stage)))

    def _before(self, stage: Stage) -> list[Stage]:
        return [other for other in self.stages if other.makes in stage.needs]

    def _hash_inputs(self, stage: Stage) -> str:
        """A hash of the input files of a stage."""
        files = [self.found(pattern) for pattern in stage.needs]
        return "-".join("" if file is None else self._hash(file)[:16] for file in files)

    def _hash(self, file: Path) -> str:
        status = file.stat()
        key = file, status.st_mtime_ns, status.st_size
        if key not in self._hashes:
            self._hashes[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._hashes[key]

    def _read_inputs(self) -> dict[str, str]:
        return dict(json.loads(self._inputs_file.read_text())) if self._inputs_file.exists() else {}

    # Calls

    def prepare(self, stage: Stage) -> None:
        """Record its input files before `call`. What it made from other input files is removed."""
        now, recorded = self._hash_inputs(stage), self._read_inputs()
        if recorded.get(stage.name, now) != now:
            print_line(f"{stage.name}: its input files have changed, so it starts over")
            if stage.work_folder:
                shutil.rmtree(self.out / stage.work_folder, ignore_errors=True)
            if (old := self.found(stage.makes)) is not None:
                old.unlink()
        write(self._inputs_file, json.dumps({**recorded, stage.name: now}, indent=1))
        self._running.add(stage.name)

    def call(self, stage: Stage) -> StageCall:
        """Call a prepared stage once and print its lines. Runs in a thread of its own."""
        try:
            return self._call(stage)
        finally:
            self._running.discard(stage.name)

    def _call(self, stage: Stage) -> StageCall:
        at, started = datetime.now(UTC), time.monotonic()
        command = self._command(stage)
        print_line(f"{stage.name}: python {shlex.join(command[1:])}")
        with self._lock:
            if self._stopped:
                return StageCall(stage, -signal.SIGTERM, 0.0, 0.0, ())
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", env=environment(self.out), start_new_session=True, pass_fds=self._lock_fds,
            )  # fmt: skip
            self._pids.add(process.pid)
        lines = self._read(stage, process)
        _, status, used = os.wait4(process.pid, 0)
        with self._lock:
            self._pids.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall, processor = time.monotonic() - started, used.ru_utime + used.ru_stime
        call = StageCall(stage, process.returncode, wall, processor, lines)
        if stage.prints and call.done:
            write(self.out / stage.makes, "\n".join(lines) + "\n")
        self._log_call(call, at)
        return call

    def _command(self, stage: Stage) -> list[str]:
        return [str(self.found(word[1:])) if word.startswith("@") else word for word in stage.command]

    def _read(self, stage: Stage, process: subprocess.Popen[str]) -> tuple[str, ...]:
        assert process.stdout is not None
        lines: deque[str] = deque(maxlen=10_000)
        with process.stdout as output:
            for line in map(str.rstrip, output):
                lines.append(line)
                print_line(line if line.startswith(f"{stage.name}: ") else f"{stage.name}: {line}")
        return tuple(lines)

    def _log_call(self, call: StageCall, at: datetime) -> None:
        line = {
            "stage": call.stage.name, "at": at.isoformat(timespec="milliseconds"), "wall": round(call.wall, 2),
            "processor": round(call.processor, 2), "exit": call.code,
        }  # fmt: skip
        with self._lock, self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def stop(self) -> None:
        """End the running calls and start no other. What they have stored stays."""
        with self._lock:
            self._stopped = True
            for pid in self._pids:
                os.kill(pid, signal.SIGTERM)

    def calls(self) -> list[Mapping[str, Any]]:
        """The log, without a line that was cut off."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no stage of an earlier call is running, because it writes the same files.

        Each stage inherits the lock, so it is held while a stage runs, even if this process is killed.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print_line(f"waiting for another rehearsal, or a stage of an earlier one, in {self.out}")
                fcntl.flock(file, fcntl.LOCK_EX)
            self._lock_fds = (file.fileno(),)
            yield


def environment(out: Path) -> dict[str, str]:
    """The environment of a stage: it neither reads nor changes the settings of the user."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_LLM_")}
    homes = {
        f"CONDUCTOR_LLM_{kind.upper()}_DIR": str(out / "home" / kind) for kind in ("config", "state", "data", "cache")
    }
    return {**inherited, **homes, "CONDUCTOR_LLM_REHEARSAL_DIR": str(out), "PYTHONUNBUFFERED": "1"}


def print_line(line: str) -> None:
    """Print a line, not mixed with those of other threads."""
    with PRINT_LOCK:
        print(line, flush=True)


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
