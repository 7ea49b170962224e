"""The examination on short requests, over workers whose names are in no lesson.

    python -m training.planner.examine_requests --model FILE.gguf --adapter adapter.gguf
        --out FILE.jsonl

Where a way to ask has six sentences or more, the request uses one that no lesson has; otherwise it
uses a sentence of the lessons about other things. Each request is asked over a pool of its
own, of two to five workers, with and without figures. Two things are counted for each way to ask:
whether the plan has several steps where the request wants them, and one where it does not; and
whether as many people do it as it names. The same call goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.plan import PlanRules
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from training.planner.examine import read_plan
from training.planner.lessons import plan_for
from training.planner.pools import draw_pool
from training.planner.requests import JOINS, draw_request

SIZES: Final = (2, 3, 4, 5)


def examine(engine: LlamaEngine, seed: int, number: int) -> dict[str, Any]:
    """Plan one request, and return what came of it beside what the lessons' rule plans."""
    random = Random(f"requests {seed} {number}")
    task = draw_request(random, held=True)
    pool = draw_pool(random, skills=[task.skill], held=True, size=random.choice(SIZES))
    rules = PlanRules(workers=pool.names)
    context = plan_format_context(KINDS_PROFILE, pool, rules, "auto", constrained=True)
    request = planner_request(task.question, pool, KINDS_PROFILE, context)
    text = "".join(chunk.text for chunk in engine.generate(request, CancelToken()))
    wanted = {step.worker for step, _ in plan_for(task, context)}
    planned = {step.worker for step in read_plan(text, context, KINDS_PROFILE)}
    return {
        "number": number,
        "way": task.kind.removeprefix("request "),
        "request": task.question.text,
        "workers": len(pool),
        "text": text,
        "several": len(text.splitlines()) > 1,
        "several wanted": bool(task.steps),
        "people": len(planned),
        "people wanted": len(wanted),
    }


def figures(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How many plans have the steps, and how many the people that their requests want."""
    steps = sum(line["several"] == line["several wanted"] for line in lines)
    people = sum(line["people"] >= line["people wanted"] for line in lines)
    return {"steps": f"{steps} of {len(lines)}", "people": f"{people} of {len(lines)}"}


def main() -> int:
    """Examine an adapter on requests, and print the figures of each way to ask, and of all."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.examine_requests")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=120)
    given = parser.parse_args()
    lines = []
    if given.out.exists():
        lines = [json.loads(line) for line in given.out.read_text().splitlines()]
    engine = LlamaEngine(given.model, LlamaOptions(adapter=given.adapter, threads=1), CancelToken())
    for number in range(len(lines), given.n):
        line = examine(engine, given.seed, number)
        lines.append(line)
        with given.out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    for way in JOINS:
        print(json.dumps({"way": way, **figures([line for line in lines if line["way"] == way])}))
    print(json.dumps({"way": "all", **figures(lines)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
