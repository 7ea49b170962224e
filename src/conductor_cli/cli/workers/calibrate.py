"""`conductor workers calibrate`: measure each worker alone, and write its capability card."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.app.calibration import SavedCards
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
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", min=1, max=256, help="Parallel runs.")] = 8,
    again: Annotated[bool, typer.Option("--again", help="Repeat what was already measured on these cases.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the cards to FILE instead.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking, even if it may cost money.")] = False,
    progress: opt.ProgressOption = None,
    json: opt.Json = False,
) -> None:
    """Measure what each worker is good at, and store it as the card that the conductor and the routers use."""
    # Imported here: the other commands of this group would pay for the imports of the evaluations.
    from conductor_cli.app import calibration as app
    from conductor_cli.cli.eval import run_evaluation
    from conductor_cli.cli.output import print_json, print_notice, print_table
    from conductor_cli.config import load_settings
    from conductor_cli.config.cards import check_cards_file
    from conductor_cli.core.serialization import dump

    if out is not None:
        check_cards_file(out)
    if rehearsal and cases is not None:
        raise UsageError("--rehearsal has its own cases", hint="leave out the file, or --rehearsal")
    flags = opt.check_settings({"output.progress": progress.value if progress else None, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    source, chosen = app.choose_cases(cases, rehearsal=rehearsal, count=count, seed=seed)
    request = app.CalibrationRequest(
        source=source, cases=chosen, seed=seed, workers=opt.parse_names(workers), rehearsal=rehearsal, repeat=again,
        out=out,
    )  # fmt: skip
    calibration = app.plan_calibration(request, settings)
    fresh: list[MeasuredCard] = []
    evaluation_request = calibration.evaluation_request(parallel)
    if evaluation_request is not None:
        evaluation, code = run_evaluation(
            evaluation_request, settings, yes=yes, quiet=context.obj.quiet, resume_command="run the same command again"
        )
        if code or evaluation is None:
            raise typer.Exit(code)
        fresh, notes = app.measured_cards(calibration, evaluation)
        for note in notes:
            print_notice(note)

    saved = app.save_cards(fresh, calibration, settings)
    cards = [*calibration.known, *fresh]
    if json:
        path = str(saved.path) if saved.path is not None else None
        common = {"source": source, "hash": request.hash, "cases": len(chosen), "seed": seed, "file": path}
        print_json({**common, "cards": [dump(card) for card in cards]})
    else:
        print_table(HEADS, [row for card in cards for row in _rows(card, is_new=card in fresh)])
    for note in _saved_notes(saved, calibration.known, quiet=json):
        print_notice(note)
    for name in app.overridden_workers(fresh, calibration, settings):
        print_notice(f"{name} has a card in the settings, which overrides the measured one")
    raise typer.Exit(0 if cards else 8)


def _saved_notes(saved: SavedCards, known: Sequence[MeasuredCard], *, quiet: bool) -> list[str]:
    """What became of the file of cards."""
    notes = []
    if saved.damaged is not None:
        notes.append(f"{saved.path} was damaged; its content was moved to {saved.damaged}")
    if saved.path is not None and not quiet:
        notes.append(f"wrote the cards to {saved.path}; plans and routers use them from now on")
    elif known and saved.path is None and not quiet:
        notes.append("everything was measured before; --again repeats it")
    return notes


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
