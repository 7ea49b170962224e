"""`conductor train`: a conductor of one's own learns from reward, over one's own workers and cases."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.train.readiness import Order
    from conductor_cli.train.recipe import Recipe

Cases = Annotated[
    str | None, typer.Option("--cases", metavar="basics|CASES.jsonl", help="What to practise on, as eval takes it.")
]
From = Annotated[
    str | None, typer.Option("--from", metavar="SET", help="The file is math500, mmlu, aime25 or gpqa-diamond.")
]
Base = Annotated[
    str | None, typer.Option("--base", metavar="DIR|ID", help="The base model, in Hugging Face's form; not fetched.")
]
Profile = Annotated[
    Literal["prompted", "published"] | None,
    typer.Option("--profile", help="How it is spoken to: workers by name and card, or by number alone."),
]
Low = Annotated[bool, typer.Option("--lora/--full", help="Train an adapter of low rank, or all weights.")]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Steps of training.")]
Prompts = Annotated[int | None, typer.Option("--prompts", metavar="N", min=1, help="Cases of a step.")]
Group = Annotated[int | None, typer.Option("--group", metavar="N", min=2, help="Plans sampled for each case.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Draws cases, pools and plans.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Checkpoints, answers and curve; a training goes on there.")
]
MaxCost = Annotated[
    str | None, typer.Option("--max-cost", metavar="USD", help="Stop when the workers have cost so much in all.")
]
CostWeight = Annotated[
    float | None, typer.Option("--cost-weight", metavar="W", min=0.0, help="What the dearest right plan pays; 0 none.")
]
Vllm = Annotated[
    str | None, typer.Option("--vllm", metavar="off|colocate|URL", help="What samples plans: see docs/train.md.")
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", metavar="M", min=0.0, help="End this stage then; exit 3 if more is left.")
]
Export = Annotated[bool, typer.Option("--export", help="At the end write GGUF, which conductor model use takes.")]
Merged = Annotated[bool, typer.Option("--merged", help="With --export and --lora: a whole model, not an adapter.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check model, pool, cases, memory and cost; train nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question, though it may cost money.")]

OUT: Final = Path("build/conductor")


def train(
    context: typer.Context,
    cases: Cases = None,
    form: From = None,
    base: Base = None,
    workers: opt.WorkersOption = None,
    profile: Profile = None,
    lora: Low = False,
    steps: Steps = None,
    prompts: Prompts = None,
    group: Group = None,
    seed: Seed = None,
    out: Out = None,
    max_cost: MaxCost = None,
    cost_weight: CostWeight = None,
    vllm: Vllm = None,
    minutes: Minutes = None,
    export: Export = False,
    merged: Merged = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: opt.Json = False,
) -> None:
    """Train a conductor by reward: sample plans, run them over your workers, and keep what answers well."""
    from conductor_cli.cli.train.training import Training
    from conductor_cli.config import load_settings

    if json and not dry_run:
        raise UsageError("--json is for --dry-run", hint="a training writes DIR/curve.jsonl")
    out = (out or OUT).expanduser()
    settings = load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)
    recipe = _recipe(
        base=base, profile=profile, steps=steps, prompts=prompts, group=group, seed=seed, cost_weight=cost_weight,
        vllm=_vllm(vllm), plan_steps=settings.limits.steps,
    )  # fmt: skip
    order = _order(_lora(recipe) if lora else recipe, cases, form, out)
    order = replace(
        order, workers=opt.parse_names(workers), max_cost=opt.parse_cost(max_cost), minutes=minutes,
        export=export or merged,
        merged=merged, yes=yes, quiet=context.obj.quiet,
    )  # fmt: skip
    if merged and not lora:
        raise UsageError("--merged is for --lora", hint="with --full the export is a whole model")
    training = Training(order, settings)
    raise typer.Exit(training.look(json=json) if dry_run else training.run())


def _recipe(**given: object) -> Recipe:
    """The published recipe with what a command line changes. Raises `UsageError`."""
    from conductor_cli.train.recipe import PUBLISHED

    recipe = replace(PUBLISHED, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    most = 1 - recipe.format_bonus
    if recipe.cost_weight >= most:
        said = f"--cost-weight {recipe.cost_weight:g} would make a right plan worth no more than a wrong one"
        raise UsageError(said, hint=f"take less than {most:g}")
    return replace(recipe, warmup=min(recipe.warmup, recipe.steps))


def _lora(recipe: Recipe) -> Recipe:
    from conductor_cli.train.recipe import LoraSettings

    return replace(recipe, lora=LoraSettings())


def _vllm(mode: str | None) -> str | None:
    if mode not in (None, "off", "colocate") and not mode.startswith(("http://", "https://")):
        raise UsageError(f"--vllm {mode!r:.40} is no way to sample", hint="off, colocate, or a server's address")
    return mode


def _order(recipe: Recipe, cases: str | None, form: str | None, out: Path) -> Order:
    from conductor_cli.cli.train.readiness import Order

    return Order(recipe=recipe, cases=cases or "", form=form, out=out)
