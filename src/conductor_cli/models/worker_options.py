"""A worker's options: which are valid, and which of them a refusal is about. Pure.

A setting for sampling or thinking is never silently left out: if a server refuses one the call
fails, and the error names the setting. What only some models of a provider refuse is left to the
provider to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, ModelError, suggest
from conductor_cli.core.pool import Worker
from conductor_cli.models.addresses import is_own_address
from conductor_cli.models.command.programs import PROGRAMS, command_of
from conductor_cli.models.presets import OPENAI_APIS, PRESETS

_TEXT = (str,)
_WHOLE = (int,)
_NUMBER = (int, float)
_SWITCH = (bool,)
_TEXTS = (list, tuple)

# The options of a worker at a provider, in a GGUF file, and of one that is a program, with their
# types
REMOTE_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "base_url": _TEXT,
    "key_env": _TEXT,
    "temperature": _NUMBER,
    "max_tokens": _WHOLE,
    "top_p": _NUMBER,
    "reasoning_effort": _TEXT,
    "thinking_budget": _WHOLE,
    "headers": (Mapping,),
    "ca_file": _TEXT,
    "context": _WHOLE,
    "api": _TEXT,
}
LOCAL_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "context": _WHOLE,
    "threads": _WHOLE,
    "gpu_layers": (int, str),
    "seed": _WHOLE,
    "repack": _SWITCH,
    "mmap": _SWITCH,
    "adapter": _TEXT,
    "cache": _TEXT,
    "refuse_below": _NUMBER,
    "temperature": _NUMBER,
    "max_tokens": _WHOLE,
}
PROGRAM_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "command": _TEXTS,
    "args": _TEXTS,
    "cwd": _TEXT,
    "env": _TEXTS,
    "seconds": _NUMBER,
    "sandbox": _SWITCH,
    "network": _SWITCH,
    "read": _TEXTS,
    "provider": _TEXT,
    "max_tokens": _WHOLE,
    "context": _WHOLE,
}
OTHER_KINDS: Final[dict[str, Mapping[str, tuple[type, ...]]]] = {
    "llama": LOCAL_OPTIONS,
    **dict.fromkeys(PROGRAMS, PROGRAM_OPTIONS),
}
"""The kinds that are no provider's, and their options."""

_TYPE_NAMES: Final[dict[type, str]] = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Mapping: "a table",
    tuple: "a list of texts",
}

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""Valid reasoning efforts. Which of them a model accepts only its provider knows."""

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a variable may be called. Most keys have a dash, so a key given instead of its variable is
noticed.
"""

_PROVIDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")

_PLAIN_OPTIONS: Final = ("temperature", "top_p", "reasoning_effort", "max_tokens")
"""The settings that are sent under their own name."""


class OptionError(ConfigError):
    """An invalid option of a worker; `option` is its name, or `kind`."""

    def __init__(self, worker: Worker, option: str, message: str, hint: str) -> None:
        super().__init__(f"worker {worker.name!r}: {message}", hint=hint)
        self.option = option


def model_of(worker: Worker) -> str:
    """Return the model that a worker asks for: its own, else its provider's first.

    Empty if its server chooses.
    """
    if worker.model or worker.kind not in PRESETS:
        return worker.model
    preset = PRESETS[worker.kind]
    # Only servers with OpenAI's API choose a model themselves.
    server_chooses = preset.adapter == "http" and preset.api in OPENAI_APIS
    if server_chooses and not is_own_address(worker):
        return ""
    return preset.model


def kinds() -> tuple[str, ...]:
    """Return the kinds of worker that a user may name."""
    return (*PRESETS, *OTHER_KINDS)


def unknown_kind(worker: Worker) -> OptionError:
    """Return the error for a worker of no known kind."""
    return OptionError(
        worker, "kind", f"unknown kind {worker.kind!r}", suggest(worker.kind, kinds())
    )


