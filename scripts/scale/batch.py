"""T5: a batch of many questions, 1 % of which fail, that is killed again and again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from scripts.scale.stage import CONDUCTOR, Figure, Place, Spent, at_most, place
from tests.state.cluster import cluster

PARALLEL: Final = 64
FAIL_EVERY: Final = 100
COMMAND: Final = (
    *CONDUCTOR,
    "batch",
    "questions.jsonl",
    "-o",
    "answers.jsonl",
    "--yes",
    "--no-trace",
    "--progress",
    "none",
    "--parallel",
    PARALLEL,
)


def run(*, questions: int, kills: int, postgres: bool = False) -> Iterator[Figure]:
    """Ask, kill, go on.

    Then every answer is there once, and is what an undisturbed batch writes.
    """
    with place(fail_every=FAIL_EVERY) as at, ExitStack() as stack:
        prepare(
            at,
            questions,
            f'state = "{stack.enter_context(cluster()).new_database()}"' if postgres else "",
        )
        spent = list[Spent]()
        resumed = list[float]()
        for round_ in range(kills + 1):
            begun = _size(at)
            started = time.monotonic()
            process = at.start(*COMMAND, *at.planned)
            all_bytes = questions * len(_expected(questions // 2))  # about
            goal = begun + (all_bytes - begun) // (kills + 1 - round_)
            while at.is_running(process) and _size(at) == begun:
                time.sleep(0.05)
            resumed.append(time.monotonic() - started)
            while round_ < kills and at.is_running(process) and _size(at) < goal:
                time.sleep(0.1)
            if round_ < kills:
                # `Popen.kill` would take its end away from `ended`
                os.kill(process.pid, signal.SIGKILL)
            spent.append(at.ended(process))
        again = at.ended(at.start(*COMMAND, *at.planned))
        yield from figures(at, questions, [spent[-1], again], f"{kills} kills", kills * PARALLEL)
        resumed = resumed[1:] or [0.0]
        yield at_most(
            "seconds from the command to its first new answer", max(resumed), 10, timed=True
        )
        yield at_most("memory", max(usage.memory for usage in spent), 300, "{:.0f} MB")
        ours = 1000 * sum(usage.cpu for usage in spent) / questions
        kind = "SQLite"
        most = 1.5
        if postgres:
            kind = "PostgreSQL"
            most = 2.5
        title = f"processor time a question, with {kind}"
        yield at_most(title, ours, most, "{:.2f} ms", timed=True)
        yield Figure(
            "time to find all of it done",
            f"{again.cpu:.1f} s of a processor, {again.memory:.0f} MB",
            "<= 10 s",
            again.cpu <= 10,
            timed=True,
        )


def prepare(at: Place, questions: int, before: str = "") -> None:
    """Write the settings, which begin with `before`, and the questions."""
    at.configure(before, "[limits]\nattempts = 1")
    with (at.home / "questions.jsonl").open("w") as file:
        file.writelines(f'{{"id":"q{n}","question":"number {n}"}}\n' for n in range(questions))


def _size(at: Place) -> int:
    path = at.home / "answers.jsonl"
    return path.stat().st_size if path.exists() else 0


def lines(path: Path) -> list[bytes]:
    """Return the whole lines of a file."""
    rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in rows if line.endswith(b"\n")]


def _expected(number: int) -> dict[str, object]:
    """The line of an answer without its `input`, the hash of what was asked."""
    return {
        "id": f"q{number}",
        "question": f"number {number}",
        "answer": str(number),
        "tokens": 36,
        "unpriced": 2,
    }


def figures(
    at: Place, questions: int, ended: list[Spent], disturbed: str, most: int
) -> Iterator[Figure]:
    """What came of a disturbed batch, after which at most so many calls may be made again."""
    answered = bytearray(questions)
    wrong = 0
    for raw in lines(at.home / "answers.jsonl"):
        line = json.loads(raw)
        number = int(line["id"][1:])
        answered[number] += 1
        has_hash = bool(line.pop("input", ""))
        wrong += not has_hash or line != _expected(number)
    for raw in lines(at.home / "answers.failed.jsonl"):
        row = json.loads(raw)
        answered[int(row["id"][1:])] += 1
        wrong += row["error"].get("reason") != "refused"
    exact = all(times == 1 for times in answered)
    log = "" if exact else (at.home / "log").read_text()[-500:]
    yield Figure(
        "ids, each once",
        f"{sum(map(bool, answered)):,} of {questions:,} {log}",
        "all, none twice",
        exact,
    )
    yield at_most("lines that differ from an undisturbed batch", wrong, 0, "{:,}")
    codes = ", ".join(str(process.code) for process in ended)
    yield Figure("codes at the end, and of the same command again", codes, "7, 7", codes == "7, 7")
    # A refused call is made once more without what the server may not know.
    repeated = at.counts()["repeated"] - questions // FAIL_EVERY
    yield at_most(f"calls made again after {disturbed}", repeated, most, "{:,}")
