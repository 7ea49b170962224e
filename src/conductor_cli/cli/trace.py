"""`conductor trace`: list, show, replay, verify, rerun, rate, export, rm."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Final, get_args

import typer

from conductor_cli.app import traces
from conductor_cli.cli import options as opt
from conductor_cli.cli import output as out
from conductor_cli.cli.confirmation import can_ask, confirm
from conductor_cli.cli.signals import handle_signal, suspendable
from conductor_cli.core.continuation import check_step_exists, reset_from_step
from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Event
from conductor_cli.core.formatting import format_count, format_size
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.trace import Trace, fold
from conductor_cli.state.run_list import COUNT, list_data, list_text
from conductor_cli.state.trace_file import unreadable
from conductor_cli.system.terminal_tables import terminal_width
from conductor_cli.views.json_output import run_json
from conductor_cli.views.output_formats import OutputContext, RunView, open_views
from conductor_cli.views.text_layout import page_screen
from conductor_cli.views.trace_text import step_lines, trace_lines

MAX_FAULTS = 20  # Faults of one trace that are printed
MAX_PAUSE: Final = 30.0  # Seconds: a run that waited for hours is not replayed for hours
# A pause is made of such pieces: after each, a frame may be due or a signal may have come
PAUSE_STEP_SECONDS: Final = 0.05

app = typer.Typer(
    help="Stored runs: list, show, replay, verify, run again, rate, export, remove.",
    no_args_is_help=True,
)

Run = Annotated[
    str, opt.argument("RUN", "A run's id, the beginning of one, last, or last~1 and so on.")
]


@app.command("list")
def list_runs_command(
    text: Annotated[
        list[str] | None,
        opt.argument("TEXT", "Only runs that contain all these texts; case is ignored."),
    ] = None,
    count: Annotated[int, opt.option("-n", "How many, newest first.", min=1)] = COUNT,
    state: Annotated[
        traces.RunState | None,
        opt.option(
            "--state", f"Only runs in this state: {', '.join(get_args(traces.RunState))}.", "STATE"
        ),
    ] = None,
    worker: Annotated[
        str | None, opt.option("--worker", "Only runs that used this worker.", "NAME")
    ] = None,
    since: Annotated[
        str | None,
        opt.option("--since", "Only runs since: 30min, 12h, 7d, 2w or a date, 2026-11-20.", "TIME"),
    ] = None,
    json: opt.Json = False,
) -> None:
    """List stored runs, newest first.

    All of them, or those whose question, subtasks or answers contain a text.
    """
    query = traces.make_run_query(state, worker, since, text or ())
    store = traces.open_trace_store()
    try:
        if json:
            out.print_json(list_data(store, query, count))
            return
        lines, remark = list_text(store, query, count, terminal_width(sys.stdout))
    except OSError as error:
        raise unreadable(store.place, error) from None
    if lines:
        out.print_styled("\n".join(lines))
    if remark:
        out.print_notice(remark)


@app.command("show")
def show_run_command(
    context: typer.Context,
    run: Run = "last",
    step: Annotated[
        int | None, opt.option("--step", "Show the whole prompt and answer of one step.", "N")
    ] = None,
    prompts: Annotated[
        bool, opt.option("--prompts", "Also show what each worker was sent.")
    ] = False,
    open_: Annotated[
        bool, opt.option("--open", "Show it in the browser; without one, print a file.")
    ] = False,
    flow: opt.Flow = False,
    json: opt.Json = False,
) -> None:
    """Show a stored run: question, plan, steps, answer, usage; or who read what of it."""
    store = traces.open_trace_store()
    run_id = store.find(run)
    if flow:
        # Loads everything that a run needs
        from conductor_cli.cli.approval import print_stored_flow

        color = traces.display_settings(context.obj.config)["output.color"]
        print_stored_flow(store, run_id, step, color=color, json=json)
        return
    live = store.is_running(run_id)
    trace = store.trace(run_id)
    if open_:
        from conductor_cli.cli.browser import show_page  # asyncio: the other commands stay quick

        file = show_page(run_id, traces.export_run(trace, live=live))
        if file:
            out.print_line(file)
        return
    if step is not None:
        check_step_exists(trace, step)
    if json:
        page = run_json(trace, store.location(run_id), live=live, prompts=prompts)
        if step is not None:
            pages = {item["number"]: item for item in page["steps"]}
            page = pages[step]
        out.print_json(page)
        return
    screen = page_screen(terminal_width(sys.stdout), sys.stdout.encoding, os.environ)
    if step:
        lines = step_lines(trace, step, screen=screen)
    else:
        lines = trace_lines(trace, live=live, prompts=prompts, screen=screen)
    color = traces.display_settings(context.obj.config)["output.color"]
    out.print_page(lines, OutputContext(color=color))


@app.command("replay")
def replay_command(
    context: typer.Context,
    run: Run = "last",
    speed: Annotated[
        float, opt.option("--speed", "4 is four times as fast; 0 shows everything at once.", min=0)
    ] = 1.0,
    format_: opt.FormatOption = "answer",
    progress: opt.ProgressOption = None,
) -> None:
    """Show a stored run again as it happened.

    Uses no network; exits with 0 however the run ended.
    """
    settings = traces.display_settings(context.obj.config, {"output.progress": progress})
    store = traces.open_trace_store()
    # Only a replay with pauses, or of the events, needs the streamed pieces.
    events = store.events(store.find(run), pieces=speed > 0 or format_ != "answer")
    shown = OutputContext(
        color=settings["output.color"],
        quiet=context.obj.quiet,
        markdown=settings["output.markdown"],
        trace_path=store.location,
    )
    view = open_views(format_, settings["output.progress"], shown)
    try:
        code = replay_events(events, view, speed)
    except BrokenPipeError:
        out.leave_stdout()
        code = 0
    raise typer.Exit(code)


def replay_events(
    events: Iterator[Event],
    view: RunView,
    speed: float,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause.

    Returns the exit code. A signal lets the view finish its work, a second one ends the process.
    Raises `OSError` when standard output cannot be written, and `BrokenPipeError` when nobody reads
    it.
    """
    at = 0.0
    signals = list[int]()

    def note(number: int, _: object) -> None:
        if signals:  # the user is impatient: the first one has not ended the process yet
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        signals.append(number)

    steps = fold(events)
    rest: Iterator[tuple[Event, Trace]] = steps
    with handle_signal(signal.SIGINT, note), handle_signal(signal.SIGTERM, note), suspendable():
        try:
            for event, trace in steps:
                pause = 0.0
                if speed > 0:
                    pause = min((event.at - at) / speed, MAX_PAUSE)
                while pause > 0 and not signals:
                    view.draw()
                    sleep(min(pause, PAUSE_STEP_SECONDS))
                    pause -= PAUSE_STEP_SECONDS
                if signals:
                    rest = chain([(event, trace)], steps)
                    break
                at = max(at, event.at)
                view.show(event, trace)
        finally:
            for event, trace in deque(rest, maxlen=1):  # the replay was cut short, not the run
                view.skip_to(event, trace)
            with suppress(OSError):
                view.close()
    if signals:
        return 128 + signals[0]
    return 0


