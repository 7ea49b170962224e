"""What every benchmark here shares.

Figures beside their bounds, tables of them, and the cost of a finished process.
"""

from __future__ import annotations

import ctypes
import os
import pty
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import psutil

MEGABYTE: Final = 1024 * 1024

UNITS: Final[dict[str, tuple[float, str]]] = {
    "ratio": (1, "{:.3f}"),
    "percent": (100, "{:.1f} %"),
    "s": (1, "{:.2f} s"),
    "ms": (1e3, "{:.0f} ms"),
    "us": (1e6, "{:.0f} µs"),
    "MB": (1 / MEGABYTE, "{:.0f} MB"),
    "kB": (1 / 1024, "{:.1f} kB"),
    "tokens": (1, "{:.0f}"),
    "modules": (1, "{:.0f}"),
}
"""How a figure is written, by its unit: a factor, and the form. Figures are kept in 1, seconds and
bytes.
"""

HEADS: Final = ("", "measured", "at most", "", "also")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. Without a `bound` it stands there for the reader to judge.

    `also` says what else was seen.

    `least`: the bound is the smallest value that passes, not the largest.
    """

    what: str
    value: float
    unit: str
    bound: float | None = None
    also: str = ""
    least: bool = False

    @property
    def holds(self) -> bool:
        return self.bound is None or (
            self.value >= self.bound if self.least else self.value <= self.bound
        )

    def cells(self) -> tuple[str, str, str, str, str]:
        """The figure as a row: what, measured, at most, whether it holds, remarks."""
        if self.bound is None:
            return self.what, shown(self.value, self.unit), "", "", self.also
        mark = "pass" if self.holds else "**FAIL**"
        bound = ("≥ " if self.least else "") + shown(self.bound, self.unit)
        return self.what, shown(self.value, self.unit), bound, mark, self.also


class Table(NamedTuple):
    """The result of one benchmark.

    `about` says how it was measured, `error` why it did not finish.
    """

    title: str
    about: str
    figures: Sequence[Figure]
    error: str = ""

    def markdown(self) -> str:
        """The table under its heading, its columns aligned for a reader of the plain text."""
        if self.error:
            return f"## {self.title}\n\n**FAIL**: {self.error}\n"
        rows = [HEADS, *(figure.cells() for figure in self.figures)]
        widths = [max(2, *(len(row[column]) for row in rows)) for column in range(len(HEADS))]
        right = [name in {"measured", "at most"} for name in HEADS]
        rule = tuple(
            "-" * (width - 1) + (":" if to else "-")
            for width, to in zip(widths, right, strict=True)
        )
        lines = []
        for row in (rows[0], rule, *rows[1:]):
            cells = zip(row, widths, right, strict=True)
            lines.append(
                f"| {' | '.join(cell.rjust(w) if to else cell.ljust(w) for cell, w, to in cells)} |"
            )
        return "\n".join([f"## {self.title}", "", self.about, "", *lines, ""])


def shown(value: float, unit: str) -> str:
    """A value with its unit."""
    factor, form = UNITS[unit]
    return form.format(value * factor)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median ratio of pairs that were measured one right after the other."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(mine / other for mine, other in pairs)


class Spent(NamedTuple):
    """What a finished process took: seconds on the wall and of processor time."""

    wall: float
    cpu: float


def spent(command: Sequence[str], environ: Mapping[str, str], *, remarks: bool = True) -> Spent:
    """Run a command that must succeed.

    What it says goes nowhere, without `remarks` also what it says beside that.
    """
    began = time.perf_counter()
    none = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=dict(environ), stdin=none, stdout=none, stderr=None if remarks else none
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Spent(wall, usage.ru_utime + usage.ru_stime)


Commands = Mapping[str, tuple[Sequence[str], Mapping[str, str]]]
"""Command lines with their environments, by what is measured of them."""


def in_turn(commands: Commands, rounds: int, *, remarks: bool = True) -> dict[str, list[Spent]]:
    """What each command took, all of them in turn, after one round that is not counted.

    It fills the caches.
    """
    rounds_spent = [
        {name: spent(*command, remarks=remarks) for name, command in commands.items()}
        for _ in range(rounds + 1)
    ]
    return {name: [round_spent[name] for round_spent in rounds_spent[1:]] for name in commands}


def share(
    title: str, ours: Sequence[Spent], theirs: Sequence[Spent], bound: float | None = None
) -> Figure:
    """The wall time of a command over that of another in the same round."""
    wall, cpu = (statistics.median(values) * 1e3 for values in zip(*ours, strict=True))
    value = ratio([command.wall for command in ours], [command.wall for command in theirs])
    return Figure(title, value, "ratio", bound, f"{wall:.0f} ms, of processor time {cpu:.0f} ms")


def cpu() -> float:
    """Seconds of processor time that this process has used, in all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    """Seconds of processor time that another process has used, in all its threads.

    Linux has a clock for each process, in nanoseconds; what `ps` shows has steps of 10 ms.
    """
    if sys.platform != "linux":
        return sum(psutil.Process(pid).cpu_times()[:2])
    clock = ctypes.c_int()
    problem = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if problem:
        raise OSError(problem, os.strerror(problem))
    return time.clock_gettime(clock.value)


@contextmanager
def terminal() -> Iterator[tuple[TextIO, list[int]]]:
    """A terminal that another process reads.

    Once it is closed, it says how many bytes were written to it.
    """
    ours, theirs = pty.openpty()
    written: list[int] = []
    nothing = subprocess.DEVNULL
    reader = subprocess.Popen(
        ["wc", "-c"], stdin=ours, stdout=subprocess.PIPE, stderr=nothing, text=True
    )
    os.close(ours)
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield stream, written
    written.append(int(reader.communicate()[0]))


def orchestra() -> list[str]:
    """The installed command beside this Python, else the package itself."""
    installed = Path(sys.executable).with_name("conductor")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "conductor_cli"]


def newcomer(directory: str) -> dict[str, str]:
    """The environment of somebody who has no settings and no keys yet, with `directory` as home.

    What is imported stays compiled, as after an installation.
    """
    dropped = ("CONDUCTOR_", "LLM_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "PYTHONDONTWRITEBYTECODE")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(dropped) and not name.endswith(("_API_KEY", "_PROXY", "_proxy"))
    }
    xdg = {
        f"XDG_{name}_HOME": f"{directory}/{name.lower()}"
        for name in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    return (
        kept
        | xdg
        | {"HOME": directory, "USERPROFILE": directory, "LLM_USER_PATH": f"{directory}/llm"}
    )
