"""Man pages.

One for the program, one for each command on it (a group's with its commands), one for each topic.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from scripts.reference.commands import EXITS, Command, Parameter
from scripts.reference.topics import Part, Topic

DATES: Final = {"0.1.0": "2026-11-22", "1.0.0.dev0": "2026-11-28"}
"""The day of each version. A page has a date, and that of the build would make every page stale."""


def pages(root: Command, topics: Sequence[Topic], version: str) -> dict[str, str]:
    """The text of each page by the name of its file.

    Raises `KeyError` for a version without a date.
    """
    below = [f"{_page(command)}(1)" for command in root.commands]
    pages_by_name = {
        "conductor.1": _text(
            root, version, [*below, *(f"conductor-{t.name}({t.section})" for t in topics)]
        )
    }
    for command in root.commands:
        pages_by_name[f"{_page(command)}.1"] = _text(
            command, version, ["conductor(1)", "conductor-config(5)"]
        )
    for topic in topics:
        pages_by_name[f"conductor-{topic.name}.{topic.section}"] = (
            "\n".join(_topic(topic, version)) + "\n"
        )
    return pages_by_name


def _page(command: Command) -> str:
    return "-".join(("conductor", *command.words))


def _text(command: Command, version: str, see: list[str]) -> str:
    head = _head(_page(command), 1, version, command.summary)
    return "\n".join((*head, *_body(command), *_tail(command, see))) + "\n"


def _head(page: str, section: int, version: str, summary: str) -> Iterator[str]:
    yield '.\\" Generated: see CONTRIBUTING.md.'
    yield (
        f'.TH "{page.upper()}" "{section}" "{DATES[version]}" "conductor {version}" "Conductor '
        'Manual"'
    )
    yield ".SH NAME"
    yield from _lines(f"{page} - {summary}")


def _topic(topic: Topic, version: str) -> Iterator[str]:
    yield from _head(f"conductor-{topic.name}", topic.section, version, topic.summary)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(_marked(topic.text))
    for chapter in topic.chapters:
        yield f".SH {_plain(chapter.title.upper())}"
        yield from _paragraphs(_marked(chapter.text)) if chapter.text else ()
        for part in chapter.parts:
            yield from _part(part)
    yield from _examples(topic.examples)
    yield from _see(topic.see)


def _part(part: Part) -> Iterator[str]:
    if part.title:
        yield f".SS {_plain(part.title)}"
    yield from _paragraphs(_marked(part.text)) if part.text else ()
    yield from _list((row[0], _marked(_told(part.columns, row))) for row in part.rows)


def _told(columns: Sequence[str], row: Sequence[str]) -> str:
    """A row without its name.

    The last cell, and what stands before it by the names of its columns.
    """
    if len(row) == 2:
        return row[1]
    between = " ".join(
        f"{column}: {cell}." for column, cell in zip(columns[1:-1], row[1:-1], strict=True)
    )
    return f"{row[-1][:1].upper()}{row[-1][1:]}. {between}"


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
    shown = (
        [c for c in command.walk() if len(c.options) > 1 or not c.commands]
        if command.words
        else [command]
    )
    for position, parameter in enumerate(shown):
        yield from [".br"] if position else []
        yield f"\\fBconductor{_plain(parameter.path)}\\fR {_plain(parameter.usage)}".rstrip()


def _inner(command: Command) -> Iterator[str]:
    """A command of a group, and those below it, as sections of the group's page."""
    for descendant in command.walk():
        yield f'.SH "{_plain(" ".join(descendant.words).upper())}"'
        yield from _paragraphs(descendant.text)
        yield from _list(
            (child.label, child.explained())
            for child in (*descendant.arguments, *descendant.options)
        )


def _section(title: str, parameters: tuple[Parameter, ...]) -> Iterator[str]:
    if parameters:
        yield f".SH {title}"
        yield from _list((parameter.label, parameter.explained()) for parameter in parameters)


def _list(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in entries:
        yield ".TP"
        yield f"\\fB{_plain(name)}\\fR"
        yield from _lines(text)


def _tail(command: Command, see: list[str]) -> Iterator[str]:
    if not command.words:
        yield ".SH EXIT STATUS"
        yield from _list([(str(code), meaning) for code, meaning in EXITS.items()])
    yield from _examples(command.examples)
    yield from _see(see)


def _examples(examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    if examples:
        yield ".SH EXAMPLES"
    for position, (text, lines) in enumerate(examples):
        yield from [".PP"] if position else []
        yield from _lines(f"{text}:")
        yield from (".PP", ".RS 4", ".nf")
        yield from (f"\\fB{_plain(line)}\\fR" for line in lines.splitlines())
        yield from (".fi", ".RE")


def _see(pages: Sequence[str]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    yield " ,\n".join(
        f".BR \\%{_plain(page.partition('(')[0])} ({page.partition('(')[2]}" for page in pages
    )


def _paragraphs(text: str) -> Iterator[str]:
    for position, paragraph in enumerate(text.split("\n\n")):
        yield from [".PP"] if position else []
        yield from _lines(" ".join(paragraph.split()))


def _lines(text: str) -> Iterator[str]:
    """Text in short lines, each kept from being read as a request."""
    width = 48 if "\x02" in text else 72  # what makes a name bold takes room, too
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        yield f"\\&{_plain(line)}" if line.startswith((".", "'")) else _plain(line)


def _marked(text: str) -> str:
    """Text whose names between backticks are to be bold."""
    return re.sub("`([^`]*)`", "\x02\\1\x03", text)


def _plain(text: str) -> str:
    r"""Text in which nothing is an escape.

    Characters beyond ASCII by their number, for every reader of roff.

    `\%` keeps a name from being hyphenated.
    """
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    escaped = escaped.replace("\x02", "\\fB\\%").replace("\x03", "\\fR")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
