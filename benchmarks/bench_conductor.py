"""The local conductor beside what a developer writes first, on a model of random weights in the shape of Qwen2.5.

`bench_conductor.py [7b]` makes the file where it is not there yet, takes a quarter of an hour and 12 GB of memory,
writes results-conductor.md and ends with 1 when a bound does not hold. Other shapes (0.5b) are for trying it out: they
have no bounds against the naive script, and write nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from figures import MEGABYTE, Figure, Table
from forced import CONTEXT, PLAN, naive_job
from run import load_before, setting
from shapes import SHAPES, model

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results-conductor.md"
LIBRARIES: Final = ("llama-cpp-python", "numpy", "gguf")
BOUND: Final = "7b"
"""The shape that the ratios are for: with a smaller one loading and Python weigh more."""

ROUNDS: Final = 3
MEMORY: Final = 12e9
"""Bytes that have to be available for the shape of 7B: the naive script holds its weights twice."""

QUESTIONS: Final = 20
SETTLED: Final = 5
"""The question after which a process should not grow any more."""

HEAD: Final = """\
# Results of the local conductor

Written by `make bench-conductor`; what each figure means stands in [README.md](README.md). Ratios are of things
measured in the same run; no figure is compared with one from elsewhere.
"""

Found = dict[str, Any]


class Runs:
    """Runs the scripts beside this one, each time in a new process, over one model and one directory of states."""

    def __init__(self, model: Path, place: Path) -> None:
        self._job = place / "job.json"
        given = {"model": str(model), "cache": str(place / "cache"), "context": CONTEXT, **naive_job()}
        self._job.write_text(json.dumps(given), encoding="utf-8")

    def ours(self, what: str, number: int = -1) -> Found:
        """What live_conductor.py found."""
        print(f"measuring {what} …", file=sys.stderr, flush=True)
        found, code = self._run("live_conductor.py", what, str(number))
        return found or _die(f"live_conductor.py {what} ended with {code}")

    def naive(self) -> Found:
        """What the naive script took; where llama.cpp's defaults crash, with weights that are not rearranged."""
        print("measuring the naive script …", file=sys.stderr, flush=True)
        found, code = self._run("naive_conductor.py")
        if code < 0:
            found, again = self._run("naive_conductor.py", "plain")
            found["crash"] = code
            code = again
        return found if "took" in found else _die(f"naive_conductor.py ended with {code}")

    def _run(self, script: str, *more: str) -> tuple[Found, int]:
        command = [sys.executable, str(HERE / script), str(self._job), str(time.monotonic()), *more]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
        return (json.loads(done.stdout) if done.returncode == 0 else {}), done.returncode


def _die(said: str) -> Found:
    raise SystemExit(said)


def measure(shape: str) -> Table:
    """All of it, in one run."""
    path = model(shape)
    require_memory(shape)
    warm(path)
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        runs = Runs(path, Path(place))
        naive = runs.naive()
        first = runs.ours("plan", 20)
        plans = [runs.ours("plan", at) for at in (30, 50, 70)[:ROUNDS]]
        restored = runs.ours("restore")
        runs.ours("mini")
        minis = [runs.ours("mini") for _ in range(ROUNDS)]
        decoded, lived = runs.ours("decode", ROUNDS), runs.ours("live", QUESTIONS)
    return Table(
        title=f"conductor, {shape} shape",
        about=about(path, naive, plans),
        figures=(
            *against_naive(shape, naive, plans, minis),
            against_computing(shape, restored),
            against_raw(decoded),
            sampling([first, *plans]),
            memory(path, [first, *plans, *minis], naive),
            *alive(lived),
            Figure(
                what="the first process ever, to the plan", value=first["took"]["plan"], unit="s",
                also=f"it computes the prefix; first step after {first['took']['step']:.1f} s",
            ),
        ),
    )  # fmt: skip


def about(path: Path, naive: Found, plans: list[Found]) -> str:
    """How it was measured, under the heading."""
    tokens, cached = plans[0]["read"], plans[0]["cached"]
    written, theirs = len(plans[0]["draws"]) - 1, naive["usage"]["completion_tokens"]
    crash = (
        f" With llama.cpp's defaults the naive script ended with signal {-naive['crash']} here: it was measured with "
        "weights that are not rearranged."
        if "crash" in naive
        else ""
    )
    return (
        f"Random weights, {path.stat().st_size / 1e9:.2f} GB, file in the page cache, context {CONTEXT}. The same plan "
        f"of {len(PLAN.steps)} steps is forced on both: {written} tokens as lines, {theirs} in JSON; prompts of "
        f"{tokens} tokens, {cached} of them cached, and {naive['usage']['prompt_tokens']}. New processes, from "
        f"their start on; the naive script once, ours the median of {ROUNDS}.{crash}"
    )


