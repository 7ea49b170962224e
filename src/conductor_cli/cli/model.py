"""`conductor model`: list, pull, import, use, verify, rm; and the offer before a first run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.app import models
from conductor_cli.app.planner_resolution import (
    describe_planning_model,
    open_model_store,
    read_guided,
)
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import can_ask, confirm
from conductor_cli.cli.output import (
    print_finding,
    print_json,
    print_json_rows,
    print_line,
    print_notice,
    print_table,
)
from conductor_cli.cli.signals import handle_signal
from conductor_cli.config.files import set_value
from conductor_cli.config.settings import Settings
from conductor_cli.core.chat import PromptProgress
from conductor_cli.core.errors import ConductorError, ConductorUnusable, UsageError
from conductor_cli.core.formatting import UNKNOWN, format_count, format_duration, format_size
from conductor_cli.models.weights.import_file import import_model
from conductor_cli.models.weights.model_store import PACKAGE_SOURCE, Manifest
from conductor_cli.models.weights.registry import RegistryModel
from conductor_cli.models.weights.verify import verify_model
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.terminal_tables import Column

if TYPE_CHECKING:
    from conductor_cli.models.weights.verify import Report
    from conductor_cli.system.hardware import Memory

_MEMORY_SOURCES: Final = {
    "registry": "",
    "header": " (computed from the file's header)",
    "size": " (estimated from the file's size)",
}
"""How the memory that a model needs is known."""


@contextmanager
def show_file_progress(settings: Settings, *, quiet: bool) -> Iterator[Report]:
    """Show how far model files are until the block ends."""
    from conductor_cli.cli.progress import show_progress

    def terminate(*_: object) -> None:
        raise SystemExit(143)

    # SIGTERM ends the block as an error does, so that the cursor is shown again and locks are
    # released.
    with handle_signal(signal.SIGTERM, terminate), show_progress(settings, quiet=quiet) as display:
        yield display.update


def describe_pull(model: RegistryModel) -> list[str]:
    """Return what a pull needs.

    Size, licence, where from and where to, and the memory beside what the machine has.
    """
    from conductor_cli.models.llama.bindings import built_wheel_command, is_installed
    from conductor_cli.models.weights.download import missing_bytes
    from conductor_cli.models.weights.huggingface import cache_directory, shown_endpoint
    from conductor_cli.system import disk
    from conductor_cli.system.hardware import read_memory

    if model.is_packaged:
        return _describe_packaged(model)
    missing = missing_bytes(model)
    directory = cache_directory()
    size = "size unknown"
    if model.size:
        size = format_size(model.size)
    if missing < model.size:
        size += f", {format_size(missing)} of it to download"
    free = format_size(disk.free_bytes(directory))
    lines = [
        f"{model.name}: {size}, licence {model.licence}",
        f"from {model.repo} at {model.revision[:12]}, to {directory}, {free} free",
    ]
    if not is_installed():
        command = built_wheel_command()
        lines.append(f"it cannot be used yet, because llama.cpp is not installed: {command}")
    if not model.listed:
        line = f"file {model.parts[0].file}"
        if len(model.parts) > 1:
            line += f" and {format_count(len(model.parts) - 1, 'more part')}"
        lines.append(line)
    if model.licence == "unknown":
        lines.append(
            "the repository names no licence; what its makers allow may be at "
            f"{shown_endpoint()}/{model.repo}"
        )
    elif model.licence.lower() != "apache-2.0":
        lines.append(
            f"{model.licence} is not Apache-2.0; its terms are at "
            f"https://huggingface.co/{model.repo}"
        )
    if model.memory:
        lines.append(_describe_memory(model, read_memory()))
    return lines


def _describe_packaged(model: RegistryModel) -> list[str]:
    size = format_size(model.size)
    line = f"{model.name}: {size} of this package, an adapter for {model.base}"
    return [f"{line}, licence {model.licence}", model.about]


def _describe_memory(model: RegistryModel, memory: Memory) -> str:
    line = f"memory: needs about {format_size(model.memory)}{_MEMORY_SOURCES[model.memory_source]}"
    if memory.total:
        line += f"; this machine has {format_size(memory.total)}"
    # A model that does not fit is still offered: the person may know better, and swap exists.
    if model.memory > memory.total > 0:
        line += (
            ": too little, it would be very slow or fail; for a smaller one: conductor model list"
        )
    elif model.memory > memory.available > 0:
        line += (
            f", of which only {format_size(memory.available)} are free now: close something first"
        )
    return line


def describe_model_files(manifest: Manifest, *, named: bool = False) -> list[str]:
    """Return where a model's files are, and what their SHA-256 was compared with.

    The first line is its name, if `named`.
    """
    from conductor_cli.models.weights.verify import describe_hash_source

    compared = describe_hash_source(manifest)
    lines = []
    if named:
        lines.append(f"installed {manifest.name}:")
    for file in manifest.files:
        lines += [str(file.path), f"SHA-256 {file.sha256}: {compared}"]
    return lines


app = typer.Typer(help="Download and choose the model that plans.", no_args_is_help=True)

Say = Callable[[str], None]  # Prints a line

Use = Annotated[
    bool | None, opt.option("--use/--no-use", "Make it the default; automatic if none is set.")
]

MODEL_COLUMNS: Final = (
    Column("NAME", shrink=24),
    Column("SIZE", right=True, drop=1),
    Column("MEMORY", right=True, drop=2),
    Column("LICENCE", drop=3),
    Column("STATE", wrap=True),
    Column("SOURCE", drop=4),
)


@app.command("list")
def list_models_command(context: typer.Context, json: opt.Json = False) -> None:
    """List installed models and those that can be downloaded."""
    settings = opt.stored_settings(context)
    rows = models.list_model_rows(settings)
    if json:
        print_json_rows(rows)
        return
    print_table(MODEL_COLUMNS, [_model_cells(row) for row in sorted(rows, key=_list_rank)])
    for row in rows:
        if row.source.startswith(PACKAGE_SOURCE):
            print_notice(f"{row.name}: {row.about}")


def _list_rank(row: models.ModelRow) -> int:
    """Return where a model stands in the list: what is on this machine comes first."""
    if row.in_use:
        return 0
    if row.state != "not installed":
        return 1
    return 2


def _model_cells(row: models.ModelRow) -> list[str]:
    return [
        row.name,
        _size_cell(row.size),
        _size_cell(row.memory),
        row.licence or "unknown",
        _state_cell(row),
        _source_cell(row),
    ]


def _size_cell(size: int) -> str:
    if size:
        return format_size(size)
    return UNKNOWN


def _source_cell(row: models.ModelRow) -> str:
    if row.source.startswith(PACKAGE_SOURCE):
        return "this package"
    return row.source.removeprefix("hub:").partition("@")[0]


def _state_cell(row: models.ModelRow) -> str:
    words: list[str] = [row.state]
    if row.in_use and row.state != "damaged":
        words = ["in use"]
    if row.partial:
        words.append(f"{format_size(row.partial)} downloaded")
    if row.default:
        words.append("default")
    return ", ".join(filter(None, words))


@app.command("pull")
def pull_command(
    context: typer.Context,
    name: Annotated[
        str | None,
        opt.argument(
            "NAME|OWNER/REPO[:QUANT]",
            "A name of model list, or any GGUF of the hub, with its quantization or file; else the "
            "default.",
        ),
    ] = None,
    use: Use = None,
    yes: Annotated[
        bool, opt.option("--yes -y", "Do not ask, even if it needs more memory than is free.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Download a model and verify it. An interrupted download continues."""
    settings = opt.stored_settings(context)
    quiet = context.obj.quiet
    say: Say = print_line
    if json:
        say = _say_nothing if quiet else print_notice
    model = models.model_to_pull(name, settings)
    try:
        for needed in models.models_to_pull(model, settings):
            manifest = _pull(needed, settings, say, quiet=quiet, yes=yes)
    except KeyboardInterrupt:
        if not quiet:
            print_notice(f"stopped; to continue: conductor model pull {model.reference}")
        raise
    _use_if_wanted(manifest.name, context, settings, use=use, say=say)
    if json:
        print_json(models.describe_model(manifest, opt.stored_settings(context)))


