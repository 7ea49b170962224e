"""A command as this program has it: options under headings, and the options of every command also after its name.

What a command line means that Typer cannot read by itself: several files after one `-f`.

Values of options that need no Pydantic, by which Typer reads every value, also that of an option nobody gave.

To load Pydantic and to make its readers takes as long as Typer and the settings together. So a value that Typer would
hand to the command as it is, or as the number that it plainly is, is taken here. Typer reads every other one, and says
what is wrong with it: the declaration of an option stays the only place that knows what it takes.

A group of commands whose modules are imported only when one of them is run.

A command of this program may import at the top of its module whatever it needs: nobody pays for it but that command.
"""

# ruff: noqa: PTH110, PTH112, PTH113

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from conductor_cli.cli.examples import EXAMPLES
from conductor_cli.cli.options import HEADINGS, GlobalOptions
from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from typer._click import Context
    from typer._click.core import Parameter

if TYPE_CHECKING:
    from typer._click import Command as AnyCommand
    from typer._click import Context, HelpFormatter
    from typer._click.core import Parameter


if TYPE_CHECKING:
    from typer._click import Command as AnyCommand
    from typer._click import Context, HelpFormatter


_FILE_LIKE: Final = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
NAMED: Final = 4
"""Files that a notice names; it counts the others."""


def with_each_file(words: Sequence[str], names: Collection[str]) -> tuple[list[str], list[str]]:
    """The words, with the option of these `names` before every file; and the files where one option has several.

    A shell turns `-f *.md` into `-f` and many words. The words after an `-f FILE` that name existing files are attached
    too, up to the first that does not, up to an option, or up to `--`. Raises `UsageError` where that first word is a
    directory or looks like a file, since it would silently become a part of the question.
    """
    given: list[str] = []
    several: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*given, word, *rest], several
        given.append(word)
        if word in names and rest:
            files = [rest.pop(0), *_take_files(rest)]
            given += [files[0], *(each for file in files[1:] for each in (word, file))]
            several += files if len(files) > 1 else []
    return given, several


def _take_files(rest: list[str]) -> list[str]:
    """The files that the first of these words name; they are removed from `rest`. Raises `UsageError`."""
    files = []
    while rest and not rest[0].startswith("-") and os.path.exists(rest[0]) and not os.path.isdir(rest[0]):
        files.append(rest.pop(0))
    if rest and not rest[0].startswith("-"):
        hint = "words of the question go before -f, or after --"
        if os.path.isdir(rest[0]):
            raise UsageError(f"{rest[0]} is a directory", hint=f"-f takes files; {hint}")
        if _FILE_LIKE.fullmatch(rest[0]):
            raise UsageError(f"there is no file {rest[0]}", hint=f"check its name; {hint}")
    return files


def describe_files(several: Sequence[str], question: Sequence[str]) -> list[str]:
    """What to tell about files: which of them one `-f` attached, and which words of the question name some."""
    told = []
    if several:
        told.append(f"{len(several)} files are attached: {_listed(several)}")
    # A name without a slash or a suffix, such as make, is more likely just a word.
    if names := [word for word in question if _FILE_LIKE.fullmatch(word) and os.path.isfile(word)]:
        verb = "is" if len(names) == 1 else "are"
        told.append(f"{_listed(names)} {verb} read as a part of the question; to attach a file: -f {names[0]}")
    return told


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


PLAIN_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
"""A whole number as everybody writes it. Pydantic takes others too, such as `1_000`."""

NOT_PLAIN: Final = object()


def take_plain_values(parameters: Iterable[Parameter]) -> None:
    """Let parameters load Pydantic only for a value that needs it."""
    for parameter in parameters:
        # A Typer that reads values in another way is left alone.
        if hasattr(parameter, "get_runtime_param") and hasattr(parameter, "type_descriptor"):
            reader = _Reader(parameter)
            parameter.get_runtime_param = lambda reader=reader: reader


