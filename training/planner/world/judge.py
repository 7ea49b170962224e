"""The test: a planner's greedy plans for fresh questions, run in the world.

    python -m training.planner.world.judge --model FILE.gguf --adapter adapter.gguf --world DIR
        --seed S --n 200 --out FILE.jsonl

Every second question is a composition of a shape that no training has; names of workers are such,
too. The file has a line for each question, right or wrong, and the same call goes on. `--count LOG`
gives each step to the worker that the count of a reward log chooses; with `--true-steps` there is
no planner, and the count does the true steps. `compare` tells the differences of two such files.
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
from training.planner.world.count import Count, read_count
from training.planner.world.groups import run_in_world

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


def with_counted_workers(steps: Sequence[Step], drawn: DrawnPool, count: Count) -> tuple[Step, ...]:
    """The steps, each by the worker that the count chooses for it."""
    names = {seat.kind: seat.name for seat in drawn.seats}
    kinds = list(names)
    return tuple(
        replace(step, worker=names[count.choose_worker(step.subtask, kinds)]) for step in steps
    )


def judge(world: World, planner: Planner, seed: str, number: int) -> dict[str, Any]:
    """Whether a planner's plan for one question is right."""
    is_held_out = number % 2 == 1
    case = draw_case(world, f"judged {seed} {number}", held=is_held_out, unseen_names=True)
    steps = planner(case)
    outcome = run_in_world(world, case, steps)
    kinds = [kind for kind, _ in outcome.log]
    return {
        "number": number,
        "held_out": is_held_out,
        "right": bool(outcome.reward),
        "shape": case.composed.shape,
        "question": case.composed.text,
        "wanted": case.wanted,
        "answer": outcome.answer,
        "steps": [[step.subtask, kind] for step, kind in zip(steps, kinds, strict=True)],
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
    parser.add_argument("--count", type=Path, help="a reward log, whose count chooses the workers")
    parser.add_argument(
        "--true-steps", action="store_true", help="no planner: the true steps, by --count"
    )
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.true_steps and given.count is None:
        parser.error("--true-steps needs --count LOG, which chooses the workers")
    if not given.true_steps and given.model is None:
        parser.error("a planner needs --model FILE.gguf")
    return given


def chosen_planner(given: argparse.Namespace) -> Planner:
    """The planner that the options name. Raises `ModelError`."""
    planner: Planner = true_steps
    if not given.true_steps:
        planner = open_planner(given.model, given.adapter, given.threads)
    if given.count is None:
        return planner
    count = read_count(given.count)
    return lambda case: with_counted_workers(planner(case), case.drawn, count)


def main() -> int:
    """Judge a planner on what is missing in the file, and print its share of right answers."""
    given = _read_arguments()
    settings = {
        "seed": given.seed,
        "model": str(given.model),
        "adapter": str(given.adapter),
        "count": str(given.count),
        "true_steps": given.true_steps,
    }
    lines = read_lines(given.out, settings)
    world = open_world(given.world)
    planner = chosen_planner(given)
    for number in range(len(lines), given.n):
        line = {"settings": settings, **judge(world, planner, given.seed, number)}
        lines.append(line)
        with given.out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    for held_out in (False, True):
        right = [line["right"] for line in lines if line["held_out"] == held_out]
        print(json.dumps({"held out": held_out, "questions": len(right), "right": sum(right)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
