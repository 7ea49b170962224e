"""Tools that look things up in the files of an attached directory. Pure.

They list, find, search and read what was attached, and nothing else: no path leads out of it, and
what was left out of it is not there. Every result is bounded, and says how to get the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.chat import Tool
from conductor_cli.core.errors import suggest
from conductor_cli.core.formatting import format_count
from conductor_cli.core.mappings import without_empty
from conductor_cli.core.outline import lines_of
from conductor_cli.core.passage_search import best_lines, words_of
from conductor_cli.core.path_patterns import look_of
from conductor_cli.core.question import File
from conductor_cli.core.tools import OfferedTool

SERVER: Final = "attached"
"""What these tools are shown under, where those of a server stand under its name."""

MAX_ENTRIES: Final = 200  # Files and folders of one result
MAX_MATCHES: Final = 40  # Lines of one search
MAX_LINES_A_FILE: Final = 5  # Lines of one file before all others have had a turn
MAX_PASSAGES: Final = 8  # Passages that have most words of a pattern that no line matches
PASSAGE_LINES: Final = 8  # Two of them in one file are at least so far apart
AROUND_LINES: Final = 1  # Lines that are shown before and after the best line of a passage
AROUND_PROMPTED_LINES: Final = 4  # The same of passages in a prompt
MAX_LINE_CHARS: Final = 240  # Characters of a line that a search shows
MAX_READ_LINES: Final = 300
MAX_READ_CHARS: Final = 12_000
MAX_PATTERN_CHARS: Final = 500


class WrongArgument(ValueError):
    """An argument of a call cannot be used; its text says why, for the model to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search that was asked for: its pattern, and the files that it looks into."""

    pattern: str
    ignore_case: bool
    files: tuple[File, ...]


def _tool(name: str, description: str, properties: Mapping[str, Any], *required: str) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name=name, description=description, parameters=parameters)


_PATH: Final = {"type": "string", "description": "A file or a folder, as listed"}
TOOLS: Final = (
    _tool(
        "search_text",
        "Search the attached files. Gives path, line number and line of all that match a word or a "
        "regular expression; if none does, of those that have most of its words. Capital letters "
        "count only where the pattern has some.",
        {
            "pattern": {"type": "string", "description": "Words or a regular expression"},
            "path": {**_PATH, "description": "Only in this file or folder"},
        },
        "pattern",
    ),
    _tool(
        "read_file",
        f"Read lines of an attached file, at most {MAX_READ_LINES} at once.",
        {
            "path": {"type": "string", "description": "The file, as listed"},
            "start": {"type": "integer", "description": "The first line, 1 if it is left out"},
            "lines": {"type": "integer", "description": "How many lines"},
        },
        "path",
    ),
    _tool(
        "find_files",
        "Find attached files by their names: a part of the path, or a pattern such as *.py.",
        {"pattern": {"type": "string", "description": "A part of a path, or a pattern with *"}},
        "pattern",
    ),
    _tool(
        "list_files",
        "List the files and folders in a folder of what is attached, with their lines.",
        {"path": {**_PATH, "description": "The folder; all of it if it is left out"}},
    ),
)
OFFERED: Final = tuple(
    OfferedTool(tool=tool, server=SERVER, own_name=tool.name, read_only=True) for tool in TOOLS
)


class FileTools:
    """Answers calls of these tools over some files."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = {_plain(file.name): file for file in files}

    def answer(self, name: str, arguments: Mapping[str, Any]) -> str | Search:
        """Return the result of a call, or the search that it asks for. Raises `WrongArgument`."""
        if name == "search_text":
            return self._search(arguments)
        calls: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "read_file": self._read,
            "find_files": self._find,
            "list_files": self._list,
        }
        return calls[name](arguments)

    def _search(self, arguments: Mapping[str, Any]) -> Search:
        pattern = _text(arguments, "pattern")
        if not pattern or len(pattern) > MAX_PATTERN_CHARS:
            raise WrongArgument(f"pattern must have 1 to {MAX_PATTERN_CHARS} characters")
        return Search(
            pattern=pattern,
            ignore_case=pattern == pattern.lower(),
            files=tuple(self._inside(_text(arguments, "path"))),
        )

    def _read(self, arguments: Mapping[str, Any]) -> str:
        file = self._file(_text(arguments, "path"))
        lines = lines_of(file)
        start = max(_whole(arguments, "start", 1), 1)
        if start > len(lines):
            raise WrongArgument(f"{file.name} has {format_count(len(lines), 'line')}")
        count = min(max(_whole(arguments, "lines", MAX_READ_LINES), 1), MAX_READ_LINES)
        shown: list[str] = []
        length = 0
        for number, line in enumerate(lines[start - 1 : start - 1 + count], start=start):
            text = f"{number}| {_cut(line, MAX_READ_CHARS // 4)}"
            length += len(text) + 1
            if length > MAX_READ_CHARS and shown:
                break
            shown.append(text)
        end = start + len(shown) - 1
        heading = f"{file.name}, lines {start} to {end} of {len(lines)}:"
        if end < len(lines):
            shown.append(f"[… {len(lines) - end} further lines: read_file with start={end + 1} …]")
        return "\n".join([heading, *shown])

    def _find(self, arguments: Mapping[str, Any]) -> str:
        pattern = _text(arguments, "pattern").lower()
        if not pattern or len(pattern) > MAX_PATTERN_CHARS:
            raise WrongArgument(f"pattern must have 1 to {MAX_PATTERN_CHARS} characters")
        names = []
        for path, file in self._files.items():
            is_match = pattern in path.lower()
            if "*" in pattern or "?" in pattern:
                is_match = _matches(path.lower(), pattern)
            if is_match:
                names.append(_entry(file))
        return _bounded(names, "search for a longer part of the path") or "no file matches"

    def _list(self, arguments: Mapping[str, Any]) -> str:
        folder = _plain(_text(arguments, "path")).rstrip("/")
        files = self._inside(folder)
        if len(files) == 1 and _plain(files[0].name) == folder:
            return _entry(files[0])
        names = [_plain(file.name) for file in files]
        is_whole_path = bool(folder) and names[0].startswith(f"{folder}/")
        common = folder
        if not is_whole_path:
            common = _common_folder(names)
        depth = len(common) + 1 if common else 0
        entries: list[str] = []
        counts: dict[str, int] = {}
        for name, file in zip(names, files, strict=True):
            below, slash, _ = name[depth:].partition("/")
            if slash:
                counts[below] = counts.get(below, 0) + 1
            else:
                entries.append(_entry(file))
        prefix = f"{common}/" if common else ""
        folders = []
        for name, count in counts.items():
            folders.append(f"{prefix}{name}/ {format_count(count, 'file')}")
        return _bounded([*folders, *entries], "list one of the folders")

    def _inside(self, path: str) -> list[File]:
        """Return a file, or the files of a folder, or all. Raises `WrongArgument`."""
        plain = _plain(path).rstrip("/")
        if not plain:
            return list(self._files.values())
        if plain in self._files:
            return [self._files[plain]]
        inside = []
        ends = []
        within = []
        for name, file in self._files.items():
            if name.startswith(f"{plain}/"):
                inside.append(file)
            if name.endswith(f"/{plain}"):
                ends.append(file)
            if f"/{plain}/" in f"/{name}":
                within.append(file)
        files = inside or ends or within
        if files:
            return files
        raise self._unknown(path)

    def _file(self, path: str) -> File:
        """Return the file of this path, or the only one that ends with it.

        Raises `WrongArgument`.
        """
        plain = _plain(path)
        if plain in self._files:
            return self._files[plain]
        ends = []
        seen = look_of(plain)  # a model writes the usual blank for a narrow one
        for name in self._files:
            if plain and f"/{look_of(name)}".endswith(f"/{seen}"):
                ends.append(name)
        if len(ends) == 1:
            return self._files[ends[0]]
        if ends:
            raise WrongArgument(f"several files end with {path}: {', '.join(ends[:10])}")
        raise self._unknown(path)

    def _unknown(self, path: str) -> WrongArgument:
        hint = suggest(_plain(path), list(self._files), "find_files finds names by a part of them")
        return WrongArgument(f"nothing attached is called {path!r:.120}; {hint}")


