"""The stages of training all that ships with the rehearsal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.rehearsal.players import CARDS
from scripts.rehearsal.courses import COURSES

WORKERS: Final = tuple(COURSES)
FILES: Final = tuple(f"{name}.gguf" for name in WORKERS)
COLD: Final = "cold.gguf"

TRAIN: Final = (sys.executable, "-m", "scripts.rehearsal.train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of the training. `makes` and `needs` are patterns of files below the directory.

    A word of `command` that begins with `@` is such a pattern. `prints`: its output is its file. `work_folder`
    holds its unfinished work.
    """

    name: str
    makes: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    prints: bool = False
    work_folder: str = ""


def plan(out: Path, *, seeds: Sequence[int], minutes: float, steps: int | None) -> tuple[Stage, ...]:
    """All stages below `out`. Of those that need no other, the longest comes first."""
    bounds = ("--out", str(out), "--minutes", f"{minutes:g}", "--threads", "1")
    return (
        Stage(name="cold", makes=COLD, command=(*TRAIN, "conductor", "--stage", "cold", *bounds)),
        *(Stage(name=name, makes=f"{name}.gguf", command=(*TRAIN, "worker", name, *bounds)) for name in WORKERS),
        Stage(name="table", makes="table.txt", command=(*TRAIN, "table", str(out)), needs=FILES, prints=True),
        Stage(name="cards", makes=CARDS, command=(*TRAIN, "cards", str(out)), needs=FILES),
        *(stage for seed in seeds for stage in _practice(out, seed, minutes, steps)),
    )  # fmt: skip


def _practice(out: Path, seed: int, minutes: float, steps: int | None) -> Iterator[Stage]:
    """GRPO from the cold start, and the examination of its result."""
    folder = f"seed-{seed}" + (f"-steps-{steps}" if steps else "")
    made, needs = f"{folder}/grpo-*/conductor.gguf", FILES
    over = ("--workers", str(out))
    course = ("--seed", str(seed), *(("--steps", str(steps)) if steps else ()), "--start", f"@{COLD}")
    bounds = ("--out", str(out / folder), "--minutes", f"{minutes:g}", "--threads", "1")
    yield Stage(
        name=f"grpo-{seed}", makes=made, needs=(*needs, COLD), work_folder=folder,
        command=(*TRAIN, "conductor", "--stage", "grpo", *course, *bounds, *over),
    )  # fmt: skip
    kept = ("--store", str(out / "replies.sqlite"), "--out", str(out / folder / "exam.json"))
    yield Stage(
        name=f"exam-{seed}", makes=f"{folder}/exam.txt", needs=(*needs, COLD, made), prints=True,
        command=(*TRAIN, "evaluate", f"@{made}", *over, "--cold", f"@{COLD}", *kept),
    )  # fmt: skip
