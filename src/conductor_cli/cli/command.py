"""A command as this program has it: options under headings, and the options of every command also after its name."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from conductor_cli.cli.options import HEADINGS, GlobalOptions

if TYPE_CHECKING:
    from typer._click import Command as AnyCommand
    from typer._click import Context, HelpFormatter
    from typer._click.core import Parameter

MANY: Final = 14
"""Options from which on they are shown under headings. Fewer are read faster as one list."""

WIDEST_NAME: Final = 30
"""Columns for the name of an option; a longer one has its explanation on the next line."""


class Command(TyperCommand):
    """A command without commands of its own."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments and options; many of them under the headings that their declarations name."""
        grouped = len(self.params) >= MANY
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            named = getattr(parameter, "rich_help_panel", None) if grouped else None
            heading = "Arguments" if is_argument else named or "Options"
            # Typer writes the type of an argument after its name, in the words of Python.
            name = getattr(parameter, "display_name_raw", record[0]) if is_argument else record[0]
            sections.setdefault(heading, []).append((name, record[1]))
        names = [name for rows in sections.values() for name, _ in rows]
        width = max((len(name) for name in names if len(name) <= WIDEST_NAME), default=0)
        for heading in ("Arguments", *HEADINGS, "Options"):
            if heading in sections:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in sections[heading]])


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
