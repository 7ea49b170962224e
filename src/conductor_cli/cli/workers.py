"""`conductor workers`: list, models, show, add, set, rm, test, calibrate."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.app import workers
from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.learning import learning_key, read_learned
from conductor_cli.app.workers import run_worker_tests, workers_to_test
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import can_ask, choose_names
from conductor_cli.cli.output import (
    print_check,
    print_json,
    print_json_rows,
    print_line,
    print_notice,
    print_table,
    print_text,
)
from conductor_cli.cli.progress import show_running
from conductor_cli.config.files import own_section
from conductor_cli.config.schema import PREFIX
from conductor_cli.config.settings import Settings, app_paths
from conductor_cli.config.tables import find_pool
from conductor_cli.core.errors import UsageError, suggest
from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_duration, format_money
from conductor_cli.core.mappings import names_of
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import Price
from conductor_cli.models.addresses import with_api_path
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.recipients import recipient_of
from conductor_cli.models.worker_options import model_of
from conductor_cli.system.terminal_tables import Column

if TYPE_CHECKING:
    from conductor_cli.config.cards import MeasuredCard

CALIBRATE_COLUMNS: Final = (
    Column("WORKER", shrink=12),
    Column("TAG"),
    Column("STRENGTH"),
    Column("95 %", drop=2),
    Column("CASES", drop=3),
    Column("TOKENS", drop=4),
    Column("TIME", drop=5),
    Column("COST", drop=1),
    Column("MEASURED", drop=6),
)


WORKER_COLUMNS: Final = (
    Column("NAME", shrink=12),
    Column("MODEL", shrink=26),
    Column("ENABLED", drop=1),
    Column("TAGS", drop=5),
    Column("ACCEPTS", drop=4),
    Column("PRICE IN / OUT", drop=3),
    Column("KEY", drop=2),
)

OPENAI_COMPATIBLE: Final = "openai-compatible"
"""The kind of a worker of which nothing but an address is said: most servers speak that."""

app = typer.Typer(help="List, add and test the models that answer.", no_args_is_help=True)

Name = Annotated[str, opt.argument(None, "The worker's name.")]


def _enabled_word(row: workers.WorkerRow, *, forbidden: str) -> str:
    """Return whether a worker may be used: `no`, `yes`, or what is said of a forbidden one."""
    if not row.configured.enabled:
        return "no"
    if row.objection:
        return forbidden
    return "yes"


def _model_cell(worker: Worker) -> str:
    """Return the kind and the model of a worker; of a file its name, without its path."""
    model = model_of(worker)
    if Path(model).is_absolute():
        model = Path(model).name
    return f"{worker.kind}/{model}".rstrip("/")


def _price_cell(price: Price | None) -> str:
    """Return what input and output cost a million tokens."""
    if price is None:
        return "unknown"
    return f"{format_money(price.input)} / {format_money(price.output)}"


@app.command("list")
def list_workers_command(context: typer.Context, json: opt.Json = False) -> None:
    """List the workers of the settings; if there are none, those found on this machine."""
    settings = opt.stored_settings(context)
    rows = workers.worker_rows(settings)
    if json:
        print_json_rows(rows)
        return
    if not settings.workers and rows:
        print_notice("no workers are configured; found on this machine:")
    elif not settings.workers:
        print_notice(
            "no workers are configured; none was found on this machine either: conductor setup, "
            "or conductor workers add NAME --kind KIND"
        )
    cells = []
    for row in rows:
        worker = row.worker
        enabled = _enabled_word(row, forbidden="forbidden")
        model = _model_cell(worker)
        tags = ", ".join(worker.tags) or UNKNOWN
        accepts = ", ".join(("text", *row.accepts))
        price = _price_cell(row.price)
        cells.append([worker.name, model, enabled, tags, accepts, price, row.key])
    if cells:
        print_table(WORKER_COLUMNS, cells)


@app.command("models")
def list_offered_command(
    context: typer.Context,
    source: Annotated[
        str, opt.argument("PROVIDER|URL|WORKER", "Whose models: openai, a server's URL, …")
    ],
    json: opt.Json = False,
) -> None:
    """List the models that a key or a server offers, with context and price a million tokens."""
    models = workers.list_offered_models(opt.stored_settings(context), source)
    if json:
        print_json([dump(model) for model in models])
        return
    if not models:
        print_notice(f"{source} lists no chat model")
        return
    rows = []
    for model in models:
        size = f"{model.context:,}" if model.context else UNKNOWN
        rows.append([model.name, size, _price_cell(model.price)])
    print_table(
        (Column("MODEL", shrink=20), Column("CONTEXT", right=True, drop=1), "PRICE IN / OUT"), rows
    )
    option = "--kind"
    if source.startswith("http"):
        option = "--base-url"
    print_notice(f"to add some: conductor workers add {option} {source} --model A --model B")


@app.command("show")
def show_worker_command(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show a worker.

    Its model and settings, who reads what it is sent, its price, key, strengths and ratings.
    """
    settings = opt.stored_settings(context)
    rows = {row.worker.name: row for row in workers.worker_rows(settings)}
    if name not in rows:
        raise UsageError(f"no worker is named {name!r}", hint=suggest(name, rows))
    row = rows[name]
    ratings = _ratings(row.worker, settings)
    if json:
        print_json(row.to_json() | {"ratings": ratings})
        return
    facts = _worker_facts(row, ratings)
    print_table(("WORKER", name), [[fact, value] for fact, value in facts.items()])


