"""`conductor workers calibrate`: measure each worker alone, and write its capability card."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.app.calibration import Calibration
    from conductor_cli.config import Settings
    from conductor_cli.config.cards import MeasuredCard

HEADS: Final = ("WORKER", "TAG", "STRENGTH", "95 %", "CASES", "TOKENS", "SECONDS", "COST", "MEASURED")


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
    from conductor_cli.app.calibration import plan_calibration
    from conductor_cli.config import load_settings

    if rehearsal and cases is not None:
        raise UsageError("--rehearsal has its own cases", hint="leave out the file, or --rehearsal")
    flags = opt.check_settings({"output.progress": progress, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    calibration = plan_calibration(
        settings, cases, workers=opt.parse_names(workers), count=count, seed=seed, rehearsal=rehearsal, repeat=again,
        out=out,
    )  # fmt: skip
    raise typer.Exit(_calibrate(calibration, settings, parallel=parallel, yes=yes, quiet=context.obj.quiet, json=json))


def _calibrate(
    calibration: Calibration, settings: Settings, *, parallel: int, yes: bool, quiet: bool, json: bool
) -> int:
    """Measure, store and print; the exit code."""
    from conductor_cli.app.calibration import measured_cards, overridden_workers, save_cards
    from conductor_cli.cli.eval import run_evaluation
    from conductor_cli.core.serialization import dump

    fresh: list[MeasuredCard] = []
    request = calibration.evaluation_request(parallel)
    if request is not None:
        evaluation, code = run_evaluation(request, settings, yes=yes, quiet=quiet)
        if code or evaluation is None:
            return code
        fresh, notes = measured_cards(calibration, evaluation)
        for note in notes:
            print_notice(note)
    path, damaged = save_cards(fresh, calibration, settings)
    cards = [*calibration.known, *fresh]
    if json:
        print_json({
            "source": calibration.source, "hash": calibration.hash, "cases": len(calibration.cases),
            "seed": calibration.seed, "file": str(path) if path is not None else None,
            "cards": [dump(card) for card in cards],
        })  # fmt: skip
    else:
        print_table(HEADS, [row for card in cards for row in _rows(card, is_new=card in fresh)])
    if damaged is not None:
        print_notice(f"{path} was damaged; its content was moved to {damaged}")
    if path is not None and not json:
        print_notice(f"wrote the cards to {path}; plans and routers use them from now on")
    elif cards and not fresh and not json:
        print_notice("everything was measured before; --again repeats it")
    for name in overridden_workers(fresh, calibration, settings):
        print_notice(f"{name} has a card in the settings, which overrides the measured one")
    return 0 if cards else 8


def _rows(card: MeasuredCard, *, is_new: bool) -> list[list[str]]:
    """A row for each tag, then one for all of them."""
    from conductor_cli.core.formatting import format_cost_cell
    from conductor_cli.evals.report import format_limits
    from conductor_cli.evals.statistics import wilson_interval

    def row(tag: str, right: int, n: int, *more: str) -> list[str]:
        limits = format_limits(wilson_interval(right, n))
        return [card.worker, tag, f"{right / n:.2f}", limits, str(n), *(more or ("",) * 4)]

    tags = [row(tag, item.right, item.n) for tag, item in card.strengths.items() if item.n]
    tokens, cost = f"{card.tokens_in + card.tokens_out:.0f}", format_cost_cell(card.cost, card.cost is None)
    return [
        *tags,
        row("all", card.right, card.n, tokens, f"{card.seconds:.2f}", cost, "now" if is_new else card.time[:10]),
    ]
