"""`conductor train`: train a planner by reinforcement learning, on the user's workers and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from conductor_cli.app.check_results import CheckResult, first_code
from conductor_cli.app.training import Training, TrainingRequest
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import confirm_cost
from conductor_cli.cli.output import print_check, print_json, print_line, print_notice
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.train.job import is_first
from conductor_cli.train.recipe import DEFAULT_RECIPE, LoraSettings, Recipe

TUNED: Final[dict[str, tuple[Any, str]]] = {
    "group": (2, "plans sampled for each case"),
    "draws": (1, "runs of each plan"),
    "tries": (1, "times that a group is drawn until its rewards differ"),
    "rate": (0.0, "highest learning rate"),
    "kl": (0.0, "weight of the distance from the model at the start"),
    "reward": ("", "your own reward, FILE.py:FUNCTION"),
    "max_plan_tokens": (8, "most tokens of a plan"),
    "max_workers": (2, "most workers that are offered for a case"),
    "validation": (0, "most cases that are held out for validation"),
    "checkpoint_every": (1, "steps from one checkpoint and validation to the next"),
    "concurrency": (1, "runs of plans that are active at once"),
    "vllm": (False, "sample the plans with vLLM"),
    "vllm_memory": (0.05, "share of the GPU's memory for vLLM"),
}
"""What `--set` changes in the recipe: the least value, of the type that it takes, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of `conductor train`."""

    cases: Annotated[
        str | None,
        opt.option("--cases", "The cases to train on, as for eval.", "basics|SUITE|CASES.jsonl"),
    ] = None
    case_file: Annotated[
        str | None,
        opt.option(
            "--from", "The file of the published suite that --cases names, as for eval.", "FILE"
        ),
    ] = None
    validation: Annotated[
        str | None,
        opt.option(
            "--validation", "Cases to choose the best checkpoint by; else a fifth.", "CASES.jsonl"
        ),
    ] = None
    base: Annotated[
        str | None,
        opt.option(
            "--base",
            "The base model, a GGUF file or in Hugging Face format; never downloaded.",
            "FILE|DIR|ID",
        ),
    ] = None
    workers: opt.WorkersOption = None
    profile: Annotated[
        Literal["prompted", "brief", "kinds", "published"] | None,
        opt.option(
            "--profile",
            "The prompt format: prompted has examples, brief has none, kinds names kinds of work, "
            "and published numbers the workers.",
            "NAME",
        ),
    ] = None
    lora: Annotated[
        bool, opt.option("--lora", "Train a low-rank adapter instead of all weights.")
    ] = False
    steps: Annotated[
        int | None,
        opt.option("--steps", "Number of training steps.", "N", min=1),
    ] = None
    prompts: Annotated[
        int | None,
        opt.option("--prompts", "Cases in each step.", "N", min=1),
    ] = None
    seed: Annotated[
        int | None, opt.option("--seed", "Random seed for cases, pools and plans.", "N", min=0)
    ] = None
    out: Annotated[
        Path | None,
        opt.option("--out", "Directory of the training; run again to resume there.", "DIR"),
    ] = None
    max_cost: Annotated[
        str | None,
        opt.option("--max-cost", "Stop when the workers have cost this much in total.", "USD"),
    ] = None
    minutes: Annotated[
        float | None,
        opt.option("--minutes", "Stop after this time; exit code 3 if not done.", "M", min=0.0),
    ] = None
    recipe: Annotated[
        list[str] | None,
        opt.option(
            "--set", f"Change the recipe: {', '.join(TUNED)}; may be repeated.", "KEY=VALUE"
        ),
    ] = None
    export: Annotated[
        bool, opt.option("--export", "With --lora: write the adapter as a GGUF file at the end.")
    ] = False
    dry_run: Annotated[
        bool, opt.option("--dry-run", "Check model, workers, cases, memory and cost; do not train.")
    ] = False
    yes: opt.YesToCost = False
    json: opt.Json = False


@opt.with_options()
def train_command(context: typer.Context, options: TrainOptions) -> None:
    """Train a planner by reinforcement learning.

    Sample plans, run them on your workers, and reward good answers.
    """
    if options.json and not options.dry_run:
        raise UsageError(
            "--json needs --dry-run", hint="a training writes its metrics to DIR/curve.jsonl"
        )
    if options.export and not options.lora:
        hint = "convert a fully trained checkpoint with llama.cpp's convert_hf_to_gguf.py"
        raise UsageError("--export needs --lora", hint=hint)
    settings = opt.stored_settings(context)
    request = _training_request(options, settings.limits.steps or MAX_STEPS)
    with Training(request, settings) as training:
        checks = training.check()
        if options.dry_run:
            raise typer.Exit(_print_checks(checks, json=options.json))
        if training.error is not None:
            raise training.error
        with training.lock():
            _train(training, yes=options.yes, quiet=context.obj.quiet)


def _training_request(options: TrainOptions, max_plan_steps: int) -> TrainingRequest:
    """Return what is trained, and on what. Raises `UsageError`."""
    return TrainingRequest(
        recipe=_changed_recipe(_recipe_changes(options, max_plan_steps), lora=options.lora),
        cases=options.cases or "",
        case_file=options.case_file,
        directory=(options.out or Path("build/conductor")).expanduser(),
        validation=options.validation or "",
        workers=opt.parse_names(options.workers),
        max_cost=opt.parse_cost(options.max_cost),
        minutes=options.minutes,
        export=options.export,
    )


def _recipe_changes(options: TrainOptions, max_plan_steps: int) -> dict[str, Any]:
    """Return the values of the recipe that the options change, by name. Raises `UsageError`."""
    given = {
        "base": options.base,
        "profile": options.profile,
        "steps": options.steps,
        "prompts": options.prompts,
        "seed": options.seed,
    }
    changes: dict[str, Any] = {"max_plan_steps": max_plan_steps}
    for name, value in given.items():
        if value is not None:
            changes[name] = value
    return changes | _read_recipe_assignments(options.recipe)


def _changed_recipe(changes: Mapping[str, Any], *, lora: bool) -> Recipe:
    """Return the recipe with these changes; with `lora` the learning rate is that of an adapter."""
    adapter = None
    if lora:
        adapter = LoraSettings()
        if "rate" in changes:
            adapter = LoraSettings(rate=changes["rate"])
        changes = {name: value for name, value in changes.items() if name != "rate"}
    recipe = replace(DEFAULT_RECIPE, **changes)
    if adapter is not None:
        recipe = replace(recipe, lora=adapter)
    return replace(recipe, warmup=min(recipe.warmup, recipe.steps))


def _print_checks(checks: Sequence[CheckResult], *, json: bool) -> int:
    """Print what a dry run has found, and return the exit code: that of the first fault."""
    code = first_code(checks)
    if json:
        results = [check.to_json() for check in checks]
        print_json({"ok": code == 0, "checks": results})
    else:
        for check in checks:
            print_check(check)
    return code


def _train(training: Training, *, yes: bool, quiet: bool) -> None:
    """Train, once the user agrees. Exits with another code than 0 if not all steps are done."""
    if is_first() and training.steps_left:
        lines = [f"time: {training.describe_time()}", f"cost: {training.check_cost()}"]
        if not training.is_free and not confirm_cost(lines, "the training", yes=yes, quiet=quiet):
            print_notice("nothing was trained")
            return
        if training.is_free and not quiet:
            for line in lines:
                print_notice(line)
    try:
        complete = training.run(print_line)
    except KeyboardInterrupt:
        print_notice("stopped; run the same command again to resume: no answer is asked for twice")
        raise typer.Exit(130) from None
    if not complete:
        print_line("the time is up; run the same command again to continue")
        raise typer.Exit(3)  # as `--minutes` says
    if not is_first():
        return
    for line in training.summary():
        print_line(line)
    if training.request.export:
        path = training.export()
        profile = training.request.recipe.profile
        print_line(f"exported: {path}")
        print_line(f"to plan with it: conductor model import {path} --base NAME|FILE")
        if profile != DEFAULT_RECIPE.profile:
            print_line(f"                 conductor config set planner.profile {profile}")


def _read_recipe_assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """Return what `--set` changes in the recipe. Raises `UsageError`."""
    changes = opt.parse_assignments(texts)
    for name, value in changes.items():
        if name not in TUNED:
            raise UsageError(f"--set knows no {name!r:.40}", hint=f"known: {', '.join(TUNED)}")
        least, about = TUNED[name]
        types = (int, float) if isinstance(least, float) else (type(least),)
        if type(value) not in types or value < least:
            expected = f"a number, at least {least}"
            if isinstance(least, bool):
                expected = "true or false"
            elif isinstance(least, str):
                expected = "a text"
            raise UsageError(f"{name} ({about}) takes {expected}, not {value!s:.40}")
    return changes
