"""`conductor workers`: list, show, add, rm, enable, disable, test, calibrate.

`conductor workers calibrate`: measure each worker alone, and write its capability card.

`conductor workers list --cards`: each worker's card, what ratings say, and the figure that the planner reads.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.app import workers
from conductor_cli.app.learning import SWITCH, list_cards, read_learned
from conductor_cli.app.worker_probes import WorkerTest, run_worker_tests, workers_to_test
from conductor_cli.app.workers import WorkerRow
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.progress import show_running
from conductor_cli.config import Settings, app_paths
from conductor_cli.config.tables import find_pool
from conductor_cli.core.errors import ConductorError, UsageError, suggest
from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_duration, format_money
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import Column, crop_text, render_rows
from conductor_cli.models.presets import model_of, recipient_of
from conductor_cli.state.run_list import terminal_width

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.config.cards import MeasuredCard


CALIBRATE_COLUMNS: Final = (
    Column("WORKER", shrink=12), Column("TAG"), Column("STRENGTH"), Column("95 %", drop=2), Column("CASES", drop=3),
    Column("TOKENS", drop=4), Column("TIME", drop=5), Column("COST", drop=1), Column("MEASURED", drop=6),
)  # fmt: skip


def calibrate(
    context: typer.Context,
    cases: Annotated[
        str | None, typer.Argument(metavar="CASES.jsonl", help="Cases with tags; default: the built-in set basics.")
    ] = None,
    rehearsal: Annotated[bool, typer.Option("--rehearsal", help="Measure the demo workers instead of yours.")] = False,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    count: Annotated[int | None, typer.Option("--n", metavar="N", min=1, help="Number of cases.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed for case selection.")] = 0,
    parallel: opt.ParallelRuns = 8,
    again: Annotated[bool, typer.Option("--again", help="Repeat what was already measured on these cases.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the cards to FILE instead.")] = None,
    yes: opt.YesToCost = False,
    progress: opt.ProgressOption = None,
    json: opt.Json = False,
) -> None:
    """Measure what each worker is good at, and store it as the card that the conductor and the routers use."""
    # Imported here, because the other commands of this group would pay for the imports of the evaluations.
    from conductor_cli.app.calibration import measured_cards, plan_calibration
    from conductor_cli.cli.eval import run_evaluation
    from conductor_cli.config import load_settings
    from conductor_cli.config.cards import cards_file
    from conductor_cli.models.disk import check_writable

    if rehearsal and cases is not None:
        raise UsageError("--rehearsal has its own cases", hint="leave out the file, or --rehearsal")
    flags = opt.check_settings({"output.progress": progress, "conductor.pool": pool})
    settings = load_settings(os.environ, {**flags, "output.color": context.obj.color}, context.obj.config)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists", hint="name a new file")
    calibration = plan_calibration(
        settings, cases, workers=opt.parse_names(workers), count=count, seed=seed, parallel=parallel,
        rehearsal=rehearsal, repeat=again or out is not None,
    )  # fmt: skip
    fresh: list[MeasuredCard] = []
    # Checked now, because nobody wants to pay for cards that have no place.
    if not rehearsal or out is not None:
        check_writable((out or cards_file(settings.paths)).absolute().parent, "the cards", "--out FILE")
    if calibration.request.workers:
        evaluation, code = run_evaluation(calibration.request, settings, yes=yes, quiet=context.obj.quiet)
        if code or evaluation is None:
            raise typer.Exit(code)
        fresh, notes = measured_cards(calibration, evaluation)
        for note in notes:
            print_notice(note)
    cards = [*calibration.known, *fresh]
    if json:
        print_json({"source": calibration.request.source, "hash": calibration.hash, "cards": dump(cards)})
    else:
        print_table(CALIBRATE_COLUMNS, [row for card in cards for row in _rows(card)])
    if fresh:
        _store(fresh, settings, out, rehearsal=rehearsal)
    elif cards:
        print_notice("everything was measured before; --again repeats it")
    raise typer.Exit(0 if cards else 8)


def _store(cards: list[MeasuredCard], settings: Settings, out: Path | None, *, rehearsal: bool) -> None:
    """Write the cards to `out`, else to the user's own; those of the demo workers ship with this tool already."""
    from conductor_cli.config.cards import add_cards, cards_file, write_cards

    if out is not None:
        write_cards(out, cards)
        print_notice(f"wrote the cards to {out}")
    elif not rehearsal:
        path = cards_file(settings.paths)
        damaged = add_cards(path, cards)
        if damaged is not None:
            print_notice(f"{path} was damaged; its content was moved to {damaged}")
        print_notice(f"wrote the cards to {path}; plans and routers use them from now on")


