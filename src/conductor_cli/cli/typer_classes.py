"""Typer's commands and groups as this program has them.

Their help shows whole sentences, many options under headings, and examples. The options of the
program may also follow the name of a command, several files one `--file`. The modules of commands
are imported only when one of them is run.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command, get_group

from conductor_cli.cli.examples import EXAMPLES
from conductor_cli.cli.options import (
    DEPRECATED,
    FILE_LIKE,
    HEADINGS,
    LAST_COUNTS,
    RENAMED_OPTIONS,
    GlobalOptions,
    contradiction,
    is_source,
)
from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError
from conductor_cli.system.terminal_tables import terminal_width

CommandTable = Mapping[str, Mapping[str, tuple[str, str]]]
"""Headings of the help; under each, by the name of a command, `module:attribute` and one line of
help.

The attribute is a function with Typer's annotations, or a `typer.Typer` with commands of its own.
"""

MORE: Final = "More"
"""The heading of commands that a first reader does not need: the help only names them."""

MIN_OPTIONS_FOR_HEADINGS: Final = 14
"""From so many on, options are shown under headings. Fewer are read faster as one list."""

UNBROKEN_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Stands for a hyphen while lines are broken, so that a word such as an option stays whole."""

MIN_WIDTH_OF_COLUMNS: Final = 58
"""On a narrower terminal the explanations stand under the names."""

MAX_NAME_WIDTH: Final = 30
"""Columns for the name of an option; a longer one has its explanation on the next line."""


class PlainValues:
    """Reads values that need no conversion; Typer reads all others.

    Typer makes a validator of pydantic for each parameter of a command, also where none is given.
    To import pydantic and make them takes a quarter of the time that a short command takes.
    """

    def __init__(self, parameter: Any) -> None:  # noqa: ANN401 - what Typer made of a declaration
        self._annotation = _unconverted_type(parameter)
        self._typers_reader = parameter.get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - as Typer calls it
        """Return the value as its type; raises Typer's `BadParameter` where it has another."""
        takes_several = param.multiple or param.nargs == -1
        if value is None:
            return () if takes_several else None
        if takes_several and self._annotation == list[str] and _are_texts(value):
            return [*value]
        if not takes_several and _is_plain(value, self._annotation):
            return value
        return self._typers_reader().coerce(value, param=param, ctx=ctx)


def _unconverted_type(parameter: Any) -> Any:  # noqa: ANN401
    """Return the type that a parameter takes; None where Typer makes something else of a text.

    That is a path, what a parser returns, and anything in a version of Typer that is not known.
    """
    descriptor = getattr(parameter, "type_descriptor", None)
    declared = getattr(descriptor, "parameter_info", None)
    if declared is None or declared.parser is not None or getattr(descriptor, "is_path", True):
        return None
    return getattr(descriptor, "annotation", None)


def _are_texts(values: Any) -> bool:  # noqa: ANN401
    return isinstance(values, list | tuple) and all(type(value) is str for value in values)


def _is_plain(value: Any, annotation: Any) -> bool:  # noqa: ANN401
    """Return whether a value is what its parameter takes: a text, a choice, or a default.

    A number of the command line is a text here, so one that is a number already is a default.
    """
    if get_origin(annotation) is Literal:
        return type(value) is str and value in get_args(annotation)
    return annotation in {str, int, float} and type(value) is annotation


def read_plain_values(parameters: Iterable[Any]) -> None:
    """Let Typer read only the values of these parameters that need conversion."""
    for parameter in parameters:
        is_prepared = "get_runtime_param" in vars(parameter)
        if not is_prepared and hasattr(parameter, "get_runtime_param"):
            plain = PlainValues(parameter)
            parameter.get_runtime_param = lambda plain=plain: plain


