"""What one token of a worker costs us, from the socket to a line of JSON.

And what drawing five workers live costs. The server is a process of its own; what is counted is the
processor time of this one, all its threads, by `getrusage`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

from figures import Figure, Table, cpu, terminal
from loopback import paced, server, words

from conductor_cli.app.driver import Job, begin_run, run_to_end
from conductor_cli.config.settings import load_settings
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.run import Orchestra, RunSpec, Team
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.output_formats import OutputContext, OutputName, RunView, open_views

WORKERS: Final = ("ada", "ben", "cem", "dua", "eli")
RATE: Final = 200  # tokens a second of each worker that writes at a steady pace
MANY: Final = 2000  # tokens of each worker that writes as fast as it can
SECONDS: Final = 10
ROUNDS: Final = 3
COLUMNS = 100
ROWS = 30
QUESTION: Final = Question(text="Which lock is taken first?")
STEPS: Final = (
    Step(worker=name, subtask="Say which lock is taken first, and why.") for name in WORKERS
)
PLAN: Final = Plan(steps=tuple(STEPS))


def measure() -> Table:
    """Everything on one event loop, one way after the other."""
    with (
        server() as url,
        tempfile.TemporaryDirectory() as directory,
        Path(os.devnull).open("w") as nowhere,
    ):
        return asyncio.run(_measure(url, TraceStore(Path(directory)), nowhere))


async def _measure(url: str, store: TraceStore, nowhere: TextIO) -> Table:
    count = len(WORKERS) * MANY
    few = RATE * 4
    await _asked(_remote(url, "50"), store, nowhere)  # loads httpx and opens the connections
    fast = str(MANY)
    slow = f"{few}@{RATE}"
    whole = [
        await _cpu_of(_asked(_remote(url, fast), store, nowhere)) / count for _ in range(ROUNDS)
    ]
    alone = [await _cpu_of(_read_alone(_remote(url, fast))) / count for _ in range(ROUNDS)]
    steady = await _cpu_of(_asked(_remote(url, slow), store, nowhere)) / (len(WORKERS) * few)
    steady_alone = await _cpu_of(_read_alone(_remote(url, slow))) / (len(WORKERS) * few)
    scripted = await _live(_scripted(RATE * SECONDS, RATE), store, nowhere)
    remote = await _live(_remote(url, f"{RATE * SECONDS}@{RATE}"), store, nowhere)
    nothing = await _share(_asked(_scripted(RATE * SECONDS // 2, RATE), store, nowhere, "answer"))
    about = (
        "Five workers at once, processor time of our process. A delta goes through adapter, run, "
        "stored trace and "
        f"JSONL view. Drawn: on a terminal of {COLUMNS} x {ROWS}, {SECONDS} s, trace stored."
    )
    return Table(
        "stream",
        about,
        (
            Figure(
                "a delta, as fast as the server writes",
                statistics.median(whole),
                "us",
                1e-3,
                "many are read from the socket at once",
            ),
            Figure(
                "of that, the adapter alone",
                statistics.median(alone),
                "us",
                also="httpx, events, JSON",
            ),
            Figure(
                "a delta, at 200 a second and worker",
                steady,
                "us",
                1e-3,
                "each is a read of its own",
            ),
            Figure("of that, the adapter alone", steady_alone, "us", also="with waiting for each"),
            Figure("five scripted workers drawn live, of one core", scripted, "percent", 0.10),
            Figure(
                "the same through the adapter",
                remote,
                "percent",
                also="a read of the socket for each delta",
            ),
            Figure(
                "scripted, nothing drawn", nothing, "percent", also="the run and its stored trace"
            ),
        ),
    )


async def _live(workers: Mapping[str, Model], store: TraceStore, nowhere: TextIO) -> float:
    """The share of one core that a run takes while it is drawn."""
    with terminal() as (stderr, _):
        around = OutputContext(
            stdout=nowhere,
            stderr=stderr,
            environ={"TERM": "xterm-256color"},
            width=COLUMNS,
            height=ROWS,
        )
        return await _share(_shown(workers, open_views("answer", "tree", around), store))


def _remote(url: str, model: str) -> dict[str, Model]:
    made = [
        Worker(name=name, kind="openai-compatible", model=model, options={"base_url": url})
        for name in WORKERS
    ]
    return {worker.name: open_model(worker, environ={}) for worker in made}


def _scripted(count: int, rate: float = 0.0) -> dict[str, Model]:
    return {
        name: ScriptedModel(reply=lambda _: paced(islice(words(), count), rate)) for name in WORKERS
    }


async def _asked(
    workers: Mapping[str, Model], store: TraceStore, nowhere: TextIO, output: OutputName = "jsonl"
) -> None:
    around = OutputContext(stdout=nowhere, stderr=nowhere, environ={})
    await _shown(workers, open_views(output, "none", around), store)


async def _shown(workers: Mapping[str, Model], view: RunView, store: TraceStore) -> None:
    pool = Pool(workers=tuple(Worker(name=name, kind="scripted") for name in WORKERS))
    spec = RunSpec(question=QUESTION, plan=PLAN)
    job = Job(spec=spec, settings=load_settings(os.environ), store=store)
    run = begin_run(job, Orchestra(team=Team(model=None, pool=pool, workers=workers)))
    await run_to_end(run, job, view)
    for model in workers.values():
        await model.close()
    if run.trace.error is not None:
        raise SystemExit(f"the run failed: {run.trace.error}")


async def _read_alone(workers: Mapping[str, Model]) -> None:
    async def read(model: Model) -> None:
        async for _ in model.stream(
            Request(messages=(Message(role="user", content="Say something."),))
        ):
            pass
        await model.close()

    await asyncio.gather(*(read(model) for model in workers.values()))


async def _cpu_of(work: Awaitable[None]) -> float:
    before = cpu()
    await work
    return cpu() - before


async def _share(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    used = await _cpu_of(work)
    return used / (time.perf_counter() - began)
