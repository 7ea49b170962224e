"""A plan as a file: `{format, question, steps.

[{worker, subtask, access}], limits}`, made to be edited by hand.

Workers are named and steps numbered; there are no labels. `question` is a text, or an object with
files or history.

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
    plain = Question(text=question.text) == question
    said = {name: value for name, value in dump(question).items() if value not in ("", [], None)}
    defaults = dump(Limits())
    data = {
        "format": FORMAT,
        "question": question.text if plain else {"text": question.text, **said},
        "steps": [
            {"worker": s.worker, "subtask": s.subtask, "access": list(s.access)} for s in plan.steps
        ],
        "limits": {name: value for name, value in dump(limits).items() if value != defaults[name]},
    }
    return escape_unseen(escape_json(json.dumps(data, ensure_ascii=False, indent=2)))


def parse_plan_file(text: str, source: str) -> PlanFile:
    """Return the plan in `text`.

    Raises `UsageError` that names `source`, the place, and what was expected.
    """
    if not text.strip():
        raise UsageError(f"{source} is empty", hint='write one with: conductor plan "…"')
    try:
        return _plan_file(parse_json(text))
    except ValueError as error:
        why = str(error) if isinstance(error, DecodeError) else f"not JSON ({error})"
        raise UsageError(
            f"{source} is not a plan: {why}", hint="write one with: conductor plan"
        ) from None


def _plan_file(data: Any) -> PlanFile:  # noqa: ANN401 - any JSON value
    if not isinstance(data, dict) or "steps" not in data or "question" not in data:
        raise DecodeError("expected an object with question and steps")
    if data.get("format", FORMAT) != FORMAT:
        raise DecodeError(
            f"format {data['format']!r:.20}; this version of conductor reads format {FORMAT}"
        )
    asked = data["question"]
    question = Question(text=asked) if isinstance(asked, str) else load(Question, asked, "question")
    plan = load(Plan, {"steps": data["steps"]})
    limits = data.get("limits", {})
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
