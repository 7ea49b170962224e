"""`conductor trace`: list, show, replay, path, rm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.cli import options as opt

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.store import Entry, Store

app = typer.Typer(help="Stored runs: list, show, replay, remove.", no_args_is_help=True)

Run = Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, its beginning, or last.")]


def _store(context: typer.Context) -> tuple[Store, Settings]:
    from conductor_cli.config import load
    from conductor_cli.store import Store

    settings = load(os.environ, {"output.color": context.obj.color}, context.obj.config)
    return Store(settings.places.traces), settings


@app.command("list")
def list_(
    context: typer.Context,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many, newest first.")] = 20,
    json: opt.Json = False,
) -> None:
    """List stored runs, newest first."""
    from conductor_cli.cli.output import remark, say_json, table

    store, _ = _store(context)
    runs = store.runs()
    entries = [store.entry(run) for run in runs[:count]]
    if json:
        say_json([_entry(entry) for entry in entries])
        return
    if not entries:
        remark("no run is stored yet")
        return
    rows = [[entry.run, entry.state, _cropped(entry.question, 60)] for entry in entries]
    table(("RUN", "STATE", "QUESTION"), rows)
    if len(runs) > count:
        remark(f"{len(runs) - count} older; -n shows more")


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "run": entry.run, "time": entry.time, "state": entry.state, "question": entry.question, "path": str(entry.path),
        "bytes": entry.size,
    }  # fmt: skip


def _cropped(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


@app.command("show")
def show(
    context: typer.Context,
    run: Run = "last",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="The whole prompt and answer of one step.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Show a stored run: question, plan, who did what, answer, usage."""
    from conductor_cli.cli.output import say, say_json
    from conductor_cli.cli.showing import step_text, trace_text
    from conductor_cli.core.errors import UsageError
    from conductor_cli.views.report import report

    store, _ = _store(context)
    found = store.find(run)
    live = store.entry(found).state == "running"
    trace = store.trace(found)
    if step is not None and step not in [record.number for record in trace.steps]:
        raise UsageError(f"run {trace.run} has no step {step}", hint=f"it has {len(trace.steps)} steps")
    if json:
        data = report(trace, live=live)
        say_json(data if step is None else next(item for item in data["steps"] if item["number"] == step))
        return
    say(trace_text(trace, live=live) if step is None else step_text(trace, step))


@app.command("replay")
def replay(
    context: typer.Context,
    run: Run = "last",
    speed: Annotated[float, typer.Option("--speed", min=0, help="4 is four times as fast; 0 shows it at once.")] = 1.0,
    format_: opt.FormatOption = opt.Format.answer,
    progress: opt.ProgressOption = None,
) -> None:
    """Show a stored run again as it happened. Never touches the network; exits 0 however the run ended."""
    from conductor_cli.cli.replaying import replay as play
    from conductor_cli.cli.session import Session

    flags = {"output.progress": progress.value if progress else None}
    session = Session(context.obj, flags, output=format_.value)
    raise typer.Exit(play(session.store.events(session.store.find(run)), session.view(), speed))


@app.command("path")
def path(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; without one, the directory.")] = None,
) -> None:
    """Print where traces are, or the file of one run."""
    from conductor_cli.cli.output import say

    store, _ = _store(context)
    say(str(store.directory if run is None else store.path(store.find(run))))


@app.command("rm")
def rm(
    context: typer.Context, runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to delete.")]
) -> None:
    """Delete stored runs."""
    from conductor_cli.cli.output import say

    store, _ = _store(context)
    for found in dict.fromkeys([store.find(name) for name in runs]):
        store.remove(found)
        say(f"removed {found}")
