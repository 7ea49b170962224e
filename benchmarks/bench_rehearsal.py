"""The rehearsal: what its models reach on questions that no training saw, and how long all systems take over them.

The first rows come from the models' files through the ordinary adapter, the others from `conductor eval` itself.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from figures import Figure, Table, conductor, newcomer, ratio, spent

from conductor_cli.rehearsal.players import model_path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package `scripts`

from scripts.rehearsal.examine import evaluate_conductor
from scripts.rehearsal.worker_table import COUNT, rows

if TYPE_CHECKING:
    from scripts.rehearsal.worker_table import Row

ALONE: Final = 0.60
ROUTED: Final = 0.93
ROUNDS: Final = 5
LONGEST: Final = 600.0
"""Seconds for every system on every question, on two cores."""


def measure() -> Table:
    """Everything that is promised of the rehearsal."""
    found, seconds = evaluated()
    found_rows = (*rows(), *evaluate_conductor(model_path("spelling").parent, count=COUNT))
    return Table(
        title="rehearsal",
        about=f"{COUNT} questions a row, in words and phrasings that no training saw; the models that ship with the "
        "package, through llama.cpp. Systems: one run of `conductor eval rehearsal --systems all`.",
        figures=(
            *(figure for row in found_rows for figure in of_row(row)),
            *of_systems(found), took(found, seconds), asked(),
        ),
    )  # fmt: skip


def evaluated() -> tuple[dict[str, Any], float]:
    """What the command reports, and how many seconds it took."""
    with tempfile.TemporaryDirectory() as place:
        command = [*conductor(), "--quiet", "eval", "rehearsal", "--systems", "all", "--n", str(COUNT), "--json"]
        began = time.perf_counter()
        done = subprocess.run(command, env=newcomer(place), check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout), time.perf_counter() - began


def of_row(row: Row) -> Iterator[Figure]:
    """A row of the models' table; one with two bounds takes two lines."""
    size = row.what.endswith("MB")
    value, unit = (row.value * 1e6, "MB") if size else (row.value, "ratio")
    bounds = [(row.least, True), (row.most, False)]
    kept = [(bound, least) for bound, least in bounds if bound is not None] or [(None, False)]
    for bound, least in kept:
        limit = bound * 1e6 if bound is not None and size else bound
        yield Figure(what=row.what, value=value, unit=unit, bound=limit, least=least, also=row.note)


def of_systems(found: dict[str, Any]) -> Iterator[Figure]:
    """Each system's accuracy, in the order of the report."""
    for system in found["systems"]:
        name, interval = system["name"], system["interval"]
        bound = ROUTED if name == "best-routing" else ALONE if name.startswith("alone:") else None
        also = f"{interval[0]:.3f} to {interval[1]:.3f}; {system['tokens']:.0f} tokens, {system['calls']:.2f} calls"
        yield Figure(what=name, value=system["accuracy"], unit="ratio", bound=bound, least=bound == ROUTED, also=also)


def took(found: dict[str, Any], seconds: float) -> Figure:
    """How long the whole evaluation ran."""
    what = f"{len(found['systems'])} systems over {found['cases']} questions"
    return Figure(what=what, value=seconds, unit="s", bound=LONGEST)


def asked() -> Figure:
    """One question from the start of the process to its end, beside the help of a peer, in turns."""
    with tempfile.TemporaryDirectory() as place:
        environ = newcomer(place)
        question = [
            *conductor(),
            "--quiet",
            "ask",
            "--rehearsal",
            "Find the capital of Japan, then spell it backwards.",
        ]
        peer = [str(Path(sys.executable).with_name("llm")), "--help"]
        pairs = [(spent(question, environ).wall, spent(peer, environ).wall) for _ in range(ROUNDS + 1)][1:]
    ours, theirs = zip(*pairs, strict=True)
    also = f"{statistics.median(ours):.2f} and {statistics.median(theirs):.2f} s"
    what = "one question, process start to exit, against `llm --help`"
    return Figure(what=what, value=ratio(ours, theirs), unit="ratio", bound=1.0, also=also)


if __name__ == "__main__":
    print(measure().markdown())
