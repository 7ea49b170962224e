"""`conductor workers add`: a worker with its settings, checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.core.pool import Worker


Name = Annotated[str, typer.Argument(help="The worker's name.")]
Kind = Annotated[
    str | None, typer.Option("--kind", "-k", help="openai, anthropic, gemini, ollama, llama, openai-compatible …")
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="The provider's model id, or a GGUF file.")]
About = Annotated[str | None, typer.Option("--about", help="What it is good at, for the conductor.")]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="Another address than the provider's own.")
]
KeyEnv = Annotated[str | None, typer.Option("--key-env", metavar="NAME", help="The variable that holds its key.")]
Context = Annotated[int | None, typer.Option("--context", metavar="N", min=256, help="Tokens it can read and write.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of one answer.")]
Temperature = Annotated[float | None, typer.Option("--temperature", metavar="T", min=0)]
TopP = Annotated[float | None, typer.Option("--top-p", metavar="P", help="Share of the likeliest tokens to draw from.")]
Effort = Annotated[
    str | None, typer.Option("--reasoning-effort", metavar="WORD", help="How hard it thinks: none, low, high …")
]
Budget = Annotated[
    int | None, typer.Option("--thinking-budget", metavar="N", min=0, help="Tokens it may think; 0 for none.")
]
Parallel = Annotated[int | None, typer.Option("--parallel", metavar="N", min=1, help="Steps it may do at once.")]
PriceOption = Annotated[
    str | None, typer.Option("--price", metavar="IN,OUT", help="US dollars for a million tokens in and out.")
]
Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="WORD", help="A word to sort it by; may be repeated.")]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="SETTING", help="Take a setting out; may be repeated.")
]


def add(
    context: typer.Context,
    name: Name,
    kind: Kind = None,
    model: Model = None,
    about: About = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    context_tokens: Context = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    reasoning_effort: Effort = None,
    thinking_budget: Budget = None,
    parallel: Parallel = None,
    price: PriceOption = None,
    tag: Tag = None,
    unset: Unset = None,
) -> None:
    """Add a worker, or change one that was added."""
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.config import load_settings
    from conductor_cli.config.workers import update_worker, validate_worker

    settings = load_settings(os.environ, {}, context.obj.config)
    before = _own(settings, name)
    given: dict[str, Any] = {
        "kind": kind, "model": _file(model) if (kind or before.get("kind")) == "llama" and model else model,
        "about": about, "base_url": base_url, "key_env": key_env, "context": context_tokens, "max_tokens": max_tokens,
        "temperature": temperature, "top_p": top_p, "reasoning_effort": reasoning_effort,
        "thinking_budget": thinking_budget, "parallel": parallel, "price": _price(price), "tags": tag or None,
    }  # fmt: skip
    if kind == "llama" and model is None and not before.get("model"):
        raise UsageError("no file is named", hint="--kind llama needs --model FILE.gguf")
    given = {key: value for key, value in given.items() if value is not None} | _unset(unset or (), before)
    try:
        _try(validate_worker(settings.paths, name, given), settings)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    update_worker(settings.paths, name, given)
    print_line(f"{'changed' if before else 'added'} {name}; check it with: conductor workers test {name}")
    listed = next(
        item for item in load_settings(os.environ, {}, context.obj.config).workers if item.worker.name == name
    )
    if listed.source != str(settings.paths.own_file):
        print_notice(f"{listed.source} names a worker {name}, too; what stands there wins")


def _own(settings: Settings, name: str) -> dict[str, Any]:
    """What the tool's own file says of a worker; nothing where it does not name it."""
    from conductor_cli.config.files import read_toml

    listed = read_toml(settings.paths.own_file).values.get("workers", {})
    return dict(listed.get(name, {}))


def _unset(names: Sequence[str], before: dict[str, Any]) -> dict[str, Any]:
    """The settings to be taken out, as a change. Raises `UsageError` for one that is not there, and for the kind."""
    for name in names:
        if name.replace("-", "_") not in before or name == "kind":
            known = ", ".join(key for key in before if key != "kind")
            raise UsageError(f"--unset {name}: it is not set", hint=f"set: {known or 'nothing'}")
    return {name.replace("-", "_"): None for name in names}


def _try(worker: Worker, settings: Settings) -> None:
    """Open a worker, which connects to nothing, and read its file. Raises `ConfigError`; a key may come later."""
    from contextlib import suppress
    from pathlib import Path

    from conductor_cli.core.errors import KeyMissing, ModelError
    from conductor_cli.models.catalog import open_model
    from conductor_cli.models.llama import read_model_info

    try:
        with suppress(KeyMissing):
            open_model(worker, environ=settings.environ)
        if worker.kind == "llama":
            read_model_info(Path(worker.model))
    except ModelError as error:
        raise ConfigError(error.message, hint=error.hint) from None


def _file(model: str) -> str:
    from pathlib import Path

    path = Path(model).expanduser()
    if not path.is_file():
        raise UsageError(f"{model!r} is no file", hint="--kind llama needs --model FILE.gguf")
    return str(path.absolute())


def _price(text: str | None) -> dict[str, str] | None:
    from decimal import Decimal, InvalidOperation

    if text is None:
        return None
    try:
        first, second = (Decimal(part) for part in text.split(","))
    except (ValueError, InvalidOperation):
        raise UsageError(f"--price {text!r:.40} is not IN,OUT", hint="for example: --price 1.25,10") from None
    if not (first.is_finite() and second.is_finite() and first >= 0 and second >= 0):
        raise UsageError(f"--price {text!r:.40} must be two amounts of 0 or more")
    return {"input": str(first), "output": str(second)}
