"""Count the instructions of a start, a request and a delta, and compare them with the last figures.

`make instructions` fails where one takes more than `TOLERANCE` above the figure that
`instructions.json` has for this build of Python; with `ARGS=--update` it writes what it counts.

Processor time on a busy machine says little; what valgrind counts depends on the work alone. Each
figure is a multiple of one pass of a loop in the same run, so that it depends little on the
processor. Builds of Python differ, so each has figures of its own, and one without any is only
shown. The tolerance is for what the clock changes: pieces of text wait at most a second for each
other, and valgrind is slow.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

TOLERANCE: Final = 0.10
FIGURES: Final = Path(__file__).with_name("instructions.json")
COUNTED: Final = Path(__file__).with_name("counted.py")
UPDATE: Final = "--update"

WORK: Final[dict[str, tuple[int, int]]] = {
    "requests": (10, 40),
    "deltas": (50, 450),
}
"""How often each work of `counted.py` is done, in two processes."""

PASSES: Final = (2_000, 12_000)
LOOP: Final = """
import sys
table = {}
size = 0
for number in range(int(sys.argv[1])):
    text = f"{number} word"
    table[text] = [number, text.partition(" ")[0]]
    size += len(table[text]) + text.startswith("1")
"""
"""What Python programs do most, which no change of ours touches."""

_COLLECTED: Final = re.compile(r"Collected : (\d+)")


def main(arguments: list[str]) -> int:
    """Count, compare and print. Returns 1 where a figure is too high."""
    if shutil.which("valgrind") is None:
        print("instructions: skipped, because valgrind is not installed")
        return 0
    counted = measure()
    version = f"{platform.python_version()} {platform.python_compiler()} {platform.machine()}"
    stored = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    if UPDATE in arguments:
        stored[version] = counted
        FIGURES.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    expected = stored.get(version)
    if expected is None:
        print(
            f"instructions: there are no figures for Python {version}, so nothing is compared; "
            f"to store them: make instructions ARGS={UPDATE}"
        )
        expected = {}
    lines = compare(counted, expected)
    for name, figure in counted.items():
        print(
            f"instructions: {name}: {figure:,.1f} passes of the loop, stored {expected.get(name)}"
        )
    for line in lines:
        print(line)
    return 1 if lines else 0


def measure() -> dict[str, float]:
    """Return what a start, a request and a delta take, in passes of the loop."""
    each = {name: _of_one(counts, str(COUNTED), name) for name, counts in WORK.items()}
    start = _instructions("-m", "conductor_cli", "--version") - _instructions("-c", "pass")
    loop = _of_one(PASSES, "-c", LOOP)
    return {
        "start": round(start / loop, 1),
        "request": round(each["requests"] / loop, 1),
        "delta": round(each["deltas"] / loop, 2),
    }


def compare(counted: dict[str, float], expected: dict[str, float]) -> list[str]:
    """Return a line for each figure that is too far above the stored one."""
    lines: list[str] = []
    for name, figure in counted.items():
        before = expected.get(name)
        if before is not None and figure > before * (1 + TOLERANCE):
            more = figure / before - 1
            lines.append(
                f"FAIL {name} takes {more:.0%} more instructions than it did, and the bound is "
                f"{TOLERANCE:.0%}; where that is meant: make instructions ARGS={UPDATE}"
            )
    return lines


def _of_one(counts: tuple[int, int], *arguments: str) -> float:
    """Return the instructions of doing a work once more, whose last argument is how often."""
    few, many = counts
    instructions = [_instructions(*arguments, str(count)) for count in counts]
    return (instructions[1] - instructions[0]) / (many - few)


def _instructions(*arguments: str) -> int:
    """Return how many instructions Python executes with these arguments."""
    # Without a fixed seed the order of sets differs, and with it what is executed.
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    # Once before, so that every module is compiled when its instructions are counted.
    subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, check=True)
    command = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable)
    done = subprocess.run(
        [*command, *arguments], env=environ, capture_output=True, text=True, check=False
    )
    found = _COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise SystemExit(
            f"valgrind counted nothing of {' '.join(arguments)}:\n{done.stderr[-2000:]}"
        )
    return int(found[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
