"""Writing to stdout and stderr: text, tables, JSON, and errors of at most three lines.

On a terminal, explanations are wrapped and a table that is too wide is stacked; what a program
reads is never wrapped. API keys that this process has read are redacted, and control characters
removed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.terminal_text import escape_json, one_line, sanitize
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.terminal_tables import Column, render_table, terminal_width, wrap_lines

if TYPE_CHECKING:
    from conductor_cli.app.check_results import CheckResult
    from conductor_cli.views.base import OutputContext
    from conductor_cli.views.text_layout import Line

CLIPBOARDS: Final = {
    "pbcopy": "",
    "wl-copy": "WAYLAND_DISPLAY",
    "xclip -selection clipboard": "DISPLAY",
    "xsel -ib": "DISPLAY",
    "clip.exe": "",
}
"""Programs that copy what they read, each with the variable that must be set for it."""


def print_line(text: str = "") -> None:
    """Print a line on stdout, safe for a terminal.

    If nobody reads stdout any more, the command ends quietly.
    """
    _write(KNOWN_SECRETS.redact(sanitize(text)))


def print_styled(text: str) -> None:
    """Print a text on stdout that the caller has sanitized and then styled."""
    _write(KNOWN_SECRETS.redact(text))


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print a JSON value on stdout; characters that are unsafe on a terminal are escaped."""
    _write(escape_json(json.dumps(KNOWN_SECRETS.redact_data(value), ensure_ascii=False, indent=2)))


class _HasJson(Protocol):
    def to_json(self) -> Any: ...  # noqa: ANN401 - any JSON value


def print_json_rows(rows: Iterable[_HasJson]) -> None:
    """Print a JSON array of the data of each row."""
    print_json([row.to_json() for row in rows])


def _write(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        from typer import Exit  # a chat begins before Typer is loaded

        raise Exit from None


def print_text(text: str) -> None:
    """Print an explanation on stdout, wrapped on a terminal."""
    _write(wrap_lines(KNOWN_SECRETS.redact(sanitize(text)), terminal_width(sys.stdout)))


def print_done(text: str) -> None:
    """Print on stdout what a command has done.

    It is done also where that cannot be printed, so nothing is raised.
    """
    try:
        print_text(text)
    except OSError as error:
        print_notice(f"{text} (standard output cannot be written: {error.strerror})")
        leave_stdout()


def print_finding(state: str, text: str, details: str) -> None:
    """Print what a check found in a line with its state, and each line of `details` below it."""
    print_text(f"{state:7}  {text}")
    for line in details.splitlines():
        print_text(f"{'':7}  {line}")


def print_check(check: CheckResult) -> None:
    """Print what was checked and what was found, how long that took, and the hint below it."""
    took = "" if check.seconds is None else f" ({format_duration(check.seconds)})"
    print_finding(check.state, f"{check.name}: {check.text}{took}", check.hint)


def print_page(lines: Sequence[Line], context: OutputContext) -> None:
    """Print a page on stdout: with colours and wrapped on a terminal, else as it is."""
    from conductor_cli.views.base import Stdout
    from conductor_cli.views.text_layout import Printer
    from conductor_cli.views.trace_text import page_text

    width = terminal_width(sys.stdout)
    shown = list["Line"]()
    if not width:
        print_line(page_text(lines))
        return
    for line in lines:
        if len(line) > 1:  # a line of the tree, which fits and is safe
            shown.append(line)
            continue
        text, style = line[0]
        text = wrap_lines(KNOWN_SECRETS.redact(sanitize(text)), width)
        shown += [((part, style),) for part in text.split("\n")]
    Printer(Stdout(sys.stdout), context).print(shown)


def print_notice(text: str) -> None:
    """Print a line on stderr, wrapped on a terminal. A closed stderr is no error."""
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        sys.stderr.write(
            wrap_lines(KNOWN_SECRETS.redact(sanitize(text)), terminal_width(sys.stderr)) + "\n"
        )
        sys.stderr.flush()


def copy_to_clipboard(text: str) -> str:
    """Copy a text, without what a terminal would obey; returns for a notice what was done."""
    import base64  # every start imports this module
    import shutil
    import subprocess

    clip = sanitize(KNOWN_SECRETS.redact(text)).encode()
    for command, needs in CLIPBOARDS.items():
        # Over SSH the desktop's program would copy on the other machine; the terminal copies on
        # this one.
        usable = "SSH_CONNECTION" not in os.environ and (not needs or os.environ.get(needs))
        name, *options = command.split()
        if usable and (path := shutil.which(name)):
            with suppress(OSError, subprocess.SubprocessError):
                # Its output goes nowhere: it stays to serve the text, and a pipe would be waited
                # for.
                quiet = subprocess.DEVNULL
                line = [path, *options]
                subprocess.run(line, input=clip, stdout=quiet, stderr=quiet, timeout=5, check=True)  # noqa: S603
                return "copied"
    sys.stderr.write(f"\x1b]52;c;{base64.b64encode(clip).decode()}\x07")
    sys.stderr.flush()
    return "copied, if this terminal lets programs do so (OSC 52)"


def print_table(columns: Sequence[str | Column], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns with headings, as wide as the terminal.

    The last column wraps if it is a plain heading.
    """
    last = len(columns) - 1
    shown = []
    for index, column in enumerate(columns):
        if isinstance(column, str):
            shown.append(Column(column, wrap=index == last))
        else:
            shown.append(column)
    for line in render_table(shown, rows, terminal_width(sys.stdout)):
        print_line(line)


def print_error(failure: Failure | ConductorError) -> int:
    """Print an error on stderr, in at most three lines, with what to do next.

    Returns its exit code.
    """
    print_notice(f"conductor: {one_line(failure.message)}")
    for line in failure.hint.splitlines()[:2]:
        print_notice(f"  {line}")
    return failure.exit_code


def stdout_problem() -> ConductorError | None:
    """Return the error of a command that was started without a standard output for its result."""
    try:
        os.write(sys.stdout.fileno(), b"")
    except io.UnsupportedOperation:  # a text in memory, where a command runs inside a program
        return None
    except OSError as error:
        if error.errno == errno.EBADF:
            message = "standard output is closed, so the result cannot be printed"
            return ConductorError(message, hint="to discard it: > /dev/null")
    return None


def leave_stdout() -> None:
    """Point stdout at the null device, so that the interpreter's last flush does not fail."""
    # The descriptor is replaced rather than the Python object, which still holds unwritten text.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
