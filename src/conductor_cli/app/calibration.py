"""Calibration: measure each worker alone on a set of cases, and store the result as its capability card."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from conductor_cli.app.evaluation import EvaluationRequest, load_cases
from conductor_cli.app.rehearsal import CALIBRATION_CASES, practice_cases, rehearsal_pool
from conductor_cli.app.worker_selection import check_no_pool, resolve_pool
from conductor_cli.config import Settings
from conductor_cli.config.cards import MeasuredCard, Strength, cards_file, check_cards_file, worker_key, write_cards
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.evals import builtin
from conductor_cli.evals.cases import Case, hash_cases
from conductor_cli.evals.storage import Evaluation
from conductor_cli.evals.summary import SystemResult, summarize
from conductor_cli.evals.systems import ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The workers to measure on a set of cases, and the cards that they already have on it.

    With `rehearsal` they are the demo workers. `out` is a file to write instead of the user's own.
    """

    source: str
    cases: tuple[Case, ...]
    seed: int
    pool: Pool
    known: tuple[MeasuredCard, ...] = ()
    rehearsal: bool = False
    out: Path | None = None

    @property
    def hash(self) -> str:
        return hash_cases(self.cases)

    def evaluation_request(self, parallel: int) -> EvaluationRequest | None:
        """The evaluation that measures the workers without a card; None if there are none."""
        known = {card.worker for card in self.known}
        names = tuple(worker.name for worker in self.pool if worker.name not in known)
        if not names:
            return None
        return EvaluationRequest(
            source=self.source, cases=self.cases, systems=ALONE, workers=names, seed=self.seed, parallel=parallel,
            rehearsal=self.rehearsal,
        )  # fmt: skip


def plan_calibration(
    settings: Settings,
    source: str | None,
    *,
    workers: Sequence[str] = (),
    count: int | None = None,
    seed: int = 0,
    rehearsal: bool = False,
    repeat: bool = False,
    out: Path | None = None,
) -> Calibration:
    """Choose the cases (a file, by default a built-in set) and the workers, and find what was measured before.

    Without `repeat`, workers with a card on the same cases are not measured again.
    """
    if out is not None:
        check_cards_file(out)
    if rehearsal:
        check_no_pool(settings)
        name, cases = "rehearsal practice", practice_cases(count or CALIBRATION_CASES, seed)
        pool = rehearsal_pool(workers)
    else:
        name, cases = load_cases(source or builtin.NAME, form=None, count=count, seed=seed)
        pool, _ = asyncio.run(resolve_pool(settings, None, workers))
    pool = Pool(workers=tuple(worker for worker in pool if worker.kind != SELF))
    # A file that the user names gets all cards, whatever is known.
    known: list[MeasuredCard] = []
    if not (repeat or rehearsal or out):
        found = (settings.cards.of(worker, hash_cases(cases)) for worker in pool)
        known = [card for card in found if card is not None]
    return Calibration(
        source=name, cases=cases, seed=seed, pool=pool, known=tuple(known), rehearsal=rehearsal, out=out
    )  # fmt: skip


def measured_cards(calibration: Calibration, evaluation: Evaluation) -> tuple[list[MeasuredCard], list[str]]:
    """A card for each worker that has answered a case, and notes about those that failed."""
    outcomes = evaluation.outcomes()
    errors = {outcome.system: outcome.error for outcome in outcomes if outcome.verdict == "failed"}
    cards, notes = [], []
    for system in summarize(outcomes, systems=evaluation.spec.systems).systems:
        worker = calibration.pool[system.name.removeprefix(f"{ALONE}:")]
        if system.accuracy.n:
            cards.append(_make_card(worker, system, calibration))
        if system.failed:
            result = "" if system.accuracy.n else ", so it has no card"
            failed = f"{system.failed} of {len(calibration.cases)} cases failed"
            notes.append(f"{worker.name}: {failed}{result}: {errors[system.name]}")
    notes += [note for note in evaluation.spec.notes if note.startswith("left out")]
    return cards, notes


def _make_card(worker: Worker, system: SystemResult, calibration: Calibration) -> MeasuredCard:
    strengths = {
        tag: Strength(
            right=share.right, n=share.n, low=round(share.interval.low, 4), high=round(share.interval.high, 4)
        )
        for tag, share in system.tags.items()
        if share.interval is not None
    }
    return MeasuredCard(
        worker=worker.name, kind=worker.kind, key=worker_key(worker), hash=calibration.hash,
        source=f"{calibration.source}, seed {calibration.seed}",
        # A card may be shared, so it does not hold a path of this machine.
        model=Path(worker.model).name if worker.kind == "llama" else worker.model,
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", right=system.accuracy.right, n=system.accuracy.n,
        failed=system.failed,
        strengths=strengths, tokens_in=round(system.tokens_in or 0.0, 2),
        tokens_out=round(system.tokens_out or 0.0, 2), seconds=round(system.seconds or 0.0, 4),
        cost=system.cost if not system.unpriced else None, price=worker.price,
    )  # fmt: skip


def save_cards(
    cards: Sequence[MeasuredCard], calibration: Calibration, settings: Settings
) -> tuple[Path | None, Path | None]:
    """Write the cards; returns the file, and the new name of a damaged file that was in its place.

    Cards of the demo workers are written only to a file that the user names.
    """
    out = calibration.out
    if not cards or (calibration.rehearsal and out is None):
        return None, None
    path = out or cards_file(settings.paths)
    # No lock file of ours stays beside a file that the user named.
    lock = None if out is None else settings.paths.state / "cards.lock"
    return path, write_cards(path, cards, lock=lock)


def overridden_workers(cards: Sequence[MeasuredCard], calibration: Calibration, settings: Settings) -> list[str]:
    """The workers whose new card has no effect, because the settings contain one."""
    workers = [calibration.pool[card.worker] for card in cards]
    return [
        worker.name
        for worker in workers
        if worker.card.strengths and worker.card != settings.cards.on(replace(worker, card=Card())).card
    ]
