"""`conductor trace`: list, search, show, replay, diff, rerun, export, prune, path, rm."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.trace import comparing, exporting, pruning, rerunning
from conductor_cli.cli.trace.sharing import Run, store_of

app = typer.Typer(
    help="Stored runs: list, search, show, replay, compare, run again, export, remove.", no_args_is_help=True
)

Count = Annotated[int, typer.Option("-n", "--count", min=1, help="How many, newest first.")]
State = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="finished|partial|failed|running|interrupted|unreadable",
        help="Only runs in this state; may be repeated.",
    ),
]
Worker = Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Only runs that this worker worked in.")]
ModeOption = Annotated[opt.Mode | None, typer.Option("--mode", help="Only runs of this mode.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only runs begun since: 30min, 12h, 7d, 2w or a day, 2026-11-20."),
]


@app.command("list")
def list_(
    context: typer.Context,
    count: Count = 20,
    state: State = None,
    worker: Worker = None,
    mode: ModeOption = None,
    since: Since = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Only runs that hold this text; may be repeated."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """List stored runs, newest first."""
    from conductor_cli.cli.trace.sharing import show_runs, wanted

    chosen = wanted(state or (), worker, mode, since, text or ())
    show_runs(context, chosen, count, hits=False, json=json, none="" if any(chosen) else "no run is stored yet")


@app.command("search")
def search(
    context: typer.Context,
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Texts that a run must hold, each of them, in any case.")
    ],
    count: Count = 20,
    state: State = None,
    worker: Worker = None,
    mode: ModeOption = None,
    since: Since = None,
    json: opt.Json = False,
) -> None:
    """Search the questions, subtasks and answers of stored runs."""
    from conductor_cli.cli.trace.sharing import show_runs, wanted

    show_runs(context, wanted(state or (), worker, mode, since, text), count, hits=True, json=json)


@app.command("show")
def show(
    context: typer.Context,
    run: Run = "last",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="The whole prompt and answer of one step.")
    ] = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="With what each worker was sent.")] = False,
    flow: opt.Flow = False,
    json: opt.Json = False,
) -> None:
    """Show a stored run: question, plan, who did what, answer, usage; or who read what of it."""
    from conductor_cli.app.data_flow import print_stored_flow
    from conductor_cli.cli.output import print_json, print_text
    from conductor_cli.cli.trace.showing import prompts_data, step_text, trace_text
    from conductor_cli.core.rerun import check_step_exists
    from conductor_cli.views.json_output import run_data

    store = store_of(context)
    found = store.find(run)
    if flow:
        print_stored_flow(store, found, step, color=context.obj.color, json=json)
        return
    live = store.is_running(found)
    trace = store.trace(found)
    if step is not None:
        check_step_exists(trace, step)
    if json:
        data = run_data(trace, live=live)
        if prompts:
            data["steps"] = prompts_data(trace, data["steps"])
        print_json(data if step is None else next(item for item in data["steps"] if item["number"] == step))
        return
    print_text(trace_text(trace, live=live, prompts=prompts) if step is None else step_text(trace, step))


@app.command("replay")
def replay(
    context: typer.Context,
    run: Run = "last",
    speed: Annotated[float, typer.Option("--speed", min=0, help="4 is four times as fast; 0 shows it at once.")] = 1.0,
    step: Annotated[bool, typer.Option("--step", help="Go on by key: space shows the next event, q the rest.")] = False,
    format_: opt.FormatOption = opt.Format.answer,
    progress: opt.ProgressOption = None,
) -> None:
    """Show a stored run again as it happened. Never touches the network; exits 0 however the run ended."""
    from conductor_cli.cli.trace.replaying import play

    raise typer.Exit(
        play(context.obj, run, speed=speed, by_key=step, output=format_.value, progress=progress and progress.value)
    )


app.command("diff")(comparing.diff)
app.command("rerun")(rerunning.rerun)
app.command("export")(exporting.export)
app.command("prune")(pruning.prune)


@app.command("path")
def path(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run; without one, the directory.")] = None,
) -> None:
    """Print where traces are, or the file of one run."""
    from conductor_cli.cli.output import print_line

    store = store_of(context)
    print_line(str(store.directory if run is None else store.path(store.find(run))))


@app.command("rm")
def rm(
    context: typer.Context, runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to delete.")]
) -> None:
    """Delete stored runs."""
    from conductor_cli.cli.output import print_line

    store = store_of(context)
    try:
        for found in dict.fromkeys([store.find(name) for name in runs]):
            store.remove(found)
            print_line(f"removed {found}")
    finally:
        store.refresh()


@app.command("names", hidden=True)
def names() -> None:
    """Print the ids of the newest runs, a line each: what a shell offers for a tab."""
    from contextlib import suppress

    from conductor_cli.config import app_paths
    from conductor_cli.store import fast_list

    with suppress(OSError):
        for name in fast_list.run_names(str(app_paths(os.environ).traces)):
            sys.stdout.write(f"{name}\n")
