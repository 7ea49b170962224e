"""How close the wall time of a workflow comes to its critical path.

That is the longest chain of steps that the answer needs. The path is taken from the time that each
step took as its worker saw it, since how late the system wakes a process is not ours. The plan is
the one that was run: the last step waits also for those that no other step reads. Beside it stand
the same plan as bare tasks of asyncio, run right after ours, and each step as 50 ms flat.

What exceeds the path is the processor time of the run, about a millisecond for each step and for
its beginning: nothing waits. So the bound says what a run may compute, for steps that are far
shorter than those of any model.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from figures import Figure, Table, ratio, shown

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import MAX_STEPS, Plan, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra, RunSpec, Team, start_run

STEP: Final = 0.05  # seconds that each step waits
BOUND: Final = 0.03  # 1.5 ms of computing for each step of a path
PLANS: Final = 100
SEED: Final = 20251204
NAMES: Final = ("ada", "ben", "cem", "dua", "eli")
POOL: Final = Pool(workers=tuple(Worker(name=name, kind="scripted") for name in NAMES))


@dataclass
class Took:
    """One workflow.

    The plan as it was run, its wall time, the processor time in it, the wall time of its steps as
    bare tasks, and what each step took, by number.
    """

    plan: Plan
    wall: float = 0.0
    processor: float = 0.0
    bare: float = 0.0
    steps: dict[int, float] = field(default_factory=dict)

    def over(self, steps: Mapping[int, float]) -> float:
        """The part of its critical path by which the wall time exceeds it."""
        return self.wall / critical_path(self.plan, steps) - 1

    @property
    def waiting(self) -> float:
        """The part of its critical path by which the wall time without computing exceeds it."""
        return (self.wall - self.processor) / critical_path(self.plan, self.steps) - 1


def measure() -> Table:
    """One plan after the other, in one process."""
    draw = random.Random(SEED)
    runs = asyncio.run(_run_all([drawn(draw) for _ in range(PLANS + 5)]))[5:]
    over = sorted(run.over(run.steps) for run in runs)
    flat = [run.over({}) for run in runs]
    bare = [run.bare for run in runs]
    computed = statistics.median(run.processor for run in runs)
    walls = sum(run.wall for run in runs)
    paths = sum(critical_path(run.plan, run.steps) for run in runs)
    also = (
        f"nine of ten within {shown(over[int(len(over) * 0.9)], 'percent')}, worst "
        f"{shown(over[-1], 'percent')}"
    )
    about = (
        f"Wall time over the critical path of {PLANS} random plans, steps of {shown(STEP, 'ms')}."
    )
    return Table(
        "schedule",
        about,
        (
            Figure("median plan", statistics.median(over), "percent", bound=BOUND, also=also),
            Figure(
                "all plans together",
                walls / paths - 1,
                "percent",
                bound=BOUND,
                also=f"{walls:.2f} s of workflows",
            ),
            Figure(
                "median, without the processor time of the run",
                statistics.median(run.waiting for run in runs),
                "percent",
                also=f"which is {shown(computed, 'ms')} for a plan",
            ),
            Figure(
                "median, over bare tasks of asyncio",
                ratio([run.wall for run in runs], bare) - 1,
                "percent",
                also=f"the bare tasks: {sum(bare):.2f} s",
            ),
            Figure(
                "median, steps counted as 50 ms flat",
                statistics.median(flat),
                "percent",
                also="includes how late the system wakes the process",
            ),
        ),
    )


def drawn(draw: random.Random) -> Plan:
    """A random plan: each earlier step is seen with a chance of one half. Step n is worker n's."""
    count = draw.randint(1, MAX_STEPS)
    accesses = [
        tuple(earlier for earlier in range(1, number) if draw.random() < 0.5)
        for number in range(1, count + 1)
    ]
    steps = zip(NAMES, accesses, strict=False)
    return Plan(
        steps=tuple(Step(worker=name, subtask="Wait.", access=access) for name, access in steps)
    )


def critical_path(plan: Plan, took: Mapping[int, float]) -> float:
    """Seconds until the last step can have ended; a step that says nothing counts as 50 ms."""
    ends: dict[int, float] = {0: 0.0}
    for number, step in enumerate(plan.steps, start=1):
        ends[number] = took.get(number, STEP) + max(ends[earlier] for earlier in (0, *step.access))
    return ends[len(plan.steps)]


async def _run_all(plans: list[Plan]) -> list[Took]:
    return [await _run(number, plan) for number, plan in enumerate(plans, start=1)]


async def _bare(plan: Plan) -> float:
    """Seconds that the plan takes as tasks that wait for each other and do nothing else."""
    began = time.perf_counter()
    tasks: list[asyncio.Task[None]] = []
    for step in plan.steps:
        tasks.append(asyncio.create_task(_after([tasks[earlier - 1] for earlier in step.access])))
    await tasks[-1]
    wall = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return wall


async def _after(earlier: list[asyncio.Task[None]]) -> None:
    for task in earlier:
        await asyncio.shield(task)
    await asyncio.sleep(STEP)


async def _run(number: int, plan: Plan) -> Took:
    took = Took(plan=plan)
    workers = {
        name: ScriptedModel(reply=_waiting(step, took)) for step, name in enumerate(NAMES, start=1)
    }
    orchestra = Orchestra(team=Team(model=None, pool=POOL, workers=workers))
    began = time.perf_counter()
    computed = time.thread_time()
    question = Question(text=f"How long does waiting take in plan {number}?")
    run = start_run(orchestra, RunSpec(question=question, plan=plan))
    async for _ in run:
        pass
    took.wall = time.perf_counter() - began
    took.processor = time.thread_time() - computed
    if run.trace.state != "finished" or run.trace.partial:
        raise SystemExit(f"a workflow did not finish: {run.trace.error}")
    # The last step of the run reads also what no other step of the plan reads
    took.plan = run.state.current_plan()
    took.bare = await _bare(took.plan)
    return took


def _waiting(step: int, took: Took) -> Callable[[Request], Iterator[str | float]]:
    """No two texts are equal, as in life.

    What was worked out for one of them is of no use for another.
    """

    def script(_: Request) -> Iterator[str | float]:
        began = time.perf_counter()
        yield STEP
        took.steps[step] = time.perf_counter() - began
        yield f"It took {took.steps[step]} s."

    return script
