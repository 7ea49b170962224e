"""What the tests of evaluations share: cases, scripted workers, and whole evaluations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.usage import Usage
from conductor_cli.evals.answer_words import MAX_TEXT
from conductor_cli.evals.cases import Case, GoldStep, hash_cases
from conductor_cli.evals.outcomes import SPEC, CaseOutcome, Evaluation, EvaluationSpec
from conductor_cli.evals.runner import run_cases
from conductor_cli.evals.systems import System, select_systems
from conductor_cli.models.base import ALL_FEATURES, Model, ScriptedModel
from conductor_cli.run import Orchestra
from tests.run.kit import orchestra_of

NAMES = ("ann", "bob", "cyd")
PLAN = ("B | - | Work it out.\n", "A | 1 | Say it.")
ALL = (
    "alone:ann",
    "alone:bob",
    "alone:cyd",
    "best-worker",
    "keyword",
    "reflect:ann",
    "reflect:bob",
    "reflect:cyd",
    "vote",
    "moa",
    "best-routing",
    "conductor-mini",
    "conductor",
    "conductor-ultra",
)


def case(number: int = 1, **fields: Any) -> Case:
    given: dict[str, Any] = {
        "id": f"c{number}",
        "question": f"What is {number} + 3?",
        "answer": str(number + 3),
        "scorer": "number",
        "tags": ("math",),
        "steps": (GoldStep(skill="math", subtask="Add."),),
    }
    return Case(**(given | fields))


def cases(count: int) -> tuple[Case, ...]:
    return tuple(case(number) for number in range(1, count + 1))


def chance(*parts: object) -> int:
    """A number that looks drawn and is the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")


def worker_model(name: str, sure: float = 0.6) -> ScriptedModel:
    """Answers sums, right in about `sure` of the questions.

    Which, depends on the prompt and the seed alone.
    """

    def reply(request: Request) -> Iterable[str]:
        text = request.messages[-1].content
        number = int(text.partition("What is ")[2].partition(" +")[0] or 0)
        right = chance(name, text, request.seed) % 1000 < 1000 * sure
        return ["The sum ", f"is {number + 3 if right else number + 4}"]

    return ScriptedModel(reply=reply)


def planner() -> ScriptedModel:
    def reply(request: Request) -> Iterable[str]:
        if request.choices:
            return ["B"]
        if ultra(request):
            return ["1. think\n", *PLAN]
        return PLAN

    return ScriptedModel(reply=reply)


def ultra(request: Request) -> bool:
    return "reason" in request.messages[0].content.lower()


def pool(*names: str, **fields: Any) -> Pool:
    """Workers of which the second is the best, by card."""
    return Pool(
        workers=tuple(
            Worker(
                name=name,
                kind="scripted",
                model=name,
                card=Card(strengths={"math": 0.9 - abs(at - 1) / 4}),
                **fields,
            )
            for at, name in enumerate(names or NAMES)
        )
    )


def orchestra(models: Mapping[str, Model] | None = None, **fields: Any) -> Orchestra:
    fields.setdefault("pool", pool(*(models or NAMES)))
    fields.setdefault("model", planner())
    fields.setdefault("limits", Limits(attempts=1))
    return orchestra_of(
        workers=dict(models or {name: worker_model(name) for name in fields["pool"].names}),
        **fields,
    )


def spec(
    systems: Sequence[System], case_set: Sequence[Case], by: Orchestra, **fields: Any
) -> EvaluationSpec:
    ready = tuple(system.name for system in systems if not system.missing)
    return EvaluationSpec(
        source="sums",
        hash=hash_cases(case_set),
        cases=len(case_set),
        systems=ready,
        workers=by.team.pool.names,
        identity=list(ready),
        **fields,
    )


def make_evaluation(
    directory: Path,
    by: Orchestra,
    case_set: Sequence[Case],
    names: str | Sequence[str] = "all",
    **fields: Any,
) -> tuple[Evaluation, tuple[System, ...]]:
    """A new evaluation, or the one that is there."""
    systems = select_systems(
        names if isinstance(names, str) else ",".join(names), by.team, cases=case_set
    )
    if (directory / SPEC).exists():
        return Evaluation(directory), systems
    return Evaluation.create(directory, spec(systems, case_set, by, **fields), case_set), systems


def run_evaluation(
    directory: Path,
    by: Orchestra,
    case_set: Sequence[Case],
    names: str | Sequence[str] = "all",
    **fields: Any,
) -> dict[tuple[str, str], CaseOutcome]:
    """What became of each case under each system."""
    run = {name: fields.pop(name) for name in ("parallel", "judge") if name in fields}
    stored, systems = make_evaluation(directory, by, case_set, names, **fields)
    asyncio.run(run_all(stored, systems, by, **run))
    return {(outcome.system, outcome.case): outcome for outcome in stored.outcomes()}


async def run_all(
    stored: Evaluation, systems: Sequence[System], by: Orchestra, **options: Any
) -> list[CaseOutcome]:
    return [outcome async for outcome in run_cases(stored, systems, by, **options)]


def untimed(outcomes: Iterable[CaseOutcome]) -> list[CaseOutcome]:
    """Outcomes without what a clock says, in the order of systems and cases."""
    return [
        replace(
            o,
            seconds=0.0,
            usage=replace(o.usage, seconds=0.0),
            planning=replace(o.planning, seconds=0.0),
        )
        for o in sorted(outcomes, key=lambda o: o.key)
    ]


class Timed:
    """A model that says how long it took."""

    features = ALL_FEATURES

    def __init__(self, name: str, seconds: float, text: str = "4", choice: str = "") -> None:
        self.name = name
        self.seconds = seconds
        self.text = text
        self.choice = choice

    async def stream(self, request: Any) -> Any:
        yield Chunk(text=self.choice if request.choices else self.text)
        yield Chunk(
            usage=Usage(tokens_in=1, tokens_out=1, calls=1, seconds=self.seconds), finish="stop"
        )

    async def close(self) -> None: ...


def longer_than_searched(pattern: str, size: int) -> Callable[[int], str]:
    """Return what makes a text of `size` patterns, and for any less a quarter of what is searched.

    Only the end of a text is searched, so two longer ones take the same time whatever grows.
    """
    long_text = pattern * size
    short_text = long_text[-(MAX_TEXT // 4) :]
    return lambda wanted: long_text if wanted == size else short_text
