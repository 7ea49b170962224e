"""The local conductor beside what a developer writes first: `bench_conductor.py FILE.gguf`.

README.md says how.

It ends with 1 when a bound does not hold, and writes results-conductor.md if the model has about
7B.
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
from typing import Any, Final

import psutil
from figures import MEGABYTE, Figure, Table, ratio
from live_conductor import CONTEXT, PLAN, naive_job
from run import HEAD, judged, load_before, setting

from conductor_cli.models.llama.gguf import part_files

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results-conductor.md"
LIBRARIES: Final = ("llama-cpp-python", "numpy", "gguf")
# Bytes of the models that the ratios are for: with a smaller one loading and Python weigh more
LARGE: Final = 4e9
ROUNDS: Final = 3
# Bytes that have to be available for 7B: the naive script holds its weights twice
MEMORY: Final = 12e9
QUESTIONS: Final = 20
FIRST_STEP: Final = 0.065
"""The bound of the time to the first step, as a share of naive's plan. Of .063 that were measured,
.033 are the 21 tokens of the first line at nearly the speed of llama.cpp's own loop, .021 the 50
tokens that are read of the question, and .008 loading. Naive is measured once.
"""
SETTLED: Final = 5  # the question after which a process should not grow any more

Found = dict[str, Any]


class Runs:
    """Runs the scripts beside this one, each time in a new process.

    They share one model and one directory of states.
    """

    def __init__(self, model: Path, directory: Path) -> None:
        self._job = directory / "job.json"
        given = {
            "model": str(model),
            "cache": str(directory / "cache"),
            "context": CONTEXT,
            **naive_job(),
        }
        self._job.write_text(json.dumps(given), encoding="utf-8")

    def ours(self, job: str, number: int = -1) -> Found:
        figures, code = self._run("live_conductor.py", job, str(number))
        if code:
            raise SystemExit(f"live_conductor.py {job} ended with {code}")
        return figures

    def naive(self) -> Found:
        """What the naive script took.

        Where llama.cpp's defaults crash, with weights that are not rearranged.
        """
        figures, code = self._run("naive_conductor.py")
        if code < 0:
            crash = code
            figures, code = self._run("naive_conductor.py", "plain")
            figures["crash"] = crash
        if code:
            raise SystemExit(f"naive_conductor.py ended with {code}")
        return figures

    def _run(self, script: str, *arguments: str) -> tuple[Found, int]:
        print(f"measuring {script} {' '.join(arguments)} …", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            str(HERE / script),
            str(self._job),
            str(time.monotonic()),
            *arguments,
        ]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        return (json.loads(done.stdout) if done.returncode == 0 else {}), done.returncode


def measure(path: Path) -> Table:
    """All of it, in one run."""
    size = weight(path)
    bounded = size > LARGE
    if bounded and (free := psutil.virtual_memory().available) < MEMORY:
        raise SystemExit(
            f"{MEMORY / 1e9:.0f} GB of memory are needed, {free / 1e9:.1f} GB are available"
        )
    for part in part_files(path):  # so that they are in the page cache for everybody
        with part.open("rb") as file:
            while file.read(16 * MEGABYTE):
                pass
    with tempfile.TemporaryDirectory() as directory:
        runs = Runs(path, Path(directory))
        naive = runs.naive()
        first = runs.ours("plan", 20)
        plans = [runs.ours("plan", at) for at in (30, 50, 70)[:ROUNDS]]
        restored = runs.ours("restore")
        runs.ours("mini")
        minis = [runs.ours("mini") for _ in range(ROUNDS)]
        decoded = runs.ours("decode", ROUNDS)
        lived = runs.ours("live", QUESTIONS)
    return Table(
        f"conductor, {path.stem}",
        about(size, naive, plans),
        (
            *against_naive(naive, plans, minis, bounded=bounded),
            *decoding(restored, decoded, [first, *plans], bounded=bounded),
            *memory(size, [first, *plans, *minis], naive, lived),
            Figure(
                "the first process ever, to the plan",
                first["took"]["plan"],
                "s",
                also=f"it computes the prefix; first step after {first['took']['step']:.1f} s",
            ),
        ),
    )


def weight(path: Path) -> int:
    """The bytes of a model."""
    return sum(part.stat().st_size for part in part_files(path))


def about(size: int, naive: Found, plans: list[Found]) -> str:
    """How it was measured, under the heading."""
    written = len(plans[0]["draws"]) - 1
    theirs = naive["usage"]["completion_tokens"]
    crash = (
        " With llama.cpp's defaults the naive script ended with signal "
        f"{-naive.get('crash', 0)} here: it was"
    )
    crash += " measured with weights that are not rearranged."
    return (
        f"A model of {size / 1e9:.2f} GB, in the page cache, context {CONTEXT}. The same plan "
        f"of {len(PLAN.steps)} steps is forced on both: {written} tokens as lines, {theirs} in "
        "JSON; prompts of "
        f"{plans[0]['read']} tokens, {plans[0]['cached']} of them cached, and "
        f"{naive['usage']['prompt_tokens']}. New "
        f"processes, from their start on; the naive script once, ours the median of {ROUNDS}."
        + (crash if "crash" in naive else "")
    )


def against_naive(
    naive: Found, plans: list[Found], minis: list[Found], *, bounded: bool
) -> Iterator[Figure]:
    """How long a new process takes, as a share of the naive script's whole plan."""
    whole = naive["took"]["plan"]
    for title, jobs, name, bound in (
        ("to the full plan, against naive", plans, "plan", 0.20),
        ("to the first step at its worker, against naive's plan", plans, "step", FIRST_STEP),
        ("mini mode, to the worker's call, against naive's plan", minis, "step", 0.03),
    ):
        took, loaded = (
            statistics.median(job["took"][key] for job in jobs) for key in (name, "load")
        )
        also = f"{took:.2f} s; loaded after {loaded:.2f} s"
        yield Figure(title, took / whole, "ratio", bound if bounded else None, also)
    also = (
        f"loaded after {naive['took']['load']:.1f} s, first token after "
        f"{naive['took']['first token']:.1f} s"
    )
    yield Figure("naive's plan itself", whole, "s", also=also)


