"""`make smollm2`: train a small pretrained model to conduct, from its file to an adapter. It can be run again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.smollm2.commands import ADAPTERS, BASE, CASES, MERGED, MODEL, OUT, PORT, SUPERVISED, TRAINED
from training.stages import Stage, Workspace, add_options, run_training

TRIAL_OUT: Final = Path("build/smollm2-trial")
COMMAND: Final = (sys.executable, "-m", "training.smollm2.commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How long everything is. `workers` are those that GRPO draws from, `cases` its questions."""

    supervised_steps: int = 20
    steps: int = 40
    prompts: int = 4
    group: int = 8
    workers: int = 120
    cases: int = 480
    validation: int = 32


FULL: Final = Scale()
TRIAL: Final = Scale(
    supervised_steps=20, steps=2, prompts=2, group=4, workers=24, cases=16, validation=8,
)  # fmt: skip
"""The whole way in a few minutes, to see whether it works. Its figures mean nothing."""


def plan(out: Path, scale: Scale, *, minutes: float, port: int) -> Iterator[Stage]:
    """All stages below `out`."""
    where, bound = ("--out", str(out)), ("--minutes", f"{minutes:g}")
    yield Stage(name="get", makes=MODEL, command=(*COMMAND, "get", *where))
    yield Stage(name="base", makes=BASE, needs=(MODEL,), command=(*COMMAND, "base", *where))
    yield Stage(
        name="supervised", makes=SUPERVISED, needs=(BASE,), work_folder="start",
        command=(*COMMAND, "supervised", *where, "--steps", str(scale.supervised_steps), *bound),
    )  # fmt: skip
    yield Stage(name="merge", makes=MERGED, needs=(BASE, SUPERVISED), command=(*COMMAND, "merge", *where))
    yield Stage(
        name="workers", makes=CASES,
        command=(
            *COMMAND, "workers", *where, "--count", str(scale.workers), "--cases", str(scale.cases),
            "--validation", str(scale.validation), "--port", str(port),
        ),
    )  # fmt: skip
    sizes = ("--steps", str(scale.steps), "--prompts", str(scale.prompts), "--group", str(scale.group))
    yield Stage(
        name="grpo", makes=TRAINED, needs=(MERGED, CASES), work_folder="grpo",
        command=(*COMMAND, "grpo", *where, *sizes, "--count", str(scale.workers), "--port", str(port), *bound),
    )  # fmt: skip
    yield Stage(
        name="start", makes=ADAPTERS["start"], needs=(MODEL, SUPERVISED),
        command=(*COMMAND, "adapter", "start", *where),
    )  # fmt: skip
    yield Stage(
        name="trained", makes=ADAPTERS["trained"], needs=(MODEL, SUPERVISED, TRAINED),
        command=(*COMMAND, "adapter", "trained", *where),
    )  # fmt: skip


def main() -> int:
    """Continue. Returns 0 if all is done, 1 if a stage failed, 3 if there is more to do."""
    parser = argparse.ArgumentParser(prog="make smollm2", description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--trial", action="store_true", help="the whole way in minutes; its figures mean nothing")
    parser.add_argument("--port", type=int, default=PORT, help="the port of the scripted workers on this machine")
    given = parser.parse_args()
    out = given.out or (TRIAL_OUT if given.trial else OUT)
    stages = tuple(plan(out, TRIAL if given.trial else FULL, minutes=given.minutes, port=given.port))
    return run_training(Workspace(out, stages), given)


if __name__ == "__main__":
    sys.exit(main())
