"""The tools of `conductor mcp` as data: what a client's model reads of each, what goes in, what comes out.

A call is checked against the same schema that the client was given.

The arguments of a tool call: checked against the tool's schema, then read. They can only narrow the settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.config import Settings, find_setting
from conductor_cli.config.project import narrow
from conductor_cli.core.errors import ConfigError, PolicyError, UsageError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.plan_file import PlanFile, parse_plan_file
from conductor_cli.core.question import File, Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.schema_check import size_of

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


Schema = dict[str, Any]

MOST_FILES: Final = 100
"""Files that one question may bring."""

MOST_STEPS: Final = 20
"""Steps of a plan that a client gives. A model writes at most `MAX_STEPS`."""

MOST_RUNS: Final = 100
"""Runs that one list may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool. `reads_only`: it asks no worker and changes nothing but the record of runs.

    `open_world`: models are asked, which may be anywhere.
    """

    name: str
    title: str
    description: str
    arguments: Schema
    result: Schema
    reads_only: bool
    open_world: bool


def _object(properties: Mapping[str, Schema], *required: str, **more: Any) -> Schema:  # noqa: ANN401 - any keyword of JSON Schema
    return {"type": "object", "properties": dict(properties), "required": list(required), **more}


def _closed(properties: Mapping[str, Schema], *required: str, **more: Any) -> Schema:  # noqa: ANN401 - as above
    """An object without other properties: a misspelt argument is an error, not ignored."""
    return _object(properties, *required, additionalProperties=False, **more)


def _list_of(items: Schema, description: str, **more: Any) -> Schema:  # noqa: ANN401 - as above
    return {"type": "array", "items": items, "description": description, **more}


_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 300}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_SECONDS: Final[Schema] = {"type": "number", "minimum": 0}
_MONEY: Final[Schema] = {
    "type": ["string", "null"],
    "description": "US dollars, as text so that no digit is lost; null where no price is known.",
}

# What goes in

_WORKERS: Final = _list_of(
    _NAME, "Use only these workers, by name. Default: every worker that the user has set up.", minItems=1, maxItems=100
)
_RULES: Final[dict[str, Schema]] = {
    "workers": _WORKERS,
    "local_only": {
        "type": "boolean",
        "description": "true: use only models on the user's machine. The user's own rules cannot be switched off.",
    },
    "no_tools": {"type": "boolean", "description": "true: the workers use none of the tools that the user gave them."},
    "allow": _list_of(_NAME, "Ask only workers that match one of these: a name, tag:NAME or provider:NAME."),
    "deny": _list_of(_NAME, "Never ask workers that match one of these; same syntax as allow."),
}
_LIMITS: Final[dict[str, Schema]] = {
    "max_cost": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Most US dollars that this call may cost. Limits can only be lower than the user's own.",
    },
    "max_seconds": {"type": "number", "exclusiveMinimum": 0, "description": "Most seconds that this call may take."},
    "max_tokens": {"type": "integer", "minimum": 1, "description": "Most tokens of all models, input and output."},
}
_PLANNING: Final[dict[str, Schema]] = {
    "mode": {
        "type": "string",
        "enum": ["mini", "auto", "ultra"],
        "description": "mini: one worker, chosen for the question; auto (the default): up to five steps; "
        "ultra: more thought before, and a review at the end. It takes longer and costs more.",
    },
    "max_steps": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_STEPS,
        "description": "Most steps of the plan.",
    },
}
_QUESTION: Final[dict[str, Schema]] = {
    "question": {
        "type": "string",
        "minLength": 1,
        "description": "The whole question. The workers see this text and the files, and nothing of this conversation.",
    },
    "files": _list_of(
        _closed({"name": _NAME, "text": _TEXT}, "name", "text"),
        "Text files that belong to the question, with their contents.",
        maxItems=MOST_FILES,
    ),
    "system": {"type": "string", "description": "System text for every worker: role, tone, language, rules."},
}
_PLAN: Final = _object(
    {
        "format": {"type": "integer"},
        "question": {"description": "The question as text, or as the object that the tool plan returned."},
        "steps": _list_of(
            _closed(
                {
                    "worker": {**_NAME, "description": "The name of the worker that does this step."},
                    "subtask": {"type": "string", "minLength": 1, "description": "What this worker is to do."},
                    "access": _list_of(
                        {"type": "integer", "minimum": 0},
                        "The numbers of earlier steps (from 1) whose subtask and answer this worker sees.",
                    ),
                },
                "worker",
                "subtask",
            ),
            "The steps in order. The answer of the last one is the answer.",
            minItems=1,
            maxItems=MOST_STEPS,
        ),
        "limits": {"type": "object", "description": "Limits of the run, as the tool plan returned them."},
    },
    "question",
    "steps",
    description="A plan as the tool plan returns it in `plan`, changed or not, or one that you write yourself.",
)

# What comes out

_FAILURE: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"kind": _TEXT, "reason": _TEXT, "message": _TEXT, "hint": _TEXT},
    "required": ["kind", "message"],
    "description": "Why there is no answer or only a part of one; null where all went well.",
}
_USAGE: Final = _object(
    {
        "calls": _COUNT, "tokens_in": _COUNT, "tokens_out": _COUNT, "cost": _MONEY, "unpriced_calls": _COUNT,
        "seconds": {**_SECONDS, "description": "How long the run took."},
    },
    "calls", "tokens_in", "tokens_out", "cost", "unpriced_calls", "seconds",
)  # fmt: skip
_STEP: Final = _object(
    {
        "number": _COUNT, "worker": _TEXT, "planned_worker": _TEXT, "subtask": _TEXT,
        "access": {"type": "array", "items": _COUNT}, "state": _TEXT, "seconds": _SECONDS, "tokens": _COUNT,
        "cost": _MONEY, "error": _FAILURE,
    },
    "number", "worker", "subtask", "access", "state", "seconds",
)  # fmt: skip
_RUN: Final = _object(
    {
        "run": {**_TEXT, "description": "The id of the run, for the tools trace and run."},
        "stored": {"type": "boolean", "description": "Whether the run is in the record, so that trace can show it."},
        "state": {"type": "string", "description": "finished, failed, running or interrupted"},
        "answer": {**_TEXT, "description": "The answer; empty where there is none."},
        "partial": {"type": "boolean", "description": "The answer is cut off, or not from the last step."},
        "error": _FAILURE,
        "steps": {"type": "array", "items": _STEP},
        "usage": _USAGE,
        "notices": _list_of(_TEXT, "What a reader should know about how the answer came about."),
    },
    "run", "stored", "state", "answer", "partial", "error", "steps", "usage", "notices",
)  # fmt: skip
_RANGE: Final = {"type": "array", "minItems": 2, "maxItems": 2}
_PLANNED: Final = _object(
    {
        "run": {**_TEXT, "description": "Give it to the tool run to run this plan as it is."},
        "stored": {"type": "boolean"},
        "plan": {**_PLAN, "description": "The plan. Give it to the tool run, changed or not."},
        "estimate": _object(
            {
                "calls": _COUNT,
                "tokens": {**_RANGE, "items": _COUNT, "description": "The least and the most tokens."},
                "cost": {**_RANGE, "items": _TEXT, "description": "The least and the most US dollars, as text."},
                "unpriced_calls": {**_COUNT, "description": "Calls whose price is not known; they come on top."},
            },
            "calls",
            "tokens",
            "cost",
            "unpriced_calls",
        ),
        "recipients": {
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "Who reads what each worker of the plan is sent: a provider, a host, or this machine.",
        },
        "usage": _USAGE,
        "notices": _list_of(_TEXT, "What a reader should know about how the plan came about."),
    },
    "run", "stored", "plan", "estimate", "recipients", "usage", "notices",
)  # fmt: skip
_LISTED: Final = _object(
    {
        "run": _TEXT, "time": _TEXT, "state": _TEXT, "question": _TEXT, "workers": {"type": "array", "items": _TEXT},
        "cost": _MONEY, "tokens": _COUNT, "seconds": _SECONDS,
    },
    "run", "state", "question",
)  # fmt: skip
_TRACE: Final = _object(
    {
        "runs": _list_of(_LISTED, "Stored runs, newest first; only where no run was named."),
        "more": {"type": "boolean", "description": "Whether there are older runs that match."},
        "run": {**_RUN, "description": "The run that was named."},
        "question": {**_TEXT, "description": "The question of the run that was named."},
        "step": _object(
            {**_STEP["properties"], "text": _TEXT, "prompt": {"type": "array", "items": {"type": "object"}}},
            "number", "worker", "text", "prompt",
            description="The step that was named: what its worker was sent and what it wrote.",
        ),
    },
)  # fmt: skip

TOOLS: Final = (
    ToolSpec(
        name="ask",
        title="Ask the orchestra",
        description=(
            "Ask one hard question. A planner splits it into up to five steps and gives each to the model of the "
            "user's own pool that suits it; the steps run in parallel where they can, and one answer comes back. Use "
            "it for questions that profit from several models: comparing, checking, research, reviews, proofs. The "
            "workers see only `question` and `files`, so put everything they need there. It may cost money and take "
            "minutes; progress is reported for each step."
        ),
        arguments=_closed(
            {
                **_QUESTION,
                "schema": {"type": "object", "description": "A JSON Schema that the answer is to follow, as JSON."},
                **_PLANNING,
                **_RULES,
                **_LIMITS,
            },
            "question",
        ),
        result=_RUN,
        reads_only=False,
        open_world=True,
    ),
    ToolSpec(
        name="plan",
        title="Plan a question",
        description=(
            "Plan a question without running the plan: which worker would do what, what each would see, who would "
            "read the texts, and what it may cost. Only the planner is called. Give the result to the tool run."
        ),
        arguments=_closed({**_QUESTION, **_PLANNING, **_RULES}, "question"),
        result=_PLANNED,
        reads_only=True,
        open_world=True,
    ),
    ToolSpec(
        name="run",
        title="Run a plan",
        description=(
            "Run a plan: one that the tool plan returned (give its id as `run`, or the plan itself, changed or not, "
            "as `plan`), or one that you write. Also finishes a run that was stopped: give its id as `run`; steps "
            "that are done are not repeated. Give either `plan` or `run`."
        ),
        arguments=_closed(
            {
                "plan": _PLAN,
                "run": {**_NAME, "description": "The id of a run that was planned or stopped."},
                **_RULES,
                **_LIMITS,
            }
        ),
        result=_RUN,
        reads_only=False,
        open_world=True,
    ),
    ToolSpec(
        name="trace",
        title="Look at stored runs",
        description=(
            "Look at the record of runs. Without `run`: a list, newest first, which `search` narrows. With `run`: "
            "that run with its steps, answer and cost. With `run` and `step`: what the worker of that step was sent "
            "and what it wrote. Nothing is called."
        ),
        arguments=_closed(
            {
                "run": {**_NAME, "description": "A run's id, the beginning of one, last, or last~2."},
                "step": {"type": "integer", "minimum": 1, "description": "The number of a step of `run`."},
                "search": {"type": "string", "minLength": 1, "description": "A text in question, subtasks or answers."},
                "since": {"type": "string", "description": "Only runs since then: 30min, 12h, 7d, or a date."},
                "count": {"type": "integer", "minimum": 1, "maximum": MOST_RUNS, "default": 20},
            }
        ),
        result=_TRACE,
        reads_only=True,
        open_world=False,
    ),
)
"""Every tool, in the order in which clients list them."""

TOOLS_BY_NAME: Final = {tool.name: tool for tool in TOOLS}


LIMITS: Final = {
    "max_cost": "limits.cost",
    "max_seconds": "limits.seconds",
    "max_tokens": "limits.tokens",
    "max_steps": "limits.steps",
}
"""The setting that an argument lowers."""

RULES: Final = {"allow": "policy.allow", "deny": "policy.deny", "local_only": "policy.local_only"}
"""The setting that an argument adds to."""

MOST_VALUES: Final = 10_000
"""Values and names in the arguments of a call, whose check takes a second at most."""

_TYPES: Final = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object",
}  # fmt: skip

_BOUNDS: Final = {
    "minLength": "is empty",
    "minItems": "is empty",
    "maxLength": "is longer than LIMIT characters",
    "maxItems": "has more than LIMIT entries",
    "minimum": "must be at least LIMIT",
    "maximum": "must be at most LIMIT",
    "exclusiveMinimum": "must be more than LIMIT",
}
"""What is wrong with a value, by the keyword of JSON Schema that says so."""


def check_arguments(tool: ToolSpec, arguments: Mapping[str, Any]) -> None:
    """Raise `UsageError` that names the argument unless the schema of the tool allows them.

    The schema is our own, so the work grows with the arguments alone.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if size_of(arguments, MOST_VALUES, characters=10_000) == MOST_VALUES:
        raise UsageError(f"the arguments have {MOST_VALUES:,} values or more", hint="give less in one call")
    error = best_match(Draft202012Validator(tool.arguments).iter_errors(arguments))
    if error is not None:
        raise UsageError(_describe_problem(error), hint=f"see the input schema of the tool {tool.name}")


