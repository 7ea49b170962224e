"""The test: a planner's greedy plans for fresh questions, run in the world.

    python -m training.planner.world.judge --model FILE.gguf --adapter adapter.gguf --world DIR
        --seed S --n 200 --out FILE.jsonl

Every second question is a composition of a shape that no training has; names of workers are such,
too. The file has a line for each question, right or wrong, and the same call goes on. `--plans
FILE` takes the plans of an earlier such file, in place of a planner, and `--true-steps` the true
steps. `--count LOG` gives each step to the worker that the count of a reward log chooses,
`--ratings LOG` to the one that the product's ratings of the same plans make the best, and `--rule
NAME` to that of a rule. `compare` tells the differences of two such files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import Step
from conductor_cli.core.profile import BRIEF_PROFILE
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from training.planner.examine import read_plan
from training.planner.world.cases import Case, DrawnPool, World, draw_case, open_world
from training.planner.world.count import chooser_by_ratings, read_count
from training.planner.world.groups import run_in_world
from training.planner.world.rules import RULES, ChooseWorker

Planner = Callable[[Case], tuple[Step, ...]]


def open_planner(model: Path, adapter: Path | None, threads: int) -> Planner:
    """A planner that writes its likeliest plan. Raises `ModelError`."""
    engine = LlamaEngine(model, LlamaOptions(adapter=adapter, threads=threads), CancelToken())

    def plan(case: Case) -> tuple[Step, ...]:
        reply = engine.sample(replace(case.request, temperature=0.0), CancelToken())
        return read_plan(reply.text, case.drawn.context, BRIEF_PROFILE)

    return plan


def true_steps(case: Case) -> tuple[Step, ...]:
    """The true steps of a case, all by the first worker of the pool."""
    worker = case.drawn.pool.names[0]
    return tuple(
        Step(worker=worker, subtask=operation.subtask, access=operation.access)
        for operation in case.composed.steps
    )


def open_plans(path: Path, seed: str) -> Planner:
    """The plans of an earlier file, in the order of its questions.

    Raises `ConfigError` where they are for questions of another seed.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    seeds = {line["settings"]["seed"] for line in lines}
    if seeds != {seed}:
        names = ", ".join(sorted(seeds)) or "no seed"
        problem = f"{path} has plans for questions of {names}, not of {seed}"
        raise ConfigError(problem, hint="name the seed of that file with --seed")
    plans = {line["question"]: line["plan"] for line in lines}

    def plan(case: Case) -> tuple[Step, ...]:
        if case.composed.text not in plans:
            raise ConfigError(
                f"{path} has no plan for {case.composed.text!r}", hint="judge fewer with --n"
            )
        names = {seat.kind: seat.name for seat in case.drawn.seats}
        return tuple(
            Step(
                worker=names[step["worker"]], subtask=step["subtask"], access=tuple(step["access"])
            )
            for step in plans[case.composed.text]
        )

    return plan


def with_chosen_workers(
    steps: Sequence[Step], drawn: DrawnPool, choose: ChooseWorker
) -> tuple[Step, ...]:
    """The steps, each by the worker that is chosen for its subtask."""
    names = {seat.kind: seat.name for seat in drawn.seats}
    kinds = list(names)
    return tuple(replace(step, worker=names[choose(step.subtask, kinds)]) for step in steps)


def drawn_case(world: World, seed: str, number: int) -> Case:
    """The question of a number, every second one of a held-out shape."""
    return draw_case(world, f"judged {seed} {number}", held=number % 2 == 1, unseen_names=True)


def judge(world: World, planner: Planner, seed: str, number: int) -> dict[str, Any]:
    """Whether a planner's plan for one question is right."""
    case = drawn_case(world, seed, number)
    steps = planner(case)
    outcome = run_in_world(world, case, steps)
    kinds = [kind for kind, _ in outcome.log]
    return {
        "number": number,
        "held_out": case.composed.is_held_out,
        "right": bool(outcome.reward),
        "shape": case.composed.shape,
        "question": case.composed.text,
        "wanted": case.wanted,
        "answer": outcome.answer,
        "plan": [
            {"subtask": step.subtask, "access": step.access, "worker": kind}
            for step, kind in zip(steps, kinds, strict=True)
        ],
    }


