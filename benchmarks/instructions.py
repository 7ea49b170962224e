"""Count the instructions of a start, a request, a token and a question of a batch.

`make instructions` fails where one takes more than its tolerance above the figure that
`instructions.json` has for this build of Python; with `ARGS=--update` it writes what it counts.

Processor time on a busy machine says little; what valgrind counts depends on the work alone. Each
figure is a multiple of one pass of a loop in the same run, so that it depends little on the
processor. Builds of Python differ, and so do the instructions that the C library chooses for a
processor, so each pair has figures of its own, and one without any is only shown.
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from figures import newcomer
from lockstep import STREAMS, Upstream, ask, stream

TOLERANCE: Final = 0.03
"""On an idle machine a figure differs by less than .001 from run to run."""
TOLERANCES: Final = {"a token of 8 streams through serve": 0.15}
"""What depends on timers: on a busy machine a token took .08 more."""

FIGURES: Final = Path(__file__).with_name("instructions.json")
COUNTED: Final = Path(__file__).with_name("counted.py")
UPDATE: Final = "--update"
CALLGRIND: Final = ("valgrind", "--tool=callgrind", "--dump-before=getloadavg")

PASSES: Final = 2_000
LOOP: Final = f"""
import os
os.getloadavg()
table = {{}}
size = 0
for number in range({PASSES}):
    text = f"{{number}} word"
    table[text] = [number, text.partition(" ")[0]]
    size += len(table[text]) + text.startswith("1")
os.getloadavg()
"""
"""What Python programs do most, which no change of ours touches, between two marks."""

PIECES: Final = (50, 250)
WARM_UP_REQUESTS: Final = 8
REQUESTS: Final = 24
ROUNDS: Final = (6, 26)
QUESTIONS: Final = (10, 60)
BATCH: Final = (
    "--out",
    "answers.jsonl",
    "--mode",
    "mini",
    "--yes",
    "--progress",
    "none",
    "--parallel",
    "8",
)
SERVER_SECONDS: Final = 120.0
"""How long a server may take to start and to end, under valgrind on a busy machine."""

_COUNTED: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)
_MARKED: Final = "desc: Trigger: --dump-before"


def main(arguments: list[str]) -> int:
    """Count, compare and print. Returns 1 where a figure is too high."""
    if shutil.which("valgrind") is None:
        print("instructions: skipped, because valgrind is not installed")
        return 0
    build = build_of_python()
    stored = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    expected = stored.get(build, {})
    is_update = UPDATE in arguments
    if not expected and not is_update:
        print(
            f"instructions: skipped, because {FIGURES.name} has no figures for {build}; to store "
            f"them: make instructions ARGS={UPDATE}"
        )
        return 0
    counted = measure()
    if is_update:
        stored[build] = counted
        FIGURES.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    for name, figure in counted.items():
        print(
            f"instructions: {name}: {figure:,.1f} passes of the loop, stored {expected.get(name)}"
        )
    failures = [] if is_update else compare(counted, expected)
    for line in failures:
        print(line)
    return 1 if failures else 0


def build_of_python() -> str:
    """Name what else a count depends on: this build of Python, and the processor's vectors."""
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    vectors = "with AVX2" if " avx2 " in flags else "without AVX2"
    compiler = platform.python_compiler()
    return f"Python {platform.python_version()} {compiler} {platform.machine()} {vectors}"


def measure() -> dict[str, float]:
    """Return what each work takes, in passes of the loop. Two are counted at once."""
    works: dict[str, Callable[[], dict[str, int | float]]] = {
        "batch": count_batch,
        "server": count_server,
        "driver": count_driver,
        "start": count_starts,
    }
    counts: dict[str, float] = {}
    # What is the longest goes first.
    with ThreadPoolExecutor(max_workers=2) as pool:
        loop = pool.submit(count_loop)
        for counted in [pool.submit(work) for work in works.values()]:
            counts |= counted.result()
    return {name: round(count / loop.result(), 1) for name, count in sorted(counts.items())}


def compare(counted: dict[str, float], expected: dict[str, float]) -> list[str]:
    """Return a line for each figure that is too far above the stored one."""
    lines: list[str] = []
    for name, figure in counted.items():
        before = expected.get(name)
        tolerance = TOLERANCES.get(name, TOLERANCE)
        if before is not None and figure > before * (1 + tolerance):
            growth = figure / before - 1
            lines.append(
                f"FAIL {name} takes {growth:.1%} more instructions than it did, and the bound is "
                f"{tolerance:.0%}; where that is meant: make instructions ARGS={UPDATE}"
            )
    return lines


# What is counted


def count_loop() -> float:
    """Return the instructions of one pass of the loop."""
    with counting() as run:
        run("-c", LOOP)
        return run.parts()[1] / PASSES


def count_starts() -> dict[str, int | float]:
    """Return the instructions of what a shell waits for, without those of Python itself."""
    python = _whole("-c", "pass")
    return {
        "start, --version": _whole("-m", "conductor_cli", "--version") - python,
        "start, --help": _whole("-m", "conductor_cli", "--help") - python,
    }