def _pull(
    model: RegistryModel, settings: Settings, say: Say, *, quiet: bool, yes: bool
) -> Manifest:
    """Return the manifest of a model, which is installed first where it is not whole."""
    from conductor_cli.models.weights.download import missing_bytes
    from conductor_cli.models.weights.huggingface import cache_directory
    from conductor_cli.system.disk import check_room

    manifest = _find_whole(model, settings, quiet=quiet)
    if manifest is not None:
        say(f"{model.name} is already installed: {manifest.path}")
        return manifest
    notify: Say = _say_nothing if quiet else print_notice
    for line in describe_pull(model):
        notify(line)
    check_room(cache_directory(), missing_bytes(model), "HF_HOME")
    if not yes and can_ask():
        _confirm_memory(model)
    with show_file_progress(settings, quiet=quiet) as report:
        manifest = models.install_model(model, settings, report)
    for line in describe_model_files(manifest, named=not model.listed):
        say(line)
    return manifest


def _say_nothing(line: str) -> None:
    """Print nothing of a line, with `--quiet`."""


def _find_whole(model: RegistryModel, settings: Settings, *, quiet: bool) -> Manifest | None:
    """Return the manifest of an installed model; None if its files are missing or damaged.

    A damaged file has the right size, so that it has to be read.
    """
    manifest = models.find_installed(model, settings)
    if manifest is None:
        return None
    with show_file_progress(settings, quiet=quiet) as report:
        is_damaged = any(file.problem for file in verify_model(manifest, settings.environ, report))
    if is_damaged:
        print_notice(f"{model.name} is installed but damaged; downloading it again")
        return None
    return manifest


