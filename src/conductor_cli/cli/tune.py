"""`conductor tune`: learn from cases whom to ask and whether to plan."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.app.evaluation import EvaluationRequest, load_cases
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.app.tuning import MIN_CASES, PLAN, ROUTER, Tuned, find_encoder, learn
from conductor_cli.cli import options as opt
from conductor_cli.cli.eval import run_evaluation
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.config import load_settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import dump
from conductor_cli.evals.report import system_table
from conductor_cli.evals.systems import ALONE
from conductor_cli.models.disk import write_atomically
from conductor_cli.models.router import SUFFIX, write_router


def tune_command(
    context: typer.Context,
    cases: Annotated[
        str,
        typer.Argument(
            metavar="CASES.jsonl|SUITE|rehearsal", show_default=False, help="Questions of your kind with their answers."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--out", "-o", metavar=f"FILE{SUFFIX}", help="Where the router is written if it pays.")
    ] = Path(f"tuned{SUFFIX}"),
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            metavar="FILE.gguf|NAME",
            show_default=False,
            help="Small local model that reads the questions. Default: the local planner.",
        ),
    ] = "",
    count: Annotated[int | None, typer.Option("--n", metavar="N", min=MIN_CASES, help="Number of cases.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed of the two halves.")] = 0,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    parallel: opt.ParallelRuns = 8,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", metavar="USD", help="Stop when all runs together have cost this much.")
    ] = None,
    json: opt.Json = False,
    yes: opt.YesToCost = False,
) -> None:
    """Learn from your cases which worker to ask, and whether planning pays; say so only where it is proved."""
    flags = opt.check_flags({"conductor.model": conductor, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    if output.suffix != SUFFIX or not output.absolute().parent.is_dir():
        raise UsageError(
            f"cannot write {output}", hint=f"name a file that ends with {SUFFIX}, in a directory that exists"
        )
    name, loaded = load_cases(cases, file=None, count=count, seed=seed)
    if len(loaded) < MIN_CASES:
        raise UsageError(f"{len(loaded)} cases are too few to prove anything", hint=f"give at least {MIN_CASES}")
    reader = find_encoder(settings, encoder)
    # The planner takes part where there is one, and is left out without a word where there is none.
    request = EvaluationRequest(
        source=name, cases=loaded, seed=seed, default=f"{ALONE},{PLAN}", reuses=True,
        parallel=parallel, workers=opt.parse_names(workers), max_cost=opt.parse_cost(max_cost),
    )  # fmt: skip
    settings = replace(settings, rehearsal=name == REHEARSAL)
    stored, code = run_evaluation(request, settings, yes=yes, quiet=context.obj.quiet)
    if stored is None or code:
        raise typer.Exit(code)
    _report(learn(stored.outcomes(), stored.cases(), reader, seed), output, json=json)


def _report(tuned: Tuned, output: Path, *, json: bool) -> None:
    """Print what the second half of the cases proves, and write the router where it is what pays."""
    routes = tuned.way == ROUTER
    if routes:
        write_atomically(output, write_router(tuned.router))
    setting = {ROUTER: f"conductor model use {output.absolute()}"}.get(tuned.way, "")
    if json:
        systems = [dump(system) for system in tuned.summary.systems]
        print_json({
            "way": tuned.way, "advice": tuned.advice(), "router": str(output.absolute()) if routes else None,
            "setting": setting or None, "systems": systems,
        })  # fmt: skip
        return
    print_text(tuned.advice())
    print_line()
    print_table(*system_table(tuned.summary))
    if setting:
        print_line()
        print_text(f"to use it in ask, chat and serve: {setting}")
    elif tuned.way != PLAN:
        print_notice("no router was written")
