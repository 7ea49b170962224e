"""`conductor doctor`: check whether everything works, and say what to do about the rest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_cli.app.doctor import (
    Check,
    Report,
    Start,
    check_demo,
    check_machine,
    check_planning,
    check_workers,
    make_report,
    workers_to_check,
)
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_text
from conductor_cli.cli.progress import show_running
from conductor_cli.config import Settings, load_settings
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.core.pool import Worker


def doctor(
    context: typer.Context,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check this machine only: call no model and no server.")
    ] = False,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Check with the demo models, which need no key and no network.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Check the installation, the model and every worker. Each is called once, which costs next to nothing."""
    settings = load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)
    checks: list[Check] = []
    workers: list[Worker] = []
    with show_running(quiet=context.obj.quiet) as running:

        def report(check: Check) -> None:
            checks.append(check)
            with running.finished(check.name):
                if not json:
                    _print_check(check)

        running.start("this machine")
        for check in check_machine(settings, demo_only=rehearsal):
            report(check)
        with running.finished("this machine"):
            plans = all(check.code == 0 for check in checks if check.name == "conductor model")
        if rehearsal:
            running.start("rehearsal")
            report(asyncio.run(check_demo(settings)))
        else:
            workers = workers_to_check(settings, offline=offline)
            if not (json or offline or context.obj.quiet):
                _announce(workers, plans=plans)
            if plans and not offline:
                running.start("planning")
                report(asyncio.run(check_planning(settings)))
            _check_workers(settings, workers, running.start, report, offline=offline)
    # Workers answer in any order; JSON, the summary and the exit code have one order.
    names = [f"worker {worker.name}" for worker in workers]
    checks.sort(key=lambda check: names.index(check.name) if check.name in names else -1)
    if json:
        print_json(make_report(settings, checks))
    else:
        print_text(_summary(checks))
    raise typer.Exit(next((check.code for check in checks if check.code), 0))


def _check_workers(
    settings: Settings, workers: Sequence[Worker], start: Start, report: Report, *, offline: bool
) -> None:
    try:
        asyncio.run(check_workers(settings, workers, start, report, offline=offline))
    except ExceptionGroup as group:
        if group.subgroup(typer.Exit):  # the reader of standard output is gone
            raise typer.Exit from None
        raise


def _announce(workers: Sequence[Worker], *, plans: bool) -> None:
    called = ["the conductor model"] if plans else []
    called += [format_count(len(workers), "worker")] if workers else []
    if called:
        print_notice(f"calling {format_list(called)} once, which costs next to nothing; --offline calls none …")


def _print_check(check: Check) -> None:
    """Print a check, and below it what to do. The state is a word: it reads the same on every terminal and in a log."""
    print_text(f"{check.state:7}  {check.name}: {check.found}")
    for line in check.hint.splitlines():
        print_text(f"         {line}")


def _summary(checks: Sequence[Check]) -> str:
    failed = [check.name for check in checks if check.state == "failed"]
    warned = [check.name for check in checks if check.state == "warning"]
    parts = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
    parts += [f"{format_count(len(warned), 'warning')}: {', '.join(warned)}"] if warned else []
    return "; ".join(parts) or f"all {len(checks)} checks passed"