@app.command("attach")
def attach_command(
    context: typer.Context, run: Run = "last", progress: opt.ProgressOption = None
) -> None:
    """Show a run that goes on, and ask what it waits for; Ctrl-C leaves it alone.

    Exits with the code of the run. One that has ended is shown as it ended.
    """
    from conductor_cli.cli.attach import attach_to_run  # loads everything that a run needs

    raise typer.Exit(attach_to_run(context.obj, traces.open_trace_store().find(run), progress))


@app.command("wait")
def wait_command(
    run: Run = "last",
    timeout: Annotated[
        float | None,
        opt.option("--timeout", "Wait at most so long; then exit with 124.", "SECONDS", min=0),
    ] = None,
) -> None:
    """Wait until a run has ended; exits with its code."""
    from conductor_cli.cli.attach import wait_for_run  # asyncio: the other commands stay quick

    raise typer.Exit(wait_for_run(traces.open_trace_store().find(run), timeout))


@app.command("cancel")
def cancel_command(run: Run = "last") -> None:
    """End a run that goes on in another terminal or in the background."""
    from conductor_cli.cli.attach import cancel_run  # asyncio: the other commands stay quick

    cancel_run(traces.open_trace_store().find(run))


@app.command("verify")
def verify_runs_command(
    run: Run = "last",
    all_: Annotated[bool, opt.option("--all", "Verify all stored runs.")] = False,
    repair: Annotated[
        bool, opt.option("--repair", "Keep intact lines; rename the original.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Check that stored runs are whole: which lines were changed, cut or added.

    Exits with 0 only if they are.

    The hashes have no key. They detect damage and careless edits, but not a person who calculates
    them all again.
    """
    store = traces.open_trace_store()
    runs = store.runs() if all_ else [store.find(run)]
    results = [traces.verify_trace(store, name, repair=repair) for name in runs]
    damaged = [result for result in results if not result.whole]
    if json:
        out.print_json_rows(results)
    else:
        for result in results:
            if not all_ or not result.whole or result.aside:
                _print_verified(result)
        if all_:
            out.print_line(f"{format_count(len(results), 'run')}, {len(damaged)} not whole")
        if any(result.check.faults for result in results) and not repair:
            out.print_notice("to keep the intact lines: --repair")
    raise typer.Exit(1 if damaged else 0)


def _print_verified(result: traces.VerifiedTrace) -> None:
    check = result.check
    if result.aside:
        out.print_line(f"{check.run}: repaired; the file as it was: {result.aside}")
    state = "not whole"
    if check.whole:
        so_far = " so far" if check.running else ""
        state = f"whole{so_far}, {format_count(check.lines, 'line')}, hash {check.link}"
    out.print_line(f"{check.run}: {result.problem or state}")
    for fault in check.faults[:MAX_FAULTS]:
        out.print_line(f"  {fault.text}")
    if len(check.faults) > MAX_FAULTS:
        out.print_line(f"  and {len(check.faults) - MAX_FAULTS} more: --json")


@app.command("rerun")
@opt.with_options(omit=("mode", "workers", "pool", "max_steps", "recursion", "rehearsal"))
def rerun_command(
    context: typer.Context,
    options: opt.RunOptions,
    run: Run = "last",
    from_: Annotated[int, opt.option("--from", "The first step to run again.", "N", min=1)] = 1,
    worker: Annotated[
        str | None, opt.option("--worker", "Use this worker for that step.", "NAME")
    ] = None,
) -> None:
    """Run a stored plan again from step N on, as a new run.

    Earlier steps are taken from the trace and not called.
    """
    # Loads everything that a run needs; the other commands stay quick
    from conductor_cli.cli.session import Session

    session = Session(context.obj, options, options.settings() | {"limits.review": 0})
    trace = session.read_ended(run)
    if not trace.steps:
        hint = f"conductor trace show {trace.run} shows the run"
        raise UsageError(f"run {trace.run} has no steps to run again", hint=hint)
    reset = reset_from_step(trace, from_, worker)
    needs = (worker,) if worker else ()
    raise typer.Exit(session.run(reset.question, resume=reset, needs=needs).exit_code)


@app.command("rate")
def rate_command(
    context: typer.Context,
    run: Run,
    verdict: Annotated[Verdict, opt.argument("good|bad", "What you think of the answer.")],
    step: Annotated[
        int | None, opt.option("--step", "Rate the answer of one step instead.", "N", min=1)
    ] = None,
) -> None:
    """Rate the answer of a stored run; the cards of its workers change with it.

    The last rating of a run counts.

    Nothing is sent anywhere.
    """
    from conductor_cli.app.learning import rate_run  # the other commands stay quick

    trace = traces.open_trace_store().ended(run, pieces=False)
    rating = rate_run(opt.stored_settings(context), trace, verdict, step=step or 0)
    out.print_line(describe_rating(rating))


@app.command("export")
def export_command(
    run: Run = "last",
    markdown: Annotated[
        bool, opt.option("--markdown", "Print Markdown: question, answer, plan and steps.")
    ] = False,
    conversation: Annotated[
        bool,
        opt.option("--conversation", "Print the whole conversation that it ends, as Markdown."),
    ] = False,
) -> None:
    """Print a stored run as a self-contained HTML page, or as Markdown.

    For a text with all prompts: conductor trace show RUN --prompts.
    """
    store = traces.open_trace_store()
    run_id = store.find(run)
    trace = store.trace(run_id)
    live = store.is_running(run_id)
    if conversation:
        text = traces.export_conversation(traces.conversation_of(store, trace), trace.run)
    elif markdown:
        text = traces.export_markdown(trace, live=live)
    else:
        text = traces.export_run(trace, live=live)
    out.print_styled(text.rstrip("\n"))


@app.command("rm")
def remove_runs_command(
    runs: Annotated[list[str] | None, opt.argument("RUN", "Runs to delete.")] = None,
    older_than: Annotated[
        str | None,
        opt.option("--older-than", "Runs that started longer ago: 12h, 30d, 8w.", "TIME"),
    ] = None,
    keep: Annotated[
        int | None, opt.option("--keep", "Keep the newest N, however old they are.", "N", min=0)
    ] = None,
    dry_run: Annotated[bool, opt.option("--dry-run", "Only print what would be deleted.")] = False,
    yes: Annotated[bool, opt.option("--yes -y", "Do not ask.")] = False,
) -> None:
    """Delete stored runs, or old ones.

    With both limits a run must be older and not among the newest.
    """
    by_age = older_than is not None or keep is not None
    store = traces.open_trace_store()
    if bool(runs) == by_age:
        hint = "conductor trace rm RUN, or conductor trace rm --older-than 30d --keep 100"
        raise UsageError("name runs, or say which are old", hint=hint)
    if runs:
        named = dict.fromkeys([store.find(name) for name in runs])
        if dry_run:
            for run_id in named:
                out.print_line(run_id)
            out.print_line(f"would delete {format_count(len(named), 'run')}")
            return
        try:
            for run_id in named:
                store.remove(run_id)
                out.print_line(f"removed {run_id}")
        finally:
            traces.forget_removed(store)
        return
    old = traces.find_old_runs(store, older_than, keep, datetime.now(UTC))
    size = f"{format_count(len(old), 'run')}, {format_size(traces.size_of_runs(old))}"
    if dry_run:
        for run in old:
            out.print_text(f"{run.run}  {run.title[:50]}".rstrip())
        out.print_line(f"would delete {size}")
        return
    if old and not yes:
        if not can_ask():
            hint = "preview with --dry-run, then use --yes"
            raise UsageError(
                f"deleting {format_count(len(old), 'run')} needs a confirmation", hint=hint
            )
        if not confirm(f"Delete {size}?", default=False):
            out.print_notice("nothing was deleted")
            return
    errors = traces.delete_runs(store, old)
    out.print_line(f"deleted {format_count(len(old) - len(errors), 'run')}")
    if errors:
        raise errors[0]
