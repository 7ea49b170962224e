"""The kinds of worker that are programs, their settings, and who reads what such a worker is sent. Pure.

The kinds are in `programs.toml` beside this file.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.policy import LOCAL, UNKNOWN_PROVIDER
from conductor_cli.core.pool import Worker
from conductor_cli.core.terminal_text import one_line

PROMPT: Final = "{prompt}"
"""Stands for the prompt in an argument. Without it a program reads the prompt on standard input."""

MODEL: Final = "{model}"
"""Stands for the worker's model in an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A file or directory of a program's own (its login, its sessions). `variable` may name another one."""

    path: str
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is known about a kind of program.

    `command` is its command line, empty where the user gives it; `model` are the arguments that choose a model.
    `events` is a key of `events.READERS`, empty where standard output is the answer itself. `provider` is who reads
    what it is sent while nothing else is configured, empty where nobody knows. `install` is how to install it, `env`
    are variables that it gets besides the usual ones, `state` is what it writes outside its working directory. `words`
    say to the planner what it is good at.
    """

    about: str
    command: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    events: str = ""
    provider: str = ""
    install: str = ""
    env: tuple[str, ...] = ()
    state: tuple[State, ...] = ()
    words: str = ""


def _program(values: Mapping[str, Any]) -> Program:
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list) and name != "state"}
    state = tuple(State(**each) for each in values.get("state", ()))
    return Program(**{**values, **lists, "state": state})


PROGRAMS: Final[Mapping[str, Program]] = {
    kind: _program(values)
    for kind, values in tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8")).items()
}
"""Every kind of worker that is a program, by name."""

PROGRAM_OPTIONS: Final[dict[str, tuple[type, ...]]] = {
    "command": (list, tuple),
    "args": (list, tuple),
    "cwd": (str,),
    "env": (list, tuple),
    "seconds": (int, float),
    "sandbox": (bool,),
    "network": (bool,),
    "read": (list, tuple),
    "provider": (str,),
    "max_tokens": (int,),
    "context": (int,),
}
"""The options of a worker that is a program, and their types."""

LONGEST_LINE: Final = 60
"""Characters of a command line where it is only mentioned."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")
_KEY: Final = re.compile(r"(?:^|_)(?:KEY|TOKEN)$")
"""A variable with a key. Any other may lead a program to another address."""


def command_of(worker: Worker) -> tuple[str, ...]:
    """The words of a worker's program, `{model}` filled in and `{prompt}` not yet; empty if it names no program."""
    program = PROGRAMS[worker.kind]
    words = [*(worker.options.get("command") or program.command)]
    words += program.model if worker.model else ()
    words += worker.options.get("args") or ()
    return tuple(str(word).replace(MODEL, worker.model) for word in words)


def describe_program(worker: Worker) -> str:
    """A worker's program in a few words: its command line, and whether it is in a sandbox."""
    line = one_line(shlex.join(command_of(worker)))
    line = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
    if not worker.options.get("sandbox"):
        return line
    return f"{line}, in a sandbox {'without a' if is_confined(worker) else 'with the'} network"


def is_confined(worker: Worker) -> bool:
    """Whether a program runs in a sandbox without a network, so that it can send nothing to anybody."""
    return worker.options.get("sandbox") is True and worker.options.get("network") is not True


def recipient_of_program(worker: Worker) -> str:
    """Who reads what a program is sent: a provider, `LOCAL` for nobody but this machine, else `UNKNOWN_PROVIDER`.

    The provider of a preset is the one that its program uses by itself. Arguments, a command line or variables of the
    user's own may lead it elsewhere, so they make the provider unknown unless `provider` says who it is.
    """
    if is_confined(worker):
        return LOCAL
    if stated := str(worker.options.get("provider") or "").lower():
        return stated
    options = worker.options
    redirected = any(not _KEY.search(str(name)) for name in options.get("env") or ())
    if options.get("command") or options.get("args") or redirected:
        return UNKNOWN_PROVIDER
    return PROGRAMS[worker.kind].provider or UNKNOWN_PROVIDER


def invalid_settings(worker: Worker) -> Iterator[tuple[str, str, str]]:
    """The settings of a program that are invalid: name, what is wrong with it, and what is allowed."""
    for name in ("command", "args", "env", "read"):
        if any(not isinstance(item, str) or not item or "\0" in item for item in worker.options.get(name) or ()):
            yield name, f"{name} is not a list of texts", 'for example: ["one", "two"]'
            return
    if not command_of(worker):
        yield "command", "names no program", 'for example: command = ["tac"], or … --kind command -- tac'
    seconds, provider = worker.options.get("seconds"), worker.options.get("provider")
    if seconds is not None and seconds <= 0:
        yield "seconds", f"seconds is {seconds}", "a number above 0"
    if provider is not None and not _PROVIDER.fullmatch(provider):
        yield "provider", f"provider is {provider!r:.60}", "a provider's name, or local"
    if any(not _VARIABLE.fullmatch(name) for name in worker.options.get("env") or ()):
        yield "env", "env has something that is not the name of a variable", "names only: their values are passed on"
    yield from _invalid_confinement(worker)


def _invalid_confinement(worker: Worker) -> Iterator[tuple[str, str, str]]:
    option, program = worker.options.get, PROGRAMS[worker.kind]
    if not option("sandbox"):
        for name in ("network", "read"):
            if option(name) is not None:
                yield name, f"{name} is for a program in a sandbox", "sandbox = true"
    elif program.events and not option("network"):
        yield "network", f"{worker.kind} needs the network to reach its model", "network = true"
