"""The examination.

An adapter in llama.cpp, on the published file and under the grammar, as `conductor ask` plans.

    python -m training.planner.examine --model FILE.gguf --adapter adapter.gguf --out DIR

It asks the sixty questions of questions.py over pools of one, three and eight workers with names
that no lesson has, and over the pool of three in reverse. `DIR/plans.jsonl` has each plan; the same
call goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.errors import PlanError
from conductor_cli.core.events import Mode
from conductor_cli.core.kinds_of_work import row_for
from conductor_cli.core.plan import MAX_STEPS, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.plan_formats.base import ParsedStep, PlanFormatContext
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import PROFILES, Profile
from conductor_cli.core.prompts import copies_example, plan_format_context, planner_request
from conductor_cli.core.question import question_text
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.weights.verify import hash_file
from training.planner.pools import choose, draw_pool
from training.planner.questions import QUESTIONS, Examined, read_questions

SIZES: Final = (1, 3, 8)
CHECKING: Final = (
    "check",
    "review",
    "verify",
    "compare",
    "proofread",
    "test",
    "fault",
    "weak",
    "wrong",
    "against",
)
"""Words of a subtask that judges another step, which another worker than the best may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A question over a pool, and the plan that was written; no steps if it was none."""

    examined: Examined
    pool: Pool
    context: PlanFormatContext
    text: str
    steps: tuple[Step, ...]
    profile: Profile


def pools(seed: int) -> dict[str, Pool]:
    """The pools of an examination by name: of each size, and the middle one in reverse."""
    drawn = {f"{size}": _measured_pool(seed, size) for size in SIZES}
    middle = drawn["3"]
    return {**drawn, "3 reversed": Pool(workers=tuple(reversed(middle.workers)))}


def _measured_pool(seed: int, size: int) -> Pool:
    """A pool with figures for at least three skills, and unseen names."""
    for number in range(1000):
        pool = draw_pool(Random(f"examined {seed} {size} {number}"), held=True, size=size)
        if all(len(worker.card.strengths) >= 3 for worker in pool):
            return pool
    raise AssertionError("no pool has figures")


def read_plan(text: str, context: PlanFormatContext, profile: Profile) -> tuple[Step, ...]:
    """The steps of a plan, as a run reads them; none if a run would refuse it."""
    name = "native" if context.single else profile.plan_format
    parser = PLAN_FORMATS[name].parser(context)
    try:
        parsed = [*parser.feed(text), *parser.end()]
    except PlanError:
        return ()
    return tuple(step.step for step in parsed if isinstance(step, ParsedStep))


def plan_all(
    engine: LlamaEngine,
    profile: Profile,
    seed: int,
    chosen: Sequence[str],
    out: Path,
    *,
    questions: Sequence[Examined] = QUESTIONS,
    every: int = 1,
    mode: Mode = "auto",
    steps: int = MAX_STEPS,
) -> Iterator[Planned]:
    """Each of the questions over each pool, planned or read from the file of an earlier call.

    With `every` above 1, only so many-th questions are asked. A plan has at most so many `steps`.
    """
    path = out / "plans.jsonl"
    lines: Iterable[Any] = ()
    if path.exists():
        lines = map(json.loads, path.read_text().splitlines())
    replies: dict[tuple[str, int], str] = {
        (line["pool"], line["number"]): line["text"] for line in lines
    }
    for name, pool in pools(seed).items():
        if name not in chosen:
            continue
        context = plan_format_context(
            profile, pool, PlanRules(workers=pool.names, steps=steps), mode, constrained=True
        )
        for number, examined in list(enumerate(questions))[::every]:
            text = replies.get((name, number))
            if text is None:
                request = planner_request(examined.question, pool, profile, context)
                text = "".join(chunk.text for chunk in engine.generate(request, CancelToken()))
                line = {
                    "pool": name,
                    "number": number,
                    "question": examined.question.text,
                    "text": text,
                }
                with path.open("a") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            yield Planned(
                examined=examined,
                pool=pool,
                context=context,
                text=text,
                steps=read_plan(text, context, profile),
                profile=profile,
            )


# Figures


def unread(steps: Sequence[Step]) -> int:
    """How many steps the answer depends on neither directly nor through others."""
    needed = {len(steps)}
    waiting = [len(steps)]
    while waiting:
        for number in steps[waiting.pop() - 1].access:
            if number not in needed:
                needed.add(number)
                waiting.append(number)
    return len(steps) - len(needed)


def by_card(planned: Planned) -> list[bool]:
    """For each step that names a row of the table, whether its worker is the best there.

    A step that judges another one may have the best worker but the author of that. A closing line
    that was joined with the step before it has no step, and names the same worker.
    """
    results = list[bool]()
    for line, step in zip(planned.text.splitlines(), planned.steps, strict=False):
        tag = line.rpartition(planned.context.bar)[2].rpartition(" ")[0]
        if not tag:
            continue
        row = row_for(tag, planned.pool.workers)
        best = row[0].name == step.worker
        authors = {planned.steps[number - 1].worker for number in step.access}
        judges = any(word in step.subtask.lower() for word in CHECKING)
        others = [worker.name for worker in row if worker.name not in authors]
        results.append(best or (judges and others[:1] == [step.worker]))
    return results


def figures(plans: Sequence[Planned]) -> dict[str, Any]:
    """The counts of the bounds that the planner has to keep, over some plans."""
    several = [planned for planned in plans if len(planned.steps) > 1]
    cards = list(chain.from_iterable(map(by_card, plans)))
    kinds = {
        kind: [planned for planned in plans if planned.examined.kind == kind]
        for kind in ("easy", "odd")
    }
    # A pool of one leaves nothing to choose, and several steps of one worker are none to share out
    wanted = [planned for planned in plans if planned.examined.several and len(planned.pool) > 1]
    first = [planned for planned in plans if planned.steps and len(planned.pool) > 1]
    expected = [
        planned.steps[0].worker == best_for_skill(planned.examined.skill, planned.pool)
        for planned in first
    ]
    seen = [len(planned.text) for planned in plans]
    return {
        "plans": len(plans),
        "valid": sum(bool(planned.steps) for planned in plans),
        "easy in one step": _share(len(planned.steps) == 1 for planned in kinds["easy"]),
        "odd in one step": _share(len(planned.steps) == 1 for planned in kinds["odd"]),
        "several steps where they help": _share(len(planned.steps) > 1 for planned in wanted),
        "mean steps": round(sum(len(planned.steps) for planned in plans) / max(1, len(plans)), 2),
        "first worker has label A": _share(
            planned.steps[0].worker == next(iter(planned.context.labels.values()))
            for planned in first
        ),
        "first worker is the best for the skill": _share(iter(expected)),
        "steps by the best card of their word": _share(iter(cards)),
        "plans with an unread step": _share(unread(planned.steps) > 0 for planned in several),
        "subtasks from the examples": sum(map(copies, plans)),
        "a subtask twice": sum(len({s.subtask for s in p.steps}) < len(p.steps) for p in several),
        "mean characters": round(sum(seen) / max(1, len(seen))),
    }


def best_for_skill(skill: str, pool: Pool) -> str:
    """The worker that the lessons' rule chooses by the table, whatever a planner is shown."""
    rules = PlanRules(workers=pool.names)
    context = plan_format_context(PROFILES["kinds"], pool, rules, "auto", constrained=True)
    return choose(skill, context).worker


