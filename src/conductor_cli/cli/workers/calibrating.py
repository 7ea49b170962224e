"""`conductor workers calibrate`: each worker alone on a set of cases, and the capability card that comes of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.cli.eval.evaluating import Evaluating
    from conductor_cli.config import Settings
    from conductor_cli.config.cards import MeasuredCard
    from conductor_cli.evals.cases import Case
    from conductor_cli.evals.summary import SystemSummary

HEADS: Final = ("WORKER", "TAG", "STRENGTH", "95 %", "CASES", "TOKENS", "SECONDS", "COST", "MEASURED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """The cases that workers are measured on. `rehearsal`: it is the rehearsal's workers that are."""

    source: str
    cases: tuple[Case, ...]
    hash: str
    seed: int
    rehearsal: bool = False


def calibrate(
    context: typer.Context,
    cases: Annotated[
        str | None, typer.Argument(metavar="CASES.jsonl", help="Cases with tags; without, a small set of our own.")
    ] = None,
    rehearsal: Annotated[bool, typer.Option("--rehearsal", help="Measure the rehearsal's workers, not yours.")] = False,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    count: Annotated[int | None, typer.Option("--n", metavar="N", min=1, help="How many cases.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Draws the cases.")] = 0,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", min=1, max=256, help="Runs at once.")] = 8,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what was measured on this set.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the cards there instead.")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Begin without a question, though it may cost money.")
    ] = False,
    progress: opt.ProgressOption = None,
    json: opt.Json = False,
) -> None:
    """Measure what each worker is good at, and keep it as the card that the conductor and routers go by."""
    import asyncio

    from conductor_cli.config import load_settings
    from conductor_cli.config.cards import check_cards_file

    if out is not None:
        check_cards_file(out)
    if rehearsal and cases is not None:
        raise UsageError("--rehearsal brings its own cases", hint="leave out the file, or --rehearsal")
    flags = opt.check_settings({"output.progress": progress.value if progress else None, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    chosen = _set(cases, rehearsal=rehearsal, count=count, seed=seed)
    found = asyncio.run(_pool(settings, opt.parse_names(workers), rehearsal=rehearsal))
    known = _known(found, settings, chosen, again=again, elsewhere=out is not None)
    wanted = [worker.name for worker in found if worker.name not in known]
    fresh: list[MeasuredCard] = []
    if wanted:
        going = _going(chosen, settings, wanted, parallel=parallel, yes=yes, quiet=context.obj.quiet)
        code = going.run()
        if code or going.evaluation is None:
            raise typer.Exit(code)
        fresh = _measured(going, found, chosen)
    kept = _keep(fresh, settings, chosen, out)
    _show([*known.values(), *fresh], fresh, chosen, kept, json=json)
    _overruled(found, settings, fresh)
    if fresh and kept is not None and out is None:
        from conductor_cli.cli.output import print_notice

        if not json:
            print_notice("plans and routers go by these cards from now on")
    raise typer.Exit(0 if fresh or known else 8)


def _set(source: str | None, *, rehearsal: bool, count: int | None, seed: int) -> Set:
    from conductor_cli.app.case_sets import BASICS, basics, load_cases
    from conductor_cli.app.rehearsal import CALIBRATION_CASES, draw_training_cases
    from conductor_cli.evals.cases import hash_cases

    if rehearsal:
        name, cases = "rehearsal practice", draw_training_cases(count or CALIBRATION_CASES, seed)
    elif source is None:
        name, cases = BASICS, basics(count, seed)
    else:
        name, cases = load_cases(source, form=None, count=count, seed=seed)
    return Set(source=name, cases=cases, hash=hash_cases(cases), seed=seed, rehearsal=rehearsal)


async def _pool(settings: Settings, only: Sequence[str], *, rehearsal: bool) -> Pool:
    """The workers to be measured, the conductor itself not among them."""
    from conductor_cli.app.opened_conductor import resolve_pool
    from conductor_cli.app.rehearsal import rehearsal_pool
    from conductor_cli.app.worker_selection import check_rehearsal

    if rehearsal:
        check_rehearsal(settings)
        pool = rehearsal_pool(only)
    else:
        pool, _ = await resolve_pool(settings, None, only)
    return Pool(workers=tuple(worker for worker in pool if worker.kind != SELF))


def _known(pool: Pool, settings: Settings, chosen: Set, *, again: bool, elsewhere: bool) -> dict[str, MeasuredCard]:
    """What was measured on this very set already, by worker."""
    if again or elsewhere or chosen.rehearsal:
        return {}
    found = {worker.name: settings.cards.of(worker, chosen.hash) for worker in pool}
    return {name: measured for name, measured in found.items() if measured is not None}


def _going(
    chosen: Set, settings: Settings, workers: Sequence[str], *, parallel: int, yes: bool, quiet: bool
) -> Evaluating:
    from conductor_cli.cli.eval.evaluating import Evaluating, Order

    order = Order(
        source=chosen.source, cases=chosen.cases, systems="alone", workers=tuple(workers), seed=chosen.seed,
        parallel=parallel, yes=yes, quiet=quiet, rehearsal=chosen.rehearsal, go_on="the same command again",
    )  # fmt: skip
    return Evaluating(order, settings)


def _measured(going: Evaluating, pool: Pool, chosen: Set) -> list[MeasuredCard]:
    """A card for each worker that could be judged; why there is none for another is said."""
    from conductor_cli.cli.output import print_notice
    from conductor_cli.evals.summary import summarize

    assert going.evaluation is not None
    outcomes = going.evaluation.outcomes()
    errors = {outcome.system: outcome.error for outcome in outcomes if outcome.verdict == "failed"}
    cards = []
    for row in summarize(outcomes, systems=going.evaluation.spec.systems).rows:
        worker = pool[row.name.removeprefix("alone:")]
        if row.score.n:
            cards.append(_card(worker, row, chosen))
        if row.failed:
            told = "" if row.score.n else ", so it has no card"
            print_notice(f"{worker.name}: {row.failed} of {len(chosen.cases)} cases failed{told}: {errors[row.name]}")
    for line in going.evaluation.spec.remarks:
        if line.startswith("left out"):
            print_notice(line)
    return cards


def _card(worker: Worker, row: SystemSummary, chosen: Set) -> MeasuredCard:
    from conductor_cli.config.cards import MeasuredCard, Strength, worker_key

    strengths = {
        tag: Strength(
            right=share.right, n=share.n, low=round(share.interval.low, 4), high=round(share.interval.high, 4)
        )
        for tag, share in row.tags.items()
    }
    n = row.score.n
    return MeasuredCard(
        worker=worker.name, kind=worker.kind, key=worker_key(worker), source=f"{chosen.source}, seed {chosen.seed}",
        model=Path(worker.model).name if worker.kind == "llama" else worker.model, hash=chosen.hash,
        time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", right=row.score.right, n=n, failed=row.failed,
        strengths=strengths, tokens_in=round(row.usage.tokens_in / n, 2), tokens_out=round(row.usage.tokens_out / n, 2),
        seconds=round(row.mean or 0.0, 4), cost=row.cost if not row.usage.unpriced else None, price=worker.price,
    )  # fmt: skip


def _keep(fresh: Sequence[MeasuredCard], settings: Settings, chosen: Set, out: Path | None) -> Path | None:
    """Write the cards; where to, None where they are only shown. Raises `ConfigError`."""
    from conductor_cli.cli.output import print_notice
    from conductor_cli.config.cards import cards_file, write_cards

    if not fresh or (chosen.rehearsal and out is None):
        return None
    path = out or cards_file(settings.paths)
    lock = None if out is None else settings.paths.state / "cards.lock"  # nothing of ours stays beside a user's file
    aside = write_cards(path, fresh, lock=lock)
    if aside is not None:
        print_notice(f"{path} was damaged; what stood in it is kept in {aside}")
    return path


def _overruled(pool: Pool, settings: Settings, fresh: Sequence[MeasuredCard]) -> None:
    """Say whose new card has no effect, since its owner wrote one by hand."""
    from conductor_cli.cli.output import print_notice

    for card in fresh:
        worker = pool[card.worker]
        before = settings.cards.on(replace(worker, card=Card())).card
        if worker.card.strengths and worker.card != before:
            print_notice(f"{worker.name} has a card in the settings, and that wins")


def _show(
    cards: Sequence[MeasuredCard], fresh: Sequence[MeasuredCard], chosen: Set, kept: Path | None, *, json: bool
) -> None:
    from conductor_cli.cli.output import print_json, print_notice, print_table
    from conductor_cli.core.serialization import dump

    if json:
        data: dict[str, Any] = {
            "source": chosen.source, "hash": chosen.hash, "cases": len(chosen.cases), "seed": chosen.seed,
            "file": str(kept) if kept is not None else None, "cards": [dump(card) for card in cards],
        }  # fmt: skip
        print_json(data)
        return
    print_table(HEADS, [cells for card in cards for cells in _cells(card, is_new=card in fresh)])
    if kept is not None:
        print_notice(f"kept in {kept}")
    elif not fresh and cards:
        print_notice("all of this was measured before; to measure it anew: --again")


def _cells(card: MeasuredCard, *, is_new: bool) -> list[list[str]]:
    """A line for each tag, then one for all of them."""
    from conductor_cli.evals.statistics import wilson_interval
    from conductor_cli.evals.table import dollars, limits

    lines = [
        [
            card.worker,
            tag,
            f"{item.share:.2f}",
            limits(wilson_interval(item.right, item.n)),
            str(item.n),
            "",
            "",
            "",
            "",
        ]
        for tag, item in card.strengths.items()
    ]
    cost = dollars(card.cost, 0 if card.cost is not None else 1)
    return [*lines, [
        card.worker, "all", f"{card.right / card.n:.2f}", limits(wilson_interval(card.right, card.n)), str(card.n),
        f"{card.tokens_in + card.tokens_out:.0f}", f"{card.seconds:.2f}", cost, "now" if is_new else card.time[:10],
    ]]  # fmt: skip
