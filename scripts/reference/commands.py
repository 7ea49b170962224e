"""The tree of commands as plain values, read from the Typer application: what every generator writes from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from typer.main import get_command

from conductor_cli.cli.examples import EXAMPLES
from scripts.reference.values import asked_of, words_of

if TYPE_CHECKING:
    import typer

Kind = Literal["flag", "choice", "file", "directory", "text"]
"""What may stand as a value: nothing, one of some words, a path, a directory, anything."""

PATHS: Final[dict[str, Kind]] = {
    "FILE": "file", "PATH": "file", "json": "file", "jsonl": "file", "DIR": "directory",
}  # fmt: skip
"""Words in the name of a value that say it is a path, also where the program reads it as text."""

PLAIN = re.compile(r"[A-Za-z0-9_.:+-]+")
"""Words that need no quoting in any shell: all names of commands, options and choices are such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An option or an argument. An argument has no `names`; `metavar` is empty for a flag.

    `choices` are all that may stand as a value of the kind "choice", and else some of it. `asked` is the command of the
    program that prints more of it, such as `model names`.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    kind: Kind
    asked: str
    choices: tuple[str, ...]
    many: bool
    required: bool
    default: str
    environment: tuple[str, ...]

    @property
    def takes_value(self) -> bool:
        return self.kind != "flag"

    @property
    def listed(self) -> bool:
        """Whether a value is several of them, parted by commas."""
        return "A,B" in self.metavar

    @property
    def takes_several(self) -> bool:
        """Whether an option may be followed by several values, up to the next word that is none."""
        return bool(self.names) and self.metavar.endswith("...")

    @property
    def may_stand_alone(self) -> bool:
        """Whether an option with a value may also come without one."""
        return self.metavar.startswith("[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its words (`("trace", "list")`; none for the program itself), its text and what it takes.

    An example is what a command line does, and the line. `everywhere` are the options of the program that may stand
    after the command, too; only completion offers them there.
    """

    words: tuple[str, ...]
    text: str
    options: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    commands: tuple[Command, ...]
    examples: tuple[tuple[str, str], ...]
    everywhere: tuple[Parameter, ...]

    @property
    def accepted(self) -> tuple[Parameter, ...]:
        """Every option that may stand after the command."""
        return self.options + self.everywhere

    @property
    def path(self) -> str:
        """The words, each after a space: what shell functions compare."""
        return "".join(f" {word}" for word in self.words)

    @property
    def open_ended(self) -> tuple[str, ...]:
        """The names of the option that several files may follow, so that words after it may be files, too."""
        return next((option.names for option in self.options if option.takes_several), ())

    @property
    def summary(self) -> str:
        """The first sentence of the text, in one line and without its full stop."""
        paragraph = " ".join(self.text.split("\n\n")[0].split())
        return re.split(r"(?<=[^.])\.(?:\s|$)", paragraph, maxsplit=1)[0]

    @property
    def usage(self) -> str:
        """What may follow the words of the command."""
        pieces = ["[OPTIONS]"] if self.options else []
        pieces += [_usage_of(argument) for argument in self.arguments]
        return " ".join([*pieces, "COMMAND ..."] if self.commands else pieces)

    def walk(self) -> Iterator[Command]:
        """The command and all below it, in order."""
        yield self
        for command in self.commands:
            yield from command.walk()


def _usage_of(argument: Parameter) -> str:
    text = argument.metavar + ("..." if argument.many else "")
    return text if argument.required else f"[{text}]"


def read(app: typer.Typer, name: str) -> Command:
    """The whole tree of an application. Hidden commands and options are left out."""
    return _command(get_command(app), None, name, ())


def _command(command: Any, parent: Any, name: str, words: tuple[str, ...]) -> Command:  # noqa: ANN401 - Typer's own Click
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    known = [(each, getattr(each, "hidden", False)) for each in command.get_params(context)]
    shown = [each for each, hidden in known if not hidden]
    everywhere = getattr(context.find_root().command, "everywhere", ())
    return Command(
        words=words,
        text=_plain(command.help or command.short_help or ""),
        options=tuple(_parameter(each, words) for each in shown if each.param_type_name == "option"),
        arguments=tuple(_parameter(each, words) for each in shown if each.param_type_name == "argument"),
        commands=tuple(_children(command, context, words)),
        examples=EXAMPLES.get(" ".join(words), ()),
        everywhere=tuple(_parameter(each, words) for each, hidden in known if hidden and each.name in everywhere),
    )


def _children(command: Any, context: Any, words: tuple[str, ...]) -> Iterator[Command]:  # noqa: ANN401
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    for name in names:
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield _command(child, context, _checked(name), (*words, name))


def _parameter(each: Any, words: tuple[str, ...]) -> Parameter:  # noqa: ANN401
    is_option = each.param_type_name == "option"
    kind, choices = _kind(each)
    metavar = "" if kind == "flag" else _metavar(each, choices)
    place = " ".join((*words, max(each.opts, key=len) if is_option else metavar))
    # Typer keeps the names of --help in a set: short before long is an order they always have.
    names = sorted((*each.opts, *each.secondary_opts), key=lambda name: name.startswith("--")) if is_option else ()
    return Parameter(
        names=tuple(_checked(name) for name in names),
        metavar=metavar,
        help=" ".join(_plain(each.help or "").split()),
        kind=kind,
        asked=asked_of(place, metavar),
        choices=tuple(_checked(choice) for choice in choices or words_of(place, metavar)),
        many=bool(getattr(each, "multiple", False)) or each.nargs != 1,
        required=bool(each.required),
        default="" if kind == "flag" or not is_option else _default(each),
        environment=(each.envvar,) if isinstance(each.envvar, str) else tuple(each.envvar or ()),
    )


def _kind(each: Any) -> tuple[Kind, tuple[str, ...]]:  # noqa: ANN401
    described = each.type_descriptor
    if getattr(each, "is_flag", False) or getattr(each, "count", False):
        return "flag", ()
    if described.choices is not None:
        return "choice", tuple(str(c.value if isinstance(c, Enum) else c) for c in described.choices)
    types = {described.annotation, *get_args(described.annotation)}
    info = described.parameter_info
    if described.is_file or described.is_path or Path in types:
        return ("file" if info.file_okay else "directory"), ()
    return next((PATHS[word] for word in re.split(r"\W+", each.metavar or "") if word in PATHS), "text"), ()


def _metavar(each: Any, choices: tuple[str, ...]) -> str:  # noqa: ANN401
    """The name of the value."""
    if each.metavar:
        return str(each.metavar)
    if choices:
        return "|".join(choices)
    annotation = each.type_descriptor.annotation
    if each.param_type_name == "argument" or annotation not in {int, float}:
        return str(each.name).upper()
    return {int: "N", float: "NUMBER"}[annotation]


def _default(each: Any) -> str:  # noqa: ANN401
    if isinstance(each.show_default, str):
        return each.show_default
    if not each.show_default or each.default in (None, (), [], "") or callable(each.default):
        return ""
    return str(each.default.value if isinstance(each.default, Enum) else each.default)


def _plain(text: str) -> str:
    """Help text as paragraphs: without what stands after a form feed, and without Click's mark for kept lines."""
    return inspect.cleandoc(text).partition("\f")[0].replace("\b\n", "").strip()


def _checked(word: str) -> str:
    if not PLAIN.fullmatch(word):
        raise ValueError(f"{word!r} would need quoting in a shell: give it another name")
    return word
