"""`conductor workers calibrate`: measure each worker alone, and write its capability card."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_cost_cell, format_duration
from conductor_cli.core.serialization import dump
from conductor_cli.core.table import Column

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.config.cards import MeasuredCard

COLUMNS: Final = (
    Column("WORKER", shrink=12), Column("TAG"), Column("STRENGTH"), Column("95 %", drop=2), Column("CASES", drop=3),
    Column("TOKENS", drop=4), Column("TIME", drop=5), Column("COST", drop=1), Column("MEASURED", drop=6),
)  # fmt: skip


def calibrate(
    context: typer.Context,
    cases: Annotated[
        str | None, typer.Argument(metavar="CASES.jsonl", help="Cases with tags; default: the built-in set basics.")
    ] = None,
    rehearsal: Annotated[bool, typer.Option("--rehearsal", help="Measure the demo workers instead of yours.")] = False,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    count: Annotated[int | None, typer.Option("--n", metavar="N", min=1, help="Number of cases.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed for case selection.")] = 0,
    parallel: opt.ParallelRuns = 8,
    again: Annotated[bool, typer.Option("--again", help="Repeat what was already measured on these cases.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the cards to FILE instead.")] = None,
    yes: opt.YesToCost = False,
    progress: opt.ProgressOption = None,
    json: opt.Json = False,
) -> None:
    """Measure what each worker is good at, and store it as the card that the conductor and the routers use."""
    # Imported here, because the other commands of this group would pay for the imports of the evaluations.
    from conductor_cli.app.calibration import measured_cards, plan_calibration
    from conductor_cli.cli.eval import run_evaluation
    from conductor_cli.config import load_settings
    from conductor_cli.config.cards import cards_file
    from conductor_cli.models.disk import check_writable

    if rehearsal and cases is not None:
        raise UsageError("--rehearsal has its own cases", hint="leave out the file, or --rehearsal")
    flags = opt.check_settings({"output.progress": progress, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists", hint="name a new file")
    calibration = plan_calibration(
        settings, cases, workers=opt.parse_names(workers), count=count, seed=seed, parallel=parallel,
        rehearsal=rehearsal, repeat=again or out is not None,
    )  # fmt: skip
    fresh: list[MeasuredCard] = []
    # Checked now, because nobody wants to pay for cards that have no place.
    if not rehearsal or out is not None:
        check_writable((out or cards_file(settings.paths)).absolute().parent, "the cards", "--out FILE")
    if calibration.request.workers:
        evaluation, code = run_evaluation(calibration.request, settings, yes=yes, quiet=context.obj.quiet)
        if code or evaluation is None:
            raise typer.Exit(code)
        fresh, notes = measured_cards(calibration, evaluation)
        for note in notes:
            print_notice(note)
    cards = [*calibration.known, *fresh]
    if json:
        print_json({"source": calibration.request.source, "hash": calibration.hash, "cards": dump(cards)})
    else:
        print_table(COLUMNS, [row for card in cards for row in _rows(card)])
    if fresh:
        _store(fresh, settings, out, rehearsal=rehearsal)
    elif cards:
        print_notice("everything was measured before; --again repeats it")
    raise typer.Exit(0 if cards else 8)


def _store(cards: list[MeasuredCard], settings: Settings, out: Path | None, *, rehearsal: bool) -> None:
    """Write the cards to `out`, else to the user's own; those of the demo workers ship with this tool already."""
    from conductor_cli.config.cards import add_cards, cards_file, write_cards

    if out is not None:
        write_cards(out, cards)
        print_notice(f"wrote the cards to {out}")
    elif not rehearsal:
        path = cards_file(settings.paths)
        damaged = add_cards(path, cards)
        if damaged is not None:
            print_notice(f"{path} was damaged; its content was moved to {damaged}")
        print_notice(f"wrote the cards to {path}; plans and routers use them from now on")


def _rows(card: MeasuredCard) -> list[list[str]]:
    """A row for each tag, then one for all of them."""
    from conductor_cli.evals.report import format_limits
    from conductor_cli.evals.statistics import wilson_interval

    def row(tag: str, right: int, n: int, *more: str) -> list[str]:
        limits = format_limits(wilson_interval(right, n))
        return [card.worker, tag, f"{right / n:.2f}", limits, str(n), *(more or ("",) * 4)]

    tags = [row(tag, item.right, item.n) for tag, item in card.strengths.items() if item.n]
    tokens, cost = f"{card.tokens_in + card.tokens_out:.0f}", format_cost_cell(card.cost, card.cost is None)
    return [*tags, row("all", card.right, card.n, tokens, format_duration(card.seconds), cost, card.time[:10])]