class LeafCommand(TyperCommand):
    """A command without commands of its own."""

    # Typer's own context
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the words of the command line, also several files after one `--file`."""
        read_plain_values(self.get_params(ctx))
        present = with_present_names(args, self.params)
        words = with_each_file(present, self._names_of_file_option())
        rest = super().parse_args(ctx, [*words])
        check_given(self, ctx, words)
        return rest

    def _names_of_file_option(self) -> Collection[str]:
        for option in self.params:
            if "--file" in option.opts:
                return option.opts
        return ()

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        write_examples(ctx, formatter)


class CommandGroup(TyperGroup):
    """A command with commands of its own.

    Of those in `table` the help is shown without importing them.

    A command whose declaration has a `rich_help_panel` stands under that heading.
    """

    table: ClassVar[CommandTable] = {}
    everywhere: ClassVar[Sequence[str]] = ()
    """The group's own options that each command takes too, by their names in Python."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - what Typer gives every group
        super().__init__(**attributes)
        self._targets: dict[str, str] = {}
        for heading, rows in self.table.items():
            for name, (target, text) in rows.items():
                self._targets[name] = target
                self.commands[name] = TyperCommand(name, help=text, rich_help_panel=heading)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the options before the name of a command, and that name."""
        read_plain_values(self.get_params(ctx))
        words = [*args]
        rest = super().parse_args(ctx, args)
        check_given(self, ctx, words)
        return rest

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return the command of this name; its module is imported the first time."""
        target = self._targets.pop(cmd_name, None)
        if target is not None:
            command = load_command(cmd_name, target)
            command.rich_help_panel = getattr(self.commands[cmd_name], "rich_help_panel", None)
            self.commands[cmd_name] = command
            accept_everywhere(
                [option for option in self.params if option.name in self.everywhere], command
            )
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the options, then the commands under their headings.

        Each command has its whole first sentence.
        """
        write_options(self, ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, below in self.commands.items():
            if not below.hidden:
                heading = getattr(below, "rich_help_panel", None) or "Commands"
                sections.setdefault(heading, []).append((name, below.get_short_help_str(1000)))
        if MORE in sections:
            names = ", ".join(name for name, _ in sections[MORE])
            sections[MORE] = [(names, "Each has its own --help.")]
        write_sections(sections, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        if self.epilog:
            super().format_epilog(ctx, formatter)
        else:
            write_examples(ctx, formatter)


def help_width() -> dict[str, int]:
    """Return the width of help for Typer's context, where a terminal is too narrow for Typer's."""
    columns = terminal_width(sys.stdout)
    if 0 < columns < MIN_WIDTH_OF_COLUMNS:
        return {"terminal_width": columns - 2}
    return {}


def write_options(command: Any, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
    """Write arguments and options; many of them under the headings of `HEADINGS`."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    rows: dict[str, tuple[str, str]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and parameter.param_type_name == "argument":
            # Typer writes the type of an argument after its name, in the words of Python.
            sections["Arguments"].append(
                (getattr(parameter, "display_name_raw", record[0]), record[1])
            )
        elif record is not None:
            rows[max(parameter.opts, key=len)] = record
    if len(rows) >= MIN_OPTIONS_FOR_HEADINGS:
        for heading, names in HEADINGS.items():
            sections[heading] = [rows.pop(name) for name in names if name in rows]
    write_sections(sections | {"Options": list(rows.values())}, formatter)


def write_sections(sections: Mapping[str, Sequence[tuple[str, str]]], formatter: Any) -> None:  # noqa: ANN401
    """Write names with their explanations under headings, all in the same columns.

    Where it is narrow, the explanations stand below the names.
    """
    all_rows = chain.from_iterable(sections.values())
    width = min(MAX_NAME_WIDTH, max(len(name) for name, _ in all_rows))
    is_narrow = formatter.width < MIN_WIDTH_OF_COLUMNS
    start = len(formatter.buffer)
    for heading, rows in sections.items():
        if not rows:
            continue
        unbroken = [(name, text.replace("-", UNBROKEN_HYPHEN)) for name, text in rows]
        with formatter.section(heading):
            if is_narrow:
                formatter.write_dl(unbroken, col_max=4)
            else:
                formatter.write_dl([(name.ljust(width), text) for name, text in unbroken])
    written = [piece.replace(UNBROKEN_HYPHEN, "-") for piece in formatter.buffer[start:]]
    formatter.buffer[start:] = written


def write_examples(ctx: Any, formatter: Any) -> None:  # noqa: ANN401
    """Write the examples of a command, and where the options of every command are listed.

    An example has two lines.
    """
    examples = EXAMPLES.get(ctx.command_path.partition(" ")[2])
    if examples:
        with formatter.section("Examples"):
            formatter.write("".join(f"  # {text}\n  {line}\n" for text, line in examples))
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("For the options that every command takes, see: conductor --help")


