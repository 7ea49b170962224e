"""A plan as a file that is made to be edited by hand.

It has the fields `format`, `question`, `steps: [{worker, subtask, access}]` and `limits`. Workers
are named and steps numbered; there are no labels. `question` is a text, or an object with files or
history.

A plan file can lower the user's limits and not raise them, so that a colleague's plan cannot
overspend.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from conductor_cli.core.bounded_parsing import parse_json
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.terminal_text import escape_json, escape_unseen

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What `conductor plan` writes and `conductor run` reads.

    `limits` are those that differ from the default.
    """

    question: Question
    plan: Plan
    limits: Mapping[str, Any]


def format_plan_file(question: Question, plan: Plan, limits: Limits) -> str:
    """Return the file's text, indented, one step after the other."""
    fields = {
        "format": FORMAT,
        "question": _question_field(question),
        "steps": [
            {"worker": step.worker, "subtask": step.subtask, "access": list(step.access)}
            for step in plan.steps
        ],
        "limits": _changed_limits(limits),
    }
    return escape_unseen(escape_json(json.dumps(fields, ensure_ascii=False, indent=2)))


def _question_field(question: Question) -> str | dict[str, Any]:
    """The question as its text; as an object of what is not empty, where it is more than that."""
    filled = {name: value for name, value in dump(question).items() if value not in ("", [], None)}
    if filled.keys() <= {"text"}:
        return question.text
    return {"text": question.text, **filled}


def _changed_limits(limits: Limits) -> dict[str, Any]:
    defaults = dump(Limits())
    return {name: value for name, value in dump(limits).items() if value != defaults[name]}


def parse_plan_file(text: str, source: str) -> PlanFile:
    """Return the plan in `text`.

    Raises `UsageError` that names `source`, the place, and what was expected.
    """
    if not text.strip():
        raise UsageError(f"{source} is empty", hint='write one with: conductor plan "…"')
    try:
        return _plan_file(parse_json(text))
    except ValueError as error:
        why = f"not JSON ({error})"
        if isinstance(error, DecodeError):
            why = str(error)
        raise UsageError(
            f"{source} is not a plan: {why}", hint="write one with: conductor plan"
        ) from None


def _plan_file(fields: Any) -> PlanFile:  # noqa: ANN401 - any JSON value
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
    limits = fields.get("limits", {})
    load(Limits, limits, "limits")
    unknown = set(limits) - set(Limits.__dataclass_fields__)
    if unknown:
        raise DecodeError(f"limits: unknown {', '.join(sorted(unknown))}")
    if not all(isinstance(step, Step) for step in plan.steps):
        raise DecodeError("steps: expected objects with worker, subtask and access")
    # The limits as settings by name. Money is a text in JSON, so that no digit is lost.
    settings = {f"limits.{name}": value for name, value in limits.items()}
    if limits.get("cost") is not None:
        settings["limits.cost"] = Decimal(str(limits["cost"]))
    return PlanFile(question=question, plan=plan, limits=settings)
