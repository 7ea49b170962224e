"""What a single call of one worker would have cost instead of a run: an estimate from prices and the run's tokens.

The single call reads the question with its files and history, and writes as many tokens as the answering call did,
thinking included. Whether its answer would have been as good is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from conductor_cli.core.estimate import OVERHEAD
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool
from conductor_cli.core.quoting import question_text
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import CHARS_PER_TOKEN, Usage, with_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCost:
    """What a single call of a worker would have cost in US dollars, estimated; None if it has no price."""

    worker: str
    cost: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostComparison:
    """The most expensive worker of the pool for this question, and the best by its card if any card is filled."""

    dearest: WorkerCost
    best: WorkerCost | None
    estimate: bool = True


def compare_with_single_worker(trace: Trace) -> CostComparison | None:
    """The comparison for a run with a complete answer; None if every worker is free or none has a price."""
    workers = [worker for worker in trace.pool if worker.kind != SELF]
    whole = trace.state == "finished" and bool(trace.answer) and not trace.partial
    if not whole or not any(worker.price for worker in workers):
        return None
    used = _single_call_usage(trace)
    costs = [WorkerCost(worker=worker.name, cost=with_cost(used, worker.price).cost) for worker in workers]
    dearest = max(costs, key=lambda one: one.cost or Decimal(0))
    if not dearest.cost:
        return None
    known = any(worker.card.strengths for worker in workers)
    best = Pool(workers=tuple(workers)).best().name if known else ""
    return CostComparison(dearest=dearest, best=next((one for one in costs if one.worker == best), None))


def _single_call_usage(trace: Trace) -> Usage:
    """What the single call would use."""
    read = int(len(question_text(trace.question)) / CHARS_PER_TOKEN) + OVERHEAD
    written = int(len(trace.answer) / CHARS_PER_TOKEN)
    answering = next((record for record in trace.steps if record.last and record.state == "done"), None)
    if answering is not None and answering.nested is None and answering.usage.tokens_out:
        written = answering.usage.tokens_out
    return Usage(tokens_in=read, tokens_out=written, calls=1)
