"""`conductor workers`: list, add, rm, enable, disable, test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Listed, Settings

app = typer.Typer(help="The models that do subtasks.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The worker's name.")]


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load  # noqa: PLC0415

    return load(os.environ, {}, context.obj.config)


@app.command("list")
def list_(context: typer.Context, json: opt.Json = False) -> None:
    """List the workers of the settings, or those found at hand where none are named."""
    from conductor_cli.cli.checking import at_hand, key_state  # noqa: PLC0415
    from conductor_cli.cli.output import remark, say_json, table  # noqa: PLC0415

    settings = _settings(context)
    found = settings.workers or at_hand(settings)
    states = [key_state(item.worker, settings.environ) for item in found]
    if json:
        say_json([_row(item, state) for item, state in zip(found, states, strict=True)])
        return
    if not settings.workers:
        remark("no workers are configured" + ("; found at hand:" if found else " and none was found at hand"))
    if found:
        rows = [
            [item.worker.name, item.worker.kind, item.worker.model or "-", "yes" if item.enabled else "no", state]
            for item, state in zip(found, states, strict=True)
        ]
        table(("NAME", "KIND", "MODEL", "ENABLED", "KEY"), rows)


def _row(item: Listed, state: str) -> dict[str, Any]:
    from conductor_cli.core.wire import dump  # noqa: PLC0415

    return {**dump(item.worker), "enabled": item.enabled, "source": item.source, "key": state}


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    kind: Annotated[str, typer.Option("--kind", "-k", help="openai, anthropic, gemini, ollama, llama, openai-compatible …")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="The provider's model id, or a GGUF file.")] = None,
    about: Annotated[str | None, typer.Option("--about", help="What it is good at, for the conductor.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Another address than the provider's own.")] = None,
    key_env: Annotated[str | None, typer.Option("--key-env", metavar="NAME", help="The variable that holds its key.")] = None,
    context_tokens: Annotated[int | None, typer.Option("--context", metavar="N", min=256, help="Tokens it can read and write.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of one answer.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="T", min=0)] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", metavar="N", min=1, help="Steps it may do at once.")] = None,
    price: Annotated[str | None, typer.Option("--price", metavar="IN,OUT", help="US dollars for a million tokens in and out.")] = None,
) -> None:
    """Add a worker, or change one that was added."""
    from conductor_cli.cli.output import say  # noqa: PLC0415
    from conductor_cli.config.workers import NAME, change  # noqa: PLC0415
    from conductor_cli.models.catalog import kinds  # noqa: PLC0415

    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no worker name", hint="letters, digits, dots and dashes, at most 40")
    if kind not in kinds():
        raise UsageError(f"there is no kind {kind!r}", hint=f"known: {', '.join(kinds())}")
    settings = _settings(context)
    table: dict[str, Any] = {
        "kind": kind, "model": model, "about": about, "base_url": base_url, "key_env": key_env, "context": context_tokens,
        "max_tokens": max_tokens, "temperature": temperature, "parallel": parallel, "price": _price(price),
    }  # fmt: skip
    if kind == "llama":
        table["model"] = _file(model)
    change(settings.places, name, {key: value for key, value in table.items() if value is not None})
    say(f"added {name}; check it with: conductor workers test {name}")


def _file(model: str | None) -> str:
    from pathlib import Path  # noqa: PLC0415

    path = Path(model or "").expanduser()
    if not path.is_file():
        raise UsageError(f"{model!r} is no file", hint="--kind llama needs --model FILE.gguf")
    return str(path.absolute())


def _price(text: str | None) -> dict[str, str] | None:
    from decimal import Decimal, InvalidOperation  # noqa: PLC0415

    if text is None:
        return None
    try:
        first, second = (Decimal(part) for part in text.split(","))
    except (ValueError, InvalidOperation):
        raise UsageError(f"--price {text!r:.40} is not IN,OUT", hint="for example: --price 1.25,10") from None
    if not (first.is_finite() and second.is_finite() and first >= 0 and second >= 0):
        raise UsageError(f"--price {text!r:.40} must be two amounts of 0 or more")
    return {"input": str(first), "output": str(second)}


def _changed(context: typer.Context, name: str, table: dict[str, Any] | None, done: str) -> None:
    from conductor_cli.cli.output import say  # noqa: PLC0415
    from conductor_cli.config.workers import change  # noqa: PLC0415

    settings = _settings(context)
    listed = next((item for item in settings.workers if item.worker.name == name), None)
    if listed is None:
        known = ", ".join(item.worker.name for item in settings.workers) or "none"
        raise UsageError(f"no worker is named {name!r}", hint=f"known: {known}")
    if listed.source != str(settings.places.own_file):
        raise ConfigError(
            f"worker {name!r} stands in {listed.source}, which conductor does not write", hint="change it there, by hand"
        )
    change(settings.places, name, table)
    say(f"{done} {name}")


@app.command("rm")
def rm(context: typer.Context, name: Name) -> None:
    """Remove a worker that was added."""
    _changed(context, name, None, "removed")


@app.command("enable")
def enable(context: typer.Context, name: Name) -> None:
    """Let a worker be used again."""
    _changed(context, name, {"enabled": True}, "enabled")


@app.command("disable")
def disable(context: typer.Context, name: Name) -> None:
    """Keep a worker, but do not use it."""
    _changed(context, name, {"enabled": False}, "disabled")


@app.command("test")
def test(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Which; all where none is named.")] = None,
    json: opt.Json = False,
) -> None:
    """Ask each worker for a word, with its own settings; a cheap live call each."""
    from conductor_cli.cli.checking import test_workers  # noqa: PLC0415
    from conductor_cli.cli.output import say_json, table  # noqa: PLC0415

    results = test_workers(_settings(context), names or ())
    if json:
        say_json([result.data() for result in results])
    else:
        rows = [[r.name, "ok" if r.failure is None else "failed", f"{r.seconds:.2f} s", r.said] for r in results]
        table(("NAME", "STATE", "TIME", "SAID"), rows)
    raise typer.Exit(max((result.failure.exit_code for result in results if result.failure), default=0))
