"""`conductor model bench`: how long planning takes on this machine, part by part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConductorUnusable, ModelError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.llama.measure import Figures

QUESTION: Final = "Which of these is larger, 9.11 or 9.9, and how would you explain it to a child of eight?"
SEED: Final = 7

PLAN: Final = 93
"""Tokens of a plan of five steps, in the native spelling and the tokens of Qwen2."""

SLOW: Final = 30.0
"""Seconds for such a plan above which a smaller model is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One model's figures.

    `five_steps` are the seconds from the start of loading to a plan of 93 tokens: the measured parts, and 93 tokens at
    the measured rate. Sizes are in bytes.
    """

    name: str
    path: str
    bytes: int
    resident: int
    figures: Figures
    five_steps: float
    smaller: str

    def data(self) -> dict[str, Any]:
        return {**{key: value for key, value in asdict(self).items() if key != "figures"}, **asdict(self.figures)}


def bench(
    context: typer.Context,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|FILE]...", help="Which; without one, the model that plans.")
    ] = None,
    json: opt.Json = False,
    gpu_layers: opt.GpuLayers = None,
    adapter: opt.Adapter = None,
) -> None:
    """Measure how long planning takes on this machine: loading, the remembered prompt, reading, writing."""
    from conductor_cli.cli.output import remark, say, say_json
    from conductor_cli.config import load

    flags = opt.checked({"conductor.gpu_layers": gpu_layers, "conductor.adapter": adapter})
    found = []
    for model in models or [""]:
        settings = load(os.environ, {**flags, **({"conductor.model": model} if model else {})}, context.obj.config)
        if not context.obj.quiet:
            remark(f"measuring {model or settings['conductor.model'] or 'the default model'} …")
        found.append(measured(settings))
    if json:
        say_json([item.data() for item in found])
        return
    for item in found:
        for line in lines(item):
            say(line)


def measured(settings: Settings) -> Bench:
    """Measure the conductor that the settings name. Raises `UsageError` for one that is not local."""
    import asyncio

    from conductor_cli.cli.choosing import planner_of, receipt_of
    from conductor_cli.models.llama import describe

    planner = planner_of(settings)
    if planner.kind != "llama":
        raise UsageError("only local models can be measured", hint="name a model of conductor model list, or a file")
    path = Path(planner.model)
    try:
        figures = asyncio.run(_measure(settings))
        size = describe(path).size
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    receipt = receipt_of(settings)
    five_steps = figures.load + (figures.restore or 0) + figures.read + PLAN / figures.decode
    name = receipt.name if receipt else path.stem
    return Bench(
        name=name, path=str(path), bytes=size, resident=_resident(), figures=figures, five_steps=five_steps,
        smaller=_smaller(name) if five_steps > SLOW else "",
    )  # fmt: skip


async def _measure(settings: Settings) -> Figures:
    from conductor_cli.cli.choosing import planner_of
    from conductor_cli.cli.opening import open_planner
    from conductor_cli.core.question import Question
    from conductor_cli.models.catalog import llama_options
    from conductor_cli.models.llama.measure import measure

    opened = await open_planner(settings)
    await opened.close()  # it was not loaded: what it would be asked is all that is wanted
    planner = planner_of(settings)
    request = opened.conductor.asks(Question(text=QUESTION))
    return await measure(Path(planner.model), llama_options(planner), replace(request, seed=SEED, max_tokens=PLAN))


def lines(item: Bench) -> Sequence[str]:
    """The figures as text."""
    from conductor_cli.cli.amounts import size_text

    found = item.figures
    remembered = "not remembered" if found.restore is None else f"{found.restore:.3f} s from disk"
    computed = "" if found.compute is None else f", {found.compute:.1f} s to read the first time"
    reading = found.question / found.read
    rows = [
        ("load", f"{found.load:.2f} s"),
        ("remembered prompt", f"{found.prefix} tokens, {remembered}{computed}"),
        ("read the question", f"{found.question} tokens, {found.read:.2f} s, {reading:.1f} tokens/s"),
        ("write", f"{found.decode:.1f} tokens/s; a bare llama.cpp loop {found.raw:.1f}"),
        ("first step", f"{found.first_step:.1f} s after the start, measured on a plan of {found.written} tokens"),
        ("plan", f"{found.plan:.1f} s measured; {item.five_steps:.1f} s for one of {PLAN} tokens, by these rates"),
        ("repacked weights", _repacking(found.repacking)),
        ("memory", f"{size_text(item.resident)} at most, with a file of {size_text(item.bytes)}"),
    ]
    head = [item.name]
    advice = [f"  a plan takes long here; a smaller model: {item.smaller}"] if item.smaller else []
    return [*head, *(f"  {name:18} {text}" for name, text in rows), *advice]


def _repacking(gain: float | None) -> str:
    if gain is None:
        return "cannot be measured for this file"
    return f"read prompts {gain:.2f} times as fast here" if gain else "llama.cpp dies of them here"


def _smaller(name: str) -> str:
    """The registry's next smaller model, with its licence where that is not free for all uses."""
    from conductor_cli.models.weights.registry import find, smaller

    try:
        entry = smaller(find(name))
    except ConductorUnusable:
        return "see conductor model list"
    if entry is None:
        return "none is known"
    licence = "" if entry.licence == "Apache-2.0" else f" (licence: {entry.licence})"
    return f"conductor model pull {entry.name}{licence}"


def _resident() -> int:
    """The most memory that this process has had, in bytes; 0 where the system does not say."""
    import sys

    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
