"""`conductor workers`: list, show, add, rm, enable, disable, test, calibrate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.workers import adding, calibrate
from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import ConfiguredWorker, Settings

app = typer.Typer(help="The models that do subtasks.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The worker's name.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The worker's name; may be several.")]
OfPool = Annotated[str | None, typer.Option("--pool", metavar="NAME", help="Every worker of this pool.")]


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load_settings

    return load_settings(os.environ, {}, context.obj.config)


@app.command("list")
def list_(
    context: typer.Context,
    prices: Annotated[bool, typer.Option("--prices", help="What each costs, and where that is known from.")] = False,
    json: opt.Json = False,
) -> None:
    """List the workers of the settings, or those found at hand where none are named."""
    from conductor_cli.app.keys import key_state, open_key_store
    from conductor_cli.app.policy_filter import policy_objection
    from conductor_cli.app.worker_selection import discovered_workers
    from conductor_cli.cli.output import print_json, print_notice, print_table
    from conductor_cli.cli.workers import pricing

    settings = _settings(context)
    safe = open_key_store(settings)
    found = settings.workers or discovered_workers(settings)
    if prices and not json:
        print_table(pricing.HEADS, pricing.rows(found, settings))
        print_notice("US dollars for a million tokens; a worker without a price is never taken to be free")
        return
    states = [key_state(item.worker, settings.environ, safe) for item in found]
    if json:
        print_json([_row(item, state, settings) for item, state in zip(found, states, strict=True)])
        return
    if not settings.workers:
        none = " and none was found at hand: conductor setup, or conductor workers add NAME --kind KIND"
        print_notice("no workers are configured" + ("; found at hand:" if found else none))
    if found:
        tagged = any(item.worker.tags for item in found)
        heads = ("NAME", "KIND", "MODEL", "ENABLED", *(["TAGS"] if tagged else []), "KEY")
        why = {item.worker.name: policy_objection(settings, item.worker) for item in found if item.enabled}
        print_table(
            heads, [_cells(item, state, tagged=tagged, why=why) for item, state in zip(found, states, strict=True)]
        )
        for name in filter(why.get, why):
            print_notice(f"{name} may not be asked: {why[name]}")


def _cells(item: ConfiguredWorker, key: str, *, tagged: bool, why: Mapping[str, str]) -> list[str]:
    from conductor_cli.models.presets import model_of

    worker = item.worker
    tags = [", ".join(worker.tags) or "-"] if tagged else []
    enabled = "forbidden" if why.get(worker.name) else "yes" if item.enabled else "no"
    return [worker.name, worker.kind, model_of(worker) or "-", enabled, *tags, key]


def _row(item: ConfiguredWorker, state: str, settings: Settings) -> dict[str, Any]:
    from conductor_cli.app.policy_filter import policy_objection
    from conductor_cli.cli.workers import pricing
    from conductor_cli.core.serialization import dump

    pools = [pool.name for pool in settings.pools if item.worker.name in pool.workers]
    price, whence = pricing.price_of(item, settings)
    return {
        **dump(item.worker.public()), "price": dump(price), "price_from": whence, "pools": pools,
        "enabled": item.enabled, "forbidden": policy_objection(settings, item.worker) or None, "source": item.source,
        "key": state,
    }  # fmt: skip


@app.command("show")
def show(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show a worker: its model and settings, who reads what it is sent, its price, key, and what it is good at."""
    from conductor_cli.app.keys import key_state, open_key_store
    from conductor_cli.app.worker_selection import discovered_workers
    from conductor_cli.cli.output import print_json, print_table
    from conductor_cli.cli.workers import pricing
    from conductor_cli.cli.workers.picturing import rows_of

    settings = _settings(context)
    listed = {item.worker.name: item for item in settings.workers or discovered_workers(settings)}
    if name not in listed:
        raise UsageError(f"no worker is named {name!r}", hint=f"known: {', '.join(listed) or 'none'}")
    item = listed[name]
    key = key_state(item.worker, settings.environ, open_key_store(settings))
    if json:
        print_json(_row(item, key, settings))
    else:
        price = pricing.told(*pricing.price_of(item, settings))
        print_table(("WORKER", name), rows_of(item, key, price, settings))