def _describe_problem(error: ValidationError) -> str:
    """What is wrong, in words. The value itself may be megabytes long, so it is not repeated."""
    place = error.json_path.removeprefix("$").lstrip(".") or "the arguments"
    limit = error.validator_value
    if error.validator == "type":
        return f"{place} must be {_TYPES.get(str(limit), 'of another type')}"
    if error.validator == "required":
        return f"{place} must have {', '.join(name for name in limit if name not in error.instance)}"
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        unknown = [one_line(str(name))[:60] for name in error.instance if name not in known]
        return f"{place} cannot have {', '.join(unknown[:10])}; known: {', '.join(known)}"
    if error.validator == "enum":
        return f"{place} must be one of {', '.join(limit)}"
    said = _BOUNDS.get(error.validator, f"cannot be used: {one_line(error.message[:1000]):.200}")
    return f"{place} {said.replace('LIMIT', str(limit))}"


# What is asked


def read_question(arguments: Mapping[str, Any]) -> Question:
    """The question of a call. Raises `UsageError` where it is blank, or a text is not text."""
    if not arguments["question"].strip():
        raise UsageError("question is blank", hint="say what you want to know")
    files = arguments.get("files", [])
    for file in files:
        if "\x00" in file["text"]:
            raise UsageError(f"{one_line(file['name'])!r} holds NUL bytes, so it is not text", hint="give text only")
    return Question(
        text=arguments["question"],
        system=arguments.get("system", ""),
        files=tuple(File(name=one_line(file["name"]), text=file["text"]) for file in files),
        schema=arguments.get("schema"),
    )


