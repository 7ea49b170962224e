"""The files of a directory or a pattern that are attached.

Those of the tree itself, neither ignored nor secret.

The tree may be a stranger's. So no link in it is followed: whoever wrote it could lead to any file
of the user. Only the directory that the user names may be a link itself. And what a `.gitignore`
may ask for is bounded.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.path_patterns import IgnoreFile, Places, parse_pattern
from conductor_cli.core.secret_files import is_secret_name
from conductor_cli.core.terminal_text import escape_name
from conductor_cli.system.disk import open_finite

LIST_SECONDS: Final = 20.0  # For the names of a tree; a million files take about 10 s
MAX_LISTED: Final = 100_000  # Names that are kept of a tree: those of more files are of no use
MAX_RULES: Final = 10_000  # Lines of all `.gitignore` files that concern a tree; Git's own has 250
MAX_RULE_BYTES: Final = 256 << 10  # Of all of them; GitHub's longest template has 13 KiB
MAX_RULE_LENGTH: Final = 1024

PART_HINT: Final = "name a part of it, in quotes: -f 'src/**/*.py'"

_WILD: Final = frozenset("*?[")


@dataclass(slots=True)
class FileTree:
    """The files to attach in the order of their names, and what was left out of them."""

    files: list[Path] = field(default_factory=list)
    ignored: int = 0
    """How many names a `.gitignore` has; of a directory, its own name only."""
    links: list[Path] = field(default_factory=list)
    linked_rules: list[Path] = field(default_factory=list)
    """Each `.gitignore` that is a link. Git does not follow them either."""
    secrets: list[Path] = field(default_factory=list)
    """Those that look like secrets, by their names and later by their texts."""
    other: int = 0
    """Pipes, sockets and devices; later also images and what is no text."""
    late: list[Path] = field(default_factory=list)
    """Documents for which no time was left."""
    unreadable: list[Path] = field(default_factory=list)
    """Files and directories that the user may not read."""
    unread: list[Path] = field(default_factory=list)
    """Texts of another encoding, and files that are too large or damaged."""

    @property
    def is_partial(self) -> bool:
        """Whether anything was left out that no `.gitignore` names."""
        lists = (
            self.links,
            self.linked_rules,
            self.secrets,
            self.late,
            self.unreadable,
            self.unread,
        )
        return self.other > 0 or any(lists)


def is_pattern(name: str) -> bool:
    """Return whether a name has wildcards."""
    return not _WILD.isdisjoint(name)


def list_files(pattern: Path) -> FileTree:
    """Return the files of a directory or a pattern (`src/**/*.py`). No link below it is followed.

    Hidden names count only where the pattern names them. Raises `UsageError` where the tree is too
    large, or its `.gitignore` files ask for too much.
    """
    base, parts = _split(pattern)
    return _Walk(base, parts).run()


def _split(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the directory that a pattern begins with, and the parts of the pattern behind it.

    What is there by its own name is no pattern, as `app/[id]`.
    """
    parts = path.parts
    count = 0
    for part in parts:
        if is_pattern(part) and not os.path.lexists(Path(*parts[: count + 1])):
            break
        count += 1
    return Path(*parts[:count]), parts[count:]


class _Walk:
    """One way through a tree, from its top down, each directory in the order of names."""

    def __init__(self, base: Path, pattern: tuple[str, ...]) -> None:
        self._base = base
        self._home = base.absolute()
        self._pattern = (
            parse_pattern("/".join(pattern).encode("utf-8", "surrogateescape")) if pattern else None
        )
        self._hidden = any(part.startswith(".") for part in pattern)
        self._deadline = time.monotonic() + LIST_SECONDS
        self.tree = FileTree()
        self._ignoring = _Ignoring(self._home, self.tree.linked_rules, self._deadline)

    def run(self) -> FileTree:
        """Return what there is."""
        start = self._pattern.start() if self._pattern is not None else Places()
        waiting = [(self._home, start, self._ignoring.home_rules)]
        while waiting:
            waiting += reversed(self._list(*waiting.pop()))
        return self.tree

    def _list(
        self, directory: Path, places: Places, rules: Rules
    ) -> list[tuple[Path, Places, Rules]]:
        """Take the files of one directory, and return the directories in it.

        Each comes with the places in the pattern and the rules that hold there.
        """
        try:
            with os.scandir(directory) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self.tree.unreadable.append(self._shown(directory))
            return []
        below = []
        for entry in listed:
            _check_time(self._deadline, self._base)
            if entry.name.startswith(".") and not self._hidden:
                continue
            # For Git a link is a file, whatever it leads to.
            is_directory = entry.is_dir(follow_symlinks=False) and not _is_junction(entry)
            # A link to a directory is told where the pattern leads into it.
            after = self._after(places, entry.name)
            if not self._is_wanted(after, is_directory=is_directory or _leads_to_directory(entry)):
                continue
            name = os.fsencode(entry.name)
            if self._ignoring.is_ignored(rules, name, directory=is_directory):
                self.tree.ignored += 1
            elif is_directory:
                path = directory / entry.name
                below.append((path, after, self._ignoring.rules_below(rules, path)))
            else:
                self._take(directory / entry.name)
        return below

    def _after(self, places: Places, name: str) -> Places:
        if self._pattern is None:
            return places
        return self._pattern.advance(places, os.fsencode(name))

    def _is_wanted(self, places: Places, *, is_directory: bool) -> bool:
        """Return whether a file matches the pattern, or something in a directory may."""
        if self._pattern is None:
            return True
        if is_directory:
            return bool(places)
        return self._pattern.is_end(places)

    def _take(self, path: Path) -> None:
        """Put what is no directory where it belongs, by its kind and its name."""
        shown = self._shown(path)
        try:
            mode = path.lstat().st_mode
        except OSError:  # it is gone, or its directory may be listed but not entered
            self.tree.unreadable.append(shown)
            return
        if stat.S_ISREG(mode) and is_secret_name(path.as_posix()):
            self.tree.secrets.append(shown)
        elif stat.S_ISREG(mode):
            self.tree.files.append(shown)
        elif stat.S_ISLNK(mode) or stat.S_ISDIR(mode):  # on Windows a junction is a directory
            self.tree.links.append(shown)
        else:
            self.tree.other += 1
        if len(self.tree.files) + len(self.tree.links) + len(self.tree.secrets) > MAX_LISTED:
            raise UsageError(f"{self._base} has more than {MAX_LISTED:,} files", hint=PART_HINT)

    def _shown(self, path: Path) -> Path:
        """Return a path as the user would write it."""
        if self._base.is_absolute():
            return path
        return self._base / path.relative_to(self._home)


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.is_file(follow_symlinks=False) and entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False


