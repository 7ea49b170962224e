"""What a planner reaches in llama.cpp, without a grammar, on phrasings and workers that no training saw.

Each question has workers of its own, two to four, with strengths that are drawn for it. A line is written for each
question as it is done, so an evaluation that was stopped goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from conductor_cli.models.base import Model, Script, ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.models.disk import AppendLog, read_lines
from conductor_cli.run.conductor import Conductor
from scripts.smollm2.answers import answer, read_task
from scripts.smollm2.lessons import best_plan
from scripts.smollm2.questions import draw_cases
from scripts.smollm2.workers import draw_workers, is_good_choice

LONGEST: Final = 120
"""Tokens of a plan. The best plans have less than 60."""


def planner_worker(model: Path, adapter: Path | None) -> Worker:
    """The model file that plans, as a worker of kind `llama`, on one thread."""
    options: dict[str, Any] = {"threads": 1, "context": 2048}
    options |= {"adapter": str(adapter.absolute())} if adapter else {}
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
    random = Random(f"offered {seed} {number}")  # noqa: S311 - reproducible, no secret
    return Pool(workers=draw_workers(random.randint(2, 4), "evaluation", seed, number))


async def measure(case: Case, pool: Pool, planner: Model, *, seed: int) -> Mapping[str, Any]:
    """What comes of a question: by the planner, by the best plan, and by the best single worker."""
    profile = replace(BRIEF, sampling=replace(BRIEF.sampling, max_tokens=LONGEST))
    conductor = Conductor(
        model=planner, pool=pool, workers={worker.name: scripted(worker) for worker in pool}, profile=profile,
        limits=Limits(attempts=1, steps=MAX_STEPS), constrained=False, seed=seed,
    )  # fmt: skip
    question = Question(text=case.question)
    trace = await _trace(conductor, question)
    best = await _trace(conductor, question, best_plan(case, pool))
    alone = max(pool, key=lambda worker: min(worker.card.strengths[step.skill] for step in case.steps))
    task = read_task(f"Your subtask: {case.question}")
    single = answer(task, alone.name, alone.card.strengths, seed)
    return {
        "id": case.id, "shape": case.tags[0], "question": case.question, "text": trace.plan_text,
        "right": is_correct(trace.answer, case), "best": is_correct(best.answer, case),
        "single": is_correct(single, case), **judge(case, pool, trace),
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


def by_chance(case: Case, pool: Pool) -> float:
    """The share of good choices that a planner would make that does not read the cards."""
    shares = [sum(is_good_choice(name, step.skill, pool) for name in pool.names) / len(pool) for step in case.steps]
    return sum(shares) / len(shares)


def scripted(worker: Worker) -> Model:
    """The worker as a model of this process."""

    def reply(request: Request) -> Script:
        prompt = "\n\n".join(message.content for message in request.messages)
        return [answer(read_task(prompt), worker.name, worker.card.strengths, request.seed or 0)]

    return ScriptedModel(reply=reply)


async def _trace(conductor: Conductor, question: Question, plan: Plan | None = None) -> Trace:
    run = conductor.run(question, plan=plan) if plan is not None else conductor.run(question)
    async for _ in run:
        pass
    return run.trace


def read_outcomes(path: Path) -> Sequence[Mapping[str, Any]]:
    """The lines of an evaluation, without one that was cut off."""
    return list(_parsed(path))


def _parsed(path: Path) -> Iterator[Mapping[str, Any]]:
    for line in read_lines(path):
        with suppress(ValueError):
            yield json.loads(line)