app.command("add")(adding.add)


def _changed(context: typer.Context, names: Sequence[str], table: dict[str, Any] | None, done: str) -> None:
    """Change or remove the tool's own entries. They are not read as workers first: one may be what is to be mended."""
    from conductor_cli.cli.output import print_line
    from conductor_cli.config import app_paths
    from conductor_cli.config.workers import own_worker_names, update_worker

    where = app_paths(os.environ)
    own = own_worker_names(where)
    for name in names:
        if name not in own:
            raise _not_own(context, name)
    for name in names:
        update_worker(where, name, table)
        print_line(f"{done} {name}")


def _not_own(context: typer.Context, name: str) -> ConfigError | UsageError:
    """The error for a worker that this tool did not write down."""
    listed = {item.worker.name: item.source for item in _settings(context).workers}
    if name in listed:
        said = f"worker {name!r} stands in {listed[name]}, which conductor does not write"
        return ConfigError(said, hint="change it there, by hand")
    return UsageError(f"no worker is named {name!r}", hint=f"known: {', '.join(listed) or 'none'}")


def _which(context: typer.Context, names: Sequence[str] | None, pool: str | None) -> Sequence[str]:
    """The workers that a command names, by themselves or as a pool. Raises `UsageError`."""
    if not names and pool is None:
        raise UsageError("no worker is named", hint="NAME…, or --pool NAME")
    if pool is None:
        return list(dict.fromkeys(names or ()))
    from conductor_cli.app.worker_selection import select_workers

    return [item.worker.name for item in select_workers(_settings(context), names or (), pool)]


@app.command("names", hidden=True)
def names_(
    context: typer.Context,
    own: Annotated[bool, typer.Option("--own", help="Only those that were added.")] = False,
) -> None:
    """Print the names of workers, a line each: what a shell offers for a tab."""
    from conductor_cli.cli.completions import worker_names
    from conductor_cli.cli.output import print_line

    for name in worker_names(os.environ, context.obj.config, own=own):
        print_line(name)


@app.command("rm")
def rm(context: typer.Context, names: Names = None) -> None:
    """Remove workers that were added; pools lose them too."""
    from conductor_cli.app.worker_selection import POOL_GONE
    from conductor_cli.cli.output import print_notice
    from conductor_cli.config import app_paths
    from conductor_cli.config.pools import own_pools, remove_from_pools, stop_using_pool

    where, wanted = app_paths(os.environ), _which(context, names, None)
    _changed(context, wanted, None, "removed")
    for name in wanted:
        for pool in remove_from_pools(where, name):
            gone = "" if pool in own_pools(where) else ", which is removed: nobody is left in it"
            print_notice(f"{name} is out of pool {pool}, too{gone}")
            if stop_using_pool(where, pool):
                print_notice(POOL_GONE)


@app.command("enable")
def enable(context: typer.Context, names: Names = None, pool: OfPool = None) -> None:
    """Let workers be used again."""
    _changed(context, _which(context, names, pool), {"enabled": True}, "enabled")


@app.command("disable")
def disable(context: typer.Context, names: Names = None, pool: OfPool = None) -> None:
    """Keep workers, but do not use them."""
    _changed(context, _which(context, names, pool), {"enabled": False}, "disabled")


@app.command("test")
def ask_for_a_token(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Which; all where none is named.")] = None,
    pool: OfPool = None,
    json: opt.Json = False,
) -> None:
    """Ask each worker for a token, all at once, with its own settings; a cheap live call each."""
    from conductor_cli.cli.output import print_json, print_table
    from conductor_cli.cli.workers.testing import test_workers

    wanted = names or ()
    results = test_workers(_settings(context), wanted if pool is None else _which(context, wanted, pool))
    if json:
        print_json([result.data() for result in results])
    else:
        print_table(("NAME", "STATE", "TIME", "SAID"), [[r.name, r.state, r.time, r.said] for r in results])
    raise typer.Exit(max((result.failure.exit_code for result in results if result.failure), default=0))


app.command("calibrate")(calibrate.calibrate)