def read_lines(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of an earlier call with the same settings.

    Raises `ConfigError` where a file is that of other ones.
    """
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["settings"] != settings:
            problem = f"{path} is of {line['settings']}, and not of {settings}"
            raise ConfigError(problem, hint="name another file with --out")
    return lines


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.judge")
    parser.add_argument("--model", type=Path, help="the published GGUF file")
    parser.add_argument("--adapter", type=Path, help="an exported adapter; without it, untrained")
    parser.add_argument("--world", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--seed", required=True, help="the seed of the questions")
    parser.add_argument("--n", type=int, default=200, help="questions, half of them held out")
    parser.add_argument("--out", type=Path, required=True, help="the file of lines")
    parser.add_argument("--plans", type=Path, help="no planner: the plans of such a file")
    parser.add_argument(
        "--true-steps", action="store_true", help="no planner: the true steps, by --count or --rule"
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--count", type=Path, help="a reward log, whose count chooses the workers")
    choice.add_argument("--ratings", type=Path, help="a reward log, taken as ratings of its plans")
    choice.add_argument("--rule", choices=sorted(RULES), help="the rule that chooses the workers")
    parser.add_argument("--no-dates", action="store_true", help="no questions on days")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.true_steps and not (given.count or given.ratings or given.rule):
        parser.error("--true-steps needs --count LOG or --rule NAME, which chooses the workers")
    if not given.true_steps and given.plans is None and given.model is None:
        parser.error("a planner needs --model FILE.gguf")
    return given


def chosen_planner(given: argparse.Namespace) -> Planner:
    """The planner that the options name. Raises `ModelError` or `ConfigError`."""
    planner = _writer_of_plans(given)
    choose = _chooser_of_workers(given)
    if choose is None:
        return planner
    return lambda case: with_chosen_workers(planner(case), case.drawn, choose)


def _writer_of_plans(given: argparse.Namespace) -> Planner:
    if given.true_steps:
        return true_steps
    if given.plans is not None:
        return open_plans(given.plans, given.seed)
    return open_planner(given.model, given.adapter, given.threads)


def _chooser_of_workers(given: argparse.Namespace) -> ChooseWorker | None:
    """What chooses the workers in place of the planner, if anything does."""
    if given.count is not None:
        return read_count(given.count).choose_worker
    if given.ratings is not None:
        return chooser_by_ratings(given.ratings)
    if given.rule is not None:
        return RULES[given.rule]
    return None


def main() -> int:
    """Judge a planner on what is missing in the file, and print its share of right answers."""
    given = _read_arguments()
    settings = {
        "seed": given.seed,
        "model": str(given.model),
        "adapter": str(given.adapter),
        "plans": str(given.plans),
        "count": str(given.count),
        "ratings": str(given.ratings),
        "rule": given.rule,
        "true_steps": given.true_steps,
        "dates": not given.no_dates,
    }
    lines = read_lines(given.out, settings)
    world = open_world(given.world, dates=not given.no_dates)
    planner = chosen_planner(given)
    for number in range(len(lines), given.n):
        line = {"settings": settings, **judge(world, planner, given.seed, number)}
        lines.append(line)
        with given.out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print_shares(lines)
    return 0


def print_shares(lines: Sequence[dict[str, Any]]) -> None:
    """Print how many answers are right, of held-out shapes and of the others."""
    for held_out in (False, True):
        right = [line["right"] for line in lines if line["held_out"] == held_out]
        print(json.dumps({"held out": held_out, "questions": len(right), "right": sum(right)}))


if __name__ == "__main__":
    sys.exit(main())