def _rows(card: MeasuredCard) -> list[list[str]]:
    """A row for each tag, then one for all of them."""
    from conductor_cli.evals.report import format_limits
    from conductor_cli.evals.summary import wilson_interval

    def row(tag: str, right: int, n: int, *more: str) -> list[str]:
        limits = format_limits(wilson_interval(right, n))
        return [card.worker, tag, f"{right / n:.2f}", limits, str(n), *(more or ("",) * 4)]

    tags = [row(tag, item.right, item.n) for tag, item in card.strengths.items() if item.n]
    tokens, cost = f"{card.tokens_in + card.tokens_out:.0f}", format_cost_cell(card.cost, card.cost is None)
    return [*tags, row("all", card.right, card.n, tokens, format_duration(card.seconds), cost, card.time[:10])]


CARDS_COLUMNS: Final = (
    Column("WORKER", shrink=12), Column("TAG"), Column("CARD"), Column("GOOD / BAD"), Column("WEIGHT", drop=2),
    Column("PLANNER READS"), Column("CARD FROM", drop=1, shrink=12),
)  # fmt: skip


def print_cards(settings: Settings, workers: Sequence[Worker], *, json: bool) -> None:
    """Print a row for each figure of each worker's card."""
    learned, stored = read_learned(settings)
    if stored.problem:
        print_notice(stored.problem)
    if not settings[SWITCH]:
        print_notice(f"{SWITCH} is false: ratings change no card")
    rows = list_cards(workers, learned)
    if json:
        print_json([row.data() for row in rows])
        return
    cells = [
        [
            row.worker,
            row.tag,
            _figure(row.estimate.card),
            f"{row.estimate.good} / {row.estimate.bad}",
            f"{row.estimate.weight:.1f}",
            _figure(row.now),
            row.source or UNKNOWN,
        ]
        for row in rows
    ]
    if cells:
        print_table(CARDS_COLUMNS, cells)


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


COLUMNS: Final = (
    Column("NAME", shrink=16), Column("MODEL", shrink=14), Column("ENABLED", drop=1), Column("TAGS", drop=5),
    Column("ACCEPTS", drop=4), Column("PRICE IN / OUT", drop=3), Column("KEY", drop=2),
)  # fmt: skip

LONGEST_NAME: Final = 16
"""Cells of a name in the table of tests on a terminal."""

app = typer.Typer(help="List, add and test the models that answer.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The worker's name.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The worker's name; may be repeated.")]
ThinkingBudget = Annotated[
    int | None, typer.Option("--thinking-budget", metavar="N", min=0, help="Most tokens it may think; 0 for none.")
]
Accepts = Annotated[
    str | None,
    typer.Option("--accepts", metavar="A,B", help="What it reads besides text: image, pdf, image,pdf or none."),
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="SETTING", help="Remove a setting; may be repeated.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROGRAM ARG",
        help="After --: the program of kind command, or more arguments for codex and other agents.",
        show_default=False,
    ),
]
Cwd = Annotated[
    Path | None,
    typer.Option("--cwd", metavar="DIR", help="A program's directory; default: a fresh one for each answer."),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME", help="A variable that a program gets; may be repeated.")
]
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="N", help="Most seconds a program may take.")]
Sandbox = Annotated[
    bool | None, typer.Option("--sandbox/--no-sandbox", help="Run a program under bubblewrap.", show_default=False)
]
Network = Annotated[
    bool | None, typer.Option("--network/--no-network", help="Let it use the network there.", show_default=False)
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="WORD", help="A tag that policies can name; may be repeated.")
]
Tools = Annotated[
    str | None, typer.Option("--tools", metavar="A,B", help="Tools that it may call: conductor tools list.")
]
Cards = Annotated[bool, typer.Option("--cards", help="Show their cards, with what ratings made of them.")]
OfPool = Annotated[str | None, typer.Option("--pool", metavar="NAME", help="All workers of this pool.")]


