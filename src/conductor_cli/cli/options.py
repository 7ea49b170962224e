"""Options that several commands share, and what the options before the command hold."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from conductor_cli.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """The options that stand before the command."""

    config: str | None = None
    color: str | None = None
    debug: bool = False
    quiet: bool = False


class Color(str, Enum):
    """When to use colour."""

    auto = "auto"
    always = "always"
    never = "never"


class Mode(str, Enum):
    """How a question is planned."""

    mini = "mini"
    auto = "auto"
    ultra = "ultra"


class Format(str, Enum):
    """What goes to stdout."""

    answer = "answer"
    json = "json"
    jsonl = "jsonl"


class Progress(str, Enum):
    """What goes to stderr while a run goes on."""

    auto = "auto"
    tree = "tree"
    plain = "plain"
    none = "none"


Words = Annotated[list[str] | None, typer.Argument(metavar="[QUESTION...]", help="The question; - reads it from stdin.", show_default=False)]
Files = Annotated[list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="Attach a text file; may be repeated.")]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System text for every worker.")]
ModeOption = Annotated[Mode | None, typer.Option("--mode", help="mini: one worker; auto: up to five steps; ultra: reason first, review after.")]
WorkersOption = Annotated[str | None, typer.Option("--workers", metavar="A,B", help="Use only these workers.")]
ConductorOption = Annotated[str | None, typer.Option("--conductor", metavar="NAME|PATH|URL", help="The model that plans: a GGUF file, a URL, or provider/model.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", metavar="N", help="Most steps of the plan, 1 to 5.")]
Recursion = Annotated[int | None, typer.Option("--recursion", metavar="N", help="Reviews by the conductor itself behind the plan.")]
MaxCost = Annotated[str | None, typer.Option("--max-cost", metavar="USD", help="Most US dollars for the run.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens for the run, in and out.")]
MaxCalls = Annotated[int | None, typer.Option("--max-calls", metavar="N", help="Most worker calls for the run.")]
MaxTime = Annotated[float | None, typer.Option("--max-time", metavar="S", help="Most seconds for the run.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed for whatever is drawn.")]
GpuLayers = Annotated[str | None, typer.Option("--gpu-layers", metavar="auto|all|N", help="Layers of a local model on the GPU.")]
FormatOption = Annotated[Format, typer.Option("--format", help="What goes to stdout: the answer, one JSON object, or the events.")]
ProgressOption = Annotated[Progress | None, typer.Option("--progress", help="What goes to stderr meanwhile.")]
NoTrace = Annotated[bool, typer.Option("--no-trace", help="Store no trace of this run.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def limit_flags(
    *, steps: int | None, recursion: int | None, cost: str | None, tokens: int | None, calls: int | None, time: float | None
) -> dict[str, Any]:
    """The limits given on a command line, as settings by name."""
    return {
        "limits.steps": steps,
        "limits.recursion": recursion,
        "limits.cost": None if cost is None else _money(cost),
        "limits.tokens": tokens,
        "limits.calls": calls,
        "limits.seconds": time,
    }


def _money(text: str) -> Decimal:
    try:
        money = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        money = Decimal("NaN")
    if not money.is_finite():
        raise UsageError(f"--max-cost {text!r:.40} is no amount of US dollars", hint="for example: --max-cost 0.25")
    return money
