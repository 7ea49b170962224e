"""Calibration: measure each worker alone on a set of cases, and store the result as its capability card."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from conductor_cli.app.evaluation import EvaluationRequest, load_cases
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config import Settings
from conductor_cli.config.cards import MeasuredCard, Strength, worker_key
from conductor_cli.core.estimate import PlanEstimate, estimate_plan
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.evals import cases as builtin
from conductor_cli.evals.cases import hash_cases
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.systems import ALONE, direct_plan

PARALLEL: Final = 8
"""Runs at the same time, if no number is given."""

SECONDS_PER_ANSWER: Final = (1, 10)
"""How long a short answer usually takes. How fast a worker is, is not known before it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The workers to measure on a set of cases, those of `request`, and the cards that others already have on it."""

    request: EvaluationRequest
    pool: Pool
    known: tuple[MeasuredCard, ...] = ()

    @property
    def hash(self) -> str:
        return hash_cases(self.request.cases)


def plan_calibration(
    settings: Settings,
    source: str | None,
    *,
    workers: Sequence[str],
    count: int | None,
    seed: int,
    parallel: int,
) -> Calibration:
    """Choose the cases (a file, by default a built-in set) and the workers, and find what was measured before.

    Workers with a card on the same cases are not measured again.
    """
    name, cases = load_cases(source or builtin.NAME, file=None, count=count, seed=seed)
    pool, _ = asyncio.run(resolve_pool(settings, None, workers))
    pool = Pool(workers=tuple(worker for worker in pool if worker.kind != SELF))
    found = {worker.name: settings.cards.of(worker, hash_cases(cases)) for worker in pool}
    request = EvaluationRequest(
        source=name, cases=cases, systems=ALONE, seed=seed, parallel=parallel,
        workers=tuple(worker.name for worker in pool if found.get(worker.name) is None),
    )  # fmt: skip
    return Calibration(request=request, pool=pool, known=tuple(card for card in found.values() if card is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOffer:
    """What `conductor workers calibrate` would measure by default: the workers, and what that takes in all.

    `seconds` is the least and the most, at `SECONDS_PER_ANSWER`.
    """

    workers: tuple[str, ...]
    cases: int
    estimate: PlanEstimate
    seconds: tuple[float, float]

    def describe(self) -> str:
        """In one line for the user."""
        calls, (low, high) = format_count(self.estimate.calls, "call"), self.estimate.cost
        cost = "free" if not high else f"{format_money(low)} to {format_money(high)}"
        if self.estimate.unpriced:
            cost = "cost unknown" if not high else f"{cost}, and more for workers without a known price"
        times = " to ".join(format_duration(seconds, tenths=False) for seconds in self.seconds)
        least, most = SECONDS_PER_ANSWER
        which = f"{format_count(len(self.workers), 'worker')} without a measured card: {', '.join(self.workers)}"
        return f"{which}; {calls}, {cost}, {times} at {least} to {most} s an answer"


def offer_calibration(settings: Settings) -> CalibrationOffer | None:
    """What there is to measure of the workers that are set up; None where all have a card. Raises `ConductorError`."""
    if not any(item.enabled for item in settings.workers):
        return None
    found = plan_calibration(settings, None, workers=(), count=None, seed=0, parallel=PARALLEL)
    names, cases = found.request.workers, found.request.cases
    if not names:
        return None
    plans = [(Question(text=case.question), direct_plan(found.pool[name])) for name in names for case in cases]
    parts = [estimate_plan(question, plan, found.pool, WorkerProfile()) for question, plan in plans]
    # So many answers come one after another, at the least: of all calls, and of the calls of the narrowest worker.
    rounds = max(len(parts) / PARALLEL, *(len(cases) / min(found.pool[name].parallel, PARALLEL) for name in names))
    least, most = SECONDS_PER_ANSWER
    seconds = (rounds * least, rounds * most)
    return CalibrationOffer(workers=names, cases=len(cases), estimate=sum(parts, PlanEstimate()), seconds=seconds)


def measured_cards(calibration: Calibration, evaluation: Evaluation) -> tuple[list[MeasuredCard], list[str]]:
    """A card for each worker that has answered a case, and notes about those that failed."""
    outcomes, request = evaluation.outcomes(), calibration.request
    errors = {outcome.system: outcome.error for outcome in outcomes if outcome.verdict == "failed"}
    cards, notes = [], []
    for system in summarize(outcomes, systems=evaluation.spec.systems).systems:
        worker = calibration.pool[system.name.removeprefix(f"{ALONE}:")]
        if system.accuracy.n:
            cards.append(MeasuredCard(
                worker=worker.name, key=worker_key(worker), hash=calibration.hash,
                source=f"{request.source}, seed {request.seed}", time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                right=system.accuracy.right, n=system.accuracy.n,
                strengths={
                    tag: Strength(right=share.right, n=share.n) for tag, share in system.tags.items() if share.n
                },
                tokens_in=round(system.tokens_in or 0.0, 2), tokens_out=round(system.tokens_out or 0.0, 2),
                seconds=round(system.seconds or 0.0, 4), cost=system.cost if not system.unpriced else None,
            ))  # fmt: skip
        if system.failed:
            result = "" if system.accuracy.n else ", so it has no card"
            failed = f"{system.failed} of {len(calibration.request.cases)} cases failed"
            notes.append(f"{worker.name}: {failed}{result}: {errors[system.name]}")
    notes += [note for note in evaluation.spec.notes if note.startswith("left out")]
    return cards, notes