@app.command("list")
def list_workers(context: typer.Context, cards: Cards = False, json: opt.Json = False) -> None:
    """List the workers of the settings, or those found on this machine if the settings have none."""
    settings = opt.stored_settings(context)
    rows = workers.list_workers(settings)
    if cards:
        print_cards(settings, [row.worker for row in rows], json=json)
    elif json:
        print_json([row.data() for row in rows])
    else:
        if not settings.workers:
            none = "; none was found on this machine either: conductor setup, or conductor workers add NAME --kind KIND"
            print_notice("no workers are configured" + ("; found on this machine:" if rows else none))
        print_workers(rows)


def print_workers(rows: Sequence[WorkerRow]) -> None:
    """A table of workers."""
    cells = []
    for row in rows:
        worker, price = row.worker, row.price
        enabled = "no" if not row.configured.enabled else "forbidden" if row.objection else "yes"
        amounts = f"{format_money(price.input)} / {format_money(price.output)}" if price else "unknown"
        model = f"{worker.kind}/{model_of(worker)}".rstrip("/")
        tags = ", ".join(worker.tags) or UNKNOWN
        cells.append([worker.name, model, enabled, tags, _format_accepts(row), amounts, row.key])
    if cells:
        print_table(COLUMNS, cells)


def _format_accepts(row: WorkerRow) -> str:
    return ", ".join(("text", *row.accepts))


