"""Plans, sampled by the real llama.cpp from a model of random weights, held by the real grammar alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import Plan, PlanRules, check_plan
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import PROMPTED
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.models.llama import Llama, LlamaOptions
from tests.core.plan_formats.reading import plan_in
from tests.models.kit import chunks_of, text
from tests.tiny_gguf import Extra, make

EXAMPLES = settings.default.max_examples if settings.default else 0
SEEDS = max(60, EXAMPLES)  # each pair of pool size and step limit occurs, in CI five times


def fault(text: str, workers: int, limit: int) -> str | None:
    """What is wrong with a plan, for a parser that tolerates nothing."""
    rules = PlanRules(workers=tuple("ABCDEFGHIJKL"[:workers]), steps=limit)
    context = PlanFormatContext(rules=rules, labels={name: name for name in rules.workers}, constrained=True)
    try:
        plan = plan_in("native", text, context)
        assert isinstance(plan, Plan)
        check_plan(plan, rules)
    except PlanError as error:
        return error.message
    longest = max(len(step.subtask) for step in plan.steps)
    return f"a subtask of {longest} characters" if longest > context.subtask_chars else None


async def sampled(path: Path) -> list[tuple[int, int, str, str]]:
    """For each seed: the size of the pool, the limit, the text, and why it ended."""
    llama = Llama(path, LlamaOptions(context=8192, threads=1))
    plans = []
    try:
        for seed in range(SEEDS):
            workers, limit = seed % 12 + 1, seed % 5 + 1
            pool = Pool(workers=tuple(Worker(name=f"worker-{index}", kind="openai") for index in range(workers)))
            context = plan_format_context(
                PROMPTED, pool, PlanRules(workers=pool.names, steps=limit), "auto", constrained=True
            )
            request = planner_request(Question(text=f"Question {seed}?"), pool, PROMPTED, context)
            request = replace(request, temperature=1.0, seed=seed, max_tokens=5200)
            chunks = await chunks_of(llama, request)
            plans.append((workers, limit, text(chunks), str(chunks[-1].finish)))
    finally:
        await llama.close()
    return plans


@pytest.mark.timeout(600)
def test_every_sampled_plan_is_valid(models: Path) -> None:
    """Line ends and the end of text are likely: every length occurs, every limit is reached, every worker named."""
    path = make(models / "plans.gguf", seed=1, extra=Extra(bias={"\n": 5.0, "<|im_end|>": 5.0}))
    plans = asyncio.run(sampled(path))
    assert [problem for workers, limit, plan, _ in plans if (problem := fault(plan, workers, limit))] == []
    assert {finish for *_, finish in plans} == {"stop"}
    lengths = {(limit, plan.count("\n") + 1) for _, limit, plan, _ in plans}
    assert {length for _, length in lengths} == {1, 2, 3, 4, 5}
    assert {(limit, limit) for limit in range(1, 6)} <= lengths
    assert {line[0] for *_, plan, _ in plans for line in plan.split("\n")} == set("ABCDEFGHIJKL")
    assert len({plan for *_, plan, _ in plans}) >= 0.9 * SEEDS
