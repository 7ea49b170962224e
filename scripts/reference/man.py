"""Man pages: one for the program, one for each command on it (a group's page holds its commands)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from scripts.reference.commands import Command, Parameter
from scripts.reference.exits import EXITS


def pages(root: Command, version: str) -> dict[str, str]:
    """The text of each page by the name of its file."""
    names = [_page(command) for command in root.commands]
    found = {"conductor.1": _text(root, version, names)}
    for command in root.commands:
        found[f"{_page(command)}.1"] = _text(command, version, ["conductor"])
    return found


def _page(command: Command) -> str:
    return "-".join(("conductor", *command.words))


def _text(command: Command, version: str, see: list[str]) -> str:
    return "\n".join((*_head(command, version), *_body(command), *_tail(command, see))) + "\n"


def _head(command: Command, version: str) -> Iterator[str]:
    page = _page(command)
    yield '.\\" Generated from the commands: see CONTRIBUTING.md.'
    yield f'.TH "{page.upper()}" "1" "" "conductor {version}" "Commands"'
    yield ".SH NAME"
    yield from _lines(f"{page} - {command.summary}")


def _body(command: Command) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield from _synopsis(command)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.text)
    yield from _section("ARGUMENTS", command.arguments)
    if not command.words:
        yield ".SH COMMANDS"
        yield from _list((f"conductor {c.words[-1]}", c.summary) for c in command.commands)
    yield from _section("OPTIONS", command.options)
    for child in command.commands if command.words else ():
        yield from _inner(child)


def _synopsis(command: Command) -> Iterator[str]:
    shown = [c for c in command.walk() if not c.commands] if command.words else [command]
    for place, each in enumerate(shown):
        yield from [".br"] if place else []
        yield f"\\fBconductor{_plain(each.path)}\\fR {_plain(each.usage)}".rstrip()


def _inner(command: Command) -> Iterator[str]:
    """A command of a group, and those below it, as sections of the group's page."""
    for each in command.walk():
        yield f'.SH "{_plain(" ".join(each.words).upper())}"'
        yield from _paragraphs(each.text)
        yield from _list(_entries((*each.arguments, *each.options)))


def _section(title: str, parameters: tuple[Parameter, ...]) -> Iterator[str]:
    if parameters:
        yield f".SH {title}"
        yield from _list(_entries(parameters))


def _entries(parameters: tuple[Parameter, ...]) -> Iterator[tuple[str, str]]:
    for each in parameters:
        names = " ".join(filter(None, (", ".join(each.names), each.metavar)))
        extra = [f"Default: {each.default}."] if each.default else []
        extra += [f"Environment: {', '.join(each.environment)}."] if each.environment else []
        yield names, " ".join([each.help, *extra])


def _list(entries: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    for name, text in entries:
        yield ".TP"
        yield f"\\fB{_plain(name)}\\fR"
        yield from _lines(text)


def _tail(command: Command, see: list[str]) -> Iterator[str]:
    if not command.words:
        yield ".SH EXIT STATUS"
        yield from _list([(str(code), meaning) for code, meaning in EXITS.items()])
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {_plain(name)} (1)" for name in see)


def _paragraphs(text: str) -> Iterator[str]:
    for place, paragraph in enumerate(text.split("\n\n")):
        yield from [".PP"] if place else []
        yield from _lines(" ".join(paragraph.split()))


def _lines(text: str) -> Iterator[str]:
    """Text in short lines, each kept from being read as a request."""
    for line in textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False):
        yield f"\\&{_plain(line)}" if line.startswith((".", "'")) else _plain(line)


def _plain(text: str) -> str:
    """Text in which nothing is an escape; characters beyond ASCII by their number, for every reader of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
