"""What a rehearsal took, what it reached, and how its files get into the package."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from scripts.rehearsal.stages import CARDS, COLD, WORKERS
from scripts.rehearsal.workspace import MISSED, NOT_OVER, OVER, Work, say

MEANS: Final = ("four workers", "held-out phrasings")
"""The rows of an examination of which the mean over the seeds is said."""

FEW: Final = 5
"""Steps over which the reward is taken at both ends of a curve."""

PACKAGE: Final = "src/conductor_cli/rehearsal"


def minutes(work: Work) -> None:
    """Say the minutes of each stage, from the log, and of all together."""
    calls = [call for call in work.calls() if call["stage"] in {stage.name for stage in work.stages}]
    say(f"\n{'stage':<12}{'calls':>6}{'minutes':>9}{'processor':>11}")
    for name in dict.fromkeys(call["stage"] for call in calls):
        own = [call for call in calls if call["stage"] == name]
        say(f"{name:<12}{len(own):>6}{_sum(own, 'wall'):>9.1f}{_sum(own, 'processor'):>11.1f}")
    say(f"{'together':<12}{len(calls):>6}{clock(calls):>9.1f}{_sum(calls, 'processor'):>11.1f}")


def _sum(calls: Sequence[Mapping[str, Any]], what: str) -> float:
    return float(sum(call[what] for call in calls)) / 60


def clock(calls: Sequence[Mapping[str, Any]]) -> float:
    """Minutes in which any stage ran: what runs side by side counts once."""
    begun = [datetime.fromisoformat(call["at"]).timestamp() for call in calls]
    together = until = 0.0
    for begin, end in sorted((at, at + call["wall"]) for at, call in zip(begun, calls, strict=True)):
        together += max(0.0, end - max(begin, until))
        until = max(until, end)
    return together / 60


def finished(work: Work, seed: int) -> int:
    """What was reached, and how the files of a seed get into the package; whether a bound is missed."""
    places = {stage.name: work.found(stage.makes) for stage in work.stages if stage.prints}
    texts = {name: path.read_text(encoding="utf-8") for name, path in places.items() if path is not None}
    say("")
    for row in MEANS:
        found = [value for name, text in texts.items() if name != "table" for value in values(text, row)]
        say(f"{row}: {sum(found) / len(found):.3f} ({', '.join(f'{value:.3f}' for value in found)})") if found else None
    for stage in work.stages:
        _gain(stage.name, work.found(stage.makes)) if stage.leaves else None
    if missed := [name for name, text in texts.items() if "MISSED" in text]:
        say(f"a bound is missed: see {', '.join(str(places[name]) for name in missed)}")
    _gather(work, seed)
    _tell(work.out)
    return MISSED if missed else OVER


def values(text: str, row: str) -> list[float]:
    """The values of a row of a table as the trainer prints it."""
    return [float(value) for value in re.findall(rf"^{re.escape(row)} +(-?[0-9.]+)", text, re.MULTILINE)]


def _gain(name: str, trained: Path | None) -> None:
    """Say how the reward of a training rose."""
    curve = trained.with_name("curve.jsonl") if trained is not None else None
    lines = curve.read_text(encoding="utf-8").splitlines() if curve is not None and curve.exists() else []
    rewards = [json.loads(line)["reward"] for line in lines if line.endswith("}")]
    if len(rewards) >= 2 * FEW:
        first, last = sum(rewards[:FEW]) / FEW, sum(rewards[-FEW:]) / FEW
        say(f"{name}: reward {first:.3f} to {last:.3f} in {len(rewards)} steps (means of {FEW})")


def _gather(work: Work, seed: int) -> None:
    """Copy the files of a seed that can be shipped beside the others."""
    trained = next(work.found(stage.makes) for stage in work.stages if stage.name == f"grpo-{seed}")
    for name in ("conductor.gguf", "curve.jsonl"):
        if trained is not None and (file := trained.with_name(name)).exists():
            shutil.copyfile(file, work.out / name)


def _tell(out: Path) -> None:
    names = ",".join((*WORKERS, "conductor"))
    say(f"\ntry it    CONDUCTOR_LLM_REHEARSAL_DIR={out} .venv/bin/conductor ask --rehearsal 'capital of Japan?'")
    say(f"ship it   cp {out}/{{{names}}}.gguf {PACKAGE}/models/")
    say(f"          cp {out}/{CARDS} {PACKAGE}/")
    say(f"          cp {out}/{COLD} scripts/rehearsal/")


def status(work: Work) -> int:
    """Say which stages are done; whether all are."""
    done = [work.is_done(stage) for stage in work.stages]
    for stage, is_done in zip(work.stages, done, strict=True):
        say(f"{stage.name:<12}{'done' if is_done else 'missing'}")
    return OVER if all(done) else NOT_OVER