def decoding(
    restored: Found, decoded: Found, plans: list[Found], *, bounded: bool
) -> Iterator[Figure]:
    """The prefix from disk, without what comes behind it; tokens a second beside the raw loop.

    Constrained sampling.
    """
    took = statistics.median(restored["restored"])
    computed = restored["computed"]
    also = f"{restored['tokens']} tokens: {took * 1e3:.0f} ms, computed {computed:.1f} s"
    yield Figure(
        "prefix from disk, against computing it",
        took / computed,
        "ratio",
        0.005 if bounded else None,
        also,
    )
    ours, raw = (1 / statistics.median(decoded[name]) for name in ("ours", "theirs"))
    also = f"{ours:.2f} and {raw:.2f} tokens/s, in {len(decoded['ours'])} rounds"
    speed = ratio(decoded["theirs"], decoded["ours"])
    yield Figure("decode, against the raw llama.cpp loop", speed, "ratio", 0.97, also, least=True)
    draws: list[float] = []
    for plan in plans:
        draws += plan["draws"]
    refused = sum(plan["refusals"] for plan in plans)
    also = f"{refused} of {len(draws)} refused first, {refused / len(draws):.1%}; median "
    also += f"{statistics.median(draws) * 1e6:.0f} µs, most {max(draws) * 1e3:.1f} ms"
    yield Figure("constrained sampling, a token", statistics.fmean(draws), "us", 500e-6, also)


def memory(size: int, jobs: list[Found], naive: Found, lived: Found) -> Iterator[Figure]:
    """The most that any of our processes held, written and mapped.

    Then one process and many questions.
    """
    most = max(job["peak"] for job in jobs)
    also = (
        f"{(most - size) / MEGABYTE:.0f} MB over the file; naive {naive['peak'] / MEGABYTE:.0f} MB"
    )
    yield Figure("resident memory, peak", most, "MB", size + 600 * MEGABYTE, also)
    held = lived["resident"]
    seconds = lived["seconds"]
    title = f"one process, question {SETTLED} to {QUESTIONS}: growth"
    also = f"{held[-1] / MEGABYTE:.0f} MB after the last"
    yield Figure(title, held[-1] - held[SETTLED - 1], "MB", 20 * MEGABYTE, also)
    beyond = max(
        read - expected for read, expected in zip(lived["read"][1:], lived["own"][1:], strict=True)
    )
    also = (
        f"reads {statistics.median(lived['read'][1:]):.0f}; "
        f"{statistics.median(seconds[1:]):.2f} s a question"
    )
    also += f" with a plan of two steps, the first {seconds[0]:.2f} s"
    yield Figure("prompt tokens that a question reads beyond its own", beyond, "tokens", 0, also)


def main(arguments: list[str]) -> int:
    """Measure over the model that is named."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("name a model: make bench-conductor MODEL=FILE.gguf", file=sys.stderr)
        return 2
    path = Path(arguments[0]).absolute()
    load = load_before()
    began = time.monotonic()
    table = measure(path)
    print(table.markdown(), flush=True)
    title = HEAD.format(title="Results of the local conductor", target="bench-conductor")
    head = [title, setting(load, time.monotonic() - began, LIBRARIES)]
    return judged([table], head, RESULTS if weight(path) > LARGE else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
