"""`conductor trace`: list, search, show, replay, diff, rerun, export, prune, path, rm."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.app.traces import (
    ExportFormat,
    delete_runs,
    display_settings,
    export_format,
    export_run,
    find_old_runs,
    make_run_query,
    open_trace_store,
    parse_time_span,
    write_export,
)
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import (
    leave_stdout,
    print_json,
    print_line,
    print_notice,
    print_styled,
    print_text,
    terminal_width,
)
from conductor_cli.cli.prompts import can_ask, confirm
from conductor_cli.core.errors import UsageError
from conductor_cli.core.follow_up import check_step_exists, reset_from_step
from conductor_cli.core.formatting import format_count, format_size
from conductor_cli.store.fast_list import run_names
from conductor_cli.store.run_list import NO_MATCH, describe_older, found_data, run_lines
from conductor_cli.store.stored_run import stored_run_data
from conductor_cli.views import OutputContext, uses_color
from conductor_cli.views.comparison import compare_traces, comparison_data, comparison_lines
from conductor_cli.views.json_output import run_data
from conductor_cli.views.replay import open_replay_view, replay_events
from conductor_cli.views.trace_text import step_text, trace_text

if TYPE_CHECKING:
    from conductor_cli.store.stored_run import RunQuery, StoredRun

app = typer.Typer(
    help="Stored runs: list, search, show, replay, compare, run again, export, remove.", no_args_is_help=True
)

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, last, or last~1 and so on.")]
OtherRun = Annotated[str, typer.Argument(metavar="OTHER", help="The run to compare it with.")]
Count = Annotated[int, typer.Option("-n", "--count", min=1, help="How many, newest first.")]
State = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="finished|partial|failed|running|interrupted|unreadable",
        help="Only runs in this state; may be repeated.",
    ),
]
Worker = Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Only runs that used this worker.")]
ModeOption = Annotated[opt.Mode | None, typer.Option("--mode", help="Only runs of this mode.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only runs started since: 30min, 12h, 7d, 2w or a date, 2026-11-20."),
]

DIFF_WIDTH: Final = 120
"""Columns of `trace diff` when neither a terminal nor COLUMNS says how many there are."""

PRUNE_PREVIEW: Final = 10
"""Runs that are named before `trace prune` asks; the others are counted."""

_HIGHLIGHT: Final = "\x1b[1;4m{}\x1b[0m"  # bold and underlined


@app.command("list")
def list_runs(
    context: typer.Context,
    count: Count = 20,
    state: State = None,
    worker: Worker = None,
    mode: ModeOption = None,
    since: Since = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Only runs that contain this text; may be repeated."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """List stored runs, newest first."""
    query = make_run_query(state or (), worker, mode, since, text or ())
    _print_runs(context, query, count, json=json)


@app.command("search")
def search(
    context: typer.Context,
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Texts that a run must all contain; case is ignored.")
    ],
    count: Count = 20,
    state: State = None,
    worker: Worker = None,
    mode: ModeOption = None,
    since: Since = None,
    json: opt.Json = False,
) -> None:
    """Search the questions, subtasks and answers of stored runs."""
    query = make_run_query(state or (), worker, mode, since, text)
    _print_runs(context, query, count, json=json, show_matches=True)


def _print_runs(context: typer.Context, query: RunQuery, count: int, *, json: bool, show_matches: bool = False) -> None:
    """Print the newest matching runs; with `show_matches`, also where their texts contain the search terms."""
    store = open_trace_store()
    found, more = store.newest(query, count)
    terms = query.terms if show_matches else ()
    if json:
        print_json([found_data(each, str(store.directory), terms) for each in found])
        return
    if not found:
        print_notice(NO_MATCH if any(query) else "no runs are stored yet")
        return
    mark = _HIGHLIGHT.format if show_matches and _highlights(context) else str
    print_styled("\n".join(run_lines(found, terminal_width(sys.stdout), datetime.now(UTC), terms, mark)))
    if more:
        print_notice(describe_older(more, count))


def _highlights(context: typer.Context) -> bool:
    """Whether search terms are highlighted: on a terminal that can, unless the user wants no colours."""
    color = display_settings(context.obj.config, {"output.color": context.obj.color})["output.color"]
    chosen = uses_color(OutputContext(stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=color))
    return chosen if chosen is not None else sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@app.command("show")
def show(
    context: typer.Context,
    run: Run = "last",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="Show the whole prompt and answer of one step.")
    ] = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="Also show what each worker was sent.")] = False,
    flow: opt.Flow = False,
    json: opt.Json = False,
) -> None:
    """Show a stored run: question, plan, steps, answer, usage; or who read what of it."""
    store = open_trace_store()
    found = store.find(run)
    if flow:
        from conductor_cli.cli.plan_output import print_stored_flow  # loads everything that a run needs

        print_stored_flow(store, found, step, color=context.obj.color, json=json)
        return
    live = store.is_running(found)
    trace = store.trace(found)
    if step is not None:
        check_step_exists(trace, step)
    if json:
        data = run_data(trace, live=live, prompts=prompts)
        print_json(data if step is None else next(item for item in data["steps"] if item["number"] == step))
        return
    print_text(trace_text(trace, live=live, prompts=prompts) if step is None else step_text(trace, step))


@app.command("replay")
def replay(
    context: typer.Context,
    run: Run = "last",
    speed: Annotated[
        float, typer.Option("--speed", min=0, help="4 is four times as fast; 0 shows everything at once.")
    ] = 1.0,
    format_: opt.FormatOption = "answer",
    progress: opt.ProgressOption = None,
) -> None:
    """Show a stored run again as it happened. Uses no network; exits with 0 however the run ended."""
    flags = {"output.color": context.obj.color, "output.progress": progress}
    settings, store = display_settings(context.obj.config, flags), open_trace_store()
    events = store.events(store.find(run))
    view = open_replay_view(settings, format_, quiet=context.obj.quiet)
    try:
        code = replay_events(events, view, speed)
    except BrokenPipeError:
        leave_stdout()
        code = 0
    except OSError:
        leave_stdout()
        raise
    raise typer.Exit(code)


@app.command("diff")
def diff(run: Run, other: OtherRun, json: opt.Json = False) -> None:
    """Compare two stored runs side by side: question, plan, steps, answers and usage."""
    store = open_trace_store()
    one, two = (store.trace(store.find(name)) for name in (run, other))
    if json:
        print_json(comparison_data(one, two))
        return
    columns = os.environ.get("COLUMNS", "")
    piped = max(int(columns), 20) if columns.isdecimal() and int(columns) else DIFF_WIDTH
    for line in comparison_lines(tuple(compare_traces(one, two)), terminal_width(sys.stdout) or piped):
        print_line(line)


@app.command("rerun")
@opt.with_run_options(omit=("mode", "workers", "pool", "max_steps", "recursion", "adapter", "rehearsal"))
def rerun(
    context: typer.Context,
    options: opt.RunOptions,
    run: Run = "last",
    from_: Annotated[int, typer.Option("--from", metavar="N", min=1, help="The first step to run again.")] = 1,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="NAME", help="Use this worker for that step.")
    ] = None,
) -> None:
    """Run a stored plan again from step N on, as a new run; earlier steps are taken from the trace and not called."""
    from conductor_cli.cli.session import Session  # loads everything that a run needs; the other commands stay quick

    session = Session(context.obj, options, options.settings() | {"limits.recursion": 0})
    trace = session.store.ended(run)
    if not trace.steps:
        hint = f"conductor trace show {trace.run} shows the run"
        raise UsageError(f"run {trace.run} has no steps to run again", hint=hint)
    again = reset_from_step(trace, from_, worker)
    raise typer.Exit(session.run(again.question, resume=again, needs=(worker,) if worker else ()))


@app.command("export")
def export(
    run: Run = "last",
    format_: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Output format; default: by FILE's extension, else html."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to FILE instead of stdout.")] = None,
) -> None:
    """Export a stored run as a self-contained HTML page with a timeline, as Markdown, or as JSON."""
    target = None if out == Path("-") else out
    chosen = format_ or (ExportFormat.html if target is None else export_format(target))
    store = open_trace_store()
    found = store.find(run)
    text = export_run(store.trace(found), chosen, live=store.is_running(found))
    if target is None:
        print_styled(text.rstrip("\n"))
        return
    write_export(target, text)
    print_notice(f"wrote {target}")


@app.command("prune")
def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Runs that started longer ago: 12h, 30d, 8w.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=0, help="Keep the newest N, however old they are.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: opt.Json = False,
) -> None:
    """Delete old runs. With both options a run must be older and not among the newest."""
    if older_than is None and keep is None:
        raise UsageError("--older-than or --keep is missing", hint="conductor trace prune --older-than 30d --keep 100")
    store = open_trace_store()
    old, running = find_old_runs(store, parse_time_span(older_than) if older_than else None, keep, datetime.now(UTC))
    if running:
        print_notice(f"kept {format_count(len(running), 'run')} still running")
    if old and not dry_run and not yes and not _confirm_deletion(old):
        print_notice("nothing was deleted")
        return
    deleted, errors = (old, []) if dry_run else delete_runs(store, old)
    if json:
        runs = [stored_run_data(each, str(store.directory)) for each in deleted]
        print_json({"deleted": not dry_run, "runs": runs, "bytes": _total_size(deleted)})
    else:
        for each in deleted if dry_run else ():
            print_text(_run_title(each))
        print_line(f"{'would delete' if dry_run else 'deleted'} {_describe_size(deleted)}")
    if errors:
        raise errors[0]


def _confirm_deletion(runs: Sequence[StoredRun]) -> bool:
    """Name the runs and ask. Raises `UsageError` without a terminal."""
    if not can_ask():
        count = format_count(len(runs), "run")
        raise UsageError(f"deleting {count} needs a confirmation", hint="preview with --dry-run, then use --yes")
    for run in runs[:PRUNE_PREVIEW]:
        print_notice(f"  {_run_title(run)}")
    if len(runs) > PRUNE_PREVIEW:
        print_notice(f"  and {len(runs) - PRUNE_PREVIEW} more")
    return confirm(f"Delete {_describe_size(runs)}?", default=False)


def _run_title(run: StoredRun) -> str:
    return f"{run.run}  {run.title[:50]}".rstrip()


def _describe_size(runs: Sequence[StoredRun]) -> str:
    return f"{format_count(len(runs), 'run')}, {format_size(_total_size(runs))}"


def _total_size(runs: Sequence[StoredRun]) -> int:
    return sum(max(run.size, 0) for run in runs)


@app.command("path")
def path(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run; without it, the directory.")] = None,
) -> None:
    """Print the directory of traces, or the file of one run."""
    store = open_trace_store()
    print_line(str(store.directory if run is None else store.path(store.find(run))))


@app.command("rm")
def rm(runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to delete.")]) -> None:
    """Delete stored runs."""
    store = open_trace_store()
    try:
        for found in dict.fromkeys([store.find(name) for name in runs]):
            store.remove(found)
            print_line(f"removed {found}")
    finally:
        store.refresh()


@app.command("names", hidden=True)
def names() -> None:
    """Print the ids of the newest runs, one per line, for shell completion."""
    with suppress(OSError):
        for name in run_names(str(open_trace_store().directory)):
            sys.stdout.write(f"{name}\n")
