"""`conductor eval`: the same cases and the same workers, used in every way, scored alike."""

from __future__ import annotations

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.eval.evaluating import Order
    from conductor_cli.config import Settings

Cases = Annotated[
    str | None,
    typer.Argument(
        metavar="rehearsal|basics|CASES.jsonl", show_default=False,
        help="The rehearsal's held-out questions over its own workers; or a small set, or a file, over yours.",
    ),
]  # fmt: skip
Systems = Annotated[
    str, typer.Option("--systems", metavar="all|A,B", help="Which ways to use the workers; all is every one.")
]
Count = Annotated[
    int | None,
    typer.Option("--n", metavar="N", min=1, help="How many cases: 500 of the rehearsal, 60 of basics, all of a file."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Draws the cases, and all else that is drawn.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="SET", help="The file is math500, mmlu, aime25 or gpqa-diamond.")
]
Parallel = Annotated[int, typer.Option("--parallel", metavar="N", min=1, max=256, help="Runs at once.")]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="ID|last", help="Go on with one; what failed is asked again.")
]
Rescore = Annotated[
    str | None, typer.Option("--rescore", metavar="ID|last", help="Score its stored answers again, without a call.")
]
Scorer = Annotated[
    str | None, typer.Option("--scorer", metavar="NAME", help="With --rescore: for all cases, another than their own.")
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report with plots, too.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question, though it may cost money.")]
MaxCost = Annotated[
    str | None, typer.Option("--max-cost", metavar="USD", help="Stop when the runs have cost so much in all.")
]
List = Annotated[bool, typer.Option("--list", help="List the evaluations that are kept.")]
Print = Annotated[bool, typer.Option("--print-cases", help="Write the cases as JSON Lines, and ask nobody.")]


def evaluate(
    context: typer.Context,
    cases: Cases = None,
    systems: Systems = "all",
    count: Count = None,
    seed: Seed = 0,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    allow: opt.Allow = None,
    deny: opt.Deny = None,
    local_only: opt.LocalOnly = False,
    form: From = None,
    parallel: Parallel = 8,
    resume: Resume = None,
    rescore: Rescore = None,
    scorer: Scorer = None,
    html: Html = None,
    json: opt.Json = False,
    yes: Yes = False,
    max_cost: MaxCost = None,
    progress: opt.ProgressOption = None,
    list_: List = False,
    print_cases: Print = False,
) -> None:
    """Put the same cases to every way of using the workers, and compare what was right and what it took."""
    from conductor_cli.app import evaluation_list
    from conductor_cli.app.worker_selection import without_pool
    from conductor_cli.cli.eval import reporting
    from conductor_cli.config import load_settings

    flags = {"conductor.model": conductor, "conductor.pool": pool}
    flags |= {"output.progress": progress.value if progress else None}
    flags |= opt.policy_settings(allow, deny, local_only)
    settings = load_settings(
        os.environ, {**opt.check_settings(flags), "output.color": context.obj.color}, context.obj.config
    )
    _one_of(cases=cases, **{"--resume": resume, "--rescore": rescore, "--list": list_})
    if scorer is not None and rescore is None:
        raise UsageError("--scorer is for --rescore", hint="a case names its own scorer")
    if resume is not None or rescore is not None:
        _as_begun(context, "--rescore" if resume is None else "--resume")
    reporting.check_file(html)
    if list_:
        evaluation_list.listed(settings, json=json)
        return
    if rescore is not None:
        found = evaluation_list.find_evaluation(rescore, settings)
        reporting.rescored(found, settings, scorer=scorer or "", html=html, json=json)
        return
    if resume is not None:
        settings = without_pool(settings)
        order = _again(resume, settings)
    else:
        order = replace(_order(str(cases), form, count, seed), systems=systems, workers=opt.parse_names(workers))
    if print_cases:
        _print(order)
        return
    order = replace(order, parallel=parallel, yes=yes, max_cost=_money(max_cost), quiet=context.obj.quiet)
    raise typer.Exit(_done(order, settings, html, json=json))


def _done(order: Order, settings: Settings, html: Path | None, *, json: bool) -> int:
    """Evaluate, and report what there is also where a limit ended it; the exit code."""
    from conductor_cli.cli.eval import evaluating, reporting

    going = evaluating.Evaluating(order, settings)
    code = going.run()
    if going.evaluation is not None and code in (0, evaluating.LIMIT):
        reporting.report(going.evaluation, settings, html=html, json=json)
        code = code or reporting.ended(going.evaluation)
    return code


def _print(order: Order) -> None:
    from conductor_cli.cli.output import print_line
    from conductor_cli.evals.cases import write_cases

    print_line(write_cases(order.cases).rstrip("\n"))


def _one_of(**given: object) -> None:
    """That exactly one thing is asked for. Raises `UsageError`."""
    named = [name for name, value in given.items() if value]
    if not named:
        hint = "conductor eval rehearsal, or a file of cases: conductor eval CASES.jsonl"
        raise UsageError("no cases are named", hint=hint)
    if len(named) > 1:
        one, other = ("a set of cases" if name == "cases" else name for name in named[:2])
        raise UsageError(f"{one} and {other} exclude each other")


def _as_begun(context: typer.Context, which: str) -> None:
    """That nothing is asked for which an evaluation that exists has settled. Raises `UsageError`."""
    settled = {
        "systems": "--systems", "workers": "--workers", "pool": "--pool", "count": "--n", "seed": "--seed",
        "form": "--from",
    }  # fmt: skip
    for name, option in settled.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            said = f"{which} takes an evaluation as it was begun, so {option} has no effect"
            raise UsageError(said, hint="leave it out, or begin a new one")


def _money(text: str | None) -> Decimal | None:
    """US dollars, more than 0. Raises `UsageError`."""
    flags = opt.limit_settings(steps=None, recursion=None, cost=text, tokens=None, calls=None, time=None)
    money: Decimal | None = opt.check_settings(flags).get("limits.cost")
    return money


def _order(source: str, form: str | None, count: int | None, seed: int) -> Order:
    from conductor_cli.app.case_sets import load_cases
    from conductor_cli.cli.eval.evaluating import Order

    name, cases = load_cases(source, form=form, count=count, seed=seed)
    return Order(source=name, cases=cases, seed=seed, rehearsal=name == "rehearsal")


def _again(name: str, settings: Settings) -> Order:
    """What was asked for when an evaluation began."""
    from conductor_cli.app.evaluation_list import find_evaluation
    from conductor_cli.cli.eval.evaluating import Order

    begun = find_evaluation(name, settings)
    spec = begun.spec
    return Order(
        source=spec.cases, cases=begun.cases(), systems=spec.systems, seed=spec.seed, workers=spec.pool.names,
        begun=begun, rehearsal=spec.rehearsal,
    )  # fmt: skip
