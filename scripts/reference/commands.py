"""The tree of commands as plain values, read from the Typer application.

What every generator writes from.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from typer.main import get_command

from conductor_cli.cli.examples import EXAMPLES
from conductor_cli.core.errors import EXIT_CODES

if TYPE_CHECKING:
    import typer

Kind = Literal["flag", "choice", "file", "directory", "text"]
"""What may stand as a value: nothing, one of some words, a path, a directory, anything."""

PATHS: Final[dict[str, Kind]] = {
    "FILE": "file",
    "PATH": "file",
    "json": "file",
    "jsonl": "file",
    "DIR": "directory",
}
"""Words in the name of a value that say it is a path, also where the program reads it as text."""

TEXTS: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text("utf-8")
)
"""What no code says, by what it is about."""

EXITS: Final = {int(code): meaning for code, meaning in TEXTS["exits"].items()}
if missing := set(EXIT_CODES.values()) ^ (EXITS.keys() - {0}):
    raise ValueError(
        f"exit codes without a sentence here, or sentences without an exit code: {sorted(missing)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An option or an argument. An argument has no `names`; `metavar` is empty for a flag."""

    names: tuple[str, ...]
    metavar: str
    help: str
    kind: Kind
    choices: tuple[str, ...]
    many: bool
    required: bool
    default: str
    environment: tuple[str, ...]

    @property
    def label(self) -> str:
        """The names and the name of the value, as a list of parameters shows them."""
        return " ".join(filter(None, (", ".join(self.names), self.metavar)))

    def explained(self, quote: str = "") -> str:
        """The help with the default and the variables, each between two of `quote`."""
        extra = [f"Default: {quote}{self.default}{quote}."] if self.default else []
        names = ", ".join(f"{quote}{name}{quote}" for name in self.environment)
        return " ".join([self.help, *extra, *([f"Environment: {names}."] if names else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its words (`("trace", "list")`.

    None for the program itself), its text and what it takes.

    An example is what a command line does, and the line. `everywhere` are the options of the
    program that may stand after the command, too; only completion offers them there.
    """

    words: tuple[str, ...]
    text: str
    options: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    commands: tuple[Command, ...]
    examples: tuple[tuple[str, str], ...]
    everywhere: tuple[Parameter, ...]

    @property
    def path(self) -> str:
        """The words, each after a space: what shell functions compare."""
        return "".join(f" {word}" for word in self.words)

    @property
    def summary(self) -> str:
        """The first sentence of the text, in one line and without its full stop."""
        paragraph = " ".join(self.text.split("\n\n")[0].split())
        return re.split(r"(?<=[^.])\.(?:\s|$)", paragraph, maxsplit=1)[0]

    @property
    def usage(self) -> str:
        pieces = ["[OPTIONS]"] if self.options else []
        for argument in self.arguments:
            text = argument.metavar + ("..." if argument.many else "")
            pieces.append(text if argument.required else f"[{text}]")
        return " ".join([*pieces, "COMMAND ..."] if self.commands else pieces)

    def walk(self) -> Iterator[Command]:
        yield self
        for command in self.commands:
            yield from command.walk()


def read(app: typer.Typer, name: str) -> Command:
    """The whole tree of an application. Hidden commands and options are left out."""
    return _command(get_command(app), None, name, ())


def _command(command: Any, parent: Any, name: str, words: tuple[str, ...]) -> Command:
    context = command.context_class(
        command, info_name=name, parent=parent, **command.context_settings
    )
    parameters = [
        (parameter, getattr(parameter, "hidden", False))
        for parameter in command.get_params(context)
    ]
    shown = [parameter for parameter, hidden in parameters if not hidden]
    everywhere = getattr(context.find_root().command, "everywhere", ())
    below = [
        (name, command.get_command(context, name)) for name in getattr(command, "commands", ())
    ]
    return Command(
        words=words,
        text=inspect.cleandoc(command.help or command.short_help or "").strip(),
        options=tuple(
            _parameter(parameter) for parameter in shown if parameter.param_type_name == "option"
        ),
        arguments=tuple(
            _parameter(parameter) for parameter in shown if parameter.param_type_name == "argument"
        ),
        commands=tuple(
            _command(child, context, name, (*words, name))
            for name, child in below
            if not child.hidden
        ),
        examples=EXAMPLES.get(" ".join(words), ()),
        everywhere=tuple(
            _parameter(parameter)
            for parameter, hidden in parameters
            if hidden and parameter.name in everywhere
        ),
    )


def _parameter(parameter: Any) -> Parameter:
    kind, choices = _kind(parameter)
    names: list[str] = []
    default = ""
    if parameter.param_type_name == "option":
        names = [*parameter.opts, *parameter.secondary_opts]
        if kind != "flag":
            default = _default(parameter)
    # Typer keeps the names of --help in a set: short before long is an order they always have.
    names.sort(key=lambda name: name.startswith("--"))
    return Parameter(
        names=tuple(names),
        metavar="" if kind == "flag" else _metavar(parameter, choices),
        help=" ".join((parameter.help or "").split()),
        kind=kind,
        choices=choices,
        many=bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1,
        required=bool(parameter.required),
        default=default,
        environment=(parameter.envvar,)
        if isinstance(parameter.envvar, str)
        else tuple(parameter.envvar or ()),
    )


def _default(parameter: Any) -> str:
    """Return the default that the help of an option shows, empty for none."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if not parameter.show_default or parameter.default in (None, (), [], ""):
        return ""
    return str(parameter.default)


def _kind(parameter: Any) -> tuple[Kind, tuple[str, ...]]:
    described = parameter.type_descriptor
    if getattr(parameter, "is_flag", False) or getattr(parameter, "count", False):
        return "flag", ()
    if described.choices is not None:
        return "choice", tuple(
            str(c.value if isinstance(c, Enum) else c) for c in described.choices
        )
    if type_name := next(
        (PATHS[word] for word in re.split(r"\W+", parameter.metavar or "") if word in PATHS), None
    ):
        return type_name, ()
    types = {described.annotation, *get_args(described.annotation)}
    return ("file" if described.is_file or described.is_path or Path in types else "text"), ()


def _metavar(parameter: Any, choices: tuple[str, ...]) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if choices:
        return "|".join(choices)
    annotation = parameter.type_descriptor.annotation
    if parameter.param_type_name == "argument" or annotation not in {int, float}:
        return str(parameter.name).upper()
    return {int: "N", float: "NUMBER"}[annotation]