class _Reader:
    """What Typer asks for the value of one parameter."""

    def __init__(self, parameter: Any) -> None:  # noqa: ANN401 - Typer's own class of parameters
        self._ask_typer = parameter.get_runtime_param
        self._type, self._declared = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info

    def coerce(self, value: Any, param: Parameter, ctx: Context) -> Any:  # noqa: ANN401
        """The value as the command gets it; raises Typer's errors."""
        if value is None:
            return () if getattr(param, "multiple", False) or param.nargs == -1 else None
        plain = NOT_PLAIN if self._declared.parser is not None else self._plain(value)
        return self._ask_typer().coerce(value, param=param, ctx=ctx) if plain is NOT_PLAIN else plain

    def _plain(self, value: Any) -> Any:  # noqa: ANN401
        kind = get_origin(self._type) or self._type
        if kind is list and get_args(self._type) == (str,) and isinstance(value, list | tuple):
            return list(value) if all(isinstance(word, str) for word in value) else NOT_PLAIN
        if kind is str:
            return value if isinstance(value, str) else NOT_PLAIN
        if kind is Literal:
            return value if value in get_args(self._type) else NOT_PLAIN
        if kind is int and isinstance(value, str) and PLAIN_NUMBER.fullmatch(value):
            value = int(value)
        return value if kind is int and type(value) is int and self._allows(value) else NOT_PLAIN

    def _allows(self, number: int) -> bool:
        low, high = self._declared.min, self._declared.max
        return (low is None or number >= low) and (high is None or number <= high)


MANY: Final = 14
"""Options from which on they are shown under headings. Fewer are read faster as one list."""

SEVERAL_FILES: Final = "conductor_cli.several_files"
"""Where a context has the files that one `--file` attached together."""

UNBROKEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Stands for a hyphen while lines are broken."""

WIDEST_NAME: Final = 30
"""Columns for the name of an option; a longer one has its explanation on the next line."""


class Command(TyperCommand):
    """A command without commands of its own."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words of the command line, also several files after one `--file`."""
        take_plain_values(self.get_params(ctx))
        words, ctx.meta[SEVERAL_FILES] = with_each_file(args, self._names_of("--file"))
        return super().parse_args(ctx, words)

    def invoke(self, ctx: Context) -> Any:  # noqa: ANN401 - what a command returns
        """Run the command, and say first what was taken for a file."""
        if not (ctx.obj and ctx.obj.quiet) and ctx.params.get("progress") != "none":
            for line in describe_files(ctx.meta[SEVERAL_FILES], ctx.params.get("question") or ()):
                print_notice(line)
        return super().invoke(ctx)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments and options."""
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples of the command."""
        write_examples(ctx, formatter)

    def _names_of(self, option: str) -> Sequence[str]:
        return next((each.opts for each in self.params if option in each.opts), ())


class Group(TyperGroup):
    """A command with commands of its own, each with its whole first sentence in the help.

    A command whose declaration has a `rich_help_panel` stands under that heading.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the options, then the commands."""
        write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands, one sentence each, in as many lines as it takes."""
        del ctx
        shown = {name: below for name, below in self.commands.items() if not below.hidden}
        width = max(map(len, shown))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, below in shown.items():
            heading = getattr(below, "rich_help_panel", None) or "Commands"
            sections.setdefault(heading, []).append((name.ljust(width), below.get_short_help_str(1000)))
        for heading, rows in sections.items():
            with formatter.section(heading):
                write_rows(formatter, rows)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples of the group."""
        write_examples(ctx, formatter)