@app.command("show")
def show_worker(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show a worker: its model and settings, who reads what it is sent, its price, key and strengths."""
    rows = {row.worker.name: row for row in workers.list_workers(opt.stored_settings(context))}
    if name not in rows:
        raise UsageError(f"no worker is named {name!r}", hint=suggest(name, rows))
    row = rows[name]
    if json:
        print_json(row.data())
        return
    worker, price, options = row.worker, row.price, row.worker.public().options
    enabled = "yes" if row.configured.enabled else "no"
    if row.configured.enabled and row.objection:
        enabled = f"yes, but {row.objection}"
    facts = {
        "kind": worker.kind,
        "model": model_of(worker) or UNKNOWN,
        "about": worker.about or UNKNOWN,
        "settings": ", ".join(map(_format_option, options.items())) or UNKNOWN,
        "parallel": str(worker.parallel),
        "read by": recipient_of(worker),
        "tags": ", ".join(worker.tags) or UNKNOWN,
        "tools": ", ".join(worker.tools) or UNKNOWN,
        "pools": ", ".join(row.pools) or UNKNOWN,
        "price": f"{workers.describe_price(price)} ({row.price_source})" if price else row.price_source,
        "accepts": _format_accepts(row),
        "good at": _format_card(worker.card),
        "key": row.key,
        "enabled": enabled,
        "source": row.configured.source,
    }
    print_table(("WORKER", name), [[fact, value] for fact, value in facts.items()])


def _format_option(option: tuple[str, object]) -> str:
    """A setting in words, a list as a shell would take it."""
    name, value = option
    return f"{name} {shlex.join(map(str, value)) if isinstance(value, list | tuple) else value}"


def _format_card(card: Card) -> str:
    """A capability card in one line, with its source."""
    best = sorted(card.strengths.items(), key=lambda item: -item[1])
    told = ", ".join(f"{tag} {share:.2f}" for tag, share in best) or card.words
    if not told:
        return "unknown; measure it with: conductor workers calibrate"
    how = "measured" if card.measured else "not measured"
    return f"{told} ({how}: {card.source})" if card.source else f"{told} ({how})"


@app.command("add")
def add_worker(
    context: typer.Context,
    name: Name,
    words: Words = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            "-k",
            help="What answers: openai, anthropic, gemini, ollama, llama, openai-compatible, command and others.",
        ),
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
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of one answer.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", min=0, help="Sampling temperature.")
    ] = None,
    reasoning_effort: Annotated[
        str | None, typer.Option("--reasoning-effort", metavar="WORD", help="How hard it thinks: none, low, high …")
    ] = None,
    thinking_budget: ThinkingBudget = None,
    cwd: Cwd = None,
    env: Env = None,
    seconds: Seconds = None,
    sandbox: Sandbox = None,
    network: Network = None,
    price: Annotated[
        str | None, typer.Option("--price", metavar="IN,OUT", help="US dollars per million tokens in and out.")
    ] = None,
    tools: Tools = None,
    tag: Tags = None,
    accepts: Accepts = None,
    unset: Unset = None,
) -> None:
    """Add a worker, or change one that was added."""
    settings = opt.stored_settings(context)
    given = {
        "kind": kind, "model": model, "about": about, "base_url": base_url, "key_env": key_env,
        "max_tokens": max_tokens, "temperature": temperature, "thinking_budget": thinking_budget,
        "reasoning_effort": reasoning_effort, "tools": opt.split_names(tools),
        "cwd": str(cwd.expanduser().absolute()) if cwd else None, "env": env or None, "seconds": seconds,
        "sandbox": sandbox, "network": network, "price": _parse_price(price),
        "tags": tag or None, "accepts": _parse_accepts(accepts),
    }  # fmt: skip
    with _errors_with_options():
        changed = workers.add_worker(settings, name, given, unset or (), words=words or ())
    print_text(f"{_describe_changes(name, changed)}; check it with: conductor workers test {name}")


_FROM_FILE: Final = re.compile(r'for example: (\w+) = "([^"]*)"')
_LIST_IN_FILE: Final = re.compile(r"for example: \w+ = \[[^\]]*\], or …")


@contextmanager
def _errors_with_options() -> Iterator[None]:
    """Say errors about a worker's table with the options of `workers add`. Raises `UsageError`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(_with_options(error.message), hint=_with_options(error.hint)) from None


def _with_options(text: str) -> str:
    """The text of an error about a worker's table, with the options of `workers add` in place of lines of TOML."""
    text = _LIST_IN_FILE.sub("for example: conductor workers add NAME", text)
    text = _FROM_FILE.sub(lambda found: f"for example: --{found[1].replace('_', '-')} {found[2]}", text)
    return re.sub(r"\b(base_url|key_env|max_tokens)\b", lambda found: f"--{found[0].replace('_', '-')}", text)


def _describe_changes(name: str, changed: Mapping[str, tuple[Any, Any]] | None) -> str:
    """`changed fast: model llama3.2 is now llama3.3`. What a program is started with is only named."""
    if changed is None:
        return f"added {name}"
    parts = [f"{key} {_describe_change(key, old, new)}" for key, (old, new) in changed.items()]
    return f"changed {name}: {', '.join(parts) or 'nothing, it was like this before'}"


def _describe_change(key: str, old: Any, new: Any) -> str:  # noqa: ANN401 - TOML values
    if new is None:
        return "removed"
    if key in ("tags", "accepts", "tools"):
        old, new = (" ".join(map(str, value or ())) for value in (old, new))
    if not isinstance(new, str | int | float):
        return "replaced" if old else "added"
    return f"{old!s:.60} is now {new!s:.60}" if old else f"is now {new!s:.60}"


def _parse_price(text: str | None) -> dict[str, str] | None:
    """`IN,OUT` as a worker's table has it; whether they are amounts is checked with the table."""
    if text is None:
        return None
    first, _, second = text.partition(",")
    if not second.strip():
        raise UsageError(f"--price takes two amounts, not {text!r:.40}", hint="input and output: --price 1.25,10")
    return {"input": first, "output": second}


def _parse_accepts(text: str | None) -> list[str] | None:
    """`image,pdf` as a worker's table has it; whether these are kinds is checked with the table."""
    if text is None:
        return None
    return [] if text == "none" else [word.strip() for word in text.split(",")]


def _choose(context: typer.Context, names: Sequence[str] | None, pool: str | None) -> list[str]:
    """The workers that a command names, by themselves or as a pool. Raises `UsageError`."""
    chosen = list(names or ())
    if pool is not None:
        chosen += find_pool(opt.stored_settings(context).pools, pool).workers
    if not chosen:
        raise UsageError("no worker is named", hint="NAME…, or --pool NAME")
    return list(dict.fromkeys(chosen))


@app.command("rm")
def remove_workers(context: typer.Context, names: Names = None) -> None:
    """Remove workers that were added and that no pool needs."""
    chosen = _choose(context, names, None)
    workers.remove_workers(app_paths(os.environ), chosen, lambda: opt.stored_settings(context))
    for name in chosen:
        print_line(f"removed {name}")


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
    features: Annotated[
        bool, typer.Option("--features", help="Also send each an image, a PDF and a tool: three more short calls each.")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="With --features: store what a worker reads as its `accepts`.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Ask each worker for a token, all at once, with its own settings: one cheap live call each."""
    if save and not features:
        raise UsageError("--save stores what --features finds", hint="conductor workers test --features --save")
    chosen = names or () if pool is None else _choose(context, names, pool)
    settings = opt.stored_settings(context)
    tested = workers_to_test(settings, chosen)
    table = ResultTable([worker.name for worker in tested])
    with show_running(quiet=context.obj.quiet) as running:

        def report(result: WorkerTest) -> None:
            with running.finished(result.name):
                if not json:
                    table.print(result)

        for worker in tested:
            running.start(worker.name)
        if not json:
            table.print_head()
        results = run_worker_tests(settings, tested, report, features=features)
    if json:
        print_json([result.data() for result in results])
    if save:
        _save_accepts(settings, results)
    raise typer.Exit(max((result.failure.exit_code for result in results if result.failure), default=0))


def _save_accepts(settings: Settings, results: Sequence[WorkerTest]) -> None:
    """Store what the workers were seen to read, and say what was stored and what was not."""
    for result in results:
        if result.accepts is None:
            print_notice(f"nothing is stored for {result.name}: what it reads is not known")
            continue
        try:
            workers.save_accepts(settings, result.name, result.accepts)
        except ConductorError as error:
            print_notice(f"nothing is stored for {result.name}: {error.message}")
        else:
            print_notice(f"stored for {result.name}: accepts {', '.join(result.accepts) or 'text only'}")


class ResultTable:
    """Prints the results of tests one by one, so its columns have their widths before any result is known."""

    def __init__(self, names: Sequence[str]) -> None:
        widths = {"NAME": min(LONGEST_NAME, max(map(len, names))), "STATE": len("failed"), "TIME": len("99.9 s")}
        name, state, time = (head.ljust(width) for head, width in widths.items())
        # A heading as wide as its column is asked to be keeps the columns of all rows in line.
        self._columns = [Column(name), Column(state), Column(time, drop=1), Column(f"{'MESSAGE':20}", wrap=True)]

    def print_head(self) -> None:
        self._print([])

    def print(self, result: WorkerTest) -> None:
        name = crop_text(result.name, LONGEST_NAME) if terminal_width(sys.stdout) else result.name
        self._print([name, result.state, format_duration(result.seconds), result.message])

    def _print(self, cells: Sequence[str]) -> None:
        head, rows, _ = render_rows(self._columns, [cells] if cells else [], terminal_width(sys.stdout))
        for line in rows[0] if rows else head:
            print_line(line)


app.command("calibrate", rich_help_panel="Advanced")(calibrate)
