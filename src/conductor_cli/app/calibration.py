"""Calibration: measure each worker alone on a set of cases, and store the result as its capability card."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from conductor_cli.app.evaluation import EvaluationRequest, load_cases
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config import Settings
from conductor_cli.config.cards import MeasuredCard, Strength, worker_key
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool
from conductor_cli.evals import cases as builtin
from conductor_cli.evals.cases import hash_cases
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.systems import ALONE


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
    settings: Settings, source: str | None, *, workers: Sequence[str], count: int | None, seed: int, parallel: int
) -> Calibration:  # fmt: skip
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
