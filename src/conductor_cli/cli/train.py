"""`conductor train`: train a conductor by reinforcement learning, over the user's own workers and cases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from conductor_cli.app.doctor import Check
from conductor_cli.app.training import Training, TrainingRequest
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice
from conductor_cli.cli.terminal_input import confirm_cost
from conductor_cli.config import load_settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.train.job import is_first
from conductor_cli.train.recipe import PUBLISHED, LoraSettings, Recipe

INCOMPLETE: Final = 3
"""The exit code if --minutes ended before all steps were done."""

INTERRUPTED: Final = 130

Cases = Annotated[
    str | None, typer.Option("--cases", metavar="basics|SUITE|CASES.jsonl", help="The cases to train on, as for eval.")
]
Validation = Annotated[
    str | None,
    typer.Option("--validation", metavar="CASES.jsonl", help="Cases to choose the best checkpoint by; else a fifth."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="The file of the published suite that --cases names, as for eval."),
]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="DIR|ID", help="The base model, in Hugging Face format; never downloaded."),
]
Profile = Annotated[
    Literal["prompted", "brief", "published"] | None,
    typer.Option("--profile", help="The prompt format: with examples, without, or workers by number only."),
]
UseLora = Annotated[bool, typer.Option("--lora/--full", help="Train a low-rank adapter, or all weights.")]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Number of training steps.")]
Prompts = Annotated[int | None, typer.Option("--prompts", metavar="N", min=1, help="Cases in each step.")]
Group = Annotated[int | None, typer.Option("--group", metavar="N", min=2, help="Plans sampled for each case.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", metavar="R", min=0.0, help="Highest learning rate; the default is the recipe's."),
]
PlanTokens = Annotated[int | None, typer.Option("--plan-tokens", metavar="N", min=8, help="Most tokens of a plan.")]
Offer = Annotated[
    int | None, typer.Option("--offer", metavar="N", min=2, help="Most workers that are offered for a case.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Random seed for cases, pools and plans.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory of the training; run again to resume there.")
]
MaxCost = Annotated[
    str | None, typer.Option("--max-cost", metavar="USD", help="Stop when the workers have cost this much in total.")
]
CostWeight = Annotated[
    float | None,
    typer.Option(
        "--cost-weight", metavar="W", min=0.0, help="Reward penalty for the most expensive correct plan; 0 disables it."
    ),
]
Vllm = Annotated[bool, typer.Option("--vllm", help="Sample the plans with vLLM, on the GPU that trains.")]
Minutes = Annotated[
    float | None, typer.Option("--minutes", metavar="M", min=0.0, help="Stop after this time; exit code 3 if not done.")
]
Export = Annotated[bool, typer.Option("--export", help="With --lora: write the adapter as a GGUF file at the end.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check model, workers, cases, memory and cost; do not train.")]

OUT: Final = Path("build/conductor")


def train(
    context: typer.Context,
    cases: Cases = None,
    case_file: From = None,
    validation: Validation = None,
    base: Base = None,
    workers: opt.WorkersOption = None,
    profile: Profile = None,
    lora: UseLora = False,
    steps: Steps = None,
    prompts: Prompts = None,
    group: Group = None,
    rate: Rate = None,
    plan_tokens: PlanTokens = None,
    offer: Offer = None,
    seed: Seed = None,
    out: Out = None,
    max_cost: MaxCost = None,
    cost_weight: CostWeight = None,
    vllm: Vllm = False,
    minutes: Minutes = None,
    export: Export = False,
    dry_run: DryRun = False,
    yes: opt.YesToCost = False,
    json: opt.Json = False,
) -> None:
    """Train a conductor by reinforcement learning: sample plans, run them on your workers, and reward good answers."""
    if json and not dry_run:
        raise UsageError("--json needs --dry-run", hint="a training writes its metrics to DIR/curve.jsonl")
    if export and not lora:
        raise UsageError(
            "--export needs --lora", hint="convert a fully trained checkpoint with llama.cpp's convert_hf_to_gguf.py"
        )
    settings = load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)
    recipe = _build_recipe(
        base=base, profile=profile, steps=steps, prompts=prompts, group=group, seed=seed, cost_weight=cost_weight,
        vllm=vllm, max_plan_steps=settings.limits.steps or MAX_STEPS, max_plan_tokens=plan_tokens, max_workers=offer,
        **_learning_rate(rate, lora=lora),
    )  # fmt: skip
    request = TrainingRequest(
        recipe=recipe, cases=cases or "", case_file=case_file, directory=(out or OUT).expanduser(),
        validation=validation or "", workers=opt.parse_names(workers), max_cost=opt.parse_cost(max_cost),
        minutes=minutes, export=export,
    )  # fmt: skip
    with Training(request, settings) as training:
        checks = training.check()
        if dry_run:
            _print_checks(checks, json=json)
            raise typer.Exit(next((check.code for check in checks if check.code), 0))
        if training.error is not None:
            raise training.error
        with training.lock():
            _train(training, yes=yes, quiet=context.obj.quiet)


def _train(training: Training, *, yes: bool, quiet: bool) -> None:
    """Train, once the user agrees. Exits with another code than 0 if not all steps are done."""
    if not _confirm(training, yes=yes, quiet=quiet):
        print_notice("nothing was trained")
        return
    try:
        complete = training.run(print_line)
    except KeyboardInterrupt:
        print_notice("stopped; run the same command again to resume: no answer is asked for twice")
        raise typer.Exit(INTERRUPTED) from None
    if not complete:
        print_line("the time is up; run the same command again to continue")
        raise typer.Exit(INCOMPLETE)
    if is_first():
        _finish(training)


def _build_recipe(**changes: object) -> Recipe:
    """The published recipe with the options of the command line. Raises `UsageError`."""
    recipe = replace(PUBLISHED, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
    highest = 1 - recipe.format_bonus
    if recipe.cost_weight >= highest:
        raise UsageError(
            f"with --cost-weight {recipe.cost_weight:g}, a correct plan could earn no more than a wrong one",
            hint=f"use less than {highest:g}",
        )
    return replace(recipe, warmup=min(recipe.warmup, recipe.steps))


def _learning_rate(rate: float | None, *, lora: bool) -> dict[str, object]:
    """The settings of the recipe that have the rate: an adapter has one of its own."""
    if lora:
        return {"lora": LoraSettings() if rate is None else LoraSettings(rate=rate)}
    return {"rate": rate}


def _confirm(training: Training, *, yes: bool, quiet: bool) -> bool:
    """Whether the user agrees to what the training may cost."""
    if not is_first() or not training.forecast.steps:
        return True
    lines = training.forecast_lines()
    if not training.is_free:
        return confirm_cost(lines, "the training", yes=yes, quiet=quiet)
    for line in [] if quiet else lines:
        print_notice(line)
    return True


def _print_checks(checks: Sequence[Check], *, json: bool) -> None:
    if json:
        print_json({"ok": not any(check.code for check in checks), "checks": [check.data() for check in checks]})
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        print_line(f"{check.state:8} {check.name:{width}}  {check.found}")
        if check.hint:
            print_line(f"{'':8} {'':{width}}  {check.hint}")


def _finish(training: Training) -> None:
    """Export the result if that is wanted, and say how to use it."""
    request = training.request
    print_line(f"all steps are done: {training.result()}")
    for line in training.summary():
        print_line(line)
    if not request.export:
        return
    path = training.export()
    print_line(f"exported: {path}")
    print_line(f"to plan with it: conductor model import {path} --base NAME|FILE")
    if request.recipe.profile != PUBLISHED.profile:
        print_line(f"                 conductor config set conductor.profile {request.recipe.profile}")