def against_naive(shape: str, naive: Found, plans: list[Found], minis: list[Found]) -> list[Figure]:
    """How long a new process takes, as a share of the naive script's whole plan."""
    whole = naive["took"]["plan"]
    rows = (
        ("to the full plan, against naive", plans, "plan", 0.20),
        ("to the first step at its worker, against naive's plan", plans, "step", 0.06),
        ("mini mode, to the worker's call, against naive's plan", minis, "step", 0.03),
    )
    figures = []
    for what, found, name, bound in rows:
        took = statistics.median(each["took"][name] for each in found)
        also = f"{took:.2f} s; loaded after {statistics.median(each['took']['load'] for each in found):.2f} s"
        figures.append(
            Figure(what=what, value=took / whole, unit="ratio", bound=bound if shape == BOUND else None, also=also)
        )
    took = naive["took"]
    also = f"loaded after {took['load']:.1f} s, first token after {took['first token']:.1f} s"
    return [*figures, Figure(what="naive's plan itself", value=whole, unit="s", also=also)]


def against_computing(shape: str, found: Found) -> Figure:
    """The prefix from disk. What comes behind it was taken off both."""
    took, computed = statistics.median(found["restored"]), found["computed"]
    return Figure(
        what="prefix from disk, against computing it", value=took / computed, unit="ratio",
        bound=0.005 if shape == BOUND else None,
        also=f"{found['tokens']} tokens: {took * 1e3:.0f} ms, computed {computed:.1f} s",
    )  # fmt: skip


def against_raw(found: Found) -> Figure:
    """Tokens a second, as a share of those of the raw loop, taken in turns."""
    speed = statistics.median(raw / ours for ours, raw in zip(found["ours"], found["theirs"], strict=True))
    ours, raw = (1 / statistics.median(found[name]) for name in ("ours", "theirs"))
    return Figure(
        what="decode, against the raw llama.cpp loop", value=speed, unit="ratio", bound=0.97, least=True,
        also=f"{ours:.2f} and {raw:.2f} tokens/s, in {len(found['ours'])} rounds",
    )  # fmt: skip


def sampling(plans: list[Found]) -> Figure:
    """The processor time of constrained sampling, with those tokens that the grammar refused."""
    draws = [draw for plan in plans for draw in plan["draws"]]
    refused = sum(plan["refusals"] for plan in plans)
    return Figure(
        what="constrained sampling, a token", value=statistics.fmean(draws), unit="us", bound=500e-6,
        also=f"{refused} of {len(draws)} refused first, {refused / len(draws):.1%}; median "
        f"{statistics.median(draws) * 1e6:.0f} µs, most {max(draws) * 1e3:.1f} ms",
    )  # fmt: skip


def memory(path: Path, found: list[Found], naive: Found) -> Figure:
    """The most that any of our processes held: what it wrote and what it mapped."""
    size = path.stat().st_size
    most = max(each["peak"] for each in found)
    also = f"{(most - size) / MEGABYTE:.0f} MB over the file; naive {naive['peak'] / MEGABYTE:.0f} MB"
    return Figure(what="resident memory, peak", value=most, unit="MB", bound=size + 600 * MEGABYTE, also=also)


def alive(found: Found) -> list[Figure]:
    """One process and many questions."""
    held = found["resident"]
    beyond = max(read - own for read, own in zip(found["read"][1:], found["own"][1:], strict=True))
    seconds = found["seconds"]
    return [
        Figure(
            what=f"one process, question {SETTLED} to {QUESTIONS}: growth", value=held[-1] - held[SETTLED - 1],
            unit="MB", bound=20 * MEGABYTE, also=f"{held[-1] / MEGABYTE:.0f} MB after the last",
        ),
        Figure(
            what="prompt tokens that a question reads beyond its own", value=beyond, unit="tokens", bound=0,
            also=f"reads {statistics.median(found['read'][1:]):.0f}; {statistics.median(seconds[1:]):.2f} s a question "
            f"with a plan of two steps, the first {seconds[0]:.2f} s",
        ),
    ]  # fmt: skip


def require_memory(shape: str) -> None:
    """End here rather than by the system's hand."""
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
    if shape == BOUND and free is not None and free < MEMORY:
        raise SystemExit(f"{MEMORY / 1e9:.0f} GB of memory are needed, {free / 1e9:.1f} GB are available")


def warm(path: Path) -> None:
    """Read the file once, so that it is in the page cache for everybody."""
    with path.open("rb") as file:
        while file.read(16 * MEGABYTE):
            pass


def main(arguments: list[str]) -> int:
    """The shape that is named, or 7B."""
    shape = arguments[0] if arguments else BOUND
    if shape not in SHAPES:
        print(f"there is no shape {shape!r}; known: {', '.join(SHAPES)}", file=sys.stderr)
        return 2
    load, began = load_before(), time.monotonic()
    table = measure(shape)
    print(table.markdown(), flush=True)
    failed = [figure.what for figure in table.figures if not figure.holds]
    verdict = f"Bounds that do not hold: {', '.join(failed)}." if failed else "All bounds hold."
    print(verdict)
    if shape == BOUND:
        head = [HEAD, setting(load, time.monotonic() - began, LIBRARIES), verdict, "", table.markdown()]
        RESULTS.write_text("\n".join(head), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
