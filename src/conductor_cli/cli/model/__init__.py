"""`conductor model`: which model plans, and the local ones: getting, checking, measuring and removing them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConductorUnusable, UsageError

if TYPE_CHECKING:
    from conductor_cli.app.prefix_warmup import WarmedPrefix
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.model_store import Manifest

app = typer.Typer(help="The conductor model: the one that plans.", no_args_is_help=True)

Use = Annotated[
    bool | None,
    typer.Option("--use/--no-use", help="Let it plan from now on; without this it does where none is chosen yet."),
]


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load_settings

    return load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)


@app.command("list")
def list_(context: typer.Context, json: opt.Json = False) -> None:
    """List the models that are here and those that can be pulled."""
    from conductor_cli.cli.model.listing import listed, rows
    from conductor_cli.cli.output import print_json, print_notice
    from conductor_cli.models.weights.registry import as_of

    settings = _settings(context)
    found = rows(settings)
    if json:
        print_json([row.data() for row in found])
        return
    listed(found)
    if not context.obj.quiet:
        print_notice(f"the registry is of {as_of(settings.environ)}")


@app.command("pull")
def pull(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name of model list; without one, the default.")
    ] = None,
    use: Use = None,
) -> None:
    """Get a model: checked by its SHA-256, going on where an earlier try ended."""
    from conductor_cli.cli.model.pulling import fetch, forget_no, here, told, whole
    from conductor_cli.cli.model.shelving import settle
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.models.weights.registry import find_model, load_registry

    settings = _settings(context)
    entry = load_registry(settings.environ)[0] if name is None else find_model(name, settings.environ)
    forget_no(settings)
    manifest = here(entry, settings)
    if manifest is not None and not whole(manifest, settings, quiet=context.obj.quiet):
        print_notice(f"{entry.name} is here and damaged; it is fetched again")
        manifest = None
    if manifest is None:
        fresh = fetch(entry, settings, quiet=context.obj.quiet)
        told(fresh, print_line)
    else:
        print_line(f"{entry.name} is here already: {manifest.path}")
    settle((manifest or fresh).name, settings, context.obj.config, use=use)
    if manifest is None:
        _after(fresh, context.obj.config, quiet=context.obj.quiet)


def _after(manifest: Manifest, config: str | None, *, quiet: bool) -> None:
    """Read the fixed part of the prompt now, where the model that has come is the one that plans."""
    from conductor_cli.app.planner_resolution import planner_manifest
    from conductor_cli.app.prefix_warmup import is_worth_warming, warm_prefix
    from conductor_cli.cli.output import print_notice
    from conductor_cli.config import load_settings

    settings = load_settings(os.environ, {}, config)
    if planner_manifest(settings) != manifest or not is_worth_warming(settings):
        return
    if not quiet:
        print_notice("reading the fixed part of the prompt, so that no question has to wait for it …")
    warmed = warm_prefix(settings)
    if not quiet:
        print_notice(_describe_warmup(warmed))


@app.command("prepare")
def prepare_(context: typer.Context) -> None:
    """Read the fixed part of the prompt now and keep its state on disk, so that the next question need not wait."""
    from conductor_cli.app.prefix_warmup import warm_prefix
    from conductor_cli.cli.output import print_line

    print_line(_describe_warmup(warm_prefix(_settings(context))))


def _describe_warmup(warmed: WarmedPrefix | None) -> str:
    if warmed is None:
        return "nothing to do: this model is so small that reading its prompt is faster than storing it"
    read = warmed.tokens - warmed.cached
    if read < warmed.cached:
        return f"the fixed part of the prompt was already stored: {warmed.cached} of {warmed.tokens} tokens"
    return f"the fixed part of the prompt is stored: {read} tokens, read in {warmed.seconds:.1f} s"


@app.command("import")
def import_(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A GGUF file, or a LoRA in PEFT form: its directory or file.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call it.")] = "",
    base: Annotated[str, typer.Option("--base", metavar="NAME|FILE", help="The model that a LoRA is laid over.")] = "",
    copy: Annotated[bool, typer.Option("--copy", help="Make a copy of its own, also across disks.")] = False,
    use: Use = None,
) -> None:
    """Take a model file that is on this machine: checked, recognised, not stored twice."""
    from conductor_cli.app.planner_resolution import open_model_store
    from conductor_cli.cli.model.pulling import told
    from conductor_cli.cli.model.shelving import settle
    from conductor_cli.cli.model.watching import reading, watching
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.models.weights.import_file import ImportRequest, import_model

    settings = _settings(context)
    given = ImportRequest(path=path.expanduser(), name=name, base=base, copy=copy)
    with watching(settings, quiet=context.obj.quiet) as watch:
        adopted = import_model(given, open_model_store(settings), settings.environ, reading(watch))
    manifest = adopted.manifest
    print_line(f"{manifest.name} is here{' already' if adopted.before else ''}:")
    told(manifest, print_line)
    if not adopted.own:
        print_notice("the file is used where it lies, on another disk: keep it there, or import it with --copy")
    settle(manifest.name, settings, context.obj.config, use=use)


@app.command("use")
def use(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|URL|PROVIDER/MODEL", help="A name of model list, a GGUF file, a URL, or provider/model."
        ),
    ],
) -> None:
    """Choose the model that plans, from now on."""
    from conductor_cli.app.planner_resolution import (
        describe_planner,
        missing_key_notice,
        open_model_store,
        resolve_planner,
    )
    from conductor_cli.cli.model.shelving import choose
    from conductor_cli.cli.output import print_notice
    from conductor_cli.config import load_settings

    if not model.strip():
        raise UsageError("no model is named", hint="conductor model use NAME | FILE.gguf | URL | provider/model")
    settings = _settings(context)
    path = Path(model).expanduser()
    named = open_model_store(settings).find(model) is not None or any(
        item.worker.name == model for item in settings.workers
    )
    chosen = str(path.absolute()) if path.exists() and not named else model
    planner = resolve_planner(load_settings(os.environ, {"conductor.model": chosen}, context.obj.config))
    name = describe_planner(planner)
    choose(chosen, name if name == chosen else f"{chosen} ({name})", settings, context.obj.config)
    if said := missing_key_notice(planner, settings):
        print_notice(said)


@app.command("verify")
def verify(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE", help="Which; without one, the model that plans.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Read a model's files again and compare them with what is known of them; 5 when one is damaged."""
    from conductor_cli.cli.model.shelving import verified
    from conductor_cli.cli.model.watching import reading, watching
    from conductor_cli.cli.output import print_json, print_line

    settings = _settings(context)
    with watching(settings, quiet=context.obj.quiet) as watch:
        results = verified(name, settings, reading(watch))
    if json:
        print_json([result.data() for result in results])
    else:
        for result in results:
            for line in result.lines():
                print_line(line)
    if any(result.problem for result in results):
        raise typer.Exit(ConductorUnusable("").exit_code)


@app.command("rm")
def rm(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model that is here, or begun.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model: its files, as far as conductor put them there, what of it was begun, and what it remembers."""
    from conductor_cli.cli.model.removing import removed

    removed(name, _settings(context), context.obj.config, yes=yes)


@app.command("names", hidden=True)
def names(
    known: Annotated[bool, typer.Option("--known/--here", help="Those that can be pulled, too.")] = False,
) -> None:
    """Print the names of models, a line each: what a shell offers for a tab."""
    from conductor_cli.cli.completions import model_names
    from conductor_cli.cli.output import print_line

    for name in model_names(os.environ, known=known):
        print_line(name)


@app.command("path")
def path(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A model that is here; without one, what plans.")
    ] = None,
) -> None:
    """Print the file of a model, or which model plans: a file's path, a URL, or provider/model."""
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.cli.model.shelving import known
    from conductor_cli.cli.output import print_line

    settings = _settings(context)
    if name is not None:
        print_line(str(known(name, settings).path))
        return
    planner = resolve_planner(settings)
    print_line(planner.model if planner.kind == "llama" else settings["conductor.model"])
