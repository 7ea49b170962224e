"""The tools of `conductor mcp` as data: what a client's model reads of each, and what goes in.

A call is checked against the models that the client was given as schemas. Its arguments can only
narrow the settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conductor_cli.config.project import narrow
from conductor_cli.config.settings import Settings, find_setting
from conductor_cli.core.errors import ConfigError, PolicyError, UsageError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.plan_file import PlanFile, parse_plan_file
from conductor_cli.core.question import File, Question
from conductor_cli.core.secret_files import is_secret_name, is_secret_text
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.schema_check import size_of
from conductor_cli.server.api.body_faults import describe_fault
from conductor_cli.server.api.body_models import BoundedList

MAX_ATTACHED_FILES: Final = 100  # Files that one question may bring
# Steps of a plan that a client gives. A model writes at most `MAX_STEPS`
MAX_GIVEN_STEPS: Final = 20
MAX_LISTED: Final = 100  # Runs that one list may hold
MAX_VALUES: Final = 10_000  # Values and names in the arguments of a call

LIMITS: Final = {
    "max_cost": "limits.cost",
    "max_seconds": "limits.seconds",
    "max_tokens": "limits.tokens",
    "max_steps": "limits.steps",
}
"""The setting that an argument lowers."""

RULES: Final = {"allow": "policy.allow", "deny": "policy.deny", "local_only": "policy.local_only"}
"""The setting that an argument adds to."""

Name = Annotated[str, Field(min_length=1, max_length=300)]
Unset: Any = None  # The default of an argument that may be left out, but not be null


class _Closed(BaseModel):
    # A misspelt argument is an error, not ignored.
    model_config = ConfigDict(strict=True, extra="forbid")


class _AttachedFile(_Closed):
    name: Name
    text: str


class _RuleArguments(_Closed):
    workers: BoundedList[Name] = Field(
        Unset,
        min_length=1,
        max_length=100,
        description=(
            "Use only these workers, by name. Default: every worker that the user has set up."
        ),
    )
    local_only: bool = Field(
        Unset,
        description=(
            "true: use only models on the user's machine. The user's own rules cannot be "
            "switched off."
        ),
    )
    no_tools: bool = Field(
        Unset, description="true: the workers use none of the tools that the user gave them."
    )
    allow: BoundedList[Name] = Field(
        Unset,
        description="Ask only workers that match one of these: a name, tag:NAME or provider:NAME.",
    )
    deny: BoundedList[Name] = Field(
        Unset, description="Never ask workers that match one of these; same syntax as allow."
    )


class _LimitArguments(_RuleArguments):
    max_cost: float = Field(
        Unset,
        gt=0,
        description=(
            "Most US dollars that this call may cost. Limits can only be lower than the user's own."
        ),
    )
    max_seconds: float = Field(Unset, gt=0, description="Most seconds that this call may take.")
    max_tokens: int = Field(Unset, ge=1, description="Most tokens of all models, input and output.")


class _PlanArguments(_RuleArguments):
    question: str = Field(
        min_length=1,
        description=(
            "The whole question. The workers see this text and the files, and nothing of "
            "this conversation."
        ),
    )
    files: BoundedList[_AttachedFile] = Field(
        Unset,
        max_length=MAX_ATTACHED_FILES,
        description="Text files that belong to the question, with their contents.",
    )
    system: str = Field(
        Unset, description="System text for every worker: role, tone, language, rules."
    )
    mode: Literal["mini", "auto", "ultra"] = Field(
        Unset,
        description="mini: one worker, chosen for the question; auto (the default): up to five "
        "steps; "
        "ultra: more thought before, and a review at the end. It takes longer and costs more.",
    )
    max_steps: int = Field(Unset, ge=1, le=MAX_STEPS, description="Most steps of the plan.")


class _AskArguments(_PlanArguments, _LimitArguments):
    answer_schema: dict[str, Any] = Field(
        Unset, alias="schema", description="A JSON Schema that the answer is to follow, as JSON."
    )


class _GivenStep(_Closed):
    worker: Name = Field(description="The name of the worker that does this step.")
    subtask: str = Field(min_length=1, description="What this worker is to do.")
    access: BoundedList[Annotated[int, Field(ge=0)]] = Field(
        Unset,
        description=(
            "The numbers of earlier steps (from 1) whose subtask and answer this worker sees."
        ),
    )


class GivenPlan(BaseModel):
    """A plan as the tool plan returns it in `plan`, changed or not, or one that you write."""

    model_config = ConfigDict(strict=True, extra="allow")

    format: int = Unset
    question: Any = Field(
        description="The question as text, or as the object that the tool plan returned."
    )
    steps: BoundedList[_GivenStep] = Field(
        min_length=1,
        max_length=MAX_GIVEN_STEPS,
        description="The steps in order. The answer of the last one is the answer.",
    )
    limits: dict[str, Any] = Field(
        Unset, description="Limits of the run, as the tool plan returned them."
    )


class _RunArguments(_LimitArguments):
    plan: GivenPlan = Unset
    run: Name = Field(Unset, description="The id of a run that was planned or stopped.")


class _TraceArguments(_Closed):
    run: Name = Field(Unset, description="A run's id, the beginning of one, last, or last~2.")
    step: int = Field(Unset, ge=1, description="The number of a step of `run`.")
    search: str = Field(Unset, min_length=1, description="A text in question, subtasks or answers.")
    since: str = Field(Unset, description="Only runs since then: 30min, 12h, 7d, or a date.")
    count: int = Field(20, ge=1, le=MAX_LISTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool. `reads_only`: it asks no worker and changes nothing but the record of runs.

    `open_world`: models are asked, which may be anywhere.
    """

    title: str
    description: str
    arguments: type[BaseModel]
    reads_only: bool = False
    open_world: bool = True


