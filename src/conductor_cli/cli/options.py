"""Options that several commands share, and what the options before the command hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The options that stand before the command."""

    config: str | None = None
    color: str | None = None
    debug: bool = False
    quiet: bool = False


class Color(StrEnum):
    """When to use colour."""

    auto = "auto"
    always = "always"
    never = "never"


class Mode(StrEnum):
    """How a question is planned."""

    mini = "mini"
    auto = "auto"
    ultra = "ultra"


class Format(StrEnum):
    """What goes to stdout."""

    answer = "answer"
    json = "json"
    jsonl = "jsonl"


class Progress(StrEnum):
    """What goes to stderr while a run goes on."""

    auto = "auto"
    tree = "tree"
    plain = "plain"
    none = "none"


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUESTION", help="The question; - reads it from stdin.", show_default=False),
]
Files = Annotated[
    list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="Attach a text file; may be repeated.")
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System text for every worker.")]
ModeOption = Annotated[
    Mode | None,
    typer.Option("--mode", help="mini: one worker; auto: up to five steps; ultra: reason first, review after."),
]
WorkersOption = Annotated[str | None, typer.Option("--workers", metavar="A,B", help="Use only these workers.")]
PoolOption = Annotated[
    str | None, typer.Option("--pool", metavar="NAME", help="Use only the workers of this pool; '' for all of them.")
]
ConductorOption = Annotated[
    str | None,
    typer.Option(
        "--conductor", metavar="NAME|PATH|URL", help="The model that plans: a GGUF file, a URL, or provider/model."
    ),
]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", metavar="N", help="Most steps of the plan, 1 to 5.")]
Recursion = Annotated[
    int | None, typer.Option("--recursion", metavar="N", help="Reviews by the conductor itself behind the plan.")
]
MaxCost = Annotated[str | None, typer.Option("--max-cost", metavar="USD", help="Most US dollars for the run.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens for the run, in and out.")
]
MaxCalls = Annotated[int | None, typer.Option("--max-calls", metavar="N", help="Most worker calls for the run.")]
MaxTime = Annotated[float | None, typer.Option("--max-time", metavar="S", help="Most seconds for the run.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed for whatever is drawn.")]
GpuLayers = Annotated[
    str | None, typer.Option("--gpu-layers", metavar="auto|all|N", help="Layers of a local model on the GPU.")
]
Adapter = Annotated[
    str | None, typer.Option("--adapter", metavar="FILE", help="A LoRA adapter (GGUF) laid over a local conductor.")
]
Approve = Annotated[
    bool | None,
    typer.Option(
        "--approve/--yes",
        help="Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.",
        show_default=False,
    ),
]
Flow = Annotated[bool, typer.Option("--flow", help="Show who reads what: question, files, whose answers.")]
Allow = Annotated[
    str | None, typer.Option("--allow", metavar="A,B", help="Ask only these: worker names, tag:NAME, provider:NAME.")
]
Deny = Annotated[str | None, typer.Option("--deny", metavar="A,B", help="Never ask these; named as for --allow.")]
LocalOnly = Annotated[
    bool, typer.Option("--local-only", help="Let nothing leave this machine: neither workers nor the conductor.")
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="What goes to stdout: the answer, one JSON object, or the events.")
]
ProgressOption = Annotated[Progress | None, typer.Option("--progress", help="What goes to stderr meanwhile.")]
Brief = Annotated[bool, typer.Option("--brief", help="A step that has ended is one line.")]
Rehearsal = Annotated[
    bool, typer.Option("--rehearsal", help="Use the tiny models that ship with this tool: no key, no download.")
]
NoTrace = Annotated[bool, typer.Option("--no-trace", help="Store no trace of this run.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def approval_setting(wanted: bool | None) -> dict[str, Any]:
    """`--approve` as a setting by name. `--yes` is none: it is the approval itself, whoever asks for one."""
    return {"policy.approve": wanted or None}


def policy_settings(allow: str | None, deny: str | None, local_only: bool) -> dict[str, Any]:
    """Rules given on a command line, as settings by name. They add to those of the files, and never take one away."""
    return {
        "policy.allow": None if allow is None else [name.strip() for name in allow.split(",")],
        "policy.deny": None if deny is None else [name.strip() for name in deny.split(",")],
        "policy.local_only": True if local_only else None,
    }


def limit_settings(
    *,
    steps: int | None,
    recursion: int | None,
    cost: str | None,
    tokens: int | None,
    calls: int | None,
    time: float | None,
) -> dict[str, Any]:
    """The limits given on a command line, as settings by name."""
    return {
        "limits.steps": steps,
        "limits.recursion": recursion,
        "limits.cost": _money(cost) if cost is not None else None,
        "limits.tokens": tokens,
        "limits.calls": calls,
        "limits.seconds": time,
    }


FLAGS: Final = {
    "limits.steps": "--max-steps",
    "limits.recursion": "--recursion",
    "limits.cost": "--max-cost",
    "limits.tokens": "--max-tokens",
    "limits.calls": "--max-calls",
    "limits.seconds": "--max-time",
    "conductor.gpu_layers": "--gpu-layers",
    "policy.allow": "--allow",
    "policy.deny": "--deny",
}
"""The flag that sets a setting, for messages."""


def check_settings(settings: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Settings by name, from flags or from the file `source`, those that are None left out. Raises `UsageError`."""
    from conductor_cli.config import find_setting

    values = {}
    for name, value in settings.items():
        if value is None:
            continue
        try:
            values[name] = find_setting(name).check(value)
        except ConfigError as error:
            said = error.message if source else error.message.replace(name, FLAGS.get(name, name), 1)
            raise UsageError(f"{source}: {said}" if source else said, hint=error.hint) from None
    return values


def parse_names(text: str | None) -> tuple[str, ...]:
    """The names in `--workers A,B`; none where the flag is not given. Raises `UsageError` for a flag without a name."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise UsageError("--workers names no worker", hint="for example: --workers A,B")
    return names


def choose_workers(pool: Pool, names: Sequence[str]) -> Pool:
    """The workers that a command line names. Raises `UsageError` for an unknown one."""
    try:
        return pool.subset(names)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _money(text: str) -> Decimal:
    try:
        money = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        money = Decimal("NaN")
    if not money.is_finite():
        raise UsageError(f"--max-cost {text!r:.40} is no amount of US dollars", hint="for example: --max-cost 0.25")
    return money
