"""Options that several commands share, each declared once, and the settings that they stand for.

A command takes options by a value with a field for each, such as `RunOptions` of those that run a
question:

    @with_options(omit=("mode",))
    def run(context: typer.Context, options: RunOptions) -> None: ...

`-c` is a flag, and `--continue-from` names a run: with an optional value a mistyped id became a
part of the question.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

import typer

from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The options of every command. They may stand before its name or after it.

    Raises `UsageError`.
    """

    config: str | None = None
    debug: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.debug and self.quiet:
            raise UsageError("--debug and --quiet exclude each other")


# As Typer has it
def option(names: str, about: str, metavar: str | None = None, **keywords: Any) -> Any:  # noqa: ANN401
    """Declare an option of a command by its names, as in `--file -f`, and what its help says."""
    return typer.Option(*names.split(), help=about, metavar=metavar, **keywords)


def argument(metavar: str | None, about: str, **keywords: Any) -> Any:  # noqa: ANN401
    """Declare an argument of a command; without `metavar` it is called as in Python."""
    return typer.Argument(metavar=metavar, help=about, **keywords)


_OPTIONS_BY_HEADING: Final = {
    "Input": (
        "template param file clipboard memory system schema name continue continue-from resume "
        "cases base n"
    ),
    "Workers": "model workers pool tools allow-tools allow deny local-only demo",
    "Plan": "planner mode max-steps review approve flow",
    "Limits": "max-cost max-tokens max-calls max-time minutes parallel ray",
    "Output": "format progress check no-trace json out",
    "Advanced": "seed set",
}
HEADINGS: Final[dict[str, list[str]]] = {
    heading: [f"--{name}" for name in names.split()]
    for heading, names in _OPTIONS_BY_HEADING.items()
}
"""The headings in the help of a command that has many options, in order; an option without one is
under "Options".
"""

LAST_COUNTS: Final = frozenset(
    {
        "--by",
        "--days",
        "--format",
        "--mode",
        "--n",
        "--order",
        "--parallel",
        "--progress",
        "--seed",
        "--speed",
        "-n",
    }
)
"""Options of one value of which the last counts, so that an alias or a script can be overridden.

They change how much is sampled or shown, and how. All others refuse two values that differ: they
limit what is spent, name who reads what, or say what is written or deleted, and the value that was
dropped may be the careful one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """When something was deprecated, by version and day (YYYY-MM-DD), and what to use instead."""

    since: str
    day: str
    instead: str


DEPRECATED: Final[Mapping[str, Deprecation]] = {}
"""Commands and options that work on and will go: `conductor trace list`, `conductor trace list
--state`.

