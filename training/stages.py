"""Runs the stages of a training in a directory: what is missing, several side by side.

It can be killed and run again.

A call of a stage stores its state and exits with 3 if there is more to do; it is called again then.
`made.json` records the input files of a stage: if they change, it starts over. Each call is a line
of `stages.jsonl`, with its seconds by the clock and of the processor.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from conductor_cli.system.disk import write_atomically

DONE = 0
MISSED = 1
UNFINISHED = 3
"""Exit codes of a stage: it is done; its table misses a bound; its minutes are over before it is
done.
"""

PRINT_LOCK: Final = threading.Lock()


class Stopped(Exception):
    """A signal has ended the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a training. `makes` and `needs` are patterns of files below the directory.

    A word of `command` that begins with `@` is such a pattern. `prints`: its output is its file.
    `work_folder` holds its unfinished work.
    """

    name: str
    makes: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    prints: bool = False
    work_folder: str = ""


class Workspace:
    """The `stages` whose files are in the directory `out`."""

    def __init__(self, out: Path, stages: Sequence[Stage]) -> None:
        self.out = out
        self.stages = stages
        self._inputs_file = out / "made.json"
        self._log = out / "stages.jsonl"
        self._lock_fds: tuple[int, ...] = ()
        self._pids: set[int] = set()
        self._running: set[str] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def found(self, pattern: str) -> Path | None:
        return next(iter(sorted(self.out.glob(pattern))), None)

    def is_done(self, stage: Stage) -> bool:
        """Whether its file exists and was made from the input files as they are now.

        The file of a stage that still runs may be half written, so the stage is not done until its
        call has ended.
        """
        if stage.name in self._running:
            return False
        there = self.found(stage.makes) is not None and all(map(self.is_done, self._before(stage)))
        return there and self._read_inputs().get(stage.name, "") == self._hash_inputs(stage)

    def is_ready(self, stage: Stage) -> bool:
        return not self.is_done(stage) and all(map(self.is_done, self._before(stage)))

    def _before(self, stage: Stage) -> list[Stage]:
        return [other for other in self.stages if other.makes in stage.needs]

    def _hash_inputs(self, stage: Stage) -> str:
        hashes = []
        for file in map(self.found, stage.needs):
            if file:
                hashes.append(hashlib.sha256(file.read_bytes()).hexdigest()[:16])
            else:
                hashes.append("")
        return "-".join(hashes)

    def _read_inputs(self) -> dict[str, str]:
        if self._inputs_file.exists():
            return dict(json.loads(self._inputs_file.read_text()))
        return {}

    def prepare(self, stage: Stage) -> None:
        """Record its input files before `call`. What it made from other input files is removed."""
        now = self._hash_inputs(stage)
        recorded = self._read_inputs()
        if recorded.get(stage.name, now) != now:
            print_line(f"{stage.name}: its input files have changed, so it starts over")
            if stage.work_folder:
                shutil.rmtree(self.out / stage.work_folder, ignore_errors=True)
            if (old := self.found(stage.makes)) is not None:
                old.unlink()
        write_atomically(self._inputs_file, json.dumps({**recorded, stage.name: now}, indent=1))
        self._running.add(stage.name)

    def call(self, stage: Stage) -> bool:
        """Call a prepared stage once, print its lines and how it ended. Returns whether it failed.

        Runs in a thread.
        """
        try:
            return self._call(stage)
        finally:
            self._running.discard(stage.name)

    def _call(self, stage: Stage) -> bool:
        at = datetime.now(UTC)
        started = time.monotonic()
        process = self._start(stage)
        if process is None:
            return True
        lines = _print_output(stage.name, process)
        _, status, used = os.wait4(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        wall = time.monotonic() - started
        processor = used.ru_utime + used.ru_stime
        # A program that crashed has the exit code of a missed bound, and one with a wrong setting
        # that of an unfinished stage, so what they print decides.
        missed = code == MISSED and any("MISSED" in line for line in lines)
        done = code == DONE or (missed and stage.prints)
        unfinished = code == UNFINISHED and not any(line.startswith("error: ") for line in lines)
        if stage.prints and done:
            write_atomically(self.out / stage.makes, "\n".join(lines) + "\n")
        entry = {
            "stage": stage.name,
            "at": at.isoformat(timespec="milliseconds"),
            "wall": round(wall, 2),
            "processor": round(processor, 2),
            "exit": code,
        }
        with self._lock, self._log.open("a", encoding="utf-8") as file:
            self._pids.discard(process.pid)
            file.write(json.dumps(entry) + "\n")
        minutes = f"{wall / 60:.1f} min, {processor / 60:.1f} of processor time"
        made = done and self.found(stage.makes) is not None
        if made:
            line = f"{stage.name}: done ({minutes})"
            if missed:
                line += ", and a bound is MISSED"
            print_line(line)
        elif unfinished:
            print_line(f"{stage.name}: more to do ({minutes})")
        else:
            print_line(
                f"{stage.name}: FAILED, exit code {code} ({minutes}); run the same command again "
                "to resume"
            )
        return not (made or unfinished)

    def _start(self, stage: Stage) -> subprocess.Popen[str] | None:
        """Start the program of a stage; None where no other is to be started."""
        command = list(stage.command)
        for index, word in enumerate(command):
            if word.startswith("@"):
                command[index] = str(self.found(word[1:]))
        print_line(f"{stage.name}: python {shlex.join(command[1:])}")
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment(self.out),
                start_new_session=True,
                pass_fds=self._lock_fds,
            )
            self._pids.add(process.pid)
        return process

    def stop(self) -> None:
        """End the running calls and start no other. What they have stored stays."""
        with self._lock:
            self._stopped = True
            for pid in self._pids:
                os.kill(pid, signal.SIGTERM)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no stage of an earlier call is running, because it writes the same files.

        Each stage inherits the lock, so it is held while a stage runs, even if this process is
        killed.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print_line(
                    f"waiting for another training, or a stage of an earlier one, in {self.out}"
                )
                fcntl.flock(file, fcntl.LOCK_EX)
            self._lock_fds = (file.fileno(),)
            yield


def _print_output(name: str, process: subprocess.Popen[str]) -> deque[str]:
    """Print the lines of a stage as they come, and return the last ones."""
    lines: deque[str] = deque(maxlen=10_000)
    assert process.stdout is not None
    with process.stdout as output:
        for line in map(str.rstrip, output):
            lines.append(line)
            if line.startswith(f"{name}: "):
                print_line(line)
            else:
                print_line(f"{name}: {line}")
    return lines


def run_stages(work: Workspace, jobs: int) -> int:
    """Call the stages that are missing, at most `jobs` in parallel.

    Returns 0 if all are done, 1 if one failed.
    """
    running: dict[Future[bool], Stage] = {}
    failed = False
    with ThreadPoolExecutor(max_workers=jobs) as threads:
        try:
            while True:
                for stage in [] if failed else work.stages:
                    if (
                        len(running) < jobs
                        and stage not in running.values()
                        and work.is_ready(stage)
                    ):
                        work.prepare(stage)
                        running[threads.submit(work.call, stage)] = stage
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    failed |= future.result()
        except Stopped:
            work.stop()
            raise
    if failed:
        return 1
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every training has."""
    parser.add_argument(
        "--out", type=Path, help="the directory of all files; remove it to start from nothing"
    )
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="the longest that a call of a stage may take"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="stages in parallel, each with one thread"
    )


def run_training(work: Workspace, given: argparse.Namespace, finish: Callable[[], int]) -> int:
    """Continue a training by the options of `add_options`.

    `finish` is called once all stages are done.

    Returns its exit code, 1 if a stage failed, 128 and more after a signal.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with work.locked():
            code = run_stages(work, given.jobs)
            if code != DONE:
                return code
            return finish()
    except Stopped as stopped:
        print_line("stopped; run the same command again to resume")
        return 128 + int(stopped.args[0])


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def environment(out: Path) -> dict[str, str]:
    """The environment of a stage: it neither reads nor changes the settings of the user."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_LLM_")
    }
    kinds = ("config", "state", "data", "cache")
    homes = {f"CONDUCTOR_LLM_{kind.upper()}_DIR": str(out / "home" / kind) for kind in kinds}
    return {**inherited, **homes, "CONDUCTOR_LLM_REHEARSAL_DIR": str(out), "PYTHONUNBUFFERED": "1"}


def print_line(line: str) -> None:
    """Print a line, not mixed with those of other threads."""
    with PRINT_LOCK:
        print(line, flush=True)
