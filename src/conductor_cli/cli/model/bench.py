"""`conductor model bench`: how long planning takes on this machine, part by part."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConductorUnusable, ModelError, UsageError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.llama.measure import Figures

QUESTION: Final = "Which of these is larger, 9.11 or 9.9, and how would you explain it to a child of eight?"
SEED: Final = 7

PLAN: Final = 93
"""Tokens of a plan of five steps, in the native spelling and the tokens of Qwen2."""

SLOW: Final = 30.0
"""Seconds for such a plan above which a smaller model is named."""


def bench(
    context: typer.Context,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|FILE", help="Which; without one, the model that plans.")
    ] = None,
    json: opt.Json = False,
    gpu_layers: opt.GpuLayers = None,
    adapter: opt.Adapter = None,
) -> None:
    """Measure how long planning takes on this machine: loading, the remembered prompt, reading, writing."""
    from conductor_cli.cli.output import print_json, print_line, print_notice
    from conductor_cli.config import load_settings

    flags = opt.check_settings({"conductor.gpu_layers": gpu_layers, "conductor.adapter": adapter})
    named = [{**flags, **({"conductor.model": model} if model else {})} for model in models or [""]]
    each = [load_settings(os.environ, chosen, context.obj.config) for chosen in named]
    names = [_local_name(settings) for settings in each]
    found = []
    for name, chosen, settings in zip(names, named, each, strict=True):
        if not context.obj.quiet:
            print_notice(f"measuring {name} …")
        found.append(measured(settings) if len(each) == 1 else _apart(chosen, context.obj.config))
    if json:
        print_json(found)
        return
    for item in found:
        for line in lines(item):
            print_line(line)


def _local_name(settings: Settings) -> str:
    """What the chosen conductor is called. Raises `UsageError` for one that is not local."""
    from conductor_cli.app.planner_resolution import planner_manifest, resolve_planner

    planner = resolve_planner(settings)
    if planner.kind != "llama":
        raise UsageError("only local models can be measured", hint="name a model of conductor model list, or a file")
    manifest = planner_manifest(settings)
    return manifest.name if manifest else Path(planner.model).stem


def measured(settings: Settings) -> dict[str, Any]:
    """Measure the conductor that the settings name.

    What comes are the `Figures`, and beside them: `five_steps`, the seconds from the start of loading to a plan of 93
    tokens, by the measured parts and 93 tokens at the measured rate; `bytes` of the file; `resident`, the most memory
    that this process had, in bytes; `smaller`, what to use where that is slow.
    """
    import asyncio

    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.models.llama import describe

    path, name = Path(resolve_planner(settings).model), _local_name(settings)
    try:
        figures = asyncio.run(_measure(settings))
        size = describe(path).size
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    five_steps = figures.load + (figures.restore or 0) + figures.read + PLAN / figures.decode
    smaller_model = _smaller(name, settings.environ) if five_steps > SLOW else ""
    own = {"name": name, "path": str(path), "bytes": size, "resident": _resident(), "smaller": smaller_model}
    return own | {"five_steps": five_steps} | asdict(figures)


def _apart(flags: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """The same by a process of its own, so that the memory is that of one model. Raises `ConductorUnusable`."""
    import json
    import subprocess
    import sys

    from conductor_cli.config import find_setting

    environ = {find_setting(name).variable: str(value) for name, value in flags.items() if value is not None}
    command = [sys.executable, "-P", "-m", "conductor_cli", "--quiet", *(["--config", config] if config else [])]
    done = subprocess.run(  # noqa: S603 - this very program
        [*command, "model", "bench", "--json"], env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ConductorUnusable(f"{flags.get('conductor.model')} could not be measured", hint="its own words are above")
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


async def _measure(settings: Settings) -> Figures:
    from conductor_cli.app.opened_conductor import open_planner
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.core.question import Question
    from conductor_cli.models.catalog import llama_options
    from conductor_cli.models.llama.measure import measure

    opened = await open_planner(settings)
    await opened.close()  # it was not loaded: what it would be asked is all that is wanted
    planner = resolve_planner(settings)
    request = opened.conductor.asks(Question(text=QUESTION))
    return await measure(Path(planner.model), llama_options(planner), replace(request, seed=SEED, max_tokens=PLAN))


def lines(found: Mapping[str, Any]) -> Sequence[str]:
    """The figures as text."""
    restored, computed = found["restore"], found["compute"]
    remembered = "not remembered" if restored is None else f"{restored:.3f} s from disk"
    first = "" if computed is None else f", {computed:.1f} s to read the first time"
    reading = found["question"] / found["read"]
    rows = [
        ("load", f"{found['load']:.2f} s"),
        ("remembered prompt", f"{found['prefix']} tokens, {remembered}{first}"),
        ("read the question", f"{found['question']} tokens, {found['read']:.2f} s, {reading:.1f} tokens/s"),
        ("write", f"{found['decode']:.1f} tokens/s; a bare llama.cpp loop {found['raw']:.1f}"),
        ("first step", f"{found['first_step']:.1f} s after the start, in a plan of {found['written']} tokens"),
        (
            "plan",
            f"{found['plan']:.1f} s measured; {found['five_steps']:.1f} s for one of {PLAN} tokens, by these rates",
        ),
        ("repacked weights", _repacking(found["repacking"])),
        ("memory", f"{_held(found['resident'])}, with a file of {format_size(found['bytes'])}"),
    ]
    advice = [f"  a plan takes long here; a smaller model: {found['smaller']}"] if found["smaller"] else []
    return [found["name"], *(f"  {name:18} {text}" for name, text in rows), *advice]


def _held(resident: int) -> str:

    return f"{format_size(resident)} at most" if resident else "unknown"


def _repacking(gain: float | None) -> str:
    if gain is None:
        return "cannot be measured for this file"
    return f"read prompts {gain:.2f} times as fast here" if gain else "llama.cpp cannot read them on this machine"


def _smaller(name: str, environ: Mapping[str, str]) -> str:
    """The registry's next smaller model, with its licence where that is not free for all uses."""
    from conductor_cli.models.weights.registry import find_model, smaller_model

    try:
        entry = smaller_model(find_model(name, environ), environ)
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
