"""What drafts of the next tokens would save a local planner on this machine.

    python -m benchmarks.bench_drafts MODEL.gguf [--adapter ADAPTER.gguf] [--questions N]

Speculative decoding checks a draft of several tokens in one batch. That pays where a batch costs
less than its tokens one by one, and where most of the draft is right. So the cost of batches is
measured, and plans of the model itself are written, for questions of the planner's examination.
What drafts would have cost is then computed, not run: once by an oracle that always drafts the
right words of the prompt or the plan and never a wrong one, and by looking up what followed the
last two tokens there. Both count the forms that the grammar forces, since the examples in the
prompt have them. Costs are in the time of one token, without the time of the prompt. With an
adapter the plans are those of the profile `kinds`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from conductor_cli.core.plan import PlanRules
from conductor_cli.core.profile import PROFILES, Profile
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.vocabulary import TokenizedPrompt
from training.planner.examine import pools
from training.planner.questions import QUESTIONS

BATCHES: Final = (1, 2, 4, 8, 16)  # Tokens in a batch that is timed
ROUNDS: Final = 7  # Of which the median counts
LOOKUP_TOKENS: Final = 2  # So many last tokens have to be the same where a draft is looked up
DRAFTS: Final = (3, 7, 15)  # Tokens of a draft that is looked up
END: Final = -1  # Stands for the token that ends a plan, which no draft has


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPlan:
    """A plan as the tokens of its prompt and its own."""

    prompt: Sequence[int]
    reply: Sequence[int]


def batch_costs(engine: LlamaEngine, prompt: Sequence[int]) -> list[float]:
    """Return what batches of 1, 2, 3, … tokens after a prompt cost, in the time of one token."""
    medians = {}
    for size in BATCHES:
        seconds = []
        for _ in range(ROUNDS):
            engine.kv_cache.read(TokenizedPrompt([*prompt]))
            began = time.perf_counter()
            engine.kv_cache.decode([*prompt[-size:]])
            seconds.append(time.perf_counter() - began)
        medians[size] = statistics.median(seconds)
    measured = [medians[size] / medians[1] for size in BATCHES]
    return [_between(size, measured) for size in range(1, BATCHES[-1] + 1)]


def _between(size: int, measured: Sequence[float]) -> float:
    """Return the cost of a batch on the line between the two measured sizes around it."""
    for index, larger in enumerate(BATCHES):
        if size == larger:
            return measured[index]
        if size < larger:
            smaller = BATCHES[index - 1]
            share = (size - smaller) / (larger - smaller)
            return measured[index - 1] + share * (measured[index] - measured[index - 1])
    raise ValueError(size)


def write_plans(engine: LlamaEngine, profile: Profile, count: int) -> list[WrittenPlan]:
    """Return the plans of the model for so many questions over a pool of three workers."""
    pool = pools(1)["3"]
    rules = PlanRules(workers=pool.names)
    context = plan_format_context(profile, pool, rules, "auto", constrained=True)
    step = max(1, len(QUESTIONS) // count)
    plans = []
    for examined in QUESTIONS[::step][:count]:
        request = planner_request(examined.question, pool, profile, context)
        prompt = engine.tokenize(request).tokens
        written = engine.sample(replace(request, temperature=0.0), CancelToken()).tokens
        plans.append(WrittenPlan(prompt=prompt, reply=[*written[:-1], END]))
    return plans


def oracle_cost(plan: WrittenPlan, costs: Sequence[float]) -> float:
    """Return the least cost of a plan whose drafts are the right words of prompt and plan."""
    count = len(plan.reply)
    least = [0.0] * (count + 1)
    for position in reversed(range(count)):
        least[position] = costs[0] + least[position + 1]
        for length in range(1, _longest_copy(plan, position, len(costs) - 1) + 1):
            # A batch of one token and its draft also gives the token after the draft
            with_draft = costs[length] + least[min(position + length + 1, count)]
            least[position] = min(least[position], with_draft)
    return least[0]


def _longest_copy(plan: WrittenPlan, position: int, most: int) -> int:
    """Return how many tokens of the reply from `position` on stand before it in this order."""
    before = [*plan.prompt, *plan.reply[:position]]
    longest = 0
    for start in range(len(before)):
        longest = max(longest, _same_tokens(before[start:], plan.reply[position:], most))
    return longest


def lookup_cost(plan: WrittenPlan, costs: Sequence[float], length: int) -> float:
    """Return the cost of a plan with drafts of what followed the last two tokens before."""
    position = 0
    cost = 0.0
    while position < len(plan.reply):
        draft = _looked_up([*plan.prompt, *plan.reply[:position]], length)
        cost += costs[len(draft)]
        position += 1 + _same_tokens(draft, plan.reply[position:], length)
    return cost


def _looked_up(tokens: Sequence[int], length: int) -> list[int]:
    last = tokens[-LOOKUP_TOKENS:]
    for start in reversed(range(len(tokens) - LOOKUP_TOKENS)):
        end = start + LOOKUP_TOKENS
        if tokens[start:end] == last:
            return list(tokens[end : end + length])
    return []


def _same_tokens(draft: Sequence[int], tokens: Sequence[int], most: int) -> int:
    """Return how many tokens two sequences begin with in common, at most so many."""
    count = 0
    for drafted, token in zip(draft, tokens, strict=False):
        if drafted != token or count == most:
            break
        count += 1
    return count


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_drafts")
    parser.add_argument("model", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--questions", type=int, default=20)
    given = parser.parse_args()
    engine = LlamaEngine(given.model, LlamaOptions(adapter=given.adapter), CancelToken())
    profile = PROFILES["kinds" if given.adapter else "prompted"]
    plans = write_plans(engine, profile, given.questions)
    costs = batch_costs(engine, plans[0].prompt)
    tokens = sum(len(plan.reply) for plan in plans)
    print(f"{given.model.name}: {len(plans)} plans, {tokens} tokens")
    sizes = ", ".join(f"{size}: {costs[size - 1]:.2f}" for size in BATCHES)
    print(f"cost of a batch in single tokens: {sizes}")
    oracle = sum(oracle_cost(plan, costs) for plan in plans)
    print(f"with an oracle's drafts: {oracle / tokens:.2f} of the time (computed)")
    for length in DRAFTS:
        looked_up = [lookup_cost(plan, costs, length) for plan in plans]
        slower = 0
        for plan, cost in zip(plans, looked_up, strict=True):
            slower += cost > 1.02 * len(plan.reply)
        print(
            f"with {length} looked-up tokens: {sum(looked_up) / tokens:.2f} of the time, "
            f"slower by more than 2 % in {slower} of {len(plans)} plans (computed)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
