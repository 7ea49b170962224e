"""`conductor eval`: compare ways of using the workers on the same cases."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from conductor_cli.app import evaluation as evaluations
from conductor_cli.app.case_sets import fetch_suite, load_cases
from conductor_cli.app.ray_jobs import ray_cluster
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.app.stored_evaluations import stored_evaluations
from conductor_cli.cli import options as opt
from conductor_cli.cli import output as out
from conductor_cli.cli.confirmation import confirm_cost
from conductor_cli.cli.progress import show_progress
from conductor_cli.cli.signals import on_signal
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.core.formatting import format_count, format_money, format_time
from conductor_cli.core.mappings import names_of
from conductor_cli.evals.cases import warn_of_long_answers, write_cases
from conductor_cli.evals.outcomes import CaseOutcome, Evaluation, EvaluationSpec
from conductor_cli.evals.report import (
    reach_verdict,
    report_json,
    report_notes,
    system_table,
    tag_table,
)
from conductor_cli.evals.suites import SUITES
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.systems import DEFAULT
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.terminal_tables import Column, shown_heads, terminal_width
from conductor_cli.system.user_functions import UserFunction, load_user_function

CONTINUE: Final = "the same command continues"
_Ray = tuple[str, Callable[[], Settings]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """The options of `conductor eval`."""

    cases: Annotated[
        str | None,
        opt.argument(
            "rehearsal|basics|everyday|SUITE|FILE",
            "A built-in set, a published suite, or a file of cases. The set rehearsal runs the "
            "demo models, all others your workers.",
        ),
    ] = None
    systems: Annotated[
        opt.Names,
        opt.option(
            "--systems", f"Ways of using the workers to compare. Default: {DEFAULT}.", "all|A,B"
        ),
    ] = None
    count: Annotated[
        int | None,
        opt.option(
            "--n", "Number of cases. Default: rehearsal 500, basics 60, all of a file.", "N", min=1
        ),
    ] = None
    seed: Annotated[
        int, opt.option("--seed", "Random seed for case selection and sampling.", "N", min=0)
    ] = 0
    repeat: Annotated[
        int,
        opt.option(
            "--repeat",
            "How often each system runs each case, with another seed each time; intervals include "
            "run-to-run variance.",
            "N",
            min=1,
            max=100,
        ),
    ] = 1
    workers: opt.WorkersOption = None
    pool: opt.PoolOption = None
    conductor: opt.ConductorOption = None
    allow: opt.Allow = None
    deny: opt.Deny = None
    local_only: opt.LocalOnly = False
    file: Annotated[
        str | None,
        opt.option("--from", "The file of a published suite, as its authors publish it.", "FILE"),
    ] = None
    columns: Annotated[
        opt.Names,
        opt.option(
            "--fields",
            (
                "How a JSON Lines, CSV or Parquet file of others names question, answer, choices, "
                "scorer, id, tags."
            ),
            "FIELD=COLUMN,…",
        ),
    ] = None
    judge: Annotated[
        str,
        opt.option(
            "--judge",
            "Worker that judges answers: of cases with the scorer model, and beside the rules of "
            "all others.",
            "WORKER",
        ),
    ] = ""
    scorer: Annotated[
        str | None,
        opt.option(
            "--scorer",
            "Your own function, which scores all answers in place of the scorers of the cases.",
            "FILE:FUNCTION|MODULE:FUNCTION",
        ),
    ] = None
    parallel: opt.ParallelRuns = 8
    ray: opt.RayCluster = None
    show: Annotated[
        str | None,
        opt.option("--show", "Print the report of a stored evaluation again.", "ID|last"),
    ] = None
    json: opt.Json = False
    yes: opt.YesToCost = False
    max_cost: opt.MaxCostOfAll = None
    progress: opt.ProgressOption = None
    list_: Annotated[
        bool, opt.option("--list", "List the published suites and the stored evaluations.")
    ] = False
    print_cases: Annotated[
        bool, opt.option("--print-cases", "Print the cases as JSON Lines and stop.")
    ] = False

    def settings(self) -> dict[str, Any]:
        """Return what the options say, as checked settings by name. Raises `UsageError`."""
        flags = {
            "planner.model": self.conductor,
            "conductor.pool": self.pool,
            "output.progress": self.progress,
        }
        return opt.check_flags(flags | opt.policy_settings(self.allow, self.deny, self.local_only))

    def check_purpose(self) -> None:
        """Raise `UsageError` unless they ask for exactly one thing: cases, a report or the list."""
        purposes = (self.cases is not None, self.show is not None, self.list_)
        if purposes.count(True) != 1:
            hint = (
                "for example: conductor eval rehearsal, or with a file of cases: conductor eval "
                "CASES.jsonl"
            )
            raise UsageError("give a set of cases, or --show ID, or --list", hint=hint)


@opt.with_options()
def eval_command(context: typer.Context, options: EvalOptions) -> None:
    """Compare single workers, voting, routing and conducting on the same cases.

    Accuracy, cost and time.
    """
    is_rehearsal = options.cases == REHEARSAL
    load = partial(_settings, options.settings(), context.obj.config, rehearsal=is_rehearsal)
    settings = load()
    options.check_purpose()
    if options.list_:
        _print_list(settings, json=options.json)
        return
    if options.show is not None:
        _print_report(evaluations.find_evaluation(options.show, settings), json=options.json)
        return
    quiet = context.obj.quiet
    request = _evaluation_request(options, settings, quiet=quiet)
    if options.print_cases:
        out.print_line(write_cases(request.cases).rstrip("\n"))
        return
    ray = None
    if options.ray is not None:
        ray = (options.ray, load)
    stored, code = run_evaluation(request, settings, yes=options.yes, quiet=quiet, ray=ray)
    if stored is not None:
        _print_report(stored, json=options.json)
        failure = _nothing_judged(stored.outcomes())
        if failure is not None and not code:
            code = out.print_error(failure)
    raise typer.Exit(code)


def _evaluation_request(
    options: EvalOptions, settings: Settings, *, quiet: bool
) -> evaluations.EvaluationRequest:
    """Return what is evaluated. Raises `UsageError`; a published suite may be fetched first."""
    scorer = _own_scorer(options.scorer, options.ray)
    named = str(options.cases)
    file = options.file
    if file is None:
        file = _fetched_suite(named, settings, quiet=quiet)
    columns = ",".join(options.columns or ())
    source, cases = load_cases(
        named, file=file, count=options.count, seed=options.seed, columns=columns
    )
    return evaluations.EvaluationRequest(
        source=source,
        cases=cases,
        seed=options.seed,
        repeat=options.repeat,
        systems=",".join(options.systems or ()) or None,
        parallel=options.parallel,
        workers=opt.parse_names(options.workers),
        max_cost=opt.parse_cost(options.max_cost),
        judge=options.judge,
        scorer=scorer,
    )


def _own_scorer(scorer: str | None, ray: str | None) -> UserFunction | None:
    """Return the user's function of `--scorer`. Raises `UsageError`, also together with `--ray`."""
    if scorer is None:
        return None
    function = load_user_function(scorer)
    if ray is not None:
        hint = "leave one of them out: a function of your own runs in this process only"
        raise UsageError("--scorer and --ray cannot be given together", hint=hint)
    return function