A line on stderr says so where one is used (docs/stability.md). Settings that go stand in
`config.schema`.
"""

RENAMED_OPTIONS: Final[Mapping[str, str]] = {
    "--conductor": "--planner",
    "--recursion": "--review",
    "--rehearsal": "--demo",
}
"""Earlier names of options. They work on wherever the present one does, and a line on stderr says
which that is.
"""

Words = Annotated[list[str] | None, argument("QUESTION", "The question; - reads it from stdin.")]
Files = Annotated[
    list[str] | None,
    option(
        "--file -f",
        (
            "Attach texts, images, PDFs, .docx, pages, directories, URLs, pr:, issue:, diff:; "
            "- is stdin."
        ),
        "PATH...",
    ),
]
Clipboard = Annotated[bool, option("--clipboard", "Attach the text of the clipboard.")]
Memory = Annotated[
    bool | None,
    option(
        "--memory/--no-memory",
        "Let workers read the project's AGENTS.md, CLAUDE.md and GEMINI.md, or not; asked once.",
    ),
]
System = Annotated[str | None, option("--system", "System text for every worker.", "TEXT")]
Check = Annotated[
    str | None,
    option(
        "--check",
        "Rate the answer by this program: it reads it, and exit code 0 means good.",
        "COMMAND",
    ),
]
Continue = Annotated[bool, option("--continue -c", "Continue the last run as a conversation.")]
ContinueFrom = Annotated[
    str | None, option("--continue-from", "Continue the run with this id as a conversation.", "ID")
]
MaxCostOfAll = Annotated[
    str | None, option("--max-cost", "Stop when all runs together have cost this much.", "USD")
]
Names = list[str] | None
"""What an option that names several holds: a text, with commas or without, for each time."""

WorkersOption = Annotated[Names, option("--workers", "Use only these workers.", "A,B")]
PoolOption = Annotated[
    str | None, option("--pool", "Use only the workers of this pool; '' for all workers.", "NAME")
]
ConductorOption = Annotated[
    str | None,
    option(
        "--planner",
        (
            "The model that plans: a name, a GGUF file, provider/model, a URL (its first chat "
            "model) or URL#MODEL."
        ),
        "NAME|PATH|URL",
    ),
]
PlainModel = Annotated[
    str | None,
    option(
        "--model -m",
        "Ask this worker, or provider/model, in one call: nothing is planned.",
        "NAME",
    ),
]
Flow = Annotated[
    bool, option("--flow", "Show which worker reads the question, the files and which answers.")
]
Allow = Annotated[
    Names, option("--allow", "Ask only these workers: names, tag:NAME or provider:NAME.", "A,B")
]
Deny = Annotated[Names, option("--deny", "Never ask these workers; same syntax as --allow.", "A,B")]
LocalOnly = Annotated[
    bool, option("--local-only", "Use only models on this machine, for planning too.")
]
Format = Literal["answer", "json", "jsonl"]
FormatOption = Annotated[
    Format,
    option("--format", "Output on stdout: the answer, one JSON object, or events as JSON lines."),
]
ProgressOption = Annotated[
    Literal["auto", "tree", "plain", "none"] | None,
    option("--progress", "Progress display on stderr."),
]
YesToCost = Annotated[bool, option("--yes -y", "Start without asking, even if it may cost money.")]
ParallelRuns = Annotated[int, option("--parallel", "Number of parallel runs.", "N", min=1, max=256)]
RayCluster = Annotated[
    str | None,
    option(
        "--ray",
        "Run on the nodes of a Ray cluster; --parallel is that of each node.",
        "auto|ADDRESS",
    ),
]
SetOptions = Annotated[
    list[str] | None,
    option("--set", "Another setting; KEY= removes it; may be repeated.", "KEY=VALUE"),
]
InsecureStorage = Annotated[
    bool, option("--insecure-storage", "Store the secret in a file that is not encrypted.")
]
Json = Annotated[bool, option("--json", "Print JSON.")]


FLAGS: Final = {
    "limits.steps": "--max-steps",
    "limits.review": "--review",
    "limits.cost": "--max-cost",
    "limits.tokens": "--max-tokens",
    "limits.calls": "--max-calls",
    "limits.seconds": "--max-time",
    "conductor.tools": "--tools",
    "conductor.allow_tools": "--allow-tools",
    "learning.check": "--check",
    "policy.allow": "--allow",
    "policy.deny": "--deny",
}
"""The option that stands for a setting, for messages."""


_NAMES_OF_STDIN: Final = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def with_clipboard(paths: list[str] | None, clipboard: bool) -> list[str]:
    """Return the files of a command line, and the clipboard where it is wanted.

    Standard input is `-` by each of its names: who opens it once more finds nothing left.
    """
    files = ["-" if path in _NAMES_OF_STDIN else path for path in paths or ()]
    if clipboard:
        files.append("clipboard:")
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of the commands that run a question; one that a command omits has its default."""

    mode: Annotated[
        Literal["mini", "auto", "ultra"] | None,
        option(
            "--mode", "mini: one worker; auto: up to five steps; ultra: reason first, review after."
        ),
    ] = None
    workers: WorkersOption = None
    pool: PoolOption = None
    conductor: ConductorOption = None
    tools: Annotated[
        Names,
        option(
            "--tools",
            "Give every worker the tools of these servers only; none: no tools.",
            "A,B",
        ),
    ] = None
    allow_tools: Annotated[
        Names,
        option(
            "--allow-tools",
            "Call without asking: all tools of a server (A), or one of them (B.C).",
            "A,B.C",
        ),
    ] = None
    allow: Allow = None
    deny: Deny = None
    local_only: LocalOnly = False
    max_steps: Annotated[
        int | None,
        option("--max-steps", "Maximum steps in the plan, 1 to 5 (with one worker: 1).", "N"),
    ] = None
    recursion: Annotated[
        int | None,
        option("--review", "Let the planner review the answer, N times at most.", "N"),
    ] = None
    max_cost: Annotated[
        str | None, option("--max-cost", "Maximum cost of the run in US dollars.", "USD")
    ] = None
    max_tokens: Annotated[
        int | None, option("--max-tokens", "Maximum tokens for the run, input and output.", "N")
    ] = None
    max_calls: Annotated[
        int | None, option("--max-calls", "Maximum worker calls for the run.", "N")
    ] = None
    max_time: Annotated[
        float | None, option("--max-time", "Maximum duration of the run in seconds.", "S")
    ] = None
    fit: Annotated[
        bool, option("--fit", "Shorten what is too long for a worker, instead of refusing it.")
    ] = False
    seed: Annotated[int | None, option("--seed", "Seed for sampling.", "N")] = None
    approve: Annotated[
        bool | None,
        option(
            "--approve/--no-approve",
            (
                "Show the plan and its estimated cost, and ask before any worker is called; or "
                "never ask."
            ),
        ),
    ] = None
    format: FormatOption = "answer"
    progress: ProgressOption = None
    rehearsal: Annotated[
        bool,
        option("--demo", "Use the tiny demo models that ship with conductor: no key, no download."),
    ] = False
    no_trace: Annotated[bool, option("--no-trace", "Do not store a trace of this run.")] = False

    @property
    def worker_names(self) -> tuple[str, ...]:
        return parse_names(self.workers)

    def settings(self) -> dict[str, Any]:
        """Return what the options say, as checked settings by name. Raises `UsageError`."""
        tools = split_names(self.tools)
        given = {
            "conductor.mode": self.mode,
            "planner.model": self.conductor,
            "conductor.pool": self.pool,
            "conductor.tools": None if tools is None else ",".join(dict.fromkeys(tools)),
            "conductor.allow_tools": split_names(self.allow_tools),
            "limits.steps": self.max_steps,
            "limits.review": self.recursion,
            "limits.cost": parse_cost(self.max_cost),
            "limits.tokens": self.max_tokens,
            "limits.calls": self.max_calls,
            "limits.seconds": self.max_time,
            "policy.approve": self.approve or None,
            "attachments.fit": self.fit or None,
            "output.progress": self.progress,
        }
        return check_flags(given | policy_settings(self.allow, self.deny, self.local_only))


