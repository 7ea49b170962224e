"""What the sandbox adds to a program that a model wrote, and to each of its tests."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from figures import Figure, Table, show

from conductor_cli.programs.sandbox import Confined, Program, find_engine

ROUNDS: Final = 15
CODE: Final = "print(sum(map(int, input().split())))"
INPUT: Final = b"1 2\n"


def measure() -> Table:
    """Medians of the same program, in turn: by a bare interpreter, and in a sandbox that is made for it."""
    engine = find_engine("", os.environ)

    def bare() -> None:
        subprocess.run([engine.python, "-I", "-c", CODE], input=INPUT, capture_output=True, check=True)

    def confined() -> None:
        with Confined(engine, Program(code=CODE)) as sandbox:
            assert sandbox.run(INPUT, 6).output == b"3\n"

    alone, inside = _medians(bare, confined)
    with Confined(engine, Program(code=CODE)) as sandbox:
        (test,) = _medians(lambda: sandbox.run(INPUT, 6))
    return Table(
        title="sandbox",
        about=f"A program that adds two numbers, under {engine.kind}, and by the same interpreter without a sandbox.",
        figures=(
            Figure(what="a program without a sandbox", value=alone, unit="ms"),
            Figure(what="a program in a sandbox of its own", value=inside, unit="ms"),
            Figure(what="each further test in the same sandbox", value=test, unit="ms"),
        ),
    )  # fmt: skip


def _medians(*actions: Callable[[], None] | Callable[[], object]) -> list[float]:
    """The median seconds of each action, which are done in turn."""
    seconds: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, taken in zip(actions, seconds, strict=True):
            began = time.perf_counter()
            action()
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in seconds]


if __name__ == "__main__":
    sys.exit(show(measure()))
