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

from scripts.scale.stage import CONDUCTOR, Figure, Place, Spent, place
from tests.state.cluster import cluster

PARALLEL: Final = 64
FAIL_EVERY: Final = 100


def run(*, questions: int, kills: int, postgres: bool = False) -> Iterator[Figure]:
    """Ask, kill, go on; then every answer is there once, and is what an undisturbed batch writes."""
    with place(fail_every=FAIL_EVERY) as at, ExitStack() as stack:
        state = f'state = "{stack.enter_context(cluster()).new_database()}"' if postgres else ""
        at.configure(state, "[limits]\nattempts = 1")
        with (at.home / "questions.jsonl").open("w") as file:
            file.writelines(f'{{"id":"q{n}","question":"number {n}"}}\n' for n in range(questions))
        spent, resumed = list[Spent](), list[float]()
        for round_ in range(kills + 1):
            begun = _size(at)
            started = time.monotonic()
            process = at.start(*CONDUCTOR, "batch", "questions.jsonl", "-o", "answers.jsonl", "--yes", "--no-trace",
                               "--parallel", PARALLEL, "--progress", "none")  # fmt: skip
            goal = begun + (_goal(questions) - begun) // (kills + 1 - round_)
            while at.is_running(process) and _size(at) == begun:
                time.sleep(0.05)
            resumed.append(time.monotonic() - started)
            while round_ < kills and at.is_running(process) and _size(at) < goal:
                time.sleep(0.1)
            if round_ < kills:
                os.kill(process.pid, signal.SIGKILL)
            spent.append(at.ended(process))
        yield from _figures(at, questions, kills, spent, resumed, at.counts())
        own = 1000 * sum(each.cpu for each in spent) / questions
        yield Figure(f"processor time a question, with {'PostgreSQL' if postgres else 'SQLite'}", f"{own:.2f} ms",
                     "<= 1.5 ms", own <= 1.5, timed=True)  # fmt: skip
        again = at.ended(at.start(*CONDUCTOR, "batch", "questions.jsonl", "-o", "answers.jsonl"))
        yield Figure("time to find all of it done", f"{again.cpu:.1f} s of a processor, {again.memory:.0f} MB",
                     "<= 10 s", again.cpu <= 10, timed=True)  # fmt: skip


def _goal(questions: int) -> int:
    """About how many bytes the answers of so many questions have."""
    return questions * len(_expected(questions // 2))


def _size(at: Place) -> int:
    path = at.home / "answers.jsonl"
    return path.stat().st_size if path.exists() else 0


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from file


def _expected(number: int) -> bytes:
    line = {"id": f"q{number}", "question": f"number {number}", "answer": str(number), "tokens": 36}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _figures(
    at: Place, questions: int, kills: int, spent: list[Spent], resumed: list[float], counts: dict[str, int]
) -> Iterator[Figure]:
    seen, wrong = bytearray(questions), 0
    for raw in _lines(at.home / "answers.jsonl"):
        number = int(json.loads(raw)["id"][1:])
        seen[number] += 1
        wrong += raw != _expected(number)
    for raw in _lines(at.home / "answers.failed.jsonl"):
        data = json.loads(raw)
        seen[int(data["id"][1:])] += 1
        wrong += data["error"].get("reason") != "refused"
    exact = all(times == 1 for times in seen)
    refused = questions // FAIL_EVERY
    memory = max(each.memory for each in spent)
    yield Figure("ids, each once", f"{sum(map(bool, seen)):,} of {questions:,}", "all, none twice", exact)
    yield Figure("lines that differ from an undisturbed batch", str(wrong), "0", wrong == 0)
    yield Figure("code at the end", str(spent[-1].code), "7", spent[-1].code == 7)
    # A refused call is made once more without what the server may not know.
    repeated = counts["repeated"] - refused
    yield Figure(f"calls made again after {kills} kills", f"{repeated:,}", f"<= {kills * PARALLEL:,}",
                 repeated <= kills * PARALLEL)  # fmt: skip
    yield Figure("seconds from the command to its first new answer", f"{max(resumed[1:], default=0):.1f}", "<= 10",
                 max(resumed[1:], default=0) <= 10, timed=True)  # fmt: skip
    yield Figure("memory", f"{memory:.0f} MB", "<= 300 MB", memory <= 300)
