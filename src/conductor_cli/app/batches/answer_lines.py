"""The lines of a batch's files: they are written whole, and mended after a kill.

A file of answers or of failures grows by a line for each question. A line is written at once, and
one that a kill cut off is removed when the batch goes on.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from conductor_cli.app.batches.input_forms import FAILED, is_failure, read_json
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import encode_line
from conductor_cli.core.usage import stated_dollars, token_count
from conductor_cli.system.disk import READABLE_MODE, temporary_path

REMOVE_LINE: Final = "remove that line, or name another file with -o"
ANSWER_BEGINNING: Final = b'{"id":"'  # How the first answer begins
FAILURE_BEGINNINGS: Final = (ANSWER_BEGINNING, b'{"custom_id":"')  # The same of a failure
COPY_BYTES: Final = 1 << 20  # How much is copied at once
TAIL_BYTES: Final = 1 << 16  # How much is read at once to find the last line


class LineFile:
    """A file of JSON Lines that grows by whole lines. `wrote` is told each of them."""

    def __init__(
        self,
        path: Path,
        wrote: Callable[[bytes], None] = lambda _: None,
        *,
        mode: int = READABLE_MODE,
    ) -> None:
        """Open the file, or create it with these permissions. Raises `OSError`."""
        self.path = path
        self._wrote = wrote
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
        self._size = os.fstat(self._file).st_size

    def append(self, fields: Mapping[str, Any]) -> None:
        """Write a line. Raises `OSError`; then nothing of the line stays."""
        line = json_line(fields)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.lseek(self._file, 0, os.SEEK_END) - written)
            raise
        self._size += len(line)
        self._wrote(line)

    def sync(self) -> None:
        """Return when the lines have reached the disk. Raises `OSError`."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    @property
    def loss(self) -> Literal["", "cut", "replaced", "removed"]:
        """What somebody else has done to the file since it was opened; empty where all is well.

        Raises `OSError`.
        """
        written = self._size  # Read first: another thread may append a line meanwhile
        opened = os.fstat(self._file)
        if opened.st_size < written:
            return "cut"
        try:
            is_same = os.path.samestat(self.path.stat(), opened)
        except FileNotFoundError:
            return "removed"
        if is_same:
            return ""
        return "replaced"

    def keep_lines(self) -> str:
        """Return what somebody else has done to the file, and where its lines are now.

        The text is empty where all is well. The lines of a file that was removed are written under
        its name again, and those of one that was replaced beside it. Raises `OSError`.
        """
        loss = self.loss
        if loss == "cut":
            missing = self._size - os.fstat(self._file).st_size
            return f"{self.path} was cut by somebody else: {missing:,} bytes are missing"
        if loss == "replaced":
            beside = self.path.with_name(f"{self.path.stem}.kept{self.path.suffix}")
            self._copy_to(beside)
            return (
                f"{self.path} was replaced by somebody else; the lines of the batch are in {beside}"
            )
        if loss == "removed":
            self._copy_to(self.path)
            return f"{self.path} was removed by somebody else, and is written again"
        return ""

    def _copy_to(self, target: Path) -> None:
        with rewriting(target, os.fstat(self._file)) as file:
            os.lseek(self._file, 0, os.SEEK_SET)
            while piece := os.read(self._file, COPY_BYTES):
                file.write(piece)


@contextmanager
def rewriting(path: Path, like: os.stat_result) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path` when the block has written all of it.

    It is as readable as the file that is `like` it, and a link stays one. Raises `OSError`.
    """
    path = Path(os.path.realpath(path))
    with temporary_path(path) as temporary:
        # Nobody else may read it before it has the permissions of the other one
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)


def written_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file that a batch has written; none without a file.

    Raises `UsageError` for a file that no batch has written, else `OSError`.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n") and _is_cut_off(raw, path, is_first=number == 1):
                return
            fields = _written_fields(raw)
            if fields is None:
                hint = "a batch continues only its own file: name another one with -o"
                raise UsageError(f"{path}, line {number}: no batch has written this", hint=hint)
            try:
                cost_of(fields)
            except UsageError as error:
                message = f"{path}, line {number}: {error.message}"
                raise UsageError(message, hint=error.hint) from None
            yield fields


def _written_fields(raw: bytes) -> dict[str, Any] | None:
    """Return the fields of a line that a batch has written; None for any other line."""
    try:
        fields: dict[str, Any] = read_json(raw)
        id_of(fields)
        is_ours = "answer" in fields or "response" in fields or is_failure(fields)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if is_ours:
        return fields
    return None


def _is_cut_off(raw: bytes, path: Path, *, is_first: bool) -> bool:
    """Return whether a kill has cut this line of a file off.

    The first line must look like ours: nothing before it shows that.
    """
    beginnings: tuple[bytes, ...] = (b'{"',)
    if is_first:
        beginnings = (ANSWER_BEGINNING,)
    if is_first and path.stem.endswith(FAILED):
        beginnings = FAILURE_BEGINNINGS
    if not raw.startswith(beginnings):
        return False
    with suppress(ValueError, RecursionError):
        json.loads(raw)
        return False
    return True


def mend_last_line(path: Path) -> None:
    """Remove the last line of a batch's file where a kill has cut it off, or give it its end.

    Raises `OSError`.
    """
    with suppress(FileNotFoundError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = size
        tail = b""
        while start and b"\n" not in tail:
            start = max(start - TAIL_BYTES, 0)
            file.seek(start)
            tail = file.read(size - start)
        last_line = tail.rpartition(b"\n")[2]
        if _is_cut_off(last_line, path, is_first=len(last_line) == size):
            file.truncate(size - len(last_line))
        elif last_line:
            file.write(b"\n")


def json_line(fields: Mapping[str, Any]) -> bytes:
    """Return an object as a line of a batch's file."""
    return encode_line(fields).encode("utf-8", "backslashreplace") + b"\n"


def id_of(fields: Mapping[str, Any]) -> str:
    """Return the id in a line."""
    return str(fields["custom_id"] if "custom_id" in fields else fields["id"])


def cost_of(fields: Mapping[str, Any]) -> Decimal:
    """Return the US dollars in a line of answers or failures; 0 where it has none.

    Raises `UsageError`.
    """
    stated = _fields_of_cost(fields).get("cost") or 0
    cost = stated_dollars(stated)
    if cost is None:
        message = f"its cost is no amount of US dollars: {stated!r:.40}"
        raise UsageError(message, hint=REMOVE_LINE)
    return cost


def unpriced_of(fields: Mapping[str, Any]) -> int:
    """Return how many calls of a line of answers or failures had no price."""
    return token_count(_fields_of_cost(fields).get("unpriced"))


def _fields_of_cost(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what says what a line has cost. A failure repeats the input, which has any field."""
    if is_failure(fields):
        reason: Mapping[str, Any] = fields["error"]
        return reason
    return fields


def failed_path(answers: Path) -> Path:
    """Return the name of the file of failures: `answers.failed.jsonl` for `answers.jsonl`."""
    return answers.with_name(f"{answers.stem}{FAILED}{answers.suffix or '.jsonl'}")