def with_options(
    *, omit: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options for which its parameters stand.

    A parameter whose type is a dataclass, such as `RunOptions`, stands for one option for each
    field that is not in `omit`. Typer reads a command's options from its signature, so the command
    gets one that lists them all.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        # The command modules postpone annotations, so Typer needs them evaluated.
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, list[inspect.Parameter]] = {}
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if is_dataclass(hints[name]):
                groups[name] = _field_parameters(hints[name], omit)
                parameters += groups[name]
            else:
                parameters.append(_keyword_parameter(name, parameter.default, hints[name]))

        def command(**values: Any) -> None:  # noqa: ANN401 - what Typer read
            for name, group in groups.items():
                options = {option.name: values.pop(option.name) for option in group}
                values[name] = hints[name](**options)
            function(**values)

        command.__doc__ = function.__doc__
        command.__name__ = function.__name__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer looks at
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _field_parameters(group: Any, omit: Collection[str]) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    """Return the parameter of a command for each field of a class of options."""
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for field in fields(group):
        if field.name in omit:
            continue
        default: Any = inspect.Parameter.empty
        if field.default is not MISSING:
            default = field.default
        parameters.append(_keyword_parameter(field.name, default, hints[field.name]))
    return parameters


def _keyword_parameter(
    name: str,
    default: Any,  # noqa: ANN401 - any default of an option
    hint: Any,  # noqa: ANN401 - what Typer reads
) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def check_plain_model(model: str | None, options: RunOptions) -> None:
    """Raise `UsageError` where `--model` stands beside an option about plans or other workers."""
    if model is None:
        return
    if not model.strip():
        raise UsageError("--model names no worker", hint="for example: --model openai/gpt-5-mini")
    others = {
        "--workers": options.workers,
        "--pool": options.pool,
        "--planner": options.conductor,
        "--mode": options.mode,
        "--max-steps": options.max_steps,
        "--review": options.recursion,
        "--demo": options.rehearsal,
    }
    given = [name for name, value in others.items() if value]
    if given:
        hint = f"leave out {given[0]}; or to have it planned: --workers {model} --approve"
        raise UsageError(
            f"--model is one call of one worker, and {given[0]} is no part of it", hint=hint
        )


def policy_settings(allow: Names, deny: Names, local_only: bool) -> dict[str, Any]:
    """Policy options as settings by name.

    They add to the rules of the files and never remove one.
    """
    return {
        "policy.allow": split_names(allow),
        "policy.deny": split_names(deny),
        "policy.local_only": local_only or None,
    }


def is_address(text: str) -> bool:
    """Return whether a word is an address in the web."""
    return text.startswith(("http://", "https://"))


def is_source(text: str) -> bool:
    """Return whether a word after files names another thing to attach, such as a pull request."""
    return text.startswith(("http://", "https://", "pr:", "issue:", "diff:", "clipboard:"))


def split_names(texts: Names) -> Names:
    """Return the names in all texts such as `A,B`, in order; None where there is no text."""
    if not texts:
        return None
    return list(map(str.strip, ",".join(texts).split(",")))


