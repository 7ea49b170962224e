"""SIGKILL at every write of one run, and at random moments; then the run is resumed.

Every trace can be read, no stored step and no stored plan is paid again, the answer is right, and
the record of the day is never below what the provider billed.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.state.spending_file import read_spent
from conductor_cli.state.trace_file import read_events
from scripts.faults.desk import Desk, desk
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import PLANNER, says
from tests.servers import Script

RANDOM: Final = 500  # kills at random moments
WORDS: Final = ("ask", "hi")
ANSWER: Final = "alpha answers\n"
STEPS: Final = Counter({"alpha": 2, "beta": 1})  # the calls of workers that the plan asks for
PRICE: Final = Decimal(11 + 7 * 2) / 1_000_000
"""What one call of a worker costs: 11 tokens in and 7 out, at 1 and 2 dollars per million."""


def run(tries: Tries) -> None:
    """Kill runs, and resume each of them."""
    with desk() as at:
        seconds = prepare(at)
        for calls in ("write", "pwrite64", "fsync,fdatasync", "openat", "sendto"):
            number = 1
            fault = f"{calls}:signal=SIGKILL:when="
            while tries.attempt(
                f"at {calls} {number}", partial(kill, at, fault=f"{fault}{number}")
            ).hit:
                number += 1
        moments = random.Random(tries.seed)
        for number in range(RANDOM):
            part = moments.random()
            tries.attempt(
                f"random {number}: at {part:.3f} of a run", partial(kill, at, moment=part * seconds)
            )


def prepare(at: Desk) -> float:
    """Have the desk ready; returns how many seconds a run takes that nobody kills."""
    at.stage.models = {name: _slowly(f"{name} answers") for name in ("alpha", "beta")}
    at.stage.models[PLANNER] = _slowly(at.stage.plan)
    at.save()
    with at.prefork.warming():
        ended = at.prefork.run(WORDS)
    if ended.out != ANSWER:
        raise RuntimeError(f"without a kill: {ended.err}")
    at.reset()
    begun = time.monotonic()
    at.prefork.run(WORDS)
    return time.monotonic() - begun


def _slowly(text: str) -> Script:
    """A model that writes its answer word by word, so that a kill can fall between any two."""
    return says(*re.split("(?<= )", text))


def kill(at: Desk, *, fault: str = "", moment: float = -1.0) -> Outcome:
    """Start a run, kill it by `fault` or after `moment` seconds, check what is left, resume it."""
    at.reset()
    command = at.prefork.start(WORDS, fault=fault)
    if moment >= 0:
        time.sleep(moment)
        command.signal(signal.SIGKILL)
    ended = command.ended()
    if ended.code != -9:
        return Outcome(hit=False)
    at.wait_for_server()
    billed = Counter(at.billed)
    traces = sorted((at.state / "traces").glob("*.jsonl"))
    problems = [_spent_problem(at, billed), at.traces_problem(), at.leak_problem(ended)]
    if traces and not any(problems):
        problems.append(_resume(at, list(read_events(traces[0])), sum(billed.values())))
        problems.append(_spent_problem(at, Counter(at.billed)))
    return Outcome(problem="; ".join(filter(None, problems)))


def _spent_problem(at: Desk, billed: Counter[str]) -> str:
    """Where the record of the day is below what the provider billed, in calls or in money."""
    rows = read_spent(at.state / "spending", date(2020, 1, 1))
    for model, calls in billed.items():
        recorded = [row.usage for row in rows if row.model == model]
        count = sum(usage.calls for usage in recorded)
        cost = sum((usage.cost or Decimal(0) for usage in recorded), Decimal(0))
        if count < calls:
            return f"{model}: {calls} calls billed, {count} recorded"
        if model in STEPS and cost < calls * PRICE:
            return f"{model}: ${calls * PRICE} billed, ${cost} recorded"
    return ""


def _resume(at: Desk, events: list[ev.Event], before: int) -> str:
    """Resume the run; only what was not stored may be asked for."""
    finished = {event.step for event in events if isinstance(event, ev.StepFinished)}
    done = Counter(
        event.worker
        for event in events
        if isinstance(event, ev.StepPlanned) and event.step in finished
    )
    planned = any(isinstance(event, ev.PlanReady) for event in events)
    ended = at.prefork.run(["ask", "--resume", "last"])
    calls = Counter(at.billed[before:])
    if not events:
        return "" if ended.code else "an empty trace was resumed"
    if ended.code or ended.out != ANSWER:
        return f"resume ended with {ended.code}: {ended.out!r} {ended.err!r}"
    paid = calls - (STEPS - done) - (Counter() if planned else Counter({PLANNER: 1}))
    return f"paid again: {dict(paid)}; stored: {dict(done)}" if paid else ""