def copies(planned: Planned) -> int:
    """How many subtasks are copied from the examples of the prompt, which a run refuses."""
    question = question_text(planned.examined.question)
    return sum(copies_example(step.subtask, question, planned.profile) for step in planned.steps)


def _share(right: Iterator[bool] | Any) -> str:
    values = list(right)
    return f"{sum(values)} of {len(values)}"


def same_worker(plans: Sequence[Planned], reverse: Sequence[Planned]) -> str:
    """How often the first worker is the same one in both orders of a pool."""
    pairs = zip(plans, reverse, strict=True)
    return _share(
        bool(one.steps and two.steps) and one.steps[0].worker == two.steps[0].worker
        for one, two in pairs
    )


def main() -> int:
    """Examine an adapter, and print the figures for each pool and over all."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.examine")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--profile", choices=tuple(PROFILES), default="kinds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--questions", type=Path, help="others than those of questions.jsonl")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    parser.add_argument("--mode", choices=("auto", "mini", "ultra"), default="auto")
    parser.add_argument("--steps", type=int, default=MAX_STEPS, help="the most steps of a plan")
    parser.add_argument("--pools", nargs="+", default=[*map(str, SIZES), "3 reversed"])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    engine = LlamaEngine(given.model, LlamaOptions(adapter=given.adapter, threads=1), CancelToken())
    plans = dict[str, list[Planned]]()
    questions = read_questions(given.questions) if given.questions else QUESTIONS
    count = len(questions[:: given.every])
    chosen = [name for name in pools(given.seed) if name in given.pools]
    names = chain.from_iterable(repeat(name, count) for name in chosen)
    all_planned = plan_all(
        engine,
        PROFILES[given.profile],
        given.seed,
        given.pools,
        given.out,
        questions=questions,
        every=given.every,
        mode=given.mode,
        steps=given.steps,
    )
    for name, planned in zip(names, all_planned, strict=True):
        plans.setdefault(name, []).append(planned)
        if len(plans[name]) == count:
            print(json.dumps({"pool": name, **figures(plans[name])}), flush=True)
    counted: list[Planned] = []
    for name, of_pool in plans.items():
        if name != "3 reversed":
            counted += of_pool
    together = figures(counted)
    if {"3", "3 reversed"} <= plans.keys():
        together["same worker in both orders"] = same_worker(plans["3"], plans["3 reversed"])
    print(json.dumps({"pool": "all", **together}), flush=True)
    # Which files these figures are of: `ship` publishes them of no other.
    together["examined"] = datetime.now(UTC).date().isoformat()
    together["model_sha256"] = hash_file(given.model)
    if given.adapter is not None:
        together["adapter_sha256"] = hash_file(given.adapter)
    (given.out / "figures.json").write_text(json.dumps(together, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
