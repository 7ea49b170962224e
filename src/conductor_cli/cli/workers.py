"""`conductor workers`: list, show, add, rm, enable, disable, test, calibrate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

import typer

from conductor_cli.app import workers
from conductor_cli.app.worker_selection import select_workers
from conductor_cli.app.worker_tests import run_worker_tests
from conductor_cli.app.workers import WorkerRow
from conductor_cli.cli import options as opt
from conductor_cli.cli.calibrate import calibrate
from conductor_cli.cli.completion_names import find_names
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.config import app_paths
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import UNKNOWN
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.presets import model_of, recipient_of

app = typer.Typer(help="List, add and test the models that answer.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The worker's name.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The worker's name; may be repeated.")]
OfPool = Annotated[str | None, typer.Option("--pool", metavar="NAME", help="All workers of this pool.")]


@app.command("list")
def list_workers(
    context: typer.Context,
    prices: Annotated[bool, typer.Option("--prices", help="Show what each worker costs, and the source.")] = False,
    json: opt.Json = False,
) -> None:
    """List the workers of the settings, or those found on this machine if the settings have none."""
    settings = opt.stored_settings(context)
    rows = workers.list_workers(settings)
    if json:
        print_json([row.data() for row in rows])
        return
    if not settings.workers:
        none = "; none was found on this machine either: conductor setup, or conductor workers add NAME --kind KIND"
        print_notice("no workers are configured" + ("; found on this machine:" if rows else none))
    if rows and prices:
        print_table(("NAME", "MODEL", "IN", "OUT", "CACHED", "SOURCE"), [_price_cells(row) for row in rows])
        print_notice("US dollars per million tokens; a worker without a known price is not treated as free")
    elif rows:
        tagged = any(row.worker.tags for row in rows)
        heads = ("NAME", "KIND", "MODEL", "ENABLED", *(["TAGS"] if tagged else []), "KEY")
        print_table(heads, [_cells(row, tagged=tagged) for row in rows])
        for row in rows:
            if row.objection and row.configured.enabled:
                print_notice(f"{row.worker.name} may not be asked: {row.objection}")


def _cells(row: WorkerRow, *, tagged: bool) -> list[str]:
    worker, enabled = row.worker, row.configured.enabled
    state = "no" if not enabled else "forbidden" if row.objection else "yes"
    tags = [", ".join(worker.tags) or UNKNOWN] if tagged else []
    return [worker.name, worker.kind, model_of(worker) or UNKNOWN, state, *tags, row.key]


def _price_cells(row: WorkerRow) -> list[str]:
    def amount(value: Decimal | None) -> str:
        return UNKNOWN if value is None else f"{value:f}"

    price = row.price
    amounts = (price.input, price.output, price.cached) if price else (None, None, None)
    return [row.worker.name, model_of(row.worker) or UNKNOWN, *map(amount, amounts), row.price_source]


@app.command("show")
def show_worker(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show a worker: its model and settings, who reads what it is sent, its price, key and strengths."""
    row = workers.find_worker(opt.stored_settings(context), name)
    if json:
        print_json(row.data())
        return
    worker, price = row.worker, row.price
    enabled = "yes" if row.configured.enabled else "no"
    if row.configured.enabled and row.objection:
        enabled = f"yes, but {row.objection}"
    facts = {
        "kind": worker.kind,
        "model": model_of(worker) or UNKNOWN,
        "about": worker.about or UNKNOWN,
        "settings": format_options(worker.public().options) or UNKNOWN,
        "parallel": str(worker.parallel),
        "read by": recipient_of(worker),
        "tags": ", ".join(worker.tags) or UNKNOWN,
        "pools": ", ".join(row.pools) or UNKNOWN,
        "price": f"{workers.describe_price(price)} ({row.price_source})" if price else row.price_source,
        "good at": format_card(worker.card),
        "key": row.key,
        "enabled": enabled,
        "source": row.configured.source,
    }
    print_table(("WORKER", name), [[fact, value] for fact, value in facts.items()])


