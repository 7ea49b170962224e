"""What it saves to start steps while the plan is still being written: README.md says how.

A step may start when its own line is complete, so the ideal is the time of the last line and one
step more.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from typing import Final

from figures import Figure, Table, ratio
from loopback import paced

from conductor_cli.core.events import StepStarted
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.policy import plan_rules
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import PROMPTED
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra, RunSpec, Team, start_run

PACE: Final = 6.0  # tokens a second
STEP: Final = 3.0  # seconds that each step takes
PAIRS: Final = 3

QUESTION: Final = Question(text="Is the retry loop of this client safe?")
PLAN: Final = Plan(
    steps=(
        Step(
            worker="ada",
            subtask="List every way in which the retry loop can send a request twice.",
        ),
        Step(
            worker="ben",
            subtask="Check the timeouts and the backoff against the client's documentation.",
        ),
        Step(
            worker="cem",
            subtask="Say whether the retry loop is safe, and name its largest risk.",
            access=(1, 2),
        ),
    )
)
POOL: Final = Pool(workers=tuple(Worker(name=step.worker, kind="scripted") for step in PLAN.steps))


def measure() -> Table:
    """Pairs of both ways. They only wait, so all of them wait at the same time."""
    pieces = tokens(text())
    overlapped, sequence = asyncio.run(_pairs(pieces))
    walls = [wall for wall, _ in overlapped]
    planning = len(pieces) / PACE
    ideal = planning + STEP
    first = statistics.median(start for _, start in overlapped)
    about = (
        f"A plan of three steps, of which the last reads the others, {len(pieces)} tokens at "
        f"{PACE:g} tokens/s; steps of {STEP:g} s. "
        f"Ideal: {planning:.2f} s until the last line is complete, and {STEP:g} s. Median of "
        f"{PAIRS} pairs."
    )
    return Table(
        "overlap",
        about,
        (
            Figure(
                "wall time over the ideal",
                statistics.median(walls) / ideal - 1,
                "percent",
                0.05,
                f"{statistics.median(walls):.2f} s, ideal {ideal:.2f} s",
            ),
            Figure(
                "as a share of plan, then run in sequence",
                ratio(walls, sequence),
                "ratio",
                0.70,
                f"{statistics.median(sequence):.2f} s in sequence",
            ),
            Figure(
                "first step starts", first, "s", also=f"the plan is whole after {planning:.2f} s"
            ),
        ),
    )


def text() -> str:
    """The plan as a conductor under a grammar writes it."""
    rules = plan_rules(POOL, Limits(), down=(), given=False, depth_left=0)
    context = plan_format_context(PROMPTED, POOL, rules, "auto", constrained=True)
    return PLAN_FORMATS[PROMPTED.plan_format].render(PLAN, context)


def tokens(text: str) -> list[str]:
    """`text` in pieces as byte-pair vocabularies cut English.

    Words with the space before them, marks, line ends.
    """
    return re.findall(r" ?\w+| ?[^\w\s]+|\s", text)


async def _pairs(pieces: list[str]) -> tuple[list[tuple[float, float]], list[float]]:
    runs = []
    for _ in range(PAIRS):
        runs += [_overlapped(pieces), _in_sequence(pieces)]
    times = await asyncio.gather(*runs)
    return times[::2], [wall for wall, _ in times[1::2]]


async def _overlapped(pieces: list[str]) -> tuple[float, float]:
    """Seconds of one question, and when its first step started."""
    began = time.perf_counter()
    first = 0.0
    async for event, _ in start_run(_conductor(pieces, Limits()), RunSpec(question=QUESTION)):
        if isinstance(event, StepStarted):
            first = first or time.perf_counter() - began
    return time.perf_counter() - began, first


async def _in_sequence(pieces: list[str]) -> tuple[float, float]:
    """Seconds of writing the plan to its end, then running it one step at a time."""
    began = time.perf_counter()
    orchestra = _conductor(pieces, Limits(parallel=1))
    planning = start_run(orchestra, RunSpec(question=QUESTION, plan_only=True))
    async for _ in planning:
        pass
    if planning.trace.plan != PLAN:
        raise SystemExit(
            f"the plan that was read is not the one that was written: {planning.trace.plan}"
        )
    run = start_run(orchestra, RunSpec(question=QUESTION, plan=PLAN))
    async for _ in run:
        pass
    return time.perf_counter() - began, 0.0


def _conductor(pieces: list[str], limits: Limits) -> Orchestra:
    team = Team(
        model=ScriptedModel(reply=lambda _: paced(iter(pieces), PACE)),
        pool=POOL,
        constrained=True,
        workers={name: ScriptedModel(scripts=[[STEP, "Done."]]) for name in POOL.names},
    )
    return Orchestra(team=team, limits=limits)