def describe_matches(search: Search, lines_by_file: Mapping[int, Sequence[int]]) -> str:
    """Return the lines that a search has found; the keys are positions in its files.

    Of many, each file first shows its first lines, so that a long file does not hide the others.
    """
    total = sum(map(len, lines_by_file.values()))
    if not total:
        return _describe_passages(search)
    shown_lines = _share_of_each(lines_by_file)
    shown: list[str] = []
    for position, numbers in shown_lines.items():
        file = search.files[position]
        lines = lines_of(file)
        shown += [f"{file.name}:{number}: {_cut(lines[number - 1].strip())}" for number in numbers]
    if total > len(shown):
        counts = []
        for position, matching_lines in lines_by_file.items():
            counts.append(f"{search.files[position].name} {len(matching_lines)}")
        shown.append(
            f"[… {total - len(shown)} further lines; search in one file or folder (path). Lines "
            f"by file: {', '.join(counts[:MAX_MATCHES])} …]"
        )
    return "\n".join(shown)


def _share_of_each(lines_by_file: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return at most `MAX_MATCHES` lines: the first of each file, then what there is room for."""
    shares: dict[int, list[int]] = {}
    left = MAX_MATCHES
    for position, numbers in lines_by_file.items():
        shares[position] = list(numbers[:MAX_LINES_A_FILE][:left])
        left -= len(shares[position])
    for position, numbers in lines_by_file.items():
        further = numbers[len(shares[position]) :][:left]
        shares[position] += further
        left -= len(further)
    return without_empty(shares)


def _describe_passages(search: Search) -> str:
    """Return the lines that have most words of a pattern that no line matches, or that none has."""
    texts = [file.text for file in search.files]
    places = best_lines(texts, words_of(search.pattern), MAX_PASSAGES, PASSAGE_LINES)
    if not places:
        files = format_count(len(search.files), "file")
        return f"no line matches {search.pattern!r:.120} in {files}, nor any word of it"
    heading = "No line matches all of it. These have most of its words, the best first:"
    return f"{heading}\n{_show_passages(search.files, places, AROUND_LINES)}"


def passages_for(files: Sequence[File], query: str, room: int) -> str:
    """Return the passages that most words of a query stand in, in at most `room` characters."""
    texts = [file.text for file in files]
    places = best_lines(texts, words_of(query), MAX_PASSAGES, 2 * AROUND_PROMPTED_LINES)
    while places:
        text = _show_passages(files, places, AROUND_PROMPTED_LINES)
        if len(text) <= room:
            return text
        places = places[:-1]
    return ""


def _show_passages(files: Sequence[File], places: Sequence[tuple[int, int]], around: int) -> str:
    """Return lines with some lines around each, with their paths and numbers."""
    shown: list[str] = []
    for position, number in places:
        file = files[position]
        lines = lines_of(file)
        first = max(number - around, 1)
        passage = enumerate(lines[first - 1 : number + around], start=first)
        shown += [f"{file.name}:{other}: {_cut(line.rstrip())}" for other, line in passage]
        shown.append("--")
    return "\n".join(shown[:-1])


def search_job(search: Search) -> bytes:
    """Return what `programs/search_process.py` is given."""
    job = {
        "pattern": search.pattern,
        "ignore_case": search.ignore_case,
        "texts": [file.text for file in search.files],
    }
    return json.dumps(job).encode()


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path, or its last name, matches a pattern. Folders may be called `[id]`."""
    literal = pattern.replace("[", "[[]")
    for named in (path, path.rpartition("/")[2]):
        if fnmatchcase(named, pattern) or fnmatchcase(named, literal):
            return True
    return False


def _plain(path: str) -> str:
    return path.strip().removeprefix("./")


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongArgument(f"{name} must be text")
    return value


def _whole(arguments: Mapping[str, Any], name: str, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str):  # as small models write it
        value = parse_whole_number(value.strip())
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongArgument(f"{name} must be a whole number")
    return value


def _entry(file: File) -> str:
    return f"{file.name} {format_count(len(lines_of(file)), 'line')}"


def _cut(line: str, most: int = MAX_LINE_CHARS) -> str:
    if len(line) <= most:
        return line
    return f"{line[:most]} [… {len(line) - most} characters …]"


def _bounded(entries: Sequence[str], hint: str) -> str:
    """Return entries in lines, at most `MAX_ENTRIES`, and how many more there are."""
    lines = list(entries[:MAX_ENTRIES])
    if len(entries) > MAX_ENTRIES:
        rest = len(entries) - MAX_ENTRIES
        lines.append(f"[… {rest} further: {hint} …]")
    return "\n".join(lines)


def _common_folder(names: Sequence[str]) -> str:
    """Return the folder that all names are in; empty where they have none in common."""
    parts = names[0].split("/")[:-1]
    for name in names:
        folders = name.split("/")[:-1]
        while parts != folders[: len(parts)]:
            parts = parts[:-1]
    return "/".join(parts)
