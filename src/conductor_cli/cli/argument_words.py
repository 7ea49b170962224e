"""What a command line means that Typer cannot read by itself: several files after one `-f`."""
# Every command reads its words here first, so this imports little.
# ruff: noqa: PTH110, PTH112, PTH113

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Sequence
from typing import Final

from conductor_cli.core.errors import UsageError

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