TOOLS: Final = {
    "ask": ToolSpec(
        title="Ask the orchestra",
        description=(
            "Ask one hard question. A planner splits it into up to five steps and gives each to "
            "the model of the "
            "user's own pool that suits it; the steps run in parallel where they can, and one "
            "answer comes back. Use "
            "it for questions that profit from several models: comparing, checking, research, "
            "reviews, proofs. The "
            "workers see only `question` and `files`, so put everything they need there. It may "
            "cost money and take "
            "minutes; progress is reported for each step."
        ),
        arguments=_AskArguments,
    ),
    "plan": ToolSpec(
        title="Plan a question",
        description=(
            "Plan a question without running the plan: which worker would do what, what each would "
            "see, who would "
            "read the texts, and what it may cost. Only the planner is called. Give the result to "
            "the tool run."
        ),
        arguments=_PlanArguments,
        reads_only=True,
    ),
    "run": ToolSpec(
        title="Run a plan",
        description=(
            "Run a plan: one that the tool plan returned (give its id as `run`, or the plan "
            "itself, changed or not, "
            "as `plan`), or one that you write. Also finishes a run that was stopped: give its id "
            "as `run`; steps "
            "that are done are not repeated. Give either `plan` or `run`."
        ),
        arguments=_RunArguments,
    ),
    "trace": ToolSpec(
        title="Look at stored runs",
        description=(
            "Look at the record of runs. Without `run`: a list, newest first, which `search` "
            "narrows. With `run`: "
            "that run with its steps, answer and cost. With `run` and `step`: what the worker of "
            "that step was sent "
            "and what it wrote. Nothing is called."
        ),
        arguments=_TraceArguments,
        reads_only=True,
        open_world=False,
    ),
}
"""Every tool by its name, in the order in which clients list them."""


def tool_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model without references, titles and defaults of null.

    They only fill a model's context.
    """
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def tidy(value: Any) -> Any:  # noqa: ANN401 - any part of a schema
        if isinstance(value, list):
            return [tidy(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            value = {**parts[value["$ref"].rpartition("/")[2]], **value}
        unwanted = {"$ref", "title"}
        if value.get("default", 0) is None:
            unwanted.add("default")
        # The name of a property may be that of a keyword.
        tidied = {}
        for name, part in value.items():
            if name == "properties":
                tidied[name] = {key: tidy(item) for key, item in part.items()}
            elif name not in unwanted:
                tidied[name] = tidy(part)
        return tidied

    tidied: dict[str, Any] = tidy(schema)
    return tidied


def read_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that were given.

    Raises `UsageError` for a tool or an argument that is not.
    """
    if name not in TOOLS:
        raise UsageError(
            f"there is no tool {one_line(name)[:80]!r}", hint=f"the tools are: {', '.join(TOOLS)}"
        )
    if size_of(arguments, MAX_VALUES, characters=10_000) == MAX_VALUES:
        raise UsageError(
            f"the arguments have {MAX_VALUES:,} values or more", hint="give less in one call"
        )
    model = TOOLS[name].arguments
    try:
        return model.model_validate(arguments).model_dump(exclude_unset=True, by_alias=True)
    except ValidationError as error:
        param, text, _ = describe_fault(error, model, arguments)
        raise UsageError(
            f"{param} {text}", hint=f"see the input schema of the tool {name}"
        ) from None


# What is asked


