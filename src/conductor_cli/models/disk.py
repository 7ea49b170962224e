"""The disk: its room, and files that take the place of others whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorUnusable

MARGIN: Final = 256 << 20
"""Bytes that stay free on the disk."""

DISK_FULL_ERRORS: Final = (
    frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) if hasattr(errno, "EDQUOT") else {errno.ENOSPC}
)
"""What the system says when a file cannot grow: the disk is full, or a quota or a limit is reached."""


def free_bytes(directory: Path) -> int:
    """Bytes that are free on the disk of a directory that may not exist yet. Raises `OSError`."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def check_room(directory: Path, size: int, other: str = "") -> None:
    """Whether `size` bytes more fit there. `other` says how to choose another disk. Raises `ConductorUnusable`."""
    room = free_bytes(directory)
    if size and size + MARGIN > room:
        raise ConductorUnusable(
            f"{size:,} bytes more do not fit on the disk of {directory}, which has {room:,} free",
            hint=f"free the disk ({MARGIN >> 20} MiB stay free){f', or name another: {other}' if other else ''}",
        )


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """A name beside `path` for what is to `replace` it. Nobody else has it, and nothing is left under it.

    It is drawn: the process id of another container that shares the directory may be ours.
    """
    new = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)


def link_or_copy(path: Path, new: Path) -> None:
    """Give the bytes of a file a second name, or copy them where the disk has no such names. Raises `OSError`."""
    try:
        os.link(path, new)
    except OSError:
        check_room(new.parent, path.stat().st_size)
        shutil.copyfile(path, new)


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a small file whole or not at all; a link stays a link. Raises `OSError`.

    `mode` are its rights, of which the user's mask takes some away: 0o600 for what nobody else is to read.
    """
    path = Path(os.path.realpath(path))  # `resolve` raises a RuntimeError for links in a circle
    with temporary_path(path) as new:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