def _confirm_memory(model: RegistryModel) -> None:
    """Ask about a model that needs more memory than is free. Exits unless the person agrees."""
    from conductor_cli.system.hardware import read_memory

    free = read_memory().available
    if not model.memory > free > 0:
        return
    comparison = (
        f"{model.name} needs about {format_size(model.memory)} of memory, and "
        f"{format_size(free)} are free"
    )
    if not confirm(f"{comparison}. Download it anyway?", default=False):
        print_notice("nothing was downloaded")
        raise typer.Exit


@app.command("import")
def import_command(
    context: typer.Context,
    path: Annotated[Path, opt.argument("FILE", "A GGUF file: a model or a LoRA adapter.")],
    name: Annotated[str, opt.option("--name", "What to call it.", "NAME")] = "",
    base: Annotated[
        str, opt.option("--base", "The model a LoRA was trained for.", "NAME|FILE")
    ] = "",
    use: Use = None,
) -> None:
    """Add a model file from this machine. It is checked, and linked rather than copied."""
    settings = opt.stored_settings(context)
    with show_file_progress(settings, quiet=context.obj.quiet) as report:
        result = import_model(
            path.expanduser(),
            open_model_store(settings),
            settings.environ,
            report,
            name=name,
            base=base,
        )
    name = result.manifest.name
    print_line(f"{name} is already installed:" if result.existed else f"installed {name}:")
    for line in describe_model_files(result.manifest):
        print_line(line)
    if not result.stored:
        print_notice("the file is on another disk and is used from there: keep it")
    _use_if_wanted(name, context, settings, use=use)


def _use_if_wanted(
    name: str,
    context: typer.Context,
    settings: Settings,
    *,
    use: bool | None,
    say: Say = print_line,
) -> None:
    """Let a model plan that was just installed, if that is wanted or no other does.

    Else say how.
    """
    if models.should_become_planner(name, settings, use=use):
        if _choose(name, name, context, settings, say):
            say('next: conductor ask "…"')
        return
    if models.stored_planner(settings) != name:
        say(f"to let it plan: conductor model use {name}")


def _choose(
    chosen: str, shown: str, context: typer.Context, settings: Settings, say: Say = print_line
) -> bool:
    """Write which model plans into the tool's own settings.

    Say and return whether that has an effect.
    """
    set_value(settings.paths, "planner.model", chosen)
    after = opt.stored_settings(context)
    if after["planner.model"] == chosen:
        say(f"the planner is now {shown}")
        _prepare(after, quiet=context.obj.quiet)
        return True
    say(f"saved: {shown}")
    print_notice(
        f"{after.origins['planner.model']} sets {after['planner.model']} and takes precedence"
    )
    return False