def read_plan(plan: Mapping[str, Any]) -> PlanFile:
    """The plan that a client gives. Raises `UsageError`."""
    planned = parse_plan_file(json.dumps(plan), "plan")
    if not planned.question.text.strip():
        raise UsageError("the question of the plan is blank", hint="the tool plan writes one")
    if planned.question.attachments:
        # They are named by their hash, and may belong to a run that this client may not see.
        raise UsageError("a plan cannot bring images or documents", hint="give the id of the planned run instead: run")
    if planned.question.conversation is not None:
        raise UsageError("a plan cannot bring a client's conversation", hint="put what matters into its question")
    return planned


# What it may use


def replaced_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What of a call replaces a setting, by its name: the mode, and that no tool is used."""
    mode = {"conductor.mode": arguments["mode"]} if "mode" in arguments else {}
    return mode | ({"conductor.tools": "none"} if arguments.get("no_tools") else {})


def narrowed(settings: Settings, arguments: Mapping[str, Any], planned: PlanFile | None = None) -> Settings:
    """The settings with the limits and rules of a call, and of the plan that it brings.

    Raises `UsageError` for a limit above that of the settings, `PolicyError` for a rule that would be switched off.
    """
    values, origins = dict(settings.values), dict(settings.origins)
    # Money goes through text, because a float is not exact.
    limits = {LIMITS[name]: arguments[name] for name in LIMITS if name in arguments}
    named = {setting: name for name, setting in LIMITS.items()}
    for setting, value in [*(planned.limits if planned else {}).items(), *limits.items()]:
        if value is not None:
            exact = Decimal(str(value)) if setting == "limits.cost" else value
            _lower(values, origins, setting, exact, named.get(setting, setting) if setting in limits else setting)
    for name, setting in RULES.items():
        if name not in arguments:
            continue
        item = find_setting(setting)
        if arguments[name] is False:
            if values[setting]:
                raise PolicyError(
                    f"{name} cannot be switched off: the settings keep everything on this machine",
                    hint=f"{setting} is from {origins[setting]}",
                )
            continue
        narrow(values, origins, item, _checked(setting, name, arguments[name]), "the call")
    return replace(settings, values=values, origins=origins)


def _lower(values: dict[str, Any], origins: dict[str, str], setting: str, value: Any, name: str) -> None:  # noqa: ANN401 - any number
    """Lower a limit. Raises `UsageError` where the value is above it."""
    new, most = _checked(setting, name, value), values[setting]
    if setting == "limits.recursion":
        most = max(most, 1)  # any call may choose the mode ultra, which appends one review
    if most is not None and new > most:
        raise UsageError(
            f"{name} is {new}, but the settings allow at most {most}",
            hint=f"a call can only lower {setting}, which is from {origins[setting]}",
        )
    if new != most:
        values[setting], origins[setting] = new, "the call"


def _checked(setting: str, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return find_setting(setting).check(value)
    except ConfigError as error:
        raise UsageError(error.message.replace(setting, name, 1), hint=error.hint) from None


def worker_names(arguments: Mapping[str, Any], offered: tuple[str, ...]) -> tuple[str, ...]:
    """The workers of a call, by name; all that the server `offered`, where that is not all there are.

    Raises `PolicyError` for a worker that the server was not started with.
    """
    wanted = tuple(dict.fromkeys(arguments.get("workers", ())))
    refused = [name for name in wanted if offered and name not in offered]
    if refused:
        raise PolicyError(
            f"this server does not offer the worker {one_line(refused[0])!r}", hint=f"it offers: {', '.join(offered)}"
        )
    return wanted or offered
