"""`make rehearsal`: train all demo models from nothing. It can be killed and run again.

Two stages of one thread run in parallel: the workers and the conductor's cold start, then their
table and cards, GRPO, and the examination. A call of a stage takes at most 20 minutes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from conductor_cli.rehearsal.players import CARDS
from training.rehearsal.lessons import COURSES
from training.stages import DONE, MISSED, Stage, Workspace, add_options, print_line, run_training

OUT: Final = Path("build/rehearsal")
WORKERS: Final = tuple(COURSES)
FILES: Final = tuple(f"{name}.gguf" for name in WORKERS)
COLD: Final = "cold.gguf"
TRAIN: Final = (sys.executable, "-m", "training.rehearsal.train")
MEANS: Final = ("held-out phrasings", "known phrasings")
"""The rows of an examination whose mean over the seeds is printed."""


def plan(
    out: Path, *, seeds: Sequence[int], minutes: float, steps: int | None
) -> tuple[Stage, ...]:
    """All stages below `out`. Of those that need no other, the longest comes first."""
    bounds = ("--out", str(out), "--minutes", f"{minutes:g}")
    return (
        Stage(name="cold", makes=COLD, command=(*TRAIN, "conductor", "--stage", "cold", *bounds)),
        *(
            Stage(name=name, makes=f"{name}.gguf", command=(*TRAIN, "worker", name, *bounds))
            for name in WORKERS
        ),
        Stage(
            name="table",
            makes="table.txt",
            command=(*TRAIN, "table", str(out)),
            needs=FILES,
            prints=True,
        ),
        Stage(name="cards", makes=CARDS, command=(*TRAIN, "cards", str(out)), needs=FILES),
        *chain.from_iterable(_practice(out, seed, minutes, steps) for seed in seeds),
    )


def _practice(out: Path, seed: int, minutes: float, steps: int | None) -> Iterator[Stage]:
    """GRPO from the cold start, and the examination of its result."""
    folder = f"seed-{seed}"
    course = ["--seed", str(seed)]
    if steps:
        folder += f"-steps-{steps}"
        course += ["--steps", str(steps)]
    course += ["--start", f"@{COLD}"]
    made = f"{folder}/grpo-*/conductor.gguf"
    over = ("--workers", str(out))
    bounds = ("--out", str(out / folder), "--minutes", f"{minutes:g}")
    yield Stage(
        name=f"grpo-{seed}",
        makes=made,
        needs=(*FILES, COLD),
        work_folder=folder,
        command=(*TRAIN, "conductor", "--stage", "grpo", *course, *bounds, *over),
    )
    yield Stage(
        name=f"exam-{seed}",
        makes=f"{folder}/exam.txt",
        needs=(*FILES, made),
        prints=True,
        command=(*TRAIN, "evaluate", f"@{made}", *over),
    )


def finish(work: Workspace, seed: int) -> int:
    """Print the results and how the files of a seed get into the package.

    Returns whether a bound is missed.
    """
    places = {stage.name: work.found(stage.makes) for stage in work.stages if stage.prints}
    texts = {
        name: path.read_text(encoding="utf-8") for name, path in places.items() if path is not None
    }
    print_line("")
    for row in MEANS:
        shares: list[float] = []
        for name, text in texts.items():
            if name != "table":
                shares += values(text, row)
        if shares:
            listed = ", ".join(f"{share:.3f}" for share in shares)
            print_line(f"{row}: {sum(shares) / len(shares):.3f} ({listed})")
    if missed := [name for name, text in texts.items() if "MISSED" in text]:
        print_line(f"a bound is missed: see {', '.join(str(places[name]) for name in missed)}")
    trained = next(work.found(stage.makes) for stage in work.stages if stage.name == f"grpo-{seed}")
    if trained is not None:
        shutil.copyfile(trained, work.out / "conductor.gguf")
    out = work.out
    names = ",".join((*WORKERS, "conductor"))
    print_line(
        f"\ntry it    CONDUCTOR_LLM_REHEARSAL_DIR={out} .venv/bin/conductor ask --demo "
        "'capital of Japan?'"
    )
    print_line(
        f"ship it   cp {out}/{{{names}}}.gguf {out}/{CARDS} src/conductor_cli/rehearsal/models/"
    )
    print_line(f"          cp {out}/{COLD} src/conductor_cli/rehearsal/models/")
    if missed:
        return MISSED
    return DONE


def values(text: str, row: str) -> list[float]:
    """The values of a row of a table as the trainer prints it."""
    return [
        float(value) for value in re.findall(rf"^{re.escape(row)} +(-?[0-9.]+)", text, re.MULTILINE)
    ]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(number) for number in text.split(",")))


def main() -> int:
    """Continue. Returns 0 if all is trained, 1 if a stage failed or a bound is missed."""
    parser = argparse.ArgumentParser(
        prog="make rehearsal", description=(__doc__ or "").splitlines()[0]
    )
    add_options(parser)
    seeds = "GRPO with each of these seeds, such as 1,2,3; the first is the one that ships"
    parser.add_argument("--seeds", type=_numbers, default=(1,), help=seeds)
    parser.add_argument("--steps", type=int, help="number of steps of GRPO, for a trial")
    given = parser.parse_args()
    out = given.out or OUT
    work = Workspace(out, plan(out, seeds=given.seeds, minutes=given.minutes, steps=given.steps))
    return run_training(work, given, lambda: finish(work, given.seeds[0]))


if __name__ == "__main__":
    sys.exit(main())
