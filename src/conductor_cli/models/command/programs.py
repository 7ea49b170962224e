"""The kinds of worker that are programs (`programs.toml`), and who reads what they are sent.

Pure.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.policy import LOCAL, UNKNOWN_PROVIDER
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import load
from conductor_cli.core.terminal_text import one_line

PROMPT: Final = "{prompt}"
"""Stands for the prompt in an argument. Without it a program reads the prompt on standard input."""

MODEL: Final = "{model}"  # stands for the worker's model in an argument


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """A directory of a program's own; `variable` may name another one.

    In a sandbox it has only what is named here.

    `writable` are its login and its sessions, `readable` its settings and what these start. Of a
    file that has both, `copied`, a program may change a copy, which is removed with its sandbox.
    """

    path: str
    variable: str = ""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKind:
    """What is known about a kind of program.

    `command` is its command line, empty where the user gives it; `model` are the arguments that
    choose a model. `events` is a key of `events.READERS`, empty where standard output is the answer
    itself. `provider` is who reads what it is sent while nothing else is configured, empty where
    nobody knows. `install` is how to install it, `env` are variables that it gets besides the usual
    ones, `state` is what it keeps outside its working directory. `words` say to the planner what it
    is good at.
    """

    about: str
    command: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    events: str = ""
    provider: str = ""
    install: str = ""
    env: tuple[str, ...] = ()
    state: tuple[ProgramState, ...] = ()
    words: str = ""


_TABLES: Final = tomllib.loads(
    Path(__file__).with_name("programs.toml").read_text(encoding="utf-8")
)

PROGRAMS: Final[Mapping[str, ProgramKind]] = {
    kind: load(ProgramKind, values, kind) for kind, values in _TABLES.items()
}
"""Every kind of worker that is a program, by name."""

_KEY: Final = re.compile(r"(?:^|_)(?:KEY|TOKEN)$")
"""A variable with a key. Any other may lead a program to another address."""


def command_of(worker: Worker) -> tuple[str, ...]:
    """Return the words of a worker's program, `{model}` filled in and `{prompt}` not yet.

    Empty if it names no program.
    """
    program = PROGRAMS[worker.kind]
    words = [*(worker.options.get("command") or program.command)]
    words += program.model if worker.model else ()
    words += worker.options.get("args") or ()
    return tuple(str(word).replace(MODEL, worker.model) for word in words)


def describe_program(worker: Worker) -> str:
    """Return a worker's program in a few words.

    Its command line, and whether it is in a sandbox.
    """
    line = one_line(shlex.join(command_of(worker)))
    line = line if len(line) <= 60 else f"{line[:59]}…"
    if not worker.options.get("sandbox"):
        return line
    return f"{line}, in a sandbox {'without a' if is_confined(worker) else 'with the'} network"


def is_confined(worker: Worker) -> bool:
    """Return whether a program runs in a sandbox without a network.

    Such a program can send nothing to anybody.
    """
    return worker.options.get("sandbox") is True and worker.options.get("network") is not True


def recipient_of_program(worker: Worker) -> str:
    """Return who reads what a program is sent.

    That is a provider, `LOCAL` for this machine alone, else `UNKNOWN_PROVIDER`.

    The provider of a preset is the one that its program uses by itself. Arguments, a command line
    or variables of the user's own may lead it elsewhere, so they make the provider unknown unless
    `provider` says who it is.
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
