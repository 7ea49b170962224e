"""docs/cli.md: every command with its options, for reading on a page."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference.commands import Command, Parameter
from scripts.reference.exits import EXITS

HEAD = """# The command line

Generated from the commands by `make docs`; `make check` fails when it is stale. `conductor COMMAND --help` says the
same. The commands are also called `conductor-llm`, for where another program owns the short name.
"""


def page(root: Command) -> str:
    """The whole page."""
    commands = [line for command in root.walk() for line in _command(command)]
    return "\n".join([HEAD, *commands, *_exits()])


def _command(command: Command) -> Iterator[str]:
    name = f"conductor{command.path}"
    yield f"{'#' * min(2 + max(0, len(command.words) - 1), 6)} `{name}`\n"
    yield f"```\n{name} {command.usage}".rstrip() + "\n```\n"
    if command.text:
        yield command.text + "\n"
    yield from _table(("Argument", "Meaning"), [_row(argument) for argument in command.arguments])
    yield from _table(("Command", "What it does"), [_child(child) for child in command.commands])
    yield from _table(("Option", "Meaning"), [_row(option) for option in command.options])


def _child(command: Command) -> tuple[str, str]:
    anchor = f"conductor{command.path}".replace(" ", "-")
    return f"[`{command.words[-1]}`](#{anchor})", command.summary


def _row(each: Parameter) -> tuple[str, str]:
    names = " ".join(filter(None, (", ".join(each.names), each.metavar)))
    extra = [f"Default: `{each.default}`."] if each.default else []
    extra += [f"Environment: `{'`, `'.join(each.environment)}`."] if each.environment else []
    extra += ["May be repeated."] if each.many and each.names and "repeated" not in each.help else []
    return f"`{names}`", " ".join([each.help, *extra])


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {head[0]} | {head[1]} |\n|---|---|"
        yield "\n".join(f"| {_cell(left)} | {_cell(right)} |" for left, right in rows) + "\n"


def _exits() -> Iterator[str]:
    yield "## Exit codes\n"
    yield from _table(("Code", "Meaning"), [(str(code), meaning) for code, meaning in EXITS.items()])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