def with_present_names(words: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """Return the words with the present name of each option that has another one now.

    Those are said once in a line on stderr. Words after `--` and options of a command that does not
    have the present name stay as they are.
    """
    options = set(chain.from_iterable(parameter.opts for parameter in parameters))
    present: list[str] = []
    rest = list(words)
    used: dict[str, str] = {}
    while rest and rest[0] != "--":
        name, equals, value = rest.pop(0).partition("=")
        new_name = RENAMED_OPTIONS.get(name, "")
        if new_name in options and name not in options:
            used[name] = new_name
            name = new_name
        present.append(name + equals + value)
    for old_name, new_name in used.items():
        print_notice(f"{old_name} is called {new_name} now; the earlier name works on")
    return present + rest


def with_each_file(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the words with the option of these `names` before every file.

    A shell turns `-f *.md` into `-f` and many words. The words after an `-f FILE` that name
    existing files are attached too, up to the first that does not, up to an option, or up to `--`;
    a directory needs a slash there. Raises `UsageError` where that first word is a directory or
    looks like a file: it would silently become a part of the question.
    """
    given: list[str] = []
    rest = list(words)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        given.append(word)
        if word not in names or not rest:
            continue
        given.append(rest.pop(0))
        while rest and _is_attachable(rest[0]):
            given += [word, rest.pop(0)]
        if rest and not rest[0].startswith("-"):
            _refuse_file_like(rest[0])
    return given + rest


def _is_attachable(word: str) -> bool:
    """Return whether a word after the first file of a `--file` is a file, too."""
    if word.startswith("-"):
        return False
    return is_source(word) or _is_file(word)


def _refuse_file_like(word: str) -> None:
    """Raise `UsageError` where a word after files is a directory or looks like a file."""
    hint = "words of the question go before -f, or after --"
    if Path(word).is_dir():
        raise UsageError(f"{word} is a directory", hint=f"to attach it too: {word}/; {hint}")
    if FILE_LIKE.fullmatch(word):
        raise UsageError(f"there is no file {word}", hint=f"check its name; {hint}")


def check_given(command: Any, context: Any, words: Sequence[str]) -> None:  # noqa: ANN401
    """Say what of a command line is deprecated, and refuse options that contradict themselves.

    `words` were read by the command before, so that its help and its own errors come first. Raises
    `UsageError`.
    """
    reader = copy(command)
    reader.params = [_with_every_value(parameter) for parameter in command.params]
    values, _, _ = reader.make_parser(context).parse_args([*words])
    given = []
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name in values:
            given.append(parameter)
    refuse_contradictions(given, values)
    path = context.command_path
    used = [path]
    for option in given:
        used += [f"{path} {name}" for name in option.opts]
    for name in used:
        if name in DEPRECATED:
            print_notice(describe_deprecation(name))


def describe_deprecation(used: str) -> str:
    """Return what a line on stderr says of a command or an option that will go."""
    entry = DEPRECATED[used]
    shown = used.removeprefix("conductor ")
    return f"{shown} is deprecated since {entry.since} and will go; use instead: {entry.instead}"


def refuse_contradictions(given: Iterable[Any], values: Mapping[str, Any]) -> None:
    """Raise `UsageError` where an option that takes one value was `given` two that differ.

    Typer keeps the last one in silence. That is so here for the options of `LAST_COUNTS` only.
    """
    for option in filter(_takes_one_value, given):
        first, *others = values[option.name]
        differing = [value for value in others if value != first]
        if not differing:
            continue
        if option.secondary_opts:  # --approve --no-approve
            names = (*option.opts, *option.secondary_opts)
            raise UsageError(f"{' and '.join(names)} exclude each other", hint="give one of them")
        raise contradiction(max(option.opts, key=len), first, differing[0])


def _takes_one_value(parameter: Any) -> bool:  # noqa: ANN401
    return not parameter.multiple and LAST_COUNTS.isdisjoint(parameter.opts)


def _with_every_value(parameter: Any) -> Any:  # noqa: ANN401
    """Return an option as one that keeps all its values; an argument as it is."""
    if parameter.param_type_name != "option":
        return parameter
    copied = copy(parameter)
    copied.multiple = True
    return copied


def _is_file(text: str) -> bool:
    """Return whether this name can be attached.

    It is a file, a pipe, or a directory that is written as one.
    """
    return Path(text).exists() and (not Path(text).is_dir() or "/" in text)


def accept_everywhere(options: Iterable[Any], command: Any) -> None:  # noqa: ANN401
    """Let a command, and those below it, take options of the program after its name, too.

    They are shown in the help of the program only.
    """

    # What Typer read
    def take(context: typer.Context, parameter: TyperOption, value: Any) -> None:  # noqa: ANN401
        if not value:
            return
        options = context.obj or GlobalOptions()
        name = str(parameter.name)
        before = getattr(options, name)
        if before and before != value:
            raise contradiction(max(parameter.opts, key=len), before, value)
        context.obj = replace(options, **{name: value})

    for option in options:
        copied: Any = copy(option)
        copied.hidden = True
        copied.expose_value = False
        copied.callback = take
        command.params.append(copied)
    for below in getattr(command, "commands", {}).values():
        accept_everywhere(options, below)


def load_command(name: str, target: str) -> Any:  # noqa: ANN401
    """Import `module:attribute` and make a command of it."""
    module, _, attribute = target.partition(":")
    declared = getattr(import_module(module), attribute)
    if isinstance(declared, typer.Typer):
        _prepare(declared)
        command: Any = get_group(declared)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, cls=LeafCommand)(declared)
        command = get_command(single)
    command.name = name
    return command


def _prepare(app: typer.Typer) -> None:
    """Let a command, and all below it, look like those of this program."""
    app.rich_markup_mode = None  # Typer's default would import Rich for a help text
    app.info.cls = CommandGroup
    for below in app.registered_commands:
        below.cls = LeafCommand
    for group in app.registered_groups:
        group.cls = CommandGroup
        if group.typer_instance is not None:
            _prepare(group.typer_instance)
