"""The outline of an attached directory: its files, how long they are, and what they define.

Whoever reads an outline instead of the files needs the names to look them up by. So it says as much
as its room holds: names that files define, else files, else folders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conductor_cli.core.formatting import format_count
from conductor_cli.core.question import File, Question, shorten
from conductor_cli.core.terminal_text import one_line

OUTLINE_CHARS: Final = 8000  # Of an outline that a worker is sent
MAX_NAMES: Final = 8  # Names of one file that an outline has
MAX_NAMED_LINES: Final = 20_000  # Lines of a file that are looked at for names

_DEFINITION: Final = re.compile(
    r"(?:(?:export|default|pub|async|static|public|abstract|final)\s+){0,4}"
    r"(?:class|def|func|function|fn|struct|enum|trait|interface|module)\s+([A-Za-z_]\w{0,60})"
)
"""What begins a definition in code, where the line begins."""

_HEADING: Final = re.compile(r"#{1,2} ([^\s#].{0,60})")
"""A heading in Markdown."""


def has_directory(question: Question) -> bool:
    """Return whether some of the files came with a directory or a pattern."""
    return any(file.directory for file in question.files)


def directory_files(question: Question) -> tuple[File, ...]:
    """Return the files that came with a directory or a pattern, and have a text."""
    return tuple(file for file in question.files if file.directory and file.text)


def directories_of(question: Question) -> tuple[str, ...]:
    """Return the directories and patterns that files came with, each once."""
    return tuple(dict.fromkeys(file.directory for file in question.files if file.directory))


def as_outline(question: Question, room: int = OUTLINE_CHARS, note: str = "") -> Question:
    """Return the question with an outline in the place of each directory.

    All outlines together have about `room` characters. `note` stands before each. Files that the
    user named stay.
    """
    directories = directories_of(question)
    files = [file for file in question.files if not file.directory]
    for directory in directories:
        inside = [file for file in question.files if file.directory == directory]
        text = outline_of(inside, room // len(directories))
        files.append(File(name=directory, text=f"{note}\n{text}" if note else text))
    return replace(question, files=tuple(files))


def outline_of(files: Sequence[File], room: int) -> str:
    """Return the outline of some files, in at most `room` characters."""
    lines = sum(map(_line_count, files))
    heading = f"{format_count(len(files), 'file')}, {format_count(lines, 'line')}. "
    without_names = [_file_line(file, names=False) for file in files]
    text = "\n".join([f"{heading}Each with its lines:", *without_names])
    if len(text) > room:
        text = "\n".join([f"{heading}Folders with their files and lines:", *_folder_lines(files)])
        return shorten(text, room)
    # Only now: to look for names takes long
    with_names = [_file_line(file, names=True) for file in files]
    longer_text = "\n".join([f"{heading}Each with its lines and what it defines:", *with_names])
    return longer_text if len(longer_text) <= room else text


def _file_line(file: File, *, names: bool) -> str:
    line = f"{one_line(file.name)} {_line_count(file)}"
    defined = ", ".join(_names_in(file)) if names else ""
    return f"{line}: {defined}" if defined else line


def lines_of(file: File) -> list[str]:
    """Return the lines of a file, without an empty one after the last."""
    return file.text.removesuffix("\n").split("\n")


def _line_count(file: File) -> int:
    return file.text.removesuffix("\n").count("\n") + 1


def _names_in(file: File) -> list[str]:
    """Return the first names that a file defines, or its first headings."""
    names: list[str] = []
    pattern = _HEADING if file.name.lower().endswith(".md") else _DEFINITION
    for line in file.text.split("\n", MAX_NAMED_LINES)[:MAX_NAMED_LINES]:
        match = pattern.match(line)
        if match is not None:
            names.append(one_line(match[1]).strip())
        if len(names) == MAX_NAMES:
            break
    return names


def _folder_lines(files: Sequence[File]) -> list[str]:
    """Return a line for each folder that has files, with their number and their lines."""
    counts: dict[str, int] = {}
    lengths: dict[str, int] = {}
    for file in files:
        folder = file.name.rpartition("/")[0] or "."
        counts[folder] = counts.get(folder, 0) + 1
        lengths[folder] = lengths.get(folder, 0) + _line_count(file)
    lines = []
    for folder, count in counts.items():
        lines.append(f"{one_line(folder)}/ {format_count(count, 'file')}, {lengths[folder]} lines")
    return lines
