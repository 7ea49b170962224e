"""Messages to a run from other processes of its user: what they decide, and that it shall end.

A run that listens has a file of its own, `ID.jsonl` in a directory that only the user can enter.
Whoever has something to say appends a line of JSON to it. The file is made when the run begins and
removed when it ends, and it is locked as long: so nobody speaks to a run that is not there, and no
process id is needed, which another program might have by then. Another machine has other files.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from conductor_cli.state.stored_run import SUFFIX
from conductor_cli.system.disk import make_private_directory

Act = Literal["cancel", "approve", "drop", "once", "always", "no"]
"""What is said in a word: `approve` and `drop` answer the offer of a plan, the last three that of a
call.
"""

TextAct = Literal["edit", "replan"]
"""What is said with a text: another plan as a plan file, or what the planner shall do otherwise."""

MAX_TEXT_CHARACTERS: Final = 100_000  # Of a message; a plan of five long steps has fewer
MAX_READ_BYTES: Final = 2_000_000  # Of messages that are read at once; one has fewer
_CLOCK_GRAIN: Final = 0.001  # Seconds by which a time may differ that a trace has rounded


class RunMessage(NamedTuple):
    """What somebody says to a run. `offered_at` is when that was offered which is decided about.

    `text` belongs to a `TextAct`.
    """

    act: Act | TextAct
    offered_at: float = 0.0
    text: str = ""

    def is_about(self, offered_at: float) -> bool:
        return abs(self.offered_at - offered_at) < _CLOCK_GRAIN


class RunInbox:
    """The messages to one run, for the process that runs it. Close it."""

    def __init__(self, directory: Path, run: str) -> None:
        """Raises `OSError`, also on Windows, where files have no such locks."""
        try:
            import fcntl  # POSIX only
        except ImportError:
            raise OSError("this system has no locks for files") from None
        make_private_directory(directory)
        self._path = _path_of(directory, run)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._position = 0

    def read(self) -> list[RunMessage]:
        """Return the messages that have come since. What is none is left out."""
        messages = list[RunMessage]()
        with suppress(OSError):
            block = os.pread(self._file, MAX_READ_BYTES, self._position)
            lines, end, _ = block.rpartition(b"\n")
            if not end and len(block) == MAX_READ_BYTES:  # no message is so long
                lines = block
            self._position += len(lines) + len(end)
            for line in lines.splitlines():
                message = _parse_message(line)
                if message is not None:
                    messages.append(message)
        return messages

    def close(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._file)


def _parse_message(line: bytes) -> RunMessage | None:
    try:
        fields = json.loads(line)
        act = fields["act"]
        offered_at = float(fields.get("offered_at", 0.0))
        text = str(fields.get("text", ""))
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        return None
    is_known = act in get_args(Act) or act in get_args(TextAct)
    if not is_known or len(text) > MAX_TEXT_CHARACTERS:
        return None
    return RunMessage(act, offered_at, text)


def is_listening(directory: Path, run: str) -> bool:
    """Return whether a process of this user on this machine runs it and takes messages."""
    return _open_inbox(directory, run)


def send_message(directory: Path, run: str, message: RunMessage) -> bool:
    """Say something to a run; returns whether there is one that listens."""
    fields: dict[str, Any] = {"act": message.act, "offered_at": message.offered_at}
    if message.text:
        fields["text"] = message.text
    line = json.dumps(fields) + "\n"
    return _open_inbox(directory, run, line.encode())


def _open_inbox(directory: Path, run: str, line: bytes = b"") -> bool:
    """Return whether the inbox of a run is there and its process lives, and write a line to it."""
    try:
        import fcntl  # POSIX only
    except ImportError:
        return False
    path = _path_of(directory, run)
    flags = os.O_RDONLY
    if line:
        flags = os.O_WRONLY | os.O_APPEND
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # the run holds it
        if line:
            os.write(file, line)
        return True
    except OSError:
        return False
    else:
        path.unlink(missing_ok=True)  # it was left by a process that was killed
        return False
    finally:
        os.close(file)


def _path_of(directory: Path, run: str) -> Path:
    return directory / f"{Path(run).name}{SUFFIX}"