def _nothing_judged(outcomes: Sequence[CaseOutcome]) -> Failure | None:
    """Return the failure of an evaluation of which each run has failed, else None."""
    if any(outcome.verdict != "failed" for outcome in outcomes):
        return None
    reason = "nothing was run"
    if outcomes:
        reason = outcomes[0].error
    message = f"no case could be judged: {reason}"
    return Failure(kind="unreachable", message=message, hint="conductor workers test")


def _fetched_suite(cases: str, settings: Settings, *, quiet: bool) -> str | None:
    """Return the file of a published suite, from the hub the first time; None for other cases."""
    if cases not in SUITES or Path(cases).exists():
        return None
    with show_progress(settings, quiet=quiet, unit="bytes") as display:
        return str(fetch_suite(SUITES[cases], settings, display.update))


def _settings(flags: Mapping[str, Any], config: str | None, *, rehearsal: bool) -> Settings:
    return replace(load_settings(os.environ, flags, config), rehearsal=rehearsal)


def run_evaluation(
    request: evaluations.EvaluationRequest,
    settings: Settings,
    *,
    yes: bool,
    quiet: bool,
    ray: _Ray = None,
) -> tuple[Evaluation | None, int]:
    """Run an evaluation with a progress display.

    Returns the evaluation if there is a result to show, and the exit code. Finished runs stay
    stored, whatever happens, and the same request continues. With `ray` the nodes of a cluster make
    the runs: its address, and what returns the settings there.
    """
    try:
        return run_async(_run(request, settings, yes=yes, quiet=quiet, ray=ray))
    # asyncio turns Ctrl-C into KeyboardInterrupt after it has cancelled the task; SIGTERM only
    # cancels it.
    except KeyboardInterrupt:
        return None, 128 + signal.SIGINT
    except asyncio.CancelledError:
        return None, 128 + signal.SIGTERM


