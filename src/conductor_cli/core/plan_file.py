"""A plan as a file that is made to be edited by hand.

It has the fields `format`, `question`, `steps: [{worker, subtask, access}]` and `limits`. Workers
are named and steps numbered; there are no labels. `question` is a text, or an object with files or
history.

A plan file can lower the user's limits and not raise them, so that a colleague's plan cannot
overspend.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.core.bounded_parsing import parse_json
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import REVIEW, SELF, Plan, Step, from_written_name, to_written_name
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.terminal_text import escape_json, escape_unseen

FORMAT: Final = 1
RECURSION: Final = "recursion"  # How `Limits` calls what files, options and settings call a review


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What `conductor plan` writes and `conductor run` reads.

    `limits` are those that differ from the default.
    """

    question: Question
    plan: Plan
    limits: Mapping[str, Any]
    notices: tuple[str, ...] = ()  # What it calls by an earlier name


def format_plan_file(
    question: Question, plan: Plan, limits: Limits, workers: Collection[str] = ()
) -> str:
    """Return the file's text, indented, one step after the other.

    `workers` are the names in the pool.
    """
    steps = []
    for step in plan.steps:
        worker = to_written_name(step.worker, workers)
        steps.append({"worker": worker, "subtask": step.subtask, "access": list(step.access)})
    fields = {
        "format": FORMAT,
        "question": _question_field(question),
        "steps": steps,
        "limits": changed_limits(limits),
    }
    return escape_unseen(escape_json(json.dumps(fields, ensure_ascii=False, indent=2)))


def _question_field(question: Question) -> str | dict[str, Any]:
    """Return the question as its text; where it has more, as an object of what is not empty."""
    filled = {}
    for name, value in dump(question).items():
        if value not in ("", [], None, False):
            filled[name] = value
    if filled.keys() <= {"text"}:
        return question.text
    return {"text": question.text, **filled}


def changed_limits(limits: Limits) -> dict[str, Any]:
    """Return the limits that differ from the default, by the names that people write."""
    defaults = dump(Limits())
    changed = {name: value for name, value in dump(limits).items() if value != defaults[name]}
    if RECURSION in changed:
        changed[REVIEW] = changed.pop(RECURSION)
    return changed


def parse_plan_file(text: str, source: str, workers: Collection[str] = ()) -> PlanFile:
    """Return the plan in `text`, where `workers` are the names in the pool.

    Raises `UsageError` that names `source`, the place, and what was expected.
    """
    if not text.strip():
        raise UsageError(f"{source} is empty", hint='write one with: conductor plan "…"')
    try:
        return _plan_file(parse_json(text), workers)
    except ValueError as error:
        why = f"not JSON ({error})"
        if isinstance(error, DecodeError):
            why = str(error)
        raise UsageError(
            f"{source} is not a plan: {why}", hint="write one with: conductor plan"
        ) from None


def _plan_file(fields: Any, workers: Collection[str]) -> PlanFile:  # noqa: ANN401 - any JSON value
    if not isinstance(fields, dict) or "steps" not in fields or "question" not in fields:
        raise DecodeError("expected an object with question and steps")
    if fields.get("format", FORMAT) != FORMAT:
        raise DecodeError(
            f"format {fields['format']!r:.20}; this version of conductor reads format {FORMAT}"
        )
    if isinstance(fields["question"], str):
        question = Question(text=fields["question"])
    else:
        question = load(Question, fields["question"], "question")
    plan = load(Plan, {"steps": fields["steps"]})
    limits = _read_limits(fields.get("limits", {}))
    if not all(isinstance(step, Step) for step in plan.steps):
        raise DecodeError("steps: expected objects with worker, subtask and access")
    steps = []
    for step in plan.steps:
        steps.append(replace(step, worker=from_written_name(step.worker, workers)))
    plan = replace(plan, steps=tuple(steps))
    return PlanFile(
        question=question,
        plan=plan,
        limits=limits,
        notices=tuple(_say_earlier_names(fields)),
    )


def _say_earlier_names(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each earlier name that a plan file has."""
    if any(step["worker"] == SELF for step in fields["steps"]):
        yield f"the worker {SELF} is called {REVIEW} now; the earlier name works on"
    if RECURSION in fields.get("limits", {}):
        yield f"the limit {RECURSION} is called {REVIEW} now; the earlier name works on"


def _read_limits(limits: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Return the limits of a plan file as settings by name. Raises `DecodeError`."""
    if isinstance(limits, dict) and REVIEW in limits:
        if RECURSION in limits:
            raise DecodeError(f"limits: {REVIEW} and {RECURSION}, its earlier name, are both given")
        limits = {**limits, RECURSION: limits[REVIEW]}
        del limits[REVIEW]
    load(Limits, limits, "limits")
    unknown = set(limits) - set(Limits.__dataclass_fields__)
    if unknown:
        raise DecodeError(f"limits: unknown {', '.join(sorted(unknown))}")
    settings = {}
    for name, value in limits.items():
        present_name = REVIEW if name == RECURSION else name
        settings[f"limits.{present_name}"] = value
    # Money is a text in JSON, so that no digit is lost.
    if limits.get("cost") is not None:
        settings["limits.cost"] = Decimal(str(limits["cost"]))
    return settings
