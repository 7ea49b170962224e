"""`conductor tune`: learn from cases whom to ask, how to plan, and whether to plan."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.app.case_sets import load_cases
from conductor_cli.app.evaluation import EvaluationRequest
from conductor_cli.app.guide_search import improve_plans
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.app.tuning import MIN_CASES, PLAN, Tuned, find_encoder, learn_ways
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import confirm_cost
from conductor_cli.cli.eval import run_evaluation
from conductor_cli.cli.output import print_json, print_line, print_table, print_text
from conductor_cli.cli.progress import show_progress
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_money
from conductor_cli.core.profile import Guide
from conductor_cli.core.serialization import dump
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.report import describe_cut_off, system_table
from conductor_cli.evals.systems import ALONE
from conductor_cli.models.router import SUFFIX, write_planner
from conductor_cli.system.disk import write_atomically
from conductor_cli.system.event_loop import run_async


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """The options of `conductor tune`."""

    cases: Annotated[
        str,
        opt.argument("CASES.jsonl|SUITE|rehearsal", "Questions of your kind with their answers."),
    ]
    output: Annotated[
        Path, opt.option("--out -o", "Where the planner is written if it pays.", f"FILE{SUFFIX}")
    ] = Path(f"tuned{SUFFIX}")
    encoder: Annotated[
        str,
        opt.option(
            "--encoder",
            "Small local model that reads the questions. Default: the local planner.",
            "FILE.gguf|NAME",
        ),
    ] = ""
    plans: Annotated[
        int,
        opt.option(
            "--plans",
            "How often the planner may plan while what it reads is improved; 0 leaves it as it is.",
            "N",
            min=0,
        ),
    ] = 200
    reflector: Annotated[
        str,
        opt.option(
            "--reflector",
            "Worker that improves what the planner reads. Default: the model that plans.",
            "WORKER",
        ),
    ] = ""
    count: Annotated[int | None, opt.option("--n", "Number of cases.", "N", min=MIN_CASES)] = None
    seed: Annotated[int, opt.option("--seed", "Random seed of the two halves.", "N", min=0)] = 0
    workers: opt.WorkersOption = None
    pool: opt.PoolOption = None
    conductor: opt.ConductorOption = None
    parallel: opt.ParallelRuns = 8
    max_cost: opt.MaxCostOfAll = None
    json: opt.Json = False
    yes: opt.YesToCost = False
    progress: opt.ProgressOption = None


@opt.with_options()
def tune_command(context: typer.Context, options: TuneOptions) -> None:
    """Learn from your cases which worker to ask, how to plan, and whether planning pays.

    Say so where it is proved.
    """
    flags = {
        "planner.model": options.conductor,
        "conductor.pool": options.pool,
        "output.progress": options.progress,
    }
    settings = opt.stored_settings(context, flags)
    _check_output(options.output)
    request = _evaluation_request(options)
    encoder = find_encoder(settings, options.encoder)
    settings = replace(settings, rehearsal=request.source == REHEARSAL)
    quiet = context.obj.quiet
    stored, code = run_evaluation(request, settings, yes=options.yes, quiet=quiet)
    if stored is None or code:
        raise typer.Exit(code)
    guided = _improve_if_agreed(options, request, settings, stored.outcomes(), quiet=quiet)
    tuned = learn_ways(stored.outcomes(), stored.cases(), encoder, options.seed, guided)
    planner: str | None = None
    if tuned.planner is not None:
        write_atomically(options.output, write_planner(tuned.planner))
        planner = str(options.output.absolute())
    _print_tuned(tuned, planner, json=options.json)


def _evaluation_request(options: TuneOptions) -> EvaluationRequest:
    """Return what is evaluated to learn from it. Raises `UsageError` for too few cases."""
    name, cases = load_cases(options.cases, file=None, count=options.count, seed=options.seed)
    if len(cases) < MIN_CASES:
        raise UsageError(
            f"{len(cases)} cases are too few to prove anything", hint=f"give at least {MIN_CASES}"
        )
    # The planner takes part where there is one, and is left out without a word where there is none.
    return EvaluationRequest(
        source=name,
        cases=cases,
        seed=options.seed,
        default=f"{ALONE},{PLAN}",
        reuses=True,
        parallel=options.parallel,
        workers=opt.parse_names(options.workers),
        max_cost=opt.parse_cost(options.max_cost),
    )


def _improve_if_agreed(
    options: TuneOptions,
    request: EvaluationRequest,
    settings: Settings,
    outcomes: Sequence[CaseOutcome],
    *,
    quiet: bool,
) -> Guide | None:
    """Return what the planner reads once it is improved; None where it stays as it is."""
    planned = [outcome for outcome in outcomes if outcome.system == PLAN]
    plans = options.plans
    if not plans or not planned or settings.rehearsal:
        return None
    if not _is_agreed(request, planned, plans, yes=options.yes):
        return None
    with show_progress(settings, quiet=quiet, unit="plans") as display:
        report = partial(display.update, "", total=plans)
        # Ctrl-C ends it; what was run stays stored, and the same command continues.
        return run_async(improve_plans(request, settings, plans, options.reflector, report))


def _check_output(path: Path) -> None:
    """Raise `UsageError` unless a planner can be written to this file."""
    if path.suffix != SUFFIX or not path.absolute().parent.is_dir():
        hint = f"name a file that ends with {SUFFIX}, in a directory that exists"
        raise UsageError(f"cannot write {path}", hint=hint)


def _print_tuned(tuned: Tuned, planner: str | None, *, json: bool) -> None:
    """Print what was learned; `planner` is the file that was written, None where none pays."""
    if planner is not None:
        setting = f"conductor model use {shlex.quote(planner)}"
    elif tuned.way != PLAN:
        setting = f"conductor config set policy.allow {shlex.quote(tuned.best)} && "
        setting += "conductor config set conductor.mode mini"
    else:
        setting = "conductor config set conductor.mode auto"
    advice = tuned.advice()
    if json:
        print_json(
            {
                "way": tuned.way,
                "advice": advice,
                "planner": planner,
                "setting": setting,
                "systems": [dump(system) for system in tuned.summary.systems],
            }
        )
        return
    print_text(advice)
    print_line()
    print_table(*system_table(tuned.summary))
    print_line()
    if cut_off := describe_cut_off(tuned.summary.systems):
        print_text(cut_off)
    print_text(f"for ask, chat and serve: {setting}")


def _is_agreed(
    request: EvaluationRequest, planned: Sequence[CaseOutcome], plans: int, *, yes: bool
) -> bool:
    """Return whether the planner may be improved.

    It costs nothing, has a limit, or the user says so.
    """
    mean = sum((outcome.cost or Decimal(0) for outcome in planned), Decimal(0)) / len(planned)
    is_free = not mean and all(outcome.cost is not None for outcome in planned)
    if is_free or request.max_cost is not None:
        return True
    cost = format_money(plans * mean)
    question = f"to improve what the planner reads: up to {plans:,} plans, which cost about {cost}"
    remark = (
        "their proof, and the model that reflects on them, come on top; --plans 0 leaves the "
        "planner as it is"
    )
    return confirm_cost([question, remark], "improving the planner", yes=yes, quiet=False)
