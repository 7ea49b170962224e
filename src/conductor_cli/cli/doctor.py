"""`conductor doctor`: check whether everything works, and say what to do about the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_cli.app.check_results import CheckResult, first_code
from conductor_cli.app.doctor import (
    check_machine,
    check_planning,
    check_workers,
    make_report,
    workers_to_check,
)
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_check, print_json, print_notice, print_text
from conductor_cli.cli.progress import show_running
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.system.event_loop import run_async


def doctor_command(
    context: typer.Context,
    offline: Annotated[
        bool, opt.option("--offline", "Check this machine only: call no model and no server.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Check the installation, the model and every worker.

    Each is called once, which costs next to nothing.
    """
    settings = opt.stored_settings(context)
    checks: list[CheckResult] = []
    with show_running(quiet=context.obj.quiet) as running:

        def report(check: CheckResult) -> None:
            checks.append(check)
            with running.finished(check.name):
                if not json:
                    print_check(check)

        running.start("this machine")
        for check in check_machine(settings):
            report(check)
        with running.finished("this machine"):
            plans = all(check.code == 0 for check in checks if check.name == "planner")
        workers = workers_to_check(settings, offline=offline)
        called = []
        if plans:
            called.append("the planner")
        if workers:
            called.append(format_count(len(workers), "worker"))
        is_silent = json or offline or context.obj.quiet
        if called and not is_silent:
            print_notice(
                f"calling {format_list(called)} once, which costs next to nothing; --offline calls "
                "none …"
            )
        if plans and not offline:
            running.start("planning")
            report(run_async(check_planning(settings)))
        try:
            run_async(check_workers(settings, workers, running.start, report, offline=offline))
        except ExceptionGroup as group:
            if group.subgroup(typer.Exit):  # the reader of standard output is gone
                raise typer.Exit from None
            raise
    # Workers answer in any order; JSON, the summary and the exit code have one order.
    ranks = {f"worker {worker.name}": rank for rank, worker in enumerate(workers)}
    checks.sort(key=lambda check: ranks.get(check.name, -1))
    if json:
        print_json(make_report(settings, checks))
    else:
        print_text(_summarize(checks))
    raise typer.Exit(first_code(checks))


def _summarize(checks: Sequence[CheckResult]) -> str:
    failed = []
    warned = []
    for check in checks:
        if check.state == "failed":
            failed.append(check.name)
        elif check.state == "warning":
            warned.append(check.name)
    parts = []
    if failed:
        parts.append(f"{len(failed)} failed: {', '.join(failed)}")
    if warned:
        parts.append(f"{format_count(len(warned), 'warning')}: {', '.join(warned)}")
    return "; ".join(parts) or f"all {len(checks)} checks passed"
