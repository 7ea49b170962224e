"""Calibration: measures each worker alone, and makes its capability card of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor_cli.app.case_sets import load_cases
from conductor_cli.app.evaluation import EvaluationRequest
from conductor_cli.app.worker_selection import resolve_pool
from conductor_cli.config.cards import MeasuredCard, Strength, worker_key
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.mappings import names_of
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.evals.cases import NAME, hash_cases
from conductor_cli.evals.outcomes import Evaluation
from conductor_cli.evals.summary import SystemResult, summarize
from conductor_cli.evals.systems import ALONE
from conductor_cli.system.event_loop import run_async


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The workers to measure on a set of cases, and what was measured before.

    Those of `request` are measured; `known_cards` are those that others already have on the set.
    """

    request: EvaluationRequest
    pool: Pool
    known_cards: tuple[MeasuredCard, ...] = ()

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
    """Choose cases and workers, and find what was measured before.

    The cases are a file, by default a built-in set. Workers with a card on all of the same cases
    are not measured again.
    """
    configured = names_of([item.worker for item in settings.workers])
    if source in configured and not Path(source).exists():
        hint = f"to measure it alone: conductor workers calibrate --workers {source}"
        raise UsageError(f"{source} is a worker, and no file of cases", hint=hint)
    name, cases = load_cases(source or NAME, file=None, count=count, seed=seed)
    pool, _ = run_async(resolve_pool(settings, None, workers))
    pool = pool.without_self()
    cards = dict[str, MeasuredCard]()
    for worker in pool:
        card = settings.cards.of(worker, hash_cases(cases))
        # One of fewer cases is of a time when the worker could not be reached.
        if card is not None and card.n >= len(cases):
            cards[worker.name] = card
    unmeasured = tuple(name for name in pool.names if name not in cards)
    request = EvaluationRequest(
        source=name,
        cases=cases,
        systems=ALONE,
        seed=seed,
        parallel=parallel,
        workers=unmeasured,
    )
    return Calibration(request=request, pool=pool, known_cards=tuple(cards.values()))


def measured_cards(
    calibration: Calibration, evaluation: Evaluation
) -> tuple[list[MeasuredCard], list[str]]:
    """Return a card for each worker that has answered a case, and notes about those that failed."""
    outcomes = evaluation.outcomes()
    errors = {outcome.system: outcome.error for outcome in outcomes if outcome.verdict == "failed"}
    cards = []
    notes = []
    for system in summarize(outcomes, systems=evaluation.spec.systems).systems:
        worker = calibration.pool[system.name.removeprefix(f"{ALONE}:")]
        if system.accuracy.n:
            cards.append(_measured_card(calibration, worker, system))
        if system.failed:
            failed = f"{system.failed} of {len(calibration.request.cases)} cases failed"
            if not system.accuracy.n:
                failed += ", so it has no card"
            else:
                failed += ", and the same command measures it again"
            notes.append(f"{worker.name}: {failed}: {errors[system.name]}")
    notes += [note for note in evaluation.spec.notes if note.startswith("left out")]
    return cards, notes


def _measured_card(calibration: Calibration, worker: Worker, result: SystemResult) -> MeasuredCard:
    strengths = {}
    for tag, share in result.tags.items():
        if share.n:
            strengths[tag] = Strength(right=share.right, n=share.n)
    cost = result.cost
    if result.unpriced:
        cost = None
    return MeasuredCard(
        worker=worker.name,
        key=worker_key(worker),
        hash=calibration.hash,
        source=f"{calibration.request.source}, seed {calibration.request.seed}",
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        right=result.accuracy.right,
        n=result.accuracy.n,
        strengths=strengths,
        tokens_in=round(result.tokens_in or 0.0, 2),
        tokens_out=round(result.tokens_out or 0.0, 2),
        seconds=round(result.seconds or 0.0, 4),
        cost=cost,
    )
