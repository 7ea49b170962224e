"""The arguments of a tool call: checked against the tool's schema, then read. They can only narrow the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.config import Settings, find_setting
from conductor_cli.config.project import narrow
from conductor_cli.core.errors import ConfigError, PolicyError, UsageError
from conductor_cli.core.plan_file import PlanFile, parse_plan_file
from conductor_cli.core.question import File, Question
from conductor_cli.core.sanitize import one_line
from conductor_cli.programs.schema_check import size_of
from conductor_cli.server.mcp.tool_schemas import ToolSpec

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

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