def format_options(options: Mapping[str, Any]) -> str:
    """A worker's options in one line: `max_tokens 4096, temperature 0.2`."""
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def format_card(card: Card) -> str:
    """A capability card in one line, with its source."""
    if not card.strengths:
        return "unknown; measure it with: conductor workers calibrate"
    best = sorted(card.strengths.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{tag} {share:.2f}" for tag, share in best)
    how = "measured" if card.measured else "not measured"
    return f"{shares} ({how}: {card.source})" if card.source else f"{shares} ({how})"


def format_model(worker: Worker) -> str:
    """`kind/model`."""
    return f"{worker.kind}/{worker.model}" if worker.model else worker.kind


@app.command("add")
def add_worker(
    context: typer.Context,
    name: Name,
    kind: Annotated[
        str | None, typer.Option("--kind", "-k", help="openai, anthropic, gemini, ollama, llama, openai-compatible …")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The provider's model name, or a GGUF file.")
    ] = None,
    about: Annotated[str | None, typer.Option("--about", help="What it is good at, for the conductor.")] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Address to use instead of the provider's own.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="The environment variable that holds its key.")
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option("--context", metavar="N", min=256, help="Tokens it can read and write together.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of one answer.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", min=0, help="Sampling temperature.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", metavar="P", help="Sample only from the likeliest tokens of this share.")
    ] = None,
    reasoning_effort: Annotated[
        str | None, typer.Option("--reasoning-effort", metavar="WORD", help="How hard it thinks: none, low, high …")
    ] = None,
    thinking_budget: Annotated[
        int | None, typer.Option("--thinking-budget", metavar="N", min=0, help="Most tokens it may think; 0 for none.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", min=1, help="Most steps it does at the same time.")
    ] = None,
    price: Annotated[
        str | None, typer.Option("--price", metavar="IN,OUT", help="US dollars per million tokens in and out.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="WORD", help="A tag that policies can name; may be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="SETTING", help="Remove a setting; may be repeated.")
    ] = None,
) -> None:
    """Add a worker, or change one that was added."""
    settings = opt.stored_settings(context)
    given = {
        "kind": kind, "model": model, "about": about, "base_url": base_url, "key_env": key_env,
        "context": context_tokens, "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p,
        "reasoning_effort": reasoning_effort, "thinking_budget": thinking_budget, "parallel": parallel,
        "price": workers.parse_price(price), "tags": tag or None,
    }  # fmt: skip
    existed = workers.add_worker(settings, name, given, unset or ())
    print_text(f"{'changed' if existed else 'added'} {name}; check it with: conductor workers test {name}")
    listed = next(item for item in opt.stored_settings(context).workers if item.worker.name == name)
    if listed.source != str(settings.paths.own_file):
        print_notice(f"{listed.source} also has a worker {name}; its settings take precedence")


def _choose(context: typer.Context, names: Sequence[str] | None, pool: str | None) -> Sequence[str]:
    """The workers that a command names, by themselves or as a pool. Raises `UsageError`."""
    if not names and pool is None:
        raise UsageError("no worker is named", hint="NAME…, or --pool NAME")
    if pool is None:
        return list(dict.fromkeys(names or ()))
    return [item.worker.name for item in select_workers(opt.stored_settings(context), names or (), pool)]


@app.command("rm")
def remove_workers(context: typer.Context, names: Names = None) -> None:
    """Remove workers that were added, also from pools."""
    chosen = _choose(context, names, None)
    notices = workers.remove_workers(app_paths(os.environ), chosen, lambda: opt.stored_settings(context))
    for name in chosen:
        print_line(f"removed {name}")
    for notice in notices:
        print_notice(notice)


@app.command("enable")
def enable_workers(context: typer.Context, names: Names = None, pool: OfPool = None) -> None:
    """Let disabled workers be used again."""
    _enable(context, _choose(context, names, pool), enabled=True)


@app.command("disable")
def disable_workers(context: typer.Context, names: Names = None, pool: OfPool = None) -> None:
    """Keep workers in the settings, but do not use them."""
    _enable(context, _choose(context, names, pool), enabled=False)


def _enable(context: typer.Context, names: Sequence[str], *, enabled: bool) -> None:
    workers.enable_workers(app_paths(os.environ), names, lambda: opt.stored_settings(context), enabled=enabled)
    for name in names:
        print_line(f"{'enabled' if enabled else 'disabled'} {name}")


@app.command("test")
def ask_workers(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Workers to test; default: all.")] = None,
    pool: OfPool = None,
    json: opt.Json = False,
) -> None:
    """Ask each worker for a token, all at once, with its own settings: one cheap live call each."""
    chosen = names or () if pool is None else _choose(context, names, pool)
    results = run_worker_tests(opt.stored_settings(context), chosen)
    if json:
        print_json([result.data() for result in results])
    else:
        rows = [[result.name, result.state, f"{result.seconds:.2f} s", result.message] for result in results]
        print_table(("NAME", "STATE", "TIME", "MESSAGE"), rows)
    raise typer.Exit(max((result.failure.exit_code for result in results if result.failure), default=0))


@app.command("names", hidden=True)
def print_names(
    context: typer.Context,
    own: Annotated[bool, typer.Option("--own", help="Only those that were added.")] = False,
) -> None:
    """Print the names of workers, one per line, for shell completion."""
    for name in find_names("workers", "--own" if own else "", os.environ, context.obj.config):
        print_line(name)


app.command("calibrate")(calibrate)
