"""Every setting once: its name, type, bounds, default and meaning.

Files, environment, `config` and docs read this.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, UsageError, suggest
from conductor_cli.core.mappings import by_name
from conductor_cli.core.plan import MAX_STEPS

# What the environment variables begin with. Other tools own `CONDUCTOR_*`
PREFIX: Final = "CONDUCTOR_LLM_"

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "whole": (int,),
    "number": (int, float),
    "yes-no": (bool,),
    "money": (int, float, str, Decimal),
    "names": (list, tuple),
    "groups": (list, tuple),
}
_WORDS: Final = dict.fromkeys(("true", "yes", "1", "on"), True) | dict.fromkeys(
    ("false", "no", "0", "off"), False
)
_TYPE_NAMES: Final = {
    "text": "text in quotes",
    "number": "a number",
    "money": "US dollars, as a number",
} | dict.fromkeys(("names", "groups"), 'a list of worker names, "tag:…" and "provider:…"')
_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_TOOLS: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"  # the name of a server of tools
_SELECTOR: Final = re.compile(
    r"((tag|tool):)?[A-Za-z0-9][A-Za-z0-9._-]{0,39}|provider:[A-Za-z0-9][A-Za-z0-9._:-]{0,252}"
)
"""How workers are selected: by name, tag or provider, the last also by its host. Servers of tools:
`tool:NAME`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    `name` is `section.key`, `type` one of text, whole, number, money, yes-no, names, groups.

    Names are selectors of workers. Groups are several such lists, one from each place that sets it;
    a worker must be in all of them. Whole numbers are from `least` to `most`; numbers and money are
    more than 0. `form` and `pattern` describe a text in words and as a regular expression.
    """

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int | None = None
    form: str = ""
    pattern: str = ""

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.type == "whole":
            if self.most is None:
                return f"a whole number of at least {self.least}"
            return f"a whole number from {self.least} to {self.most}"
        if self.form:
            return self.form
        noun = _TYPE_NAMES.get(self.type, "true or false")
        if self.type in {"number", "money"}:
            return f"{noun} above 0"
        return noun

    def check(self, value: Any) -> Any:  # noqa: ANN401 - any TOML value
        """`value` as this setting keeps it. Raises `ConfigError` with what was expected."""
        is_tuple = isinstance(value, tuple)
        if self.type == "groups" and is_tuple and all(isinstance(v, tuple) for v in value):
            return value  # checked before
        # In Python a bool is an int, but `steps = true` is a mistake.
        is_switch = self.type == "yes-no"
        fits = isinstance(value, _TYPES[self.type]) and isinstance(value, bool) == is_switch
        checked: Any = value
        if fits:
            try:
                checked = self._converted(value)
                fits = self._admits(checked)
            except (ValueError, OverflowError, InvalidOperation, TypeError):
                # TypeError: lists in a list
                fits = False
        if not fits:
            shown = repr(value)
            if isinstance(value, Decimal):
                shown = str(value)
            raise ConfigError(f"{self.name} is {shown:.60}; expected {self.expected}")
        if self.type != "groups":
            return checked
        return (checked,)

    def _converted(self, value: Any) -> Any:  # noqa: ANN401 - any TOML value
        match self.type:
            case "number":
                return float(value)
            case "money":
                return Decimal(str(value))
            case "names" | "groups":
                return tuple(dict.fromkeys(value))
        return value

    def _admits(self, value: Any) -> bool:  # noqa: ANN401 - any TOML value
        """Return whether a value of the right type is one that the setting may have."""
        match self.type:
            case "whole":
                return bool(self.least <= value and (self.most is None or value <= self.most))
            case "number" | "money":
                return math.isfinite(value) and value > 0
            case "names" | "groups":
                return all(isinstance(name, str) and self._is_name(name) for name in value)
            case "text":
                if self.choices:
                    return value in self.choices
                return not self.pattern or re.fullmatch(self.pattern, value) is not None
        return True

    def _is_name(self, name: str) -> bool:
        if self.pattern:
            return re.fullmatch(self.pattern, name) is not None
        return _SELECTOR.fullmatch(name) is not None

    def parse(self, text: str) -> Any:  # noqa: ANN401 - any TOML value
        """Return the value that `text`, from a command line or the environment, means.

        Raises `ConfigError`.
        """
        # Text that is not a number or a word for yes or no goes to `check` as it is, whose error
        # says what is expected.
        meant: Any = text
        with suppress(ValueError):
            if self.type == "whole":
                meant = int(text)
            elif self.type == "number":
                meant = float(text)
        if self.type == "yes-no":
            meant = _WORDS.get(text.strip().lower(), text)
        if self.type in {"names", "groups"}:
            meant = list(map(str.strip, text.split(",")))
        return self.check(meant)


SETTINGS: Final = (
    Setting(
        name="planner.model",
        type="text",
        default="",
        help="the model that plans: a stored model, a worker, a GGUF file, provider/model, a URL "
        "(its first chat "
        "model) or URL#MODEL",
    ),
    Setting(
        name="planner.profile",
        type="text",
        default="auto",
        choices=("auto", "prompted", "prompted-json", "brief", "kinds", "published"),
        help="how prompts and plans of the planner are written; auto depends on the model",
    ),
    Setting(
        name="planner.adapter",
        type="text",
        default="",
        help="a LoRA adapter in a GGUF file, applied to a local model",
    ),
    Setting(
        name="planner.gpu_layers",
        type="text",
        default="auto",
        form="auto, all or a number",
        pattern=r"auto|all|[0-9]{1,4}",
        help="layers of a local model to put on the GPU: auto, all or a number",
    ),
    Setting(
        name="planner.context",
        type="whole",
        default=8192,
        least=512,
        help="context size of a local model, in tokens",
    ),
    Setting(
        name="planner.threads",
        type="whole",
        default=0,
        least=0,
        help="threads of a local model; 0 uses one per physical core that is idle when it is loaded",
    ),
    Setting(
        name="planner.revise",
        type="yes-no",
        default=True,
        help="ask the planner once for the rest of the plan where no worker can do a step",
    ),
    Setting(
        name="conductor.mode",
        type="text",
        default="auto",
        choices=("mini", "auto", "ultra"),
        help="mini: one worker; auto: up to five steps; ultra: with reasoning and a review",
    ),
    Setting(
        name="conductor.pool",
        type="text",
        default="",
        help="the named pool to use; empty for every enabled worker",
    ),
    Setting(
        name="conductor.tools",
        type="text",
        default="auto",
        form="auto, none, or names of tools: A,B",
        pattern=rf"{_TOOLS}(,{_TOOLS})*",
        help="servers whose tools every worker gets: A,B; none; auto for the workers' own",
    ),
    Setting(
        name="conductor.allow_tools",
        type="names",
        default=(),
        form="a list of tools: NAME or NAME.TOOL",
        pattern=rf"{_TOOLS}(\..{{1,200}})?",
        help="tools that may be called without asking: all of a server (NAME) or one (NAME.TOOL)",
    ),
    Setting(
        name="limits.steps",
        type="whole",
        default=None,
        most=MAX_STEPS,
        help=(
            "maximum steps in a plan, 1 to 5 (without a limit: 1 with one worker, 2 with a planner "
            "in a file that was neither trained to plan nor measured, else 5)"
        ),
    ),
    Setting(name="limits.parallel", type="whole", default=8, help="maximum steps at the same time"),
    Setting(
        name="limits.attempts",
        type="whole",
        default=3,
        help="maximum attempts of one worker at one step",
    ),
    Setting(
        name="limits.review",
        type="whole",
        default=0,
        least=0,
        help="let the planner review the answer, so many times at most",
    ),
    Setting(name="limits.seconds", type="number", default=None, help="maximum seconds per run"),
    Setting(name="limits.cost", type="money", default=None, help="maximum US dollars per run"),
    Setting(
        name="limits.tokens",
        type="whole",
        default=None,
        help="maximum tokens per run, input and output",
    ),
    Setting(name="limits.calls", type="whole", default=None, help="maximum worker calls per run"),
    Setting(
        name="limits.tool_calls",
        type="whole",
        default=None,
        help="maximum calls of tools per run (without a limit: 100)",
    ),
    Setting(
        name="limits.cost_day",
        type="money",
        default=None,
        help="maximum US dollars per day, over all runs",
    ),
    Setting(
        name="limits.tokens_day",
        type="whole",
        default=None,
        help="maximum tokens per day, over all runs",
    ),
    Setting(
        name="limits.calls_day",
        type="whole",
        default=None,
        help="maximum worker calls per day, over all runs",
    ),
    Setting(
        name="timeouts.first_token",
        type="number",
        default=180.0,
        help="maximum seconds to the first token of an attempt",
    ),
    Setting(
        name="timeouts.idle", type="number", default=90.0, help="maximum seconds between two tokens"
    ),
    Setting(
        name="timeouts.total", type="number", default=900.0, help="maximum seconds for one attempt"
    ),
    Setting(
        name="policy.allow",
        type="groups",
        default=(),
        help="ask only these workers: names, tag:… or provider:…",
    ),
    Setting(name="policy.deny", type="names", default=(), help="never ask these workers"),
    Setting(
        name="policy.local_only",
        type="yes-no",
        default=False,
        help="use only models on this machine, for planning too",
    ),
    Setting(
        name="policy.files_only",
        type="groups",
        default=(),
        help=(
            "show attached files, and answers that may contain parts of them, only to these workers"
        ),
    ),
    Setting(
        name="policy.approve",
        type="yes-no",
        default=False,
        help="show each plan and wait for approval before any worker is called",
    ),
    Setting(
        name="policy.no_commands",
        type="yes-no",
        default=False,
        help="conductor do only shows the command that it proposes, and never runs it",
    ),
    Setting(
        name="policy.project",
        type="yes-no",
        default=True,
        help="apply the .conductor.toml of the working tree, which can only narrow settings",
    ),
    Setting(
        name="policy.no_memory",
        type="yes-no",
        default=False,
        help="never read the AGENTS.md, CLAUDE.md and GEMINI.md of a project as context",
    ),
    Setting(
        name="policy.web_domains",
        type="groups",
        default=(),
        form="a list of domains such as docs.python.org",
        pattern=_HOST,
        help="read web pages of these domains, and of those below them, only",
    ),
    Setting(
        name="output.progress",
        type="text",
        default="auto",
        choices=("auto", "tree", "plain", "none"),
        help="progress display on stderr",
    ),
    Setting(
        name="output.color",
        type="text",
        default="auto",
        choices=("auto", "always", "never"),
        help="colours on a terminal",
    ),
    Setting(
        name="output.markdown",
        type="yes-no",
        default=True,
        help="render the answer as Markdown on a terminal with colours",
    ),
    Setting(
        name="output.notify",
        type="text",
        default="auto",
        choices=("auto", "bell", "osc9", "osc777", "off"),
        help=(
            "how the terminal tells that a run waits for approval, or has ended, after 10 seconds: "
            "auto is a notification of the desktop where the terminal is known to have them, "
            "else the bell"
        ),
    ),
    Setting(
        name="chat.context",
        type="whole",
        default=8000,
        least=256,
        help="approximate tokens of earlier questions and answers that a chat sends with a question",
    ),
    Setting(
        name="attachments.image_mb",
        type="whole",
        default=20,
        help="maximum size of an attached image, in MB; providers take 5 to 20",
    ),
    Setting(
        name="attachments.pdf_mb",
        type="whole",
        default=32,
        help="maximum size of an attached PDF, in MB; providers take 20 to 50",
    ),
    Setting(
        name="attachments.fit",
        type="yes-no",
        default=False,
        help="shorten what is too long for a worker, instead of leaving the worker out",
    ),
    Setting(
        name="attachments.tools",
        type="yes-no",
        default=True,
        help="let workers look things up in an attached directory that is too long for a prompt",
    ),
    Setting(
        name="web.search",
        type="text",
        default="",
        form="brave, tavily, or the URL of a SearXNG",
        pattern=r"|brave|tavily|https?://[^\s@?#]+",
        help="let workers search the web by this provider, and read pages; empty: they may not",
    ),
    Setting(
        name="web.private_hosts",
        type="names",
        default=(),
        form="a list of hosts, HOST or HOST:PORT",
        pattern=rf"({_HOST}|\[[0-9a-fA-F:]+\])(:[0-9]{{1,5}})?",
        help="hosts that web pages may be read from although they are at a private address",
    ),
    Setting(
        name="web.github_url",
        type="text",
        default="https://api.github.com",
        form="a URL such as https://github.example.com/api/v3",
        pattern=r"https?://[^\s@?#]+",
        help="where pull requests and issues are read: the REST API of GitHub",
    ),
    Setting(
        name="learning.enabled",
        type="yes-no",
        default=True,
        help="let ratings and checks of answers change the cards that the planner reads",
    ),
    Setting(
        name="learning.check",
        type="text",
        default="",
        help=(
            "a program that says whether an answer is good: it reads the answer, and exit code 0 "
            "means good"
        ),
    ),
    Setting(
        name="eval.python",
        type="text",
        default="",
        help="the Python interpreter that runs the programs which eval and train score, in a "
        "sandbox, with the "
        "libraries of its environment; none: that of conductor, without its packages",
    ),
    Setting(
        name="serve.approvals",
        type="yes-no",
        default=False,
        help=(
            "let the page of serve answer what runs of other programs of this user wait for, and "
            "end them; whoever may use the server may do that then. Only where no keys are needed"
        ),
    ),
    Setting(
        name="serve.parallel",
        type="whole",
        default=32,
        help="maximum runs of conductor serve at the same time",
    ),
    Setting(
        name="serve.origins",
        type="names",
        default=(),
        pattern=r"\*|none|[a-z][a-z0-9+.-]*://[^\s/,]+",
        form="a list of origins such as https://chat.example.com, or none",
        help=(
            "web pages that may ask conductor serve, beside its own; none: its own page only "
            "shows runs"
        ),
    ),
    Setting(
        name="serve.background",
        type="yes-no",
        default=True,
        help=(
            "titles, commit messages and the like, which clients ask for on their own, are not "
            "planned"
        ),
    ),
    Setting(
        name="traces.keep",
        type="text",
        default="auto",
        choices=("auto", "always", "never"),
        help=(
            "store a trace of each run; auto runs without one where none can be stored, always "
            "does not"
        ),
    ),
)

RENAMED: Final = {
    "conductor.model": "planner.model",
    "conductor.profile": "planner.profile",
    "conductor.adapter": "planner.adapter",
    "conductor.gpu_layers": "planner.gpu_layers",
    "conductor.context": "planner.context",
    "conductor.threads": "planner.threads",
    "conductor.revise": "planner.revise",
    "limits.recursion": "limits.review",
    "patience.first": "timeouts.first_token",
    "patience.idle": "timeouts.idle",
    "patience.total": "timeouts.total",
}
"""Earlier names of settings, which work on wherever the present one does."""

DROPPED: Final[dict[str, str]] = {
    "output.brief": "--quiet and output.progress say what is shown",
    "conductor.prepare": "the fixed part of the prompt is always read after model pull",
    "learning.explore": (
        "a step goes to the planned worker; measure others with conductor workers calibrate"
    ),
    "learning.explore_dearer": "a step goes to the planned worker",
    "learning.check_seconds": "a check may take 60 s",
    "breaker.failures": "a worker is skipped after 3 failures in a row",
    "breaker.seconds": "a skipped worker is tried again after 30 s, then after twice as long",
    "attachments.files": "a question takes 20 images and PDFs",
    "attachments.total_mb": "they may be 64 MB together",
    "serve.queue": "256 requests may wait",
    "serve.grace": "a run that no client reads is stopped after 20 s",
    "serve.drain": "running requests have 90 s to end",
    "serve.body_mb": "a request may have 48 MB",
}
"""Settings of the release before, and what holds instead. They are ignored with a notice."""

SETTINGS_BY_NAME: Final[dict[str, Setting]] = by_name(SETTINGS)


def current_form(name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - any TOML value
    """Return a setting of a file as it is written now.

    The first versions stored traces, or did not.
    """
    if name == "traces.keep" and isinstance(value, bool):
        if value:
            return name, "auto"
        return name, "never"
    return present_name(name), value


def present_name(name: str) -> str:
    """Return the name that a setting has now, which may have had this one earlier."""
    return RENAMED.get(name, name)


def variable_of(name: str) -> str:
    """Return the environment variable of the setting of this name."""
    return PREFIX + name.upper().replace(".", "_")


def describe_renamed(used: str, present: str) -> str:
    """Return what is said where an earlier name is used."""
    return f"{used} is called {present} now; the earlier name works on"


SHOWN_ELSEWHERE: Final = {
    "workers": (
        "conductor workers list shows the workers, conductor workers show NAME what one has, and "
        "conductor workers set NAME KEY=VALUE changes it"
    ),
    "tools": "conductor tools list shows the servers of tools, conductor tools add NAME adds one",
}
"""Tables of the files that are no settings, and the commands that show and change them."""


def find_setting(name: str) -> Setting:
    """Return the setting of this name, or of this earlier one. Raises `UsageError`."""
    name = present_name(name)
    if name in DROPPED:
        raise UsageError(
            f"the setting {name} was dropped", hint=f"it is fixed now: {DROPPED[name]}"
        )
    if name not in SETTINGS_BY_NAME:
        hint = suggest(name, SETTINGS_BY_NAME, "conductor config show lists them all")
        section = [other for other in SETTINGS_BY_NAME if other.startswith(f"{name}.")]
        if section:
            hint = f"its settings: {', '.join(section)}"
        hint = SHOWN_ELSEWHERE.get(name.partition(".")[0], hint)
        raise UsageError(f"unknown setting {name!r}", hint=hint)
    return SETTINGS_BY_NAME[name]