def count_driver() -> dict[str, int | float]:
    """Return the instructions of one more piece of a stream that has no connections."""
    few, many = PIECES
    with counting() as run:
        run(str(COUNTED), "driver", str(few), str(many))
        _, first, second, *_ = run.parts()
    return {"a token through the driver": (second - first) / (many - few)}


def count_server() -> dict[str, int | float]:
    """Return the instructions of a request and of a token of `conductor serve`."""
    with counting() as run:
        asyncio.run(_drive_server(run))
        parts = run.parts()
    requests = parts[1]
    tokens = parts[3]
    few, many = ROUNDS
    return {
        "a request in mini through serve": requests / REQUESTS,
        f"a token of {STREAMS} streams through serve": tokens / STREAMS / (many - few),
    }


async def _drive_server(run: Counting) -> None:
    async with Upstream().listening() as upstream:
        run.configure(upstream.url)
        process = run.start(str(COUNTED), "server", "--port", "0")
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        address = line.split()[-1].removeprefix("http://")
        mark = partial(run.mark, process)
        await ask(address, 0, WARM_UP_REQUESTS)
        mark()
        await ask(address, WARM_UP_REQUESTS, REQUESTS)
        mark()
        few, many = ROUNDS
        await stream(address, upstream, many + 1, {few: mark, many: mark})
        process.terminate()
        await asyncio.to_thread(process.wait, SERVER_SECONDS)


def count_batch() -> dict[str, int | float]:
    """Return the instructions of one more question of `conductor batch`."""
    few, many = QUESTIONS
    counts = asyncio.run(_count_batches(few, many))
    return {"a question of a batch": (counts[1] - counts[0]) / (many - few)}


async def _count_batches(*questions: int) -> list[int]:
    counts: list[int] = []
    async with Upstream().listening() as upstream:
        for count in questions:
            with counting() as run:
                run.configure(upstream.url)
                file = run.home / "questions.jsonl"
                lines = [
                    json.dumps({"id": f"q{number}", "question": f"Why {number}?"}) + "\n"
                    for number in range(count)
                ]
                file.write_text("".join(lines), encoding="utf-8")
                await asyncio.to_thread(run, "-m", "conductor_cli", "batch", str(file), *BATCH)
                counts.append(sum(run.parts()))
    return counts


# How it is counted


class Counting:
    """Processes whose instructions are counted, with an empty home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[str]] = []

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a newcomer; without a fixed seed the order of sets differs."""
        settings = {"CONDUCTOR_LLM_CONFIG_DIR": str(self.home), "PYTHONHASHSEED": "0"}
        return newcomer(str(self.home)) | settings

    def configure(self, url: str) -> None:
        """Write settings as `conductor setup` does: one worker, and limits of the day."""
        settings = (
            f'[conductor]\nmodel = "{url}#planner"\n'
            "[limits]\ntokens_day = 1000000000\ncalls_day = 1000000000\n"
            f'[workers.alpha]\nkind = "openai-compatible"\nbase_url = "{url}"\n'
            f'model = "alpha"\nparallel = {2 * STREAMS}\n'
        )
        (self.home / "config.toml").write_text(settings, encoding="utf-8")

    def __call__(self, *arguments: str) -> None:
        """Run Python with these arguments until its end."""
        process = self.start(*arguments)
        process.communicate()
        if process.returncode:
            log = (self.home / "log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}:\n{log}")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Python with these arguments under valgrind."""
        output = f"--callgrind-out-file={self.home / 'counts'}"
        with (self.home / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*CALLGRIND, output, sys.executable, *arguments],
                cwd=self.home,
                env=self.environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._started.append(process)
        return process

    def kill_all(self) -> None:
        """End what still runs, because something has failed."""
        for process in self._started:
            process.kill()
            process.wait()

    def mark(self, process: subprocess.Popen[str]) -> None:
        """Let a process begin another part, and wait until it has."""
        already = len(self._files())
        process.send_signal(signal.SIGUSR2)
        ends = time.monotonic() + SERVER_SECONDS
        while len(self._files()) == already:
            if time.monotonic() > ends:
                raise SystemExit("valgrind wrote no counts when a part had ended")
            time.sleep(0.01)

    def parts(self) -> list[int]:
        """Return the instructions of each part of an ended process, in order."""
        counts: list[int] = []
        for file in [*self._files(), self.home / "counts"]:
            counted = _COUNTED.search(file.read_text(encoding="utf-8"))
            if counted is None:
                raise SystemExit(f"valgrind counted nothing:\n{file.read_text()[:2000]}")
            counts.append(int(counted[1]))
        return counts

    def _files(self) -> list[Path]:
        numbers = sorted(int(file.suffix[1:]) for file in self.home.glob("counts.*"))
        return [self.home / f"counts.{number}" for number in numbers]


@contextmanager
def counting() -> Iterator[Counting]:
    """Give what counts, in a directory that is removed."""
    with tempfile.TemporaryDirectory(prefix="conductor-instructions-") as directory:
        run = Counting(Path(directory))
        try:
            yield run
        finally:
            run.kill_all()


def _whole(*arguments: str) -> int:
    with counting() as run:
        run(*arguments)
        return sum(run.parts())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