def _is_junction(entry: os.DirEntry[str]) -> bool:
    """Return whether this is a link to a directory of Windows; Python tells since 3.12."""
    return bool(getattr(entry, "is_junction", bool)())


def _shown(path: Path) -> str:
    return escape_name(str(path))


def _check_time(deadline: float, path: Path) -> None:
    if time.monotonic() > deadline:
        raise UsageError(
            f"the files of {_shown(path)} cannot be listed within {LIST_SECONDS:g} s",
            hint=PART_HINT,
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that hold in a directory."""

    names: tuple[bytes, ...]
    """The path of the directory from the top of the repository."""
    files: tuple[tuple[int, IgnoreFile], ...]
    """The nearest `.gitignore` first, each with the number of names from the top to it."""


class _Ignoring:
    """The `.gitignore` files from the top of the repository of a directory down to each path."""

    def __init__(self, home: Path, linked_rules: list[Path], deadline: float) -> None:
        self._home = home
        self._linked_rules = linked_rules
        self._deadline = deadline
        self._bytes = 0
        self._count = 0
        top = home
        for path in (home, *home.parents):
            if (path / ".git").exists():
                top = path
                break
        rules = self._with_file(Rules((), ()), top)
        self._all = False
        path = top
        for name in home.parts[len(top.parts) :]:
            # Nothing in an ignored directory can be taken back.
            self._all = self._all or self.is_ignored(rules, os.fsencode(name), directory=True)
            path /= name
            rules = self.rules_below(rules, path)
        self.home_rules = rules

    def is_ignored(self, rules: Rules, name: bytes, *, directory: bool) -> bool:
        """Return whether a name in a directory is ignored, by the rules that hold there.

        Raises `UsageError`.
        """
        if self._all:
            return True
        path = (*rules.names, name)
        for depth, file in rules.files:
            for rule in file.candidates(name):
                _check_time(self._deadline, self._home)
                if rule.applies(path[depth:], directory=directory):
                    return rule.ignores
        return False

    def rules_below(self, rules: Rules, directory: Path) -> Rules:
        """Return the rules that hold in a directory, by those of the one above it.

        Raises `UsageError`.
        """
        names = (*rules.names, os.fsencode(directory.name))
        return self._with_file(Rules(names, rules.files), directory)

    def _with_file(self, rules: Rules, directory: Path) -> Rules:
        file = self._read(directory / ".gitignore")
        if file is None:
            return rules
        return Rules(rules.names, ((len(rules.names), file), *rules.files))

    def _read(self, path: Path) -> IgnoreFile | None:
        """Return the rules of a `.gitignore`; None of one that is a link, which may lead anywhere.

        Raises `UsageError` where it cannot be read whole: what it ignores would be sent.
        """
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                self._linked_rules.append(path)
            if not stat.S_ISREG(mode):
                return None
            with open_finite(path, linked=False) as file:
                content = file.read(MAX_RULE_BYTES - self._bytes + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"{_shown(path)} cannot be read: {error.strerror}"
            raise UsageError(message, hint=_RULES_HINT) from None
        self._bytes += len(content)
        self._count += content.count(b"\n")
        if self._bytes > MAX_RULE_BYTES:
            raise UsageError(
                f"{_shown(path)}: all .gitignore files have more than {MAX_RULE_BYTES >> 10} KiB",
                hint=_RULES_HINT,
            )
        if self._count > MAX_RULES:
            message = f"{_shown(path)}: all .gitignore files have more than {MAX_RULES:,} lines"
            raise UsageError(message, hint=_RULES_HINT)
        if max(map(len, content.split(b"\n"))) > MAX_RULE_LENGTH:
            raise UsageError(
                f"{_shown(path)} has a line of more than {MAX_RULE_LENGTH:,} bytes",
                hint=_RULES_HINT,
            )
        return IgnoreFile(content)


_RULES_HINT: Final = "make it smaller, or name the files to attach: -f PATH"
