"""What a planner reaches in llama.cpp, without a grammar, on phrasings and workers that no training saw; the table.

Each question has workers of its own, two to four, with strengths that are drawn for it. A line is written for each
question as it is done, so an evaluation that was stopped goes on. The table has means over seeds, with 95 % intervals
over all their questions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import MAX_STEPS, Plan
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import BRIEF
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.evals.cases import Case, is_correct
from conductor_cli.evals.summary import wilson_interval
from conductor_cli.models.base import Model, Script, ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.models.disk import AppendLog, read_lines
from conductor_cli.run import start_run
from conductor_cli.run.conductor import Conductor
from training.smollm2.questions import draw_cases
from training.smollm2.workers import answer, draw_workers, is_good_choice, read_task

Outcomes = Sequence[Mapping[str, Any]]

LONGEST: Final = 120  # tokens of a plan. The best plans have less than 60.


def planner_worker(model: Path, adapter: Path) -> Worker:
    """The model file that plans, as a worker of kind `llama`, on one thread."""
    options: dict[str, Any] = {"threads": 1, "context": 2048, "adapter": str(adapter.absolute())}
    return Worker(name="smollm2", kind="llama", model=str(model.absolute()), options=options)


def evaluate(worker: Worker, out: Path, *, seed: int, count: int, say: Callable[[str], None]) -> None:
    """Write a line to `out` for each of `count` questions that has none yet. `worker` plans."""
    out.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_evaluate(worker, out, seed, count, say))


async def _evaluate(worker: Worker, out: Path, seed: int, count: int, say: Callable[[str], None]) -> None:
    planner = open_model(worker, environ={})
    done, log = {outcome["id"] for outcome in read_outcomes(out)}, AppendLog(out)
    try:
        for number, case in enumerate(draw_cases(count, seed, "held")):
            if case.id not in done:
                log.append(json.dumps(await measure(case, offered(seed, number), planner, seed=seed)))
                if (number + 1) % 10 == 0:
                    say(f"{number + 1} of {count} questions")
    finally:
        log.close()
        await planner.close()


def offered(seed: int, number: int) -> Pool:
    """The workers for a question: never the same ones twice, and none that a training saw."""
    random = Random(f"offered {seed} {number}")
    return Pool(workers=draw_workers(random.randint(2, 4), "evaluation", seed, number))


async def measure(case: Case, pool: Pool, planner: Model, *, seed: int) -> Mapping[str, Any]:
    """What comes of a question over these workers."""
    profile = replace(BRIEF, sampling=replace(BRIEF.sampling, max_tokens=LONGEST))
    conductor = Conductor(
        model=planner, pool=pool, workers={worker.name: scripted(worker) for worker in pool}, profile=profile,
        limits=Limits(attempts=1, steps=MAX_STEPS), constrained=False, seed=seed,
    )  # fmt: skip
    run = start_run(conductor, Question(text=case.question))
    async for _ in run:
        pass
    return {
        "id": case.id, "shape": case.tags[0], "question": case.question, "text": run.trace.plan_text,
        "right": is_correct(run.trace.answer, case), **judge(case, pool, run.trace),
    }  # fmt: skip


def judge(case: Case, pool: Pool, trace: Trace) -> Mapping[str, Any]:
    """Whether the first text was a plan, whether its steps and access lists are the best ones, and whom it chose.

    `routed` has for each step of a plan with the right number of steps whether no offered worker was clearly better at
    what that step is for; a valid plan with another number of steps has none.
    """
    plan = trace.plan
    if trace.rejected or not isinstance(plan, Plan):
        return {"valid": False, "split": False, "routed": []}
    same = len(plan.steps) == len(case.steps)
    split = same and [set(step.access) for step in plan.steps] == [set(step.access) for step in case.steps]
    pairs = zip(plan.steps, case.steps, strict=True) if same else ()
    return {
        "valid": True, "split": split,
        "routed": [is_good_choice(step.worker, known.skill, pool) for step, known in pairs],
    }  # fmt: skip


def scripted(worker: Worker) -> Model:
    """The worker as a model of this process."""

    def reply(request: Request) -> Script:
        prompt = "\n\n".join(message.content for message in request.messages)
        return [answer(read_task(prompt), worker.name, worker.card.strengths, request.seed or 0)]

    return ScriptedModel(reply=reply)


def read_outcomes(path: Path) -> Outcomes:
    """The lines of an evaluation, without one that was cut off."""
    found = []
    for line in read_lines(path):
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


BOUNDS: Final = {"valid plan, without grammar": 0.95, "right worker by card": 0.80}
"""What the trained planner is to reach."""

SYSTEMS: Final = ("start", "trained")


def table(found: Mapping[str, Mapping[int, Outcomes]]) -> list[str]:
    """Lines of text. `found` has the outcomes by system and by seed."""
    lines = []
    for system, by_seed in found.items():
        lines.append(f"{system}: {sum(map(len, by_seed.values()))} questions, seeds {', '.join(map(str, by_seed))}")
        for name, key in ROWS.items():
            found_flags = [
                [bool(flag) for each in outcomes for flag in (each[key] if key == "routed" else [each[key]])]
                for outcomes in by_seed.values()
            ]
            lines.append(_row(name, found_flags, bounded=system == "trained"))
    return lines


def _row(name: str, by_seed: Sequence[Sequence[bool]], *, bounded: bool) -> str:
    every = [flag for flags in by_seed for flag in flags]
    if not every:
        return f"  {name:<28} nothing to count"
    low, high = wilson_interval(sum(every), len(every))
    mean, seeds = sum(every) / len(every), ", ".join(f"{sum(flags) / max(len(flags), 1):.3f}" for flags in by_seed)
    text = f"  {name:<28} {mean:.3f} [{low:.3f}, {high:.3f}] of {len(every)} (seeds: {seeds})"
    least = BOUNDS.get(name) if bounded else None
    return text + ("" if least is None else f"  at least {least:.2f}{'' if mean >= least else ': MISSED'}")


ROWS: Final = {
    "valid plan, without grammar": "valid",
    "right steps and access lists": "split",
    "right worker by card": "routed",
    "right answer": "right",
}
"""What is counted: the workers of a plan with another number of steps are neither right nor wrong."""