def parse_assignments(
    texts: Sequence[str] | None, lists: Collection[str] = (), *, option: str = "--set"
) -> dict[str, Any]:
    """Return the settings of `--set KEY=VALUE` by name; None removes one.

    Those in `lists` are lists, which add up where one is given twice. Raises `UsageError`, also
    where another one is given twice and differs.
    """
    assigned: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = map(str.strip, text.partition("="))
        if not key or not equals:
            raise UsageError(
                f"{option} takes KEY=VALUE, not {text!r:.40}",
                hint="for example: temperature=0.2",
            )
        name = key.replace("-", "_")
        typed: Any = _typed_value(value)
        if name in lists and value:
            typed = split_names([value])
        add_assignment(assigned, name, typed, f"{option} {key}")
    return assigned


def add_assignment(
    assigned: dict[str, Any],
    name: str,
    value: Any,  # noqa: ANN401 - any value of a setting
    option: str,
) -> None:
    """Set what an option assigns to `name`; a list adds to the list that is there.

    Raises `UsageError` for a contradiction: taking the last value would drop the first in silence,
    which may be a rule such as `read_only` or `sandbox`.
    """
    before = assigned.setdefault(name, value)
    if before is value:
        return
    if before and value and isinstance(before, list) and isinstance(value, list):
        assigned[name] = before + value
    elif before != value:
        raise contradiction(option, _shown_value(before), _shown_value(value))


def contradiction(option: str, first: str, second: str) -> UsageError:
    """Return the error of an option that takes one value and was given two."""
    message = f"{option} is given twice: {first!r:.60} and {second!r:.60}"
    return UsageError(message, hint="it takes one value: leave one of them out")


def _shown_value(value: Any) -> str:  # noqa: ANN401 - any value of a setting
    if isinstance(value, list):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _typed_value(text: str) -> str | float | bool | None:
    """Return what a text of `--set` means: yes or no, a number, the text; None if it is empty."""
    if text in ("true", "false"):
        return text == "true"
    number = re.fullmatch(r"-?\d{1,300}(\.\d{1,300})?(e-?\d{1,3})?", text)
    if number is None:
        return text or None
    has_fraction = number[1] is not None
    has_exponent = number[2] is not None
    if not (has_fraction or has_exponent):
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else text  # no setting takes 1e999


def stored_settings(context: typer.Context, flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of files and environment, and of the options of a command by name.

    Raises `ConfigError`.
    """
    from conductor_cli.config.settings import load_settings

    return load_settings(os.environ, check_flags(flags or {}), context.obj.config)


def check_flags(settings: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Settings by name, from options or the file `source`, without those that are None.

    Raises `UsageError`.
    """
    # A command line that only asks for help reads no settings
    from conductor_cli.config.settings import find_setting

    values = {}
    for name, value in settings.items():
        if value is None:
            continue
        try:
            setting = find_setting(name)
            values[setting.name] = setting.check(value)
        except ConfigError as error:
            message = f"{source}: {error.message}"
            if not source:
                message = error.message.replace(name, FLAGS.get(name, name), 1)
            raise UsageError(message, hint=error.hint) from None
    return values


def parse_names(texts: Names) -> tuple[str, ...]:
    """Return the names in each `--workers A,B`, each once; none where the option is not given.

    Raises `UsageError` where one text holds no name: who writes `--workers "$EMPTY"` does not mean
    all workers.
    """
    names: list[str] = []
    for text in texts or ():
        in_text = [name.strip() for name in text.split(",") if name.strip()]
        if not in_text:
            raise UsageError("--workers names no worker", hint="for example: --workers A,B")
        names += in_text
    return tuple(dict.fromkeys(names))


# Words that look like the name of a file
FILE_LIKE: Final = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")

_RUN_ID: Final = re.compile(r"last~\d+|\d{8}-\d{6}(-[0-9a-f]{0,10})?")


def run_to_continue(last: bool, named: str | None, question: Sequence[str] = ()) -> str | None:
    """Return the run that `--continue` or `--continue-from` means, None for neither.

    Raises `UsageError` for both, and for an id behind `--continue`, which would silently become a
    part of the question.
    """
    if last and named is not None:
        raise UsageError(
            "--continue takes the last run and --continue-from another one", hint="give one of them"
        )
    if last and question and _RUN_ID.fullmatch(question[0]):
        hint = (
            f"conductor ask --continue-from {question[0]} …; to ask about it: put it in quotes "
            "with the question"
        )
        raise UsageError(
            f"--continue takes no run, and {question[0]} looks like the id of one", hint=hint
        )
    return "last" if last else named


def parse_cost(text: str | None) -> Decimal | None:
    """Return the amount of `--max-cost`, in US dollars; None where it is not given.

    Raises `UsageError`.
    """
    cost: Decimal | None = check_flags({"limits.cost": text and text.removeprefix("$")}).get(
        "limits.cost"
    )
    return cost