def _prepare(settings: Settings, *, quiet: bool) -> None:
    """Have the planner read what comes before every question, so that the first need not wait.

    Ctrl-C leaves that to the first question, which also reports what is wrong.
    """
    from conductor_cli.cli.progress import show_progress

    label = "the planner reads its instructions"
    began = time.monotonic()
    is_long = False
    try:
        with show_progress(settings, quiet=quiet, unit="tokens") as display:

            def report(progress: PromptProgress) -> None:
                nonlocal is_long
                is_long = True
                display.update(label, progress.tokens, progress.total)

            used = run_async(models.prepare_planner(settings, report))
    except KeyboardInterrupt:
        if not quiet:
            print_notice(f"stopped while {label}; the first question has them read")
        return
    except ConductorError:
        return
    if is_long and not quiet:
        tokens = used.tokens_in - used.tokens_cached
        took = format_duration(time.monotonic() - began)
        print_notice(f"{label}: {tokens:,} tokens in {took}; questions need not wait for that")


@app.command("use")
def use_command(
    context: typer.Context,
    model: Annotated[
        str,
        opt.argument(
            "NAME|FILE|URL|PROVIDER/MODEL",
            "A name of model list, a GGUF file, a URL, or provider/model.",
        ),
    ],
) -> None:
    """Choose the model that plans."""
    if not model.strip():  # an unset variable in a script
        raise UsageError(
            "the name of the model is empty", hint="conductor model list shows the names"
        )
    settings = opt.stored_settings(context)
    path = Path(model).expanduser()
    # A name wins over a directory that is called the same; a file is saved by its absolute path.
    is_name = open_model_store(settings).find(model) is not None
    is_name = is_name or model in settings.worker_names
    chosen = model
    if path.exists() and not is_name:
        chosen = str(path.absolute())
    settings = opt.stored_settings(context, {"planner.model": chosen})
    planner = models.checked_planner(settings)
    shown = describe_planning_model(planner) + read_guided(settings).name
    if shown != chosen:
        shown = f"{chosen} ({shown})"
    _choose(chosen, shown, context, settings)


@app.command("verify")
def verify_models_command(
    context: typer.Context,
    name: Annotated[str | None, opt.argument("NAME", "Model to verify (default: all).")] = None,
    json: opt.Json = False,
) -> None:
    """Verify the files of a model. The exit code is 5 if one is damaged."""
    settings = opt.stored_settings(context)
    with show_file_progress(settings, quiet=context.obj.quiet) as report:
        results = models.verify_files(name, settings, report)
    if json:
        print_json_rows(results)
    else:
        for result in results:
            if result.problem:
                print_finding("damaged", str(result.path), f"{result.problem}\n{result.hint}")
            else:
                checksum = f"SHA-256 {result.sha256}: {result.compared}"
                print_finding("ok", str(result.path), checksum)
    if any(result.problem for result in results):
        raise typer.Exit(ConductorUnusable("").exit_code)


@app.command("rm")
def remove_model_command(
    context: typer.Context,
    name: Annotated[str, opt.argument("NAME", "An installed or partly downloaded model.")],
    yes: Annotated[bool, opt.option("--yes -y", "Do not ask.")] = False,
) -> None:
    """Remove a model. Files that conductor did not put there are kept."""
    settings = opt.stored_settings(context)
    planned = models.plan_model_removal(name, settings)
    if not yes and not can_ask():
        raise UsageError(
            f"removing {name} needs a confirmation", hint=f"conductor model rm {name} --yes"
        )
    for adapter in planned.adapters:
        print_notice(f"{adapter} is an adapter for it, and cannot be used without it")
    if not yes:
        for path in planned.names:
            print_notice(f"  {path}")
        change = f"Remove {name}"
        if planned.freed:
            change += f" and free {format_size(planned.freed)}"
        if not confirm(f"{change}?", default=False):
            print_notice("nothing was removed")
            raise typer.Exit
    planner = models.stored_planner(settings)
    removal = models.remove_installed(name, settings)
    freed = "no bytes"
    if removal.freed:
        freed = format_size(removal.freed)
    print_line(f"removed {name}, {freed} freed")
    for path in removal.kept:
        print_notice(f"kept {path}: conductor did not put it there, or another model uses it")
    if planner == name:
        after = opt.stored_settings(context)
        notice = f"{name} was the model that plans"
        if after["planner.model"]:
            notice += f" and {after.origins['planner.model']} still names it"
        print_notice(f"{notice}; to choose another: conductor model use NAME")