def read_question(arguments: Mapping[str, Any]) -> Question:
    """Return the question of a call. Raises `UsageError` if it is blank or a file is not text."""
    if not arguments["question"].strip():
        raise UsageError("question is blank", hint="say what you want to know")
    files = arguments.get("files", [])
    for file in files:
        if "\x00" in file["text"]:
            raise UsageError(
                f"{one_line(file['name'])!r} holds NUL bytes, so it is not text",
                hint="give text only",
            )
    return Question(
        text=arguments["question"],
        system=arguments.get("system", ""),
        files=tuple(File(name=one_line(file["name"]), text=file["text"]) for file in files),
        schema=arguments.get("schema"),
    )


def describe_files(question: Question) -> tuple[str, ...]:
    """Return what is to be known of the files of a call: those that say nothing, or too much."""
    remarks = []
    for file in question.files:
        if not file.text.strip():
            remarks.append(f"{file.name} is empty")
        elif is_secret_name(file.name) or is_secret_text(file.name, file.text):
            remarks.append(f"{file.name} looks like a secret, and is sent because the call has it")
    return tuple(remarks)


def read_plan(plan: Mapping[str, Any], workers: Collection[str]) -> PlanFile:
    """Return the plan that a client gives. Raises `UsageError`.

    `workers` are the names on offer.
    """
    planned = parse_plan_file(json.dumps(plan), "plan", workers)
    if not planned.question.text.strip():
        raise UsageError("the question of the plan is blank", hint="the tool plan writes one")
    if planned.question.attachments:
        # They are named by their hash, and may belong to a run that this client may not see.
        raise UsageError(
            "a plan cannot bring images or documents",
            hint="give the id of the planned run instead: run",
        )
    if planned.question.conversation is not None:
        raise UsageError(
            "a plan cannot bring a client's conversation", hint="put what matters into its question"
        )
    return planned


# What it may use


def replaced_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a call replaces a setting, by its name: the mode, and that no tool is used."""
    replaced = {}
    if "mode" in arguments:
        replaced["conductor.mode"] = arguments["mode"]
    if arguments.get("no_tools"):
        replaced["conductor.tools"] = "none"
    return replaced


def narrowed(
    settings: Settings, arguments: Mapping[str, Any], planned: PlanFile | None = None
) -> Settings:
    """Return the settings with the limits and rules of a call, and of the plan that it brings.

    Raises `UsageError` for a limit above that of the settings, `PolicyError` for a rule that would
    be switched off.
    """
    values = dict(settings.values)
    origins = dict(settings.origins)
    _lower_limits(values, origins, arguments, planned)
    _add_rules(values, origins, arguments)
    return replace(settings, values=values, origins=origins)


def _lower_limits(
    values: dict[str, Any],
    origins: dict[str, str],
    arguments: Mapping[str, Any],
    planned: PlanFile | None,
) -> None:
    limits = {LIMITS[name]: arguments[name] for name in LIMITS if name in arguments}
    named = {setting: name for name, setting in LIMITS.items()}
    for setting, value in [*(planned.limits if planned else {}).items(), *limits.items()]:
        if value is None:
            continue
        name = setting
        if setting in limits:
            name = named.get(setting, setting)
        # Money goes through text, because a float is not exact.
        exact = Decimal(str(value)) if setting == "limits.cost" else value
        requested = _checked(setting, name, exact)
        most = values[setting]
        if setting == "limits.review":
            most = max(most, 1)  # any call may choose the mode ultra, which appends one review
        if most is not None and requested > most:
            hint = f"a call can only lower {setting}, which is from {origins[setting]}"
            raise UsageError(
                f"{name} is {requested}, but the settings allow at most {most}", hint=hint
            )
        if requested != most:
            values[setting] = requested
            origins[setting] = "the call"


def _add_rules(
    values: dict[str, Any], origins: dict[str, str], arguments: Mapping[str, Any]
) -> None:
    for name, setting in RULES.items():
        if name not in arguments:
            continue
        value = arguments[name]
        if value is False and values[setting]:
            message = f"{name} cannot be switched off: the settings keep everything on this machine"
            raise PolicyError(message, hint=f"{setting} is from {origins[setting]}")
        if value is not False:
            item = find_setting(setting)
            narrow(values, origins, item, _checked(setting, name, value), "the call")


def _checked(setting: str, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return find_setting(setting).check(value)
    except ConfigError as error:
        raise UsageError(error.message.replace(setting, name, 1), hint=error.hint) from None


def worker_names(arguments: Mapping[str, Any], offered: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workers of a call, by name.

    All that the server `offered`, where that is not all there are.

    Raises `PolicyError` for a worker that the server was not started with.
    """
    wanted = tuple(dict.fromkeys(arguments.get("workers", ())))
    refused = []
    for name in wanted:
        if offered and name not in offered:
            refused.append(name)
    if refused:
        hint = f"it offers: {', '.join(offered)}"
        raise PolicyError(
            f"this server does not offer the worker {one_line(refused[0])!r}", hint=hint
        )
    return wanted or offered