def check_options(worker: Worker) -> None:
    """Check that a worker's kind exists, and that its options are known, valid and fit together.

    Raises `OptionError`.

    The options of the kinds `self` and `scripted` are checked by those that read them.
    """
    if worker.kind in ("self", "scripted"):
        return
    if worker.kind not in kinds():
        raise unknown_kind(worker)
    options = OTHER_KINDS.get(worker.kind, REMOTE_OPTIONS)
    for name, value in worker.options.items():
        if name not in options:
            message = f"the kind {worker.kind!r} has no option {name!r}"
            raise OptionError(worker, name, message, f"known: {', '.join(options)}")
        # In Python a bool is also an int.
        fits = isinstance(value, options[name]) and (
            bool in options[name] or not isinstance(value, bool)
        )
        if value is not None and not fits:
            message = f"{name} is {value!r:.60}; expected {_TYPE_NAMES[options[name][-1]]}"
            raise OptionError(worker, name, message, "conductor config show names the files")
    if worker.kind in PRESETS or worker.kind in PROGRAMS:
        invalid = _invalid_of_program if worker.kind in PROGRAMS else _invalid_of_provider
        for name, message, hint in invalid(worker):
            raise OptionError(worker, name, message, hint)


def _invalid_of_provider(worker: Worker) -> Iterator[tuple[str, str, str]]:
    option = worker.options.get
    effort = option("reasoning_effort")
    top_p = option("top_p")
    budget = option("thinking_budget")
    if effort is not None and effort not in EFFORTS:
        yield (
            "reasoning_effort",
            f"reasoning_effort is {effort!r:.40}",
            f"one of {', '.join(EFFORTS)}",
        )
    if top_p is not None and not 0 < top_p <= 1:
        yield "top_p", f"top_p is {top_p}", "a number above 0, at most 1"
    preset = PRESETS[worker.kind]
    api = option("api")
    chooses = preset.adapter == "http" and preset.api in OPENAI_APIS
    if api is not None and (not chooses or api not in OPENAI_APIS):
        yield (
            "api",
            f"api is {api!r:.40}",
            f"one of {', '.join(OPENAI_APIS)}, for a server with OpenAI's API",
        )
    if budget is not None and budget < 0:
        yield "thinking_budget", f"thinking_budget is {budget}", "tokens; 0 for no thinking"
    if budget is not None and effort is not None:
        yield (
            "thinking_budget",
            "thinking_budget and reasoning_effort exclude each other",
            "leave one out",
        )
    if budget is not None and not preset.budget:
        yield (
            "thinking_budget",
            f"the kind {worker.kind!r} has no thinking_budget",
            "use reasoning_effort instead",
        )


def _is_word(value: object) -> bool:
    """Return whether a value may be a word of a command line, which no null character ends."""
    return isinstance(value, str) and value != "" and "\0" not in value


def _invalid_of_program(worker: Worker) -> Iterator[tuple[str, str, str]]:
    """Yield the invalid settings of a program: name, what is wrong with it, and what is allowed."""
    option = worker.options.get
    for name in ("command", "args", "env", "read"):
        if not all(map(_is_word, option(name) or ())):
            yield name, f"{name} is not a list of texts", 'for example: ["one", "two"]'
            return
    if not command_of(worker):
        yield (
            "command",
            "names no program",
            'for example: command = ["tac"], or … --kind command -- tac',
        )
    seconds = option("seconds")
    provider = option("provider")
    if seconds is not None and seconds <= 0:
        yield "seconds", f"seconds is {seconds}", "a number above 0"
    if provider is not None and not _PROVIDER.fullmatch(provider):
        yield "provider", f"provider is {provider!r:.60}", "a provider's name, or local"
    if any(not VARIABLE_NAME.fullmatch(name) for name in option("env") or ()):
        yield (
            "env",
            "env has something that is not the name of a variable",
            "names only: their values are passed on",
        )
    if option("sandbox"):
        if PROGRAMS[worker.kind].events and not option("network"):
            yield "network", f"{worker.kind} needs the network to reach its model", "network = true"
        return
    for name in ("network", "read"):
        if option(name) is not None:
            yield name, f"{name} is for a program in a sandbox", "sandbox = true"


def own_setting(field: str, body: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the worker's own setting that a field of a body carries.

    Empty if the value is not the worker's.
    """
    if field in ("thinking", "reasoning"):
        return "thinking_budget" if options.get("thinking_budget") is not None else ""
    value = options.get(field)
    if field in _PLAIN_OPTIONS and value is not None and body.get(field) == value:
        return field
    return ""


def rejected_setting(model: str, setting: str, value: object, why: str) -> ModelError:
    """Return the error for a model that refuses a setting of its worker.

    `why` is in the provider's own words.
    """
    hint = f"change it, or remove it: conductor workers add … --set {setting}="
    message = f"{model} does not accept {setting} = {value}{f': {why}' if why else ''}"
    return ModelError("refused", message, hint=hint)
