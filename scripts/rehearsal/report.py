"""How long a rehearsal took, what its models reach, and how its files get into the package."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from conductor_cli.rehearsal.players import CARDS
from scripts.rehearsal.stages import COLD, WORKERS
from scripts.rehearsal.workspace import DONE, MISSED, UNFINISHED, Workspace, print_line

MEANS: Final = ("held-out phrasings", "known phrasings")
"""The rows of an examination whose mean over the seeds is printed."""

FEW: Final = 5
"""Steps over which the reward is taken at both ends of a curve."""

PACKAGE: Final = "src/conductor_cli/rehearsal"


def minutes(work: Workspace) -> None:
    """Print the minutes of each stage, from the log, and of all together."""
    calls = [call for call in work.calls() if call["stage"] in {stage.name for stage in work.stages}]
    print_line(f"\n{'stage':<12}{'calls':>6}{'minutes':>9}{'processor':>11}")
    for name in dict.fromkeys(call["stage"] for call in calls):
        own = [call for call in calls if call["stage"] == name]
        print_line(f"{name:<12}{len(own):>6}{_sum(own, 'wall'):>9.1f}{_sum(own, 'processor'):>11.1f}")
    print_line(f"{'together':<12}{len(calls):>6}{clock(calls):>9.1f}{_sum(calls, 'processor'):>11.1f}")


def _sum(calls: Sequence[Mapping[str, Any]], what: str) -> float:
    return float(sum(call[what] for call in calls)) / 60


def clock(calls: Sequence[Mapping[str, Any]]) -> float:
    """Minutes in which any stage ran: what runs side by side counts once."""
    started = [datetime.fromisoformat(call["at"]).timestamp() for call in calls]
    together = until = 0.0
    for begin, end in sorted((at, at + call["wall"]) for at, call in zip(started, calls, strict=True)):
        together += max(0.0, end - max(begin, until))
        until = max(until, end)
    return together / 60


def finished(work: Workspace, seed: int) -> int:
    """Print the results and how the files of a seed get into the package. Returns whether a bound is missed."""
    places = {stage.name: work.found(stage.makes) for stage in work.stages if stage.prints}
    texts = {name: path.read_text(encoding="utf-8") for name, path in places.items() if path is not None}
    print_line("")
    for row in MEANS:
        found = [value for name, text in texts.items() if name != "table" for value in values(text, row)]
        print_line(
            f"{row}: {sum(found) / len(found):.3f} ({', '.join(f'{value:.3f}' for value in found)})"
        ) if found else None
    for stage in work.stages:
        _gain(stage.name, work.found(stage.makes)) if stage.work_folder else None
    if missed := [name for name, text in texts.items() if "MISSED" in text]:
        print_line(f"a bound is missed: see {', '.join(str(places[name]) for name in missed)}")
    _gather(work, seed)
    _print_next_commands(work.out)
    return MISSED if missed else DONE


def values(text: str, row: str) -> list[float]:
    """The values of a row of a table as the trainer prints it."""
    return [float(value) for value in re.findall(rf"^{re.escape(row)} +(-?[0-9.]+)", text, re.MULTILINE)]


def _gain(name: str, trained: Path | None) -> None:
    """Print how the reward of a training rose."""
    curve = trained.with_name("curve.jsonl") if trained is not None else None
    lines = curve.read_text(encoding="utf-8").splitlines() if curve is not None and curve.exists() else []
    rewards = [json.loads(line)["reward"] for line in lines if line.endswith("}")]
    if len(rewards) >= 2 * FEW:
        first, last = sum(rewards[:FEW]) / FEW, sum(rewards[-FEW:]) / FEW
        print_line(f"{name}: reward {first:.3f} to {last:.3f} in {len(rewards)} steps (means of {FEW})")


def _gather(work: Workspace, seed: int) -> None:
    """Copy the files of the seed that is to be shipped beside the others."""
    trained = next(work.found(stage.makes) for stage in work.stages if stage.name == f"grpo-{seed}")
    for name in ("conductor.gguf", "curve.jsonl"):
        if trained is not None and (file := trained.with_name(name)).exists():
            shutil.copyfile(file, work.out / name)


def _print_next_commands(out: Path) -> None:
    names = ",".join((*WORKERS, "conductor"))
    print_line(f"\ntry it    CONDUCTOR_LLM_REHEARSAL_DIR={out} .venv/bin/conductor ask --rehearsal 'capital of Japan?'")
    print_line(f"ship it   cp {out}/{{{names}}}.gguf {out}/{CARDS} {PACKAGE}/models/")
    print_line(f"          cp {out}/{COLD} scripts/rehearsal/")


def status(work: Workspace) -> int:
    """Print which stages are done. Returns whether all are."""
    done = [work.is_done(stage) for stage in work.stages]
    for stage, is_done in zip(work.stages, done, strict=True):
        print_line(f"{stage.name:<12}{'done' if is_done else 'missing'}")
    return DONE if all(done) else UNFINISHED
