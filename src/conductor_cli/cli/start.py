"""Runs the command of a command line, and turns every error into at most three lines and an exit code."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final, NoReturn

from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.models.known_secrets import KNOWN_SECRETS

_PROCESSES: Final = ("thread or process", "end other programs, or raise the limit on processes: ulimit -u")
_FILES: Final = ("open file", "close other programs, or raise the limit on open files: ulimit -n")
_EXHAUSTED: Final = {errno.EAGAIN: _PROCESSES, errno.EMFILE: _FILES, errno.ENFILE: _FILES}
"""What is used up, by the number of the system's error, and what to do."""


class _RedactingFormatter(logging.Formatter):
    """Log lines and tracebacks without API keys, since libraries log what they send."""

    def format(self, record: logging.LogRecord) -> str:
        return KNOWN_SECRETS.redact(super().format(record))


def start(*, chat: bool = False) -> NoReturn:
    """Run the command that `sys.argv` names and exit. `chat`: it is a chat, with no option but `--rehearsal`."""
    ending = _Ending()
    try:
        open_streams()
        if not _is_debug(sys.argv[1:]):
            forbid_core_dumps()
        ending.code = run(sys.argv[1:], chat=chat)
    except KeyboardInterrupt:
        ending.code = 130
    except SystemExit as error:
        ending.code = error.code if isinstance(error.code, int) else None
        raise
    sys.exit(ending.code)


class _Ending:
    """Ends the process at the end of its exit, after all that was registered later, and never takes Python down.

    A thread may still be at work, in an import or a check that hangs, or its Python code is over and it frees what C
    libraries keep for it. At its end a process runs the exit handlers of these libraries, and under such a thread they
    damage the heap: OpenSSL's handler frees the tables that the end of a thread reads. `os._exit` runs none of them.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code; None where something else ends the process."""
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is None:
            return
        with suppress(OSError, ValueError):  # otherwise Python says at its own end that a stream cannot be written
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def run(arguments: Sequence[str], *, chat: bool = False) -> int:
    """Run one command and return its exit code. Errors go to stderr."""
    debug = _is_debug(arguments)
    if debug:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_RedactingFormatter("%(relativeCreated)7d ms %(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    try:
        if chat:
            # Typer would take as long to find no options as the prompt takes to load.
            from conductor_cli.cli.repl.loop import start_chat

            return start_chat(rehearsal="--rehearsal" in arguments)
        from conductor_cli.cli.commands import app

        return app(list(arguments), prog_name="conductor", standalone_mode=False) or 0
    except Exception as error:
        if debug:
            logging.getLogger(__name__).exception("the command failed")
        return _report(error)


def _is_debug(arguments: Sequence[str]) -> bool:
    return "--debug" in takewhile("--".__ne__, arguments)


def forbid_core_dumps() -> None:
    """Have a crash of this process and of those that it starts leave no copy of its memory, which holds keys.

    As gpg-agent does, by the soft limit, which a program that is started may raise again. Not by PR_SET_DUMPABLE, as
    ssh-agent does: then the user's own debugger and strace would be refused too.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _report(error: Exception) -> int:
    """Print an error and return its exit code."""
    from typer.exceptions import TyperException

    from conductor_cli.cli.output import leave_stdout, print_error, print_notice, stdout_problem

    if isinstance(error, TyperException):
        from conductor_cli.cli.typer_errors import explain_typer_error

        if type(error).__name__ == "NoArgsIsHelpError":
            print_notice(error.format_message())
        else:
            print_error(explain_typer_error(error))
        return UsageError("").exit_code
    if not isinstance(error, ConductorError):
        closed = stdout_problem() if isinstance(error, OSError) else None
        # The failed write may still be in the buffer of stdout, which Python would flush at exit and fail again.
        if isinstance(error, OSError):
            leave_stdout()
        error = closed or _unexpected(error)
    print_error(error)
    return error.exit_code


def _unexpected(error: Exception) -> ConductorError:
    """An error that no command expected: the system's refusal, else a bug of this program."""
    # A full pipe that may not be waited for has the number of a process too many, with other words.
    if isinstance(error, OSError) and error.errno in _EXHAUSTED and error.strerror == os.strerror(error.errno):
        said, hint = _EXHAUSTED[error.errno]
        return ConfigError(f"the system allows no further {said}", hint=hint)
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return ConductorError(f"{file}{error.strerror}", hint="check the disk and the file permissions")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        said, hint = _PROCESSES
        return ConfigError(f"the system allows no further {said}", hint=hint)
    message = f"this is a bug in conductor: {type(error).__name__}: {error}"
    return ConductorError(message, hint="run it again with --debug and report what it prints")


def open_streams() -> None:
    """Make the three streams usable: closed ones lead to the null device, and every character can be written.

    A closed stream must not stay closed: the next file opened, a trace for example, would get its number. A closed
    standard output is opened for reading, so that a command which has something to print there fails.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have a narrow encoding, and one letter must not lose an answer. A terminal keeps its own encoding.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