def _ratings(worker: Worker, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what users said of a worker's answers, and the strength that results, by tag."""
    learned, stored = read_learned(settings)
    if stored.problem:
        print_notice(stored.problem)
    key = learning_key(worker)
    strengths = learned.apply_to(worker, key).card.strengths
    ratings = {}
    for tag, estimate in learned.estimates(key, worker.card).items():
        ratings[tag] = {
            "good": estimate.good,
            "bad": estimate.bad,
            "weight": round(estimate.weight, 2),
            "now": strengths.get(tag),
        }
    return ratings


def _worker_facts(
    row: workers.WorkerRow, ratings: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    worker = row.worker
    price = row.price_source
    if row.price:
        price = f"{workers.describe_price(row.price)} ({row.price_source})"
    return {
        "kind": worker.kind,
        "model": model_of(worker) or UNKNOWN,
        "about": worker.about or UNKNOWN,
        "settings": _describe_options(worker.public().options) or UNKNOWN,
        "parallel": str(worker.parallel),
        "read by": recipient_of(worker),
        "tags": ", ".join(worker.tags) or UNKNOWN,
        "tools": ", ".join(worker.tools) or UNKNOWN,
        "pools": ", ".join(row.pools) or UNKNOWN,
        "price": price,
        "accepts": ", ".join(("text", *row.accepts)),
        "good at": _describe_card(worker.card)
        or "unknown; measure it with: conductor workers calibrate",
        "rated": _describe_ratings(ratings) or UNKNOWN,
        "key": row.key,
        "enabled": _enabled_word(row, forbidden=f"yes, but {row.objection}"),
        "source": row.configured.source,
    }


def _describe_options(options: Mapping[str, object]) -> str:
    texts = []
    for name, value in options.items():
        shown = str(value)
        if isinstance(value, list | tuple):
            shown = shlex.join(map(str, value))
        texts.append(f"{name} {shown}")
    return ", ".join(texts)


def _describe_card(card: Card) -> str:
    """Return what a worker is good at, the best first, and how that is known; empty if unknown."""
    best = sorted(card.strengths.items(), key=lambda item: -item[1])
    good_at = ", ".join(f"{tag} {share:.2f}" for tag, share in best) or card.words
    if not good_at:
        return ""
    origin = "measured" if card.measured else "not measured"
    if card.source:
        origin += f": {card.source}"
    return f"{good_at} ({origin})"


def _describe_ratings(ratings: Mapping[str, Mapping[str, Any]]) -> str:
    texts = []
    for tag, rating in ratings.items():
        if not rating["good"] and not rating["bad"]:
            continue
        text = f"{tag} {rating['good']} good, {rating['bad']} bad"
        if rating["now"] is not None:
            text += f", so the planner reads {rating['now']:.2f}"
        texts.append(text)
    return "; ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """The options of `conductor workers add`: a worker as a command line describes it."""

    name: Annotated[
        str | None,
        opt.argument("NAME", "The worker's name; without it each model gives a worker its name."),
    ] = None
    words: Annotated[
        list[str] | None,
        opt.argument(
            "PROGRAM ARG",
            "After --: the program of kind command, or more arguments for codex and other agents.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        opt.option(
            "--kind -k",
            "What answers: openai, anthropic, gemini, ollama, llama, command and others.",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        opt.option(
            "--model -m",
            "The provider's model name, or a GGUF file; without a NAME it may be repeated.",
        ),
    ] = None
    base_url: Annotated[
        str | None, opt.option("--base-url", "Address to use instead of the provider's own.", "URL")
    ] = None
    sandbox: Annotated[bool, opt.option("--sandbox", "Run a program under bubblewrap.")] = False
    tools: Annotated[
        opt.Names, opt.option("--tools", "Tools that it may call: conductor tools list.", "A,B")
    ] = None
    settings: opt.SetOptions = None

    def assigned(self) -> dict[str, Any]:
        """Return the settings of the worker by name, but its name, models and program.

        Raises `UsageError`, also where `--set` contradicts another option.
        """
        assigned = _read_assignments(self.settings)
        options = {
            "kind": self.kind,
            "base_url": self.base_url,
            "sandbox": self.sandbox or None,
            "tools": opt.split_names(self.tools),
        }
        for key, value in options.items():
            if value is not None:
                opt.add_assignment(assigned, key, value, f"--{key.replace('_', '-')}")
        return assigned


@app.command("add")
@opt.with_options()
def add_worker_command(context: typer.Context, options: AddOptions) -> None:
    """Add a worker, or change one that was added; without NAME, one for each model of a server.

    Without NAME and --model, the models of --base-url or --kind are listed to choose from.

    --set takes every other setting of a worker, such as about="good at sums", temperature=0.2,
    price=1.25,10, accepts=image,pdf, key_env=NAME or env=A,B; a name that it does not know is
    answered with the names that it knows.
    """
    assigned = options.assigned()
    address = _add_address_of_ollama(assigned)
    models = list(dict.fromkeys(options.model or ()))
    if options.name is None:
        added = _add_workers_by_model(context, assigned, models)
    else:
        _add_worker(context, options.name, options, assigned, models)
        added = [options.name]
    if address and added:
        print_text(
            f"its address is {address}, from OLLAMA_HOST; to change it: "
            f"conductor workers add {added[0]} --base-url URL"
        )


def _add_worker(
    context: typer.Context,
    name: str,
    options: AddOptions,
    assigned: dict[str, Any],
    models: Sequence[str],
) -> None:
    """Add a worker by its name, or change it. Raises `UsageError`."""
    if len(models) > 1:
        hint = "leave the name out: then each model becomes a worker of its name"
        raise UsageError(f"{name} is one worker; {len(models)} models are named", hint=hint)
    for model in models:
        opt.add_assignment(assigned, "model", model, "--model")
    settings = opt.stored_settings(context)
    if options.base_url and name not in own_section(settings.paths, "workers"):
        assigned.setdefault("kind", OPENAI_COMPATIBLE)
    change = _store_worker(settings, name, assigned, options.words or ())
    print_text(f"{change}; check it with: conductor workers test {name}")


def _add_address_of_ollama(assigned: dict[str, Any]) -> str:
    """Set where OLLAMA_HOST says that Ollama is; return that, empty where it says nothing."""
    if assigned.get("kind") != "ollama" or "base_url" in assigned:
        return ""
    from conductor_cli.models.discovery import ollama_address  # it speaks HTTP

    address = ollama_address(os.environ)
    if address:
        assigned["base_url"] = address
    return address


def _add_workers_by_model(
    context: typer.Context, assigned: Mapping[str, Any], models: Sequence[str]
) -> list[str]:
    """Add a worker for each model of a server or a provider, and return their names.

    Without `models` a person chooses among those that are listed. Raises `UsageError`.
    """
    assigned = dict(assigned)
    if assigned.get("base_url"):
        assigned["base_url"] = with_api_path(str(assigned["base_url"]))
    source = str(assigned.get("base_url") or assigned.get("kind") or "")
    if not source:
        hint = (
            "a worker: conductor workers add NAME --kind KIND; the models of a server: "
            "conductor workers add --base-url URL"
        )
        raise UsageError("neither a name nor a server is given", hint=hint)
    kind = str(assigned.get("kind") or OPENAI_COMPATIBLE)
    if kind != "llama" and kind not in PRESETS:
        hint = f"conductor workers add NAME --kind {kind}"
        raise UsageError(f"a worker of kind {kind!r:.40} has no model to be named after", hint=hint)
    settings = opt.stored_settings(context)
    options = {}
    if "base_url" in assigned:
        options["base_url"] = assigned["base_url"]
    names = list[str]()
    for model in models or _choose_offered_models(settings, source):
        path_or_name = model
        if kind == "llama":
            path_or_name = str(Path(model).expanduser().absolute())
        worker = Worker(name="new", kind=kind, model=path_or_name, options=options)
        name = workers.name_after_model(settings, worker)
        print_text(_store_worker(settings, name, {**assigned, "kind": kind, "model": model}))
        settings = opt.stored_settings(context)
        names.append(name)
    print_text(f"check them with: conductor workers test {shlex.join(names)}")
    return names


def _choose_offered_models(settings: Settings, source: str) -> list[str]:
    """Return those models of a server or a provider that a person wants. Raises `UsageError`."""
    lists_models = f"conductor workers models {source}"
    if not can_ask():
        hint = f"--model MODEL, which may be repeated; {lists_models} lists them"
        raise UsageError("which models to add is not said", hint=hint)
    offered = names_of(workers.list_offered_models(settings, source))
    if not offered:
        raise UsageError(f"{source} lists no chat model", hint="name one: --model MODEL")
    print_notice(f"{source} offers:")
    chosen = choose_names(offered, lists_models)
    if not chosen:
        raise UsageError("no model was chosen, so no worker is added")
    return chosen


@app.command("set", context_settings={"ignore_unknown_options": True})  # a value may be negative
def set_worker_command(
    context: typer.Context,
    name: Name,
    assignments: Annotated[
        list[str],
        opt.argument("KEY=VALUE", "A setting and its value; KEY= removes it; several may stand."),
    ],
) -> None:
    """Change settings of a worker, such as model=NAME, price=1.25,10 or context=200000.

    conductor workers show NAME lists what it has.
    """
    settings = opt.stored_settings(context)
    names = settings.worker_names
    if name not in names:
        hint = suggest(name, names, f"to add it: conductor workers add {name} --kind KIND")
        raise UsageError(f"no worker is named {name!r}", hint=hint)
    change = _store_worker(settings, name, _read_assignments(assignments, "workers set"))
    print_text(f"{change}; check it with: conductor workers test {name}")


def _store_worker(
    settings: Settings, name: str, assigned: Mapping[str, Any], words: Sequence[str] = ()
) -> str:
    """Add a worker, or change one, and return what has changed. Raises `UsageError`."""
    unset = [key for key, value in assigned.items() if value is None]
    try:
        stored = workers.store_worker(settings, name, assigned, unset, words=words)
    except UsageError as error:
        hint = _with_options(error.hint)
        raise UsageError(_with_options(error.message), hint=hint) from None
    change = f"added {name}"
    if stored is not None:
        changed = ", ".join(stored.changed) or "nothing, it was like this before"
        change = f"changed {name}: {changed}"
        if stored.gone:
            change += f"; gone with its earlier kind: {', '.join(stored.gone)}"
    context_tokens = own_section(settings.paths, "workers").get(name, {}).get("context")
    if context_tokens is not None and "context" not in assigned:
        change += f", whose context is {context_tokens:,} tokens"
    return change


def _read_assignments(texts: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """Return settings such as those of `--set` in the form that a table of a worker has."""
    assigned = opt.parse_assignments(
        texts, lists=("accepts", "args", "command", "env", "tags", "tools"), option=option
    )
    for key, value in assigned.items():
        if key == "price" and value:
            assigned[key] = _read_price(str(value))
        elif key == "cwd" and value:
            assigned[key] = str(Path(value).expanduser().absolute())
        elif value == ["none"]:
            assigned[key] = []
        elif isinstance(value, list) and "none" in value:
            raise UsageError(f"{key} is none and also names some", hint="leave one of them out")
    return assigned


def _read_price(text: str) -> dict[str, str]:
    input_price, _, output_price = text.partition(",")
    if not output_price.strip():
        hint = "input and output: price=1.25,10"
        raise UsageError(f"price takes two amounts, not {text:.40}", hint=hint)
    return {"input": input_price, "output": output_price}


def _with_options(message: str) -> str:
    """Return a message about a settings file with options of `conductor workers add` instead."""
    example = r'for example: (\w+) = (?:"([^"]*)"|\[[^\]]*\], or …)'
    return re.sub(example, _example_as_option, message).replace("base_url", "--base-url")


def _example_as_option(example: re.Match[str]) -> str:
    key, value = example.groups()
    if value is None:
        return "for example: conductor workers add NAME"
    if key in ("kind", "model", "base_url"):
        return f"for example: --{key.replace('_', '-')} {value}"
    return f"for example: --set {key}={value}"


@app.command("rm")
def remove_workers_command(
    context: typer.Context,
    names: Annotated[list[str], opt.argument("NAME", "The worker's name; may be repeated.")],
) -> None:
    """Remove workers that were added and that no pool needs."""
    chosen = list(dict.fromkeys(names))
    workers.remove_tables(
        app_paths(os.environ), "workers", chosen, lambda: opt.stored_settings(context)
    )
    for name in chosen:
        print_line(f"removed {name}")


@app.command("test")
def try_workers_command(
    context: typer.Context,
    names: Annotated[
        list[str] | None, opt.argument("NAME", "Workers to test; default: all.")
    ] = None,
    pool: Annotated[str | None, opt.option("--pool", "All workers of this pool.", "NAME")] = None,
    json: opt.Json = False,
) -> None:
    """Send each worker a one-token request in parallel, with its own settings."""
    settings = opt.stored_settings(context)
    members = () if pool is None else find_pool(settings.pools, pool).workers
    tested = workers_to_test(settings, list(dict.fromkeys((*(names or ()), *members))))
    with show_running(quiet=context.obj.quiet) as running:

        def report(result: CheckResult) -> None:
            with running.finished(result.name):
                if not json:
                    print_check(result)

        for worker in tested:
            running.start(worker.name)
        results = run_worker_tests(settings, tested, report)
    if json:
        print_json([result.to_json() for result in results])
    raise typer.Exit(max((result.code for result in results), default=0))


@app.command("calibrate", rich_help_panel="Advanced")
def calibrate_command(
    context: typer.Context,
    cases: Annotated[
        str | None,
        opt.argument("CASES.jsonl", "Cases with tags; default: the built-in set basics."),
    ] = None,
    named: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    count: Annotated[int | None, opt.option("--n", "Number of cases.", "N", min=1)] = None,
    seed: Annotated[int, opt.option("--seed", "Random seed for case selection.", "N", min=0)] = 0,
    parallel: opt.ParallelRuns = 8,
    max_cost: opt.MaxCostOfAll = None,
    yes: opt.YesToCost = False,
    progress: opt.ProgressOption = None,
    json: opt.Json = False,
) -> None:
    """Measure what each worker is good at, and store it as its card.

    The planner and the routers use the cards.
    """
    # Imported here, because the other commands of this group would pay for the imports of the
    # evaluations.
    from conductor_cli.app.calibration import measured_cards, plan_calibration
    from conductor_cli.cli.eval import run_evaluation
    from conductor_cli.config.cards import add_cards, cards_file
    from conductor_cli.system.disk import check_writable

    settings = opt.stored_settings(context, {"output.progress": progress, "conductor.pool": pool})
    calibration = plan_calibration(
        settings, cases, workers=opt.parse_names(named), count=count, seed=seed, parallel=parallel
    )
    request = replace(calibration.request, max_cost=opt.parse_cost(max_cost))
    fresh: list[MeasuredCard] = []
    # Checked now, because nobody wants to pay for cards that have no place.
    path = cards_file(settings.paths)
    check_writable(path.parent, "the cards", f"{PREFIX}DATA_DIR=DIR")
    if calibration.request.workers:
        evaluation, code = run_evaluation(request, settings, yes=yes, quiet=context.obj.quiet)
        if code or evaluation is None:
            raise typer.Exit(code)
        fresh, notes = measured_cards(calibration, evaluation)
        for note in notes:
            print_notice(note)
    cards = [*calibration.known_cards, *fresh]
    if json:
        print_json(
            {"source": calibration.request.source, "hash": calibration.hash, "cards": dump(cards)}
        )
    else:
        _print_cards(cards)
    if fresh:
        damaged = add_cards(path, fresh)
        if damaged is not None:
            print_notice(f"{path} was damaged; its content was moved to {damaged}")
        print_notice(f"wrote the cards to {path}; plans and routers use them from now on")
    elif cards:
        print_notice("everything was measured before; with another --seed it is measured again")
    raise typer.Exit(0 if cards else 8)


def _print_cards(cards: Sequence[MeasuredCard]) -> None:
    rows = []
    for card in cards:
        rows += _card_rows(card)
    print_table(CALIBRATE_COLUMNS, rows)


def _card_rows(card: MeasuredCard) -> list[list[str]]:
    """Return a row for each tag, then one for all of them, which alone says what they took."""
    rows = []
    for tag, strength in card.strengths.items():
        if strength.n:
            rows.append([card.worker, tag, *_share_cells(strength.right, strength.n), *[""] * 4])
    rows.append(
        [
            card.worker,
            "all",
            *_share_cells(card.right, card.n),
            f"{card.tokens_in + card.tokens_out:.0f}",
            format_duration(card.seconds),
            format_cost_cell(card.cost, card.cost is None),
            card.time[:10],
        ]
    )
    return rows


def _share_cells(right: int, count: int) -> tuple[str, str, str]:
    """Return which share of the cases was right, within which limits, and how many they were."""
    from conductor_cli.evals.report import format_limits
    from conductor_cli.evals.significance import wilson_interval

    return f"{right / count:.2f}", format_limits(wilson_interval(right, count)), str(count)
