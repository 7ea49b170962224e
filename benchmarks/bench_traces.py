"""What it takes to look at many stored runs: list, search, names for a shell.

And to replay a long one.

The runs are made up here, of plans of three steps with answers of some hundred words each, and
written by the store.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from figures import Figure, Table, in_turn, newcomer, orchestra, share, spent

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.state.trace_store import TraceStore

ROUNDS: Final = 11
INDEX_BOUND: Final = 280.0
"""The first list over `conductor --version`: 5 s where that takes 18 ms, as it did when the bound
was set.
"""

RUNS: Final = 10_000
EVENTS: Final = 50_000
WORDS: Final = 150  # words of one answer
PIECES: Final = 40  # pieces that an answer came in
VOCABULARY: Final = 5_000
RARE: Final = "zeppelin"  # a word that stands in one run of a thousand
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
USED: Final = Usage(tokens_in=400, tokens_out=200, cost=Decimal("0.0012"), seconds=3.0, calls=1)


def measure() -> Table:
    """Every command in turn, `ROUNDS` times, after one round that is not counted.

    It makes the index.
    """
    with tempfile.TemporaryDirectory() as directory:
        environ = newcomer(directory)
        filled = fill(Path(environ["XDG_STATE_HOME"]) / "conductor-llm" / "traces")
        long = newcomer(f"{directory}/long")
        lengthy(Path(long["XDG_STATE_HOME"]) / "conductor-llm" / "traces")
        commands = {
            "conductor --version": ([*orchestra(), "--version"], environ),
            f"trace list, {RUNS:,} runs": ([*orchestra(), "trace", "list"], environ),
            f"trace search, one run in {RUNS // 10:,}": (
                [*orchestra(), "trace", "list", RARE],
                environ,
            ),
            "trace search, in every run": ([*orchestra(), "trace", "list", "the answer"], environ),
            "names for a shell": ([*orchestra(), "complete", ":", "trace", "show"], environ),
            f"trace replay, {EVENTS:,} events": (
                [*orchestra(), "trace", "replay", "--speed", "0"],
                long,
            ),
        }
        first = spent(*commands[f"trace list, {RUNS:,} runs"], remarks=False)
        times = in_turn(commands, ROUNDS, remarks=False)
        size = Path(environ["XDG_STATE_HOME"], "conductor-llm", "traces.index").stat().st_size
        after = statistics.median(_after_a_run(environ, number) for number in range(5))
    bounds = (None, 20.0, 22.0, 22.0, 2.0, 30.0)
    figures = [
        share(name, times[name], times["conductor --version"], bound)
        for name, bound in zip(commands, bounds, strict=True)
    ]
    about = (
        f"Wall time as a multiple of `conductor --version` in the same round; median of {ROUNDS} "
        "rounds. "
        f"{RUNS:,} runs of three steps, {filled / 1e6:.0f} MB."
    )
    return Table(
        "traces",
        about,
        (
            *figures[1:],
            Figure("the first list after a run", after, "ratio", also="it reads that run"),
            Figure(
                "the first list, which makes the index",
                first.wall
                / statistics.median(version.wall for version in times["conductor --version"]),
                "ratio",
                bound=INDEX_BOUND,
                also=f"{first.wall:.2f} s",
            ),
            Figure("the index", size, "MB", also=f"{size / filled:.2f} of the traces"),
        ),
    )


def _after_a_run(environ: dict[str, str], number: int) -> float:
    """Return the time of a list that finds a new run, over that of `conductor --version`."""
    traces = Path(environ["XDG_STATE_HOME"]) / "conductor-llm" / "traces"
    run = f"20300101-00000{number}-000000"
    write(TraceStore(traces), run, events_of(run, BEGAN, "And now?", ["so"] * 3, 1))
    listed, version = (
        spent([*orchestra(), *words], environ, remarks=False).wall
        for words in (["trace", "list"], ["--version"])
    )
    return listed / version


def fill(directory: Path, count: int = RUNS) -> int:
    """Write `count` runs, one an hour; returns their bytes.

    They were written some time ago, as runs are.
    """
    drawn = random.Random(7)
    vocabulary = [
        "".join(drawn.choices(ascii_lowercase, k=drawn.randint(2, 9))) for _ in range(VOCABULARY)
    ]
    store = TraceStore(directory)
    size = 0
    for number in range(count):
        began = BEGAN + timedelta(hours=number)
        run = f"{began:%Y%m%d-%H%M%S}-{number:06x}"
        texts = [" ".join([*drawn.choices(vocabulary, k=WORDS), "the answer"]) for _ in range(4)]
        texts[2] += f" {RARE}" if number % 1000 == 0 else ""
        size += write(store, run, events_of(run, began, texts[0][:200], texts[1:], PIECES))
    # What has just changed may change again within the same tick of the file system's clock
    time.sleep(4)
    return size


def lengthy(directory: Path) -> None:
    """Write one run of `EVENTS` events."""
    run = "20260101-000000-000000"
    events = events_of(run, BEGAN, "Why?", ["word " * (EVENTS // 3)] * 3, EVENTS // 3 - 3)
    write(TraceStore(directory), run, events)


def write(store: TraceStore, run: str, events: Iterator[ev.Event]) -> int:
    """Store one run; returns its bytes."""
    writer = store.open(run)
    for event in events:
        writer.write(event)
    writer.close()
    return writer.path.stat().st_size


def events_of(
    run: str, began: datetime, question: str, answers: Sequence[str], pieces: int
) -> Iterator[ev.Event]:
    """A run of one step for each answer, the last one seeing the others."""
    workers = ("alpha", "beta", "gamma")
    last = len(answers)
    steps = []
    for number in range(1, last + 1):
        access = tuple(range(1, last)) if number == last else ()
        subtask = f"Work on part {number}: {question[:60]}"
        steps.append(Step(worker=workers[number % 3], subtask=subtask, access=access))
    pool = Pool(
        workers=tuple(Worker(name=name, kind="openai-compatible", model=name) for name in workers)
    )
    yield ev.RunStarted(
        at=0.0,
        run=run,
        time=began.isoformat(timespec="milliseconds"),
        question=Question(text=question),
        pool=pool,
        limits=Limits(),
        mode="auto",
        conductor="made up",
        profile="prompted",
    )
    for number, step in enumerate(steps, start=1):
        planned = {"worker": step.worker, "subtask": step.subtask, "access": step.access}
        yield ev.StepPlanned(at=0.1 * number, step=number, last=number == last, **planned)
    yield ev.PlanReady(at=1.0, plan=Plan(steps=tuple(steps)), usage=USED)
    for number, (step, answer) in enumerate(zip(steps, answers, strict=True), start=1):
        yield ev.StepStarted(
            at=float(number), step=number, worker=step.worker, attempt=1, prompt=()
        )
        for piece in range(pieces):
            start, end = (len(answer) * at // pieces for at in (piece, piece + 1))
            yield ev.StepDelta(
                at=round(number + piece / pieces, 3), step=number, attempt=1, text=answer[start:end]
            )
        yield ev.StepFinished(
            at=number + 1.0, step=number, attempt=1, text=answer, usage=USED, finish="stop"
        )
    yield ev.RunFinished(at=last + 1.0, answer=answers[-1], usage=USED)