async def _run(
    request: evaluations.EvaluationRequest, settings: Settings, *, yes: bool, quiet: bool, ray: _Ray
) -> tuple[Evaluation | None, int]:
    async with evaluations.open_evaluation(request, settings) as prepared:
        evaluation = prepared.stored
        done = prepared.done
        total = prepared.spec.runs
        if evaluation is not None and done >= total:
            return evaluation, 0
        if evaluation is not None and not quiet:
            out.print_notice(f"continuing {evaluation.id}: {done:,} of {total:,} runs are done")
        if prepared.replies_of is not None and not quiet:
            out.print_notice(_describe_other_verdicts(prepared.replies_of, prepared.spec))
        lines = _describe_evaluation(prepared)
        if prepared.estimate is None and not quiet:
            for line in lines:
                out.print_notice(line)
        if not prepared.budget.exhausted:
            is_agreed = prepared.estimate is None or confirm_cost(
                lines, "the evaluation", yes=yes, quiet=quiet
            )
            if not is_agreed:
                out.print_notice("nothing was run")
                return None, 0
            evaluation = prepared.create(settings)
            try:
                done = await _run_rest(prepared, evaluation, settings, quiet=quiet, ray=ray)
            finally:
                spending = prepared.orchestra.daily_spend
                problem = None if spending is None else spending.take_problem()
                if problem:
                    out.print_notice(f"note: {problem}")
        if done >= total:
            return evaluation, 0
        return evaluation, out.print_error(_limit_failure(prepared, done))


def _describe_other_verdicts(other: Evaluation, spec: EvaluationSpec) -> str:
    """Return why the replies of another evaluation are scored again."""
    why = f"its answers were scored by the rules of another version in {other.id}"
    if other.spec.python != spec.python:
        ran = other.spec.python or "another Python"
        why = f"its programs were run by {ran} in {other.id}"
    return f"{why}: the replies of that are scored anew"


def _describe_evaluation(prepared: evaluations.PreparedEvaluation) -> list[str]:
    """Return what is compared now and what that takes; then what is not, because it cannot run."""
    spec = prepared.spec
    names = ", ".join(names_of(prepared.systems))
    comparison = f"comparing {names} on {format_count(spec.cases, 'case')}"
    if spec.repeat > 1:
        comparison += f", {spec.repeat:,} times each"
    lines = [comparison]
    if prepared.estimate is not None:
        lines += prepared.estimate.lines()
        limit = prepared.request.max_cost
        if limit is not None and prepared.estimate.high.cost[1] > limit:
            spent = f"it stops where {format_money(limit)} would be exceeded"
            lines.append(f"{spent}; --max-cost USD sets another limit")
    else:
        lines.append(f"{spec.runs - prepared.done:,} runs, which cost nothing")
    lines += prepared.left_out
    # A scorer of the user's own decides without the expected answers.
    if prepared.request.scorer is None and (
        warning := warn_of_long_answers(prepared.request.cases)
    ):
        lines.append(f"warning: {warning}")
    return lines


