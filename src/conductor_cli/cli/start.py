"""The way in: prepares the streams, runs the command, and turns every error into three lines and an exit code."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.models.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_RUN_ID = re.compile(r"last(~\d+)?|\d{8}-\d{0,6}(-[0-9a-f]{0,6})?")
_FIRST = ("--config", "--color", "--debug", "--quiet", "-q")


class _Redacted(logging.Formatter):
    """A line of the log, also a traceback, without a key: libraries log what they send."""

    def format(self, record: logging.LogRecord) -> str:
        return KNOWN_SECRETS.redact(super().format(record))


def start(*, greeted: bool = False) -> NoReturn:
    """Run the command that `sys.argv` names and exit. `greeted`: the head of a chat stands there already."""
    arguments = with_run_id(sys.argv[1:])
    try:
        open_streams()
        sys.exit(run(arguments, greeted=greeted))
    except KeyboardInterrupt:
        sys.exit(130)


def run(arguments: Sequence[str], *, greeted: bool = False) -> int:
    """Run one command and return its exit code. Errors are told on stderr. A chat that was greeted needs no Typer."""
    debug = "--debug" in arguments
    if debug:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Redacted("%(relativeCreated)7d ms %(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    try:
        if greeted:
            from conductor_cli.cli.repl.loop import start_chat

            return start_chat(rehearsal="--rehearsal" in arguments)
        from conductor_cli.cli.commands import app  # loads every command's wiring

        return app(list(arguments), prog_name="conductor", standalone_mode=False) or 0
    except Exception as error:
        if debug:
            logging.getLogger(__name__).exception("the command failed")
        return _told(error)


def _told(error: Exception) -> int:
    """Tell an error and return its exit code."""
    from typer.exceptions import TyperException

    from conductor_cli.cli.output import leave_stdout, print_error

    if isinstance(error, TyperException):
        return _usage(error)
    if not isinstance(error, ConductorError):
        if isinstance(error, OSError):
            leave_stdout()
        error = _unexpected(error)
    print_error(error)
    return error.exit_code


def _usage(error: TyperException) -> int:
    """What Typer finds wrong with the command line. Without a command there is nothing to tell but the help."""
    from conductor_cli.cli.output import print_error, print_notice

    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print_notice(error.format_message())
        return UsageError("").exit_code
    message = error.format_message().replace("Value error, ", "")
    hint = f"{context.command_path if context is not None else 'conductor'} --help shows what there is"
    option = getattr(error, "option_name", "")
    if option in _FIRST:
        message, hint = f"{option} stands before the command", f"for example: conductor {option} ask …"
    print_error(UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint))
    return UsageError("").exit_code


def _unexpected(error: Exception) -> ConductorError:
    """What no command foresaw: the system's refusal, else a fault of ours."""
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: " if error.filename else ""
        return ConductorError(f"the system refused: {what}{error.strerror}", hint="check the disk and its rights")
    said = f"a fault of conductor itself: {type(error).__name__}: {error}"
    return ConductorError(said, hint="run again with --debug and report it")


def open_streams() -> None:
    """Make the three streams usable: those that are closed lead nowhere, and every character can be written.

    A closed one must not stay so: the next file opened, a trace for example, would take its place.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            _lead_nowhere(number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have a narrow encoding; an answer must not die of a letter. A terminal shows its own.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def with_run_id(arguments: Sequence[str]) -> list[str]:
    """`--continue` of `ask` and `chat` may stand without a run; then it means the last one."""
    given = list(arguments)
    for index, word in enumerate(given):
        if word == "--":
            break
        if word in {"-c", "--continue"} and {"ask", "chat"} & {*given[:index]}:
            following = given[index + 1] if index + 1 < len(given) else ""
            if not _RUN_ID.fullmatch(following):
                given.insert(index + 1, "last")
            break
    return given
