"""The files of a directory or a pattern that are attached.

Those of the tree itself, neither ignored nor secret.

The tree may be a stranger's. So no link in it is followed: whoever wrote it could lead to any file
of the user. Only the directory that the user names may be a link itself.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from conductor_cli.core.secret_files import is_secret_name

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
    """Those that look like secrets by their names."""
    other: int = 0
    """Pipes, sockets and devices; later also images and what is no text."""
    unreadable: list[Path] = field(default_factory=list)
    """Files and directories that the user may not read."""


def is_pattern(name: str) -> bool:
    """Return whether a name has wildcards."""
    return not _WILD.isdisjoint(name)


def list_files(place: Path) -> FileTree:
    """Return the files of a directory or a pattern (`src/**/*.py`). No link below it is followed.

    Hidden names count only where the pattern names them.
    """
    base, pattern = _split(place)
    home = base.absolute()
    hidden = any(part.startswith(".") for part in pattern)
    tree = FileTree()
    ignoring = _Ignoring(home, tree.linked_rules)
    states = {home: _closure(pattern, {0})}

    def shown(path: Path) -> Path:
        return path if base.is_absolute() else base / path.relative_to(home)

    def note_unreadable(error: OSError) -> None:
        tree.unreadable.append(shown(Path(error.filename)))

    for directory, below, names in os.walk(home, onerror=note_unreadable):
        here = Path(directory)
        reached = states.pop(here)
        entered = []
        for name in sorted(name for name in below if hidden or not name.startswith(".")):
            path = here / name
            after = _advance(pattern, reached, name)
            if pattern and not after:
                continue
            if ignoring.is_ignored(path, directory=True):
                tree.ignored += 1
            elif path.is_symlink():
                tree.links.append(shown(path))
            else:
                entered.append(name)
                states[path] = after
        below[:] = entered
        for name in sorted(name for name in names if hidden or not name.startswith(".")):
            path = here / name
            if pattern and len(pattern) not in _advance(pattern, reached, name):
                continue
            if ignoring.is_ignored(path, directory=False):
                tree.ignored += 1
                continue
            _sort_in(tree, path, shown(path))
    return tree


def _sort_in(tree: FileTree, path: Path, shown: Path) -> None:
    """Put a file where it belongs by its kind and its name."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # it is gone, or its directory may be listed but not entered
        tree.unreadable.append(shown)
        return
    if stat.S_ISLNK(mode):
        tree.links.append(shown)
    elif not stat.S_ISREG(mode):
        tree.other += 1
    elif is_secret_name(path.as_posix()):
        tree.secrets.append(shown)
    else:
        tree.files.append(shown)


def _split(place: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the directory that a pattern begins with, and the parts of the pattern behind it."""
    parts = place.parts
    wild = next((number for number, part in enumerate(parts) if is_pattern(part)), len(parts))
    return Path(*parts[:wild]), parts[wild:]


def _closure(pattern: tuple[str, ...], states: set[int]) -> set[int]:
    """Return the states, and those that `**` reaches by standing for no directory at all."""
    reached = set(states)
    for state in range(len(pattern)):
        if state in reached and pattern[state] == "**":
            reached.add(state + 1)
    return reached


def _advance(pattern: tuple[str, ...], states: set[int], name: str) -> set[int]:
    """Return how many parts of the pattern may have been met behind this name.

    All of them where a file matches.
    """
    after = set[int]()
    for state in states:
        if state == len(pattern):
            continue
        if pattern[state] == "**":
            after.add(state)
        elif fnmatch(name, pattern[state]):
            after.add(state + 1)
    return _closure(pattern, after)


class _Ignoring:
    """The `.gitignore` files from the top of the repository of a directory down to each path."""

    def __init__(self, home: Path, linked_rules: list[Path]) -> None:
        from pathspec import GitIgnoreSpec  # a run without a directory starts without it

        self._new = GitIgnoreSpec.from_lines
        self._specs = dict[Path, GitIgnoreSpec]()
        self._linked_rules = linked_rules
        self._top = next((path for path in (home, *home.parents) if (path / ".git").exists()), home)

    def is_ignored(self, path: Path, *, directory: bool) -> bool:
        """Return whether the last rule that says anything of a path ignores it."""
        ignored = False
        for above in reversed(path.parents):
            if above != self._top and self._top not in above.parents:
                continue
            if above not in self._specs:
                self._specs[above] = self._new(self._lines(above / ".gitignore"))
            name = f"{path.relative_to(above).as_posix()}{'/' * directory}"
            include = self._specs[above].check_file(name).include
            ignored = ignored if include is None else include
        return ignored

    def _lines(self, rules: Path) -> list[str]:
        """Return the lines of a `.gitignore`.

        None of one that is a link, which may lead anywhere.
        """
        if rules.is_symlink():
            self._linked_rules.append(rules)
            return []
        return rules.read_text("utf-8", "replace").splitlines() if rules.is_file() else []
