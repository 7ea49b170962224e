"""Files that survive a kill and other processes: whole-file writes, an append-only log, a lock.

And free space.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError
from conductor_cli.core.formatting import format_size

MARGIN_BYTES: Final = 256 << 20  # bytes that stay free on the disk
DISK_FULL_ERRORS: Final = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)
)
"""What the system says when a file cannot grow: the disk is full, or a quota or a limit is
reached.
"""

READABLE_MODE: Final = 0o666  # permissions of what everybody may read, before the user's umask


def free_bytes(directory: Path) -> int:
    """Free bytes on the disk of a directory that may not exist yet. Raises `OSError`."""
    return shutil.disk_usage(nearest_existing(directory)).free


def nearest_existing(directory: Path) -> Path:
    """Return the directory, or the one in which it would have to be made."""
    for path in (directory, *directory.absolute().parents):
        # Unlike `Path.exists`, this takes what may not be looked at for missing.
        if os.path.exists(path):  # noqa: PTH110
            return path
    return directory


class _Finite(io.FileIO):
    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - whatever takes bytes
        count = super().readinto(buffer)
        if count is None:
            raise OSError(errno.EAGAIN, "it never ends")
        return count


def open_finite(path: Path, *, linked: bool = True) -> BinaryIO:
    """Open a file that the user names.

    Raises `OSError`, while it is read too; without `linked`, also for a link.

    Some files of the kernel, such as `/proc/kmsg`, look like ordinary ones and never end: to read
    on is an error then. A pipe is waited for. Read a number of bytes: a device may give more than
    fits the memory.
    """
    if stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    if not linked:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    return io.BufferedReader(_Finite(os.open(path, flags)))


def try_writing(directory: Path) -> None:
    """Write where a directory is or would have to be made; nothing is left there.

    Raises `OSError`.
    """
    import tempfile  # only for commands that need a directory before they begin

    with tempfile.TemporaryFile(dir=nearest_existing(directory)) as probe:
        probe.write(b"conductor")
        probe.flush()


def check_writable(directory: Path, content: str, other: str) -> None:
    """Check that a directory can be written. `content` is to be stored, `other` is another place.

    Raises `ConfigError`.
    """
    try:
        try_writing(directory)
    except OSError as error:
        hint = f"free some disk space or fix the permissions, or use another directory: {other}"
        raise ConfigError(
            f"{content} cannot be stored in {directory}: {error.strerror}", hint=hint
        ) from None


def check_room(directory: Path, size: int, other: str = "") -> None:
    """Check that `size` bytes more fit there. `other` says how to choose another disk.

    Raises `ConductorUnusable`.
    """
    room = free_bytes(directory)
    if size and size + MARGIN_BYTES > room:
        elsewhere = ""
        if other:
            elsewhere = f", or use another disk: {other}"
        hint = f"free some space ({format_size(MARGIN_BYTES)} must stay free){elsewhere}"
        message = (
            f"{format_size(size)} do not fit on the disk of {directory}, which has "
            f"{format_size(room)} free"
        )
        raise ConductorUnusable(message, hint=hint)


def make_private_directory(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for their owner only.

    Raises `OSError`.

    What is there keeps its permissions.
    """
    # The mode of `mkdir` is for the last directory only: those above it would be open to others,
    # who could then replace what is in them.
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if directory.parent == directory:
            raise
        make_private_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` for a file that is to `replace` it. Nothing is left under it."""
    # Random, because the process id of another container that shares the directory may be ours.
    temporary = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        yield temporary
    finally:
        # What was to be done is done, or its own error is the one to be told
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def link_or_copy(path: Path, second: Path) -> None:
    """Give the bytes of a file a second name, or copy them if the disk has no hard links.

    Raises `OSError`.
    """
    try:
        os.link(path, second)
    except OSError:
        check_room(second.parent, path.stat().st_size)
        shutil.copyfile(path, second)


def write_atomically(path: Path, *content: str | bytes, mode: int = READABLE_MODE) -> None:
    """Write a file completely or not at all. A symbolic link is followed and stays a link.

    Raises `OSError`.

    What is no regular file, as a device or a pipe, is written into and never replaced. `mode` are
    the permissions of the file before the user's umask, 0o600 for what nobody else may read;
    without it an existing file keeps its own.
    """
    pieces = [_as_bytes(piece) for piece in content]
    before = None
    with suppress(OSError):  # not by the resolved name, which may be no name at all
        before = path.stat()
    if before is not None and not stat.S_ISREG(before.st_mode):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as there:
            there.writelines(pieces)
        return
    path = Path(os.path.realpath(path))  # `resolve` raises a RuntimeError for a circle of links
    with temporary_path(path) as temporary:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            if before is not None and mode == READABLE_MODE:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def _as_bytes(piece: str | bytes) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    return piece


class AppendLog:
    """An append-only file of text blocks.

    Several processes may write it, and a kill may cut it anywhere.

    Each block is written at once and begins with a newline, so that a block which was cut off
    spoils no other; readers drop it because it does not parse.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it, readable by its owner only. Raises `OSError`."""
        make_private_directory(path.parent)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, block: str) -> None:
        """Write a block without a blank line in it. Raises `OSError`."""
        rest = b"\n" + block.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of an append log, without blank ones; none without a file.

    Raises `OSError`.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        for raw in file:
            if line := raw.decode("utf-8", "replace").rstrip("\n"):
                yield line


@contextmanager
def exclusive_lock(
    path: Path, wait: Callable[[], None] = lambda: None, *, mode: int = 0o600, seconds: float = 0.5
) -> Iterator[None]:
    """Hold a lock file, which is created if there is none, and stays.

    `wait` is called every so many `seconds` until the lock is free, and may raise. On a disk
    without locks nobody waits. Raises `OSError` if the file cannot be created.
    """
    from filelock import FileLock, Timeout  # only for commands that write something

    make_private_directory(path.parent)
    lock: Any = FileLock(path, mode=mode, thread_local=False)  # another thread may end it
    with suppress(NotImplementedError):
        while not lock.is_locked:
            try:
                lock.acquire(timeout=seconds, poll_interval=0.02)
            except Timeout:
                wait()
    try:
        yield
    finally:
        with suppress(OSError):
            lock.release()


@contextmanager
def editing(path: Path) -> Iterator[None]:
    """Let nobody else change a file of ours meanwhile.

    Raises `ConfigError` where its directory refuses, or the file.

    The lock is a file of its own, because the file is replaced and a lock on it would be lost.
    """
    try:
        make_private_directory(path.parent)
        with exclusive_lock(path.with_name(f".{path.name}.lock")):
            yield
    except OSError as error:
        hint = "check the disk and the file permissions"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint=hint) from None


def free_path(path: Path, mark: str) -> Path:
    """Return a path beside `path` that nothing has: its name, `mark`, and the first free number."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}{mark}{number}")
        if not aside.exists():
            break
    return aside
