"""`conductor doctor`: check whether everything works, and say what to do about the rest."""

from __future__ import annotations

import asyncio
import locale
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor_cli.app.checks import Check
from conductor_cli.app.doctor import check_machine
from conductor_cli.app.doctor.bundle import open_bundle
from conductor_cli.app.doctor.live import check_by_use, check_demo, check_without_calls, workers_to_check
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_text, terminal_width, wrap_lines
from conductor_cli.config import ConfiguredWorker, Settings, load_settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.views.base import encodable
from conductor_cli.views.console import cannot_redraw

MARKS: Final = {"ok": "\N{CHECK MARK}", "warning": "!", "failed": "\N{BALLOT X}"}
"""What a line begins with on a terminal that can write it; elsewhere it begins with the state."""

ARROW: Final = "\N{RIGHTWARDS ARROW} "
"""What a hint begins with on such a terminal."""

NARROW: Final = 60
"""Columns below which the result of a check is written under its name."""


def doctor(
    context: typer.Context,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check this machine only: call no model and no server.")
    ] = False,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Check with the demo models, which need no key and no network.")
    ] = False,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE", help="Write a zip for a bug report; it contains no key.")
    ] = None,
    with_trace: Annotated[
        str | None,
        typer.Option("--with-trace", metavar="RUN", help="Add this run to the bundle, with question and answers."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Check the installation, the model and every worker. Each is called once, which costs next to nothing."""
    if with_trace is not None and bundle is None:
        raise UsageError("--with-trace needs --bundle", hint="conductor doctor --bundle FILE.zip --with-trace last")
    settings = load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)
    # Before the checks, which may take a minute: a bundle that cannot be written is an error at once.
    opened = None if bundle is None else open_bundle(bundle, with_trace, settings)
    checks = _run_checks(settings, offline=offline, rehearsal=rehearsal, quiet=json or context.obj.quiet, json=json)
    if json:
        print_json({"ok": not any(check.code for check in checks), "checks": [check.data() for check in checks]})
    if opened is not None:
        files = opened.write(settings, checks)
        if not context.obj.quiet:
            print_notice(f"wrote {opened.path}: {', '.join(files)}")
            if opened.run:
                print_notice(f"it contains run {opened.run} with its question and answers: read it before you send it")
    raise typer.Exit(next((check.code for check in checks if check.code), 0))


def _run_checks(settings: Settings, *, offline: bool, rehearsal: bool, quiet: bool, json: bool) -> list[Check]:
    """Run all checks and print each result as soon as there is one, unless they are wanted as JSON."""
    checks = check_machine(settings, demo_only=rehearsal)
    workers = [] if rehearsal else workers_to_check(settings, offline=offline)
    order = [*(check.name for check in checks), "planning", *(f"worker {item.worker.name}" for item in workers)]
    page = _Page(order)
    if not json:
        page.print_checks(checks)

    def report(check: Check) -> None:
        checks.append(check)
        if not json:
            page.print_checks([check])

    if rehearsal:
        report(asyncio.run(check_demo(settings)))
    elif offline:
        for check in check_without_calls(settings, workers):
            report(check)
    else:
        plans = all(check.code == 0 for check in checks if check.name == "conductor model")
        if not quiet:
            _announce(workers, plans=plans)
        _call_everything(settings, workers, report, plans=plans)
    # Workers answer in any order; JSON, the summary and the exit code have one order.
    checks.sort(key=lambda check: order.index(check.name) if check.name in order else len(order))
    if not json:
        print_text(_summary(checks))
    return checks


def _call_everything(
    settings: Settings, workers: Sequence[ConfiguredWorker], report: Callable[[Check], None], *, plans: bool
) -> None:
    try:
        asyncio.run(check_by_use(settings, workers, report, plans=plans))
    except ExceptionGroup as group:
        if group.subgroup(typer.Exit):  # the reader of standard output is gone
            raise typer.Exit from None
        raise


def _announce(workers: Sequence[ConfiguredWorker], *, plans: bool) -> None:
    called = ["the conductor model"] if plans else []
    called += [format_count(len(workers), "worker")] if workers else []
    if called:
        print_notice(f"calling {format_list(called)} once, which costs next to nothing; --offline calls none …")


def _summary(checks: Sequence[Check]) -> str:
    failed = [check.name for check in checks if check.state == "failed"]
    warned = [check.name for check in checks if check.state == "warning"]
    parts = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
    parts += [f"{format_count(len(warned), 'warning')}: {', '.join(warned)}"] if warned else []
    return "; ".join(parts) or f"all {len(checks)} checks passed"


def can_write_marks(environ: Mapping[str, str]) -> bool:
    """Whether the terminal has the marks: Linux's bare console has not, nor one whose locale cannot encode them."""
    marks = "".join((*MARKS.values(), ARROW))
    plain = cannot_redraw(environ) or environ.get("TERM") == "linux"
    return not plain and encodable(marks, locale.getencoding()) == marks


class _Page:
    """Checks on standard output, a line each with its hint below, wrapped on a terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        self._width = terminal_width(sys.stdout)
        marks = self._width > 0 and can_write_marks(os.environ)
        self._arrow = ARROW if marks else ""
        self._marks = MARKS if marks else {state: f"{state:7}" for state in MARKS}
        self._column = max(map(len, names), default=0)

    def print_checks(self, checks: Sequence[Check]) -> None:
        for check in checks:
            mark = self._marks[check.state]
            texts = [check.found, *(f"{self._arrow}{line}" for line in check.hint.splitlines())]
            if 0 < self._width < NARROW:
                print_line(f"{mark} {check.name}")
                indent = "    "
            else:
                indent = f"{mark} {check.name:{self._column}}  "
            for text in texts:
                # Wrapped behind blanks of the same width, so that all lines of a check share one column.
                lines = wrap_lines(" " * len(indent) + text, self._width)
                print_line(indent + lines[len(indent) :])
                indent = " " * len(indent)
