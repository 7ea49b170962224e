"""Project memory: AGENTS.md, CLAUDE.md and GEMINI.md of the tree, as context for workers.

A tree may be a stranger's, so nothing is read before its user has seen it and agreed, once for each
project, and again when a file has changed. The planner is never shown it: what such a file asks for
is material for workers, and no rule for plans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from conductor_cli.app.attach import decode_text
from conductor_cli.config.project import project_places
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_names
from conductor_cli.core.secret_files import is_secret_text
from conductor_cli.state.opening import open_state
from conductor_cli.system.disk import open_finite

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
SWITCH: Final = "policy.no_memory"
MAX_MEMORY_BYTES: Final = 32 << 10  # Of all files together; a worker also has to read the question

Consent = Literal["yes", "no", "changed", "unasked"]
"""What the user said of a memory: nothing yet (`unasked`), or of an earlier text (`changed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The files of a project, outermost first, each with its text, and the project's directory."""

    directory: Path
    files: tuple[tuple[Path, str], ...]

    @property
    def digest(self) -> str:
        """The hash of all names and texts: consent to them is no consent to others."""
        content = hashlib.sha256()
        for path, text in self.files:
            content.update(f"{path}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
        return content.hexdigest()

    @property
    def names(self) -> str:
        """The names of the files, for a message."""
        return format_names([path.name for path, _ in self.files])

    @property
    def length(self) -> int:
        """How many characters the files have."""
        return sum(len(text) for _, text in self.files)

    @property
    def lines(self) -> int:
        """How many lines the files have."""
        return sum(len(text.splitlines()) for _, text in self.files)

    def context(self) -> tuple[str, ...]:
        """Return what workers are given: each text below the name of its file."""
        return tuple(f"{path.name} of the project:\n{text}" for path, text in self.files)


def find_memory(settings: Settings, tell: Callable[[str], None]) -> Memory | None:
    """Return the memory of the tree around the working directory; None where there is none.

    `tell` is given what is there and cannot be read.
    """
    if settings[SWITCH]:
        return None
    directories = [path.parent for path in project_places()]
    files: list[tuple[Path, str]] = []
    texts: set[str] = set()
    room = MAX_MEMORY_BYTES
    for directory in directories:
        for name in NAMES:
            path = directory / name
            text = _read(path, tell)
            if not text or text in texts:  # one is often a copy of, or a link to, another
                continue
            size = len(text.encode("utf-8", "replace"))
            if size > room:
                tell(_describe_too_long(path))
                continue
            texts.add(text)
            files.append((path, text))
            room -= size
    if not files:
        return None
    if settings["policy.files_only"]:
        names = format_names([path.name for path, _ in files])
        tell(f"{names} is not read, because policy.files_only keeps files from some workers")
        return None
    return Memory(directory=directories[0], files=tuple(files))


def _describe_too_long(path: Path) -> str:
    limit = f"{MAX_MEMORY_BYTES >> 10} KiB together"
    return f"{path} is not read: such files may have {limit}; to attach it: -f {path}"


def _read(path: Path, tell: Callable[[str], None]) -> str:
    """Return the text of a file; empty where there is none to read, and `tell` why."""
    if path.is_symlink() and not _leads_to_neighbour(path):
        tell(f"{path} is a link and is not read; to attach what it leads to: -f {path}")
        return ""
    try:
        with open_finite(path) as file:
            content = file.read(MAX_MEMORY_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        tell(f"{path} is not read: {error.strerror}")
        return ""
    if len(content) > MAX_MEMORY_BYTES:
        tell(_describe_too_long(path))
        return ""
    try:
        text = decode_text(content, str(path)).strip()
    except UsageError as error:
        tell(f"{error.message}, so workers do not read it; {error.hint}")
        return ""
    if is_secret_text(path.name, text):
        tell(f"{path} is not read, because it has a private key in it")
        return ""
    return text


def _leads_to_neighbour(path: Path) -> bool:
    """Return whether a link leads to another such file beside it, which is read anyway."""
    target = path.resolve()
    return target.parent == path.parent.resolve() and target.name in NAMES


def consent_to(memory: Memory, settings: Settings) -> Consent:
    """Return what the user said of a memory."""
    answers = open_state(settings.paths).memory_consents.read()
    answer, _, digest = answers.get(str(memory.directory), "").partition(" ")
    if answer == "no":
        return "no"
    if answer != "yes":
        return "unasked"
    return "yes" if digest == memory.digest else "changed"


def store_consent(memory: Memory, settings: Settings, *, agreed: bool) -> None:
    """Keep what the user said of a memory. Raises `ConfigError` where the disk refuses."""
    answer = f"yes {memory.digest}" if agreed else "no"
    open_state(settings.paths).memory_consents.set(str(memory.directory), answer)


def describe_memory(memory: Memory) -> str:
    """Return what of a memory is given to workers, for a line on stderr."""
    return (
        f"workers read {memory.names} of this project as context ({memory.length:,} characters); "
        "without: --no-memory"
    )


def shown_text(files: Sequence[tuple[Path, str]]) -> str:
    """Return the files as they are shown before the user agrees."""
    return "\n\n".join(f"{path}:\n\n{text}" for path, text in files)