def write_options(command: AnyCommand, ctx: Context, formatter: HelpFormatter) -> None:
    """Write arguments and options; many of them under the headings that their declarations name."""
    arguments: list[tuple[str, str]] = []
    rows: dict[str, tuple[str, str]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and parameter.param_type_name == "argument":
            # Typer writes the type of an argument after its name, in the words of Python.
            arguments.append((getattr(parameter, "display_name_raw", record[0]), record[1]))
        elif record is not None:
            rows[max(parameter.opts, key=len)] = record
    sections = {"Arguments": arguments}
    if len(rows) >= MANY:
        for heading, names in HEADINGS.items():
            sections[heading] = [rows.pop(name) for name in names if name in rows]
    sections["Options"] = list(rows.values())
    width = min(WIDEST_NAME, max(len(name) for part in sections.values() for name, _ in part))
    for heading, part in sections.items():
        if part:
            with formatter.section(heading):
                write_rows(formatter, [(name.ljust(width), text) for name, text in part])


def write_rows(formatter: HelpFormatter, rows: Iterable[tuple[str, str]]) -> None:
    """Write names with their explanations, in which a word with hyphens, such as an option, stays whole."""
    start = len(formatter.buffer)
    formatter.write_dl([(name, text.replace("-", UNBROKEN)) for name, text in rows])
    formatter.buffer[start:] = [piece.replace(UNBROKEN, "-") for piece in formatter.buffer[start:]]


def write_examples(context: Context, formatter: HelpFormatter) -> None:
    """Write the examples of a command, each in two lines, and where the options of every command are listed."""
    if found := EXAMPLES.get(context.command_path.partition(" ")[2]):
        with formatter.section("Examples"):
            formatter.write("".join(f"  # {text}\n  {line}\n" for text, line in found))
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("For the options that every command takes, see: conductor --help")


def accept_everywhere(options: Iterable[Parameter], command: AnyCommand) -> None:
    """Let a command, and those below it, take options of the program after its name as well as before it.

    They are shown in the help of the program only. What stands later on the line counts.
    """
    command.params += [_copy_of(option) for option in options]
    for below in getattr(command, "commands", {}).values():
        accept_everywhere(options, below)


def _copy_of(option: Parameter) -> Parameter:
    def take(context: Context, parameter: Parameter, value: Any) -> None:  # noqa: ANN401 - what Typer read
        if value:
            context.obj = replace(context.obj or GlobalOptions(), **{str(parameter.name): value})

    copied: Any = copy(option)
    copied.hidden, copied.expose_value, copied.callback = True, False, take
    return copied  # type: ignore[no-any-return]  # as Typer made it


CommandTable = Mapping[str, Mapping[str, tuple[str, str]]]
"""Headings of the help; under each, by the name of a command, `module:attribute` and one line of help.

The attribute is a function with Typer's annotations, or a `typer.Typer` with commands of its own.
"""


class LazyGroup(TyperGroup):
    """Commands from `table`. The group's help is printed from the table alone."""

    table: ClassVar[CommandTable] = {}
    everywhere: ClassVar[Sequence[str]] = ()
    """The group's own options that each command takes too, by their names in Python."""

    def __init__(self, **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]  # what Typer gives every group
        self._targets = {name: target for rows in self.table.values() for name, (target, _) in rows.items()}
        # Placeholders, so that the names are known for listing and for "Did you mean".
        for rows in self.table.values():
            self.commands.update({name: TyperCommand(name, help=help_text) for name, (_, help_text) in rows.items()})

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Context, cmd_name: str) -> AnyCommand | None:
        """The command of this name; its module is imported the first time."""
        target = self._targets.pop(cmd_name, None)
        if target is not None:
            command = self.commands[cmd_name] = load_command(cmd_name, target)
            accept_everywhere([option for option in self.params if option.name in self.everywhere], command)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the table under its headings, without loading a command."""
        del ctx
        width = max(len(name) for rows in self.table.values() for name in rows)
        for heading, rows in self.table.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), help_text) for name, (_, help_text) in rows.items()])


def load_command(name: str, target: str) -> AnyCommand:
    """Import `module:attribute` and make a command of it."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        _prepare(found)
        command: AnyCommand = get_group(found)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, cls=Command)(found)
        command = get_command(single)
    command.name = name
    return command


def _prepare(app: typer.Typer) -> None:
    """Let a command, and all below it, look like those of this program."""
    app.rich_markup_mode = None  # Typer's default would import Rich for a help text
    app.info.cls = Group
    for below in app.registered_commands:
        below.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            _prepare(group.typer_instance)