async def _run_rest(
    prepared: evaluations.PreparedEvaluation,
    evaluation: Evaluation,
    settings: Settings,
    *,
    quiet: bool,
    ray: _Ray,
) -> int:
    """Make the runs that are not done, and return how many are done in the end."""
    done = prepared.done
    total = prepared.spec.runs
    # SIGTERM cancels the tasks as Ctrl-C does, and finished runs stay stored.
    task = asyncio.current_task()
    assert task is not None
    try:
        with (
            nullcontext() if ray is None else ray_cluster(ray[0]) as node,
            show_progress(settings, quiet=quiet, unit="runs") as progress,
            on_signal(signal.SIGTERM, task.cancel),
        ):
            failed = 0
            cost = Decimal(0)
            progress.update("", done, total)
            cluster = (node, ray[1]) if ray and node else None
            async with aclosing(prepared.run(evaluation, cluster)) as outcomes:
                async for outcome in outcomes:
                    done += 1
                    cost += outcome.cost or 0
                    if outcome.verdict == "failed":
                        failed += 1
                    details = []
                    if failed:
                        details.append(f"{failed} failed")
                    if cost:
                        details.append(format_money(cost))
                    progress.update("", done, total, ", ".join(details))
    except asyncio.CancelledError:
        out.print_notice(f"stopped: {done:,} of {total:,} runs are stored; {CONTINUE}")
        raise
    return done


def _limit_failure(prepared: evaluations.PreparedEvaluation, done: int) -> Failure:
    total = prepared.spec.runs
    limit = format_money(prepared.budget.limit or 0)
    spent = format_money(prepared.budget.spent)
    message = f"the limit of {limit} is reached: {done:,} of {total:,} runs cost {spent}"
    reached = prepared.budget.reached
    if reached is not None and reached.reason != "limit_cost_all":
        message = f"{reached.message}: {done:,} of {total:,} runs are done, and cost {spent}"
    hint = f"raise --max-cost, or wait for tomorrow if it is the limit of a day; {CONTINUE}"
    unrecorded = prepared.budget.unrecorded
    if unrecorded is not None:
        message = f"{unrecorded.message}: {done:,} of {total:,} runs are done, and cost {spent}"
        hint = f"free some space; {CONTINUE}"
    return Failure(kind="limit", message=message, hint=hint)


def _print_report(evaluation: Evaluation, *, json: bool) -> None:
    spec = evaluation.spec
    outcomes = evaluation.outcomes()
    summary = summarize(outcomes, spec.systems)
    if json:
        out.print_json(report_json(evaluation.id, spec, summary, evaluation.spent()))
        return
    verdict = reach_verdict(summary, runs=spec.runs, spent=evaluation.spent())
    for text in (verdict.finding, verdict.warning):
        if text:
            out.print_text(text)
    out.print_line()
    systems = system_table(summary)
    out.print_table(*systems)
    tags = tag_table(summary)
    if tags is not None:
        out.print_line()
        out.print_table(*tags)
    out.print_line()
    heads = shown_heads(*systems, terminal_width(sys.stdout))
    for note in report_notes(spec, summary, heads):
        out.print_text(note)


_SUITE_COLUMNS: Final = (
    Column("SUITE"),
    Column("ABOUT", shrink=20, drop=2),
    Column("NEEDS"),
    Column("FILE", shrink=24),
    Column("LICENCE", drop=1),
)
_EVALUATION_COLUMNS: Final = (
    Column("ID"),
    Column("STARTED", drop=1),
    Column("SOURCE", shrink=12),
    Column("CASES", drop=2),
    Column("RUNS", drop=3),
    Column("DONE", drop=4),
)


def _print_list(settings: Settings, *, json: bool) -> None:
    """Print the published suites, and all stored evaluations that can be read."""
    stored = list(stored_evaluations(settings))
    if json:
        listed = []
        for evaluation in stored:
            done = len(evaluation.outcomes())
            listed.append({"id": evaluation.id, **evaluation.spec.json(), "outcomes": done})
        out.print_json(
            {"suites": [suite.json() for suite in SUITES.values()], "evaluations": listed}
        )
        return
    suites = []
    for suite in SUITES.values():
        needs = ", ".join(suite.needs) or "-"
        suites.append((suite.name, suite.about, needs, suite.source, suite.licence))
    out.print_table(_SUITE_COLUMNS, suites)
    out.print_line()
    if not stored:
        out.print_line("no evaluations are stored; start one: conductor eval rehearsal")
        return
    now = datetime.now(UTC)
    rows = []
    for evaluation in stored:
        spec = evaluation.spec
        started = format_time(spec.time, now)
        counts = (f"{spec.cases:,}", f"{spec.runs:,}", f"{len(evaluation.outcomes()):,}")
        rows.append((evaluation.id, started, spec.source, *counts))
    out.print_table(_EVALUATION_COLUMNS, rows)
