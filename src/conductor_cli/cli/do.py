"""`conductor do`: one command for this shell, proposed by a worker and run only after a yes."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer

from conductor_cli.app.worker_selection import best_worker
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import can_ask, confirm
from conductor_cli.cli.output import print_line, print_notice, print_text
from conductor_cli.cli.session import Session, join_words
from conductor_cli.cli.signals import handle_signal
from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import sanitize, short_line, without_hidden
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.terminal_tables import terminal_width
from conductor_cli.views.output_formats import OutputContext
from conductor_cli.views.text_layout import text_cells

SWITCH: Final = "policy.no_commands"  # The setting by which commands are shown and never run

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "explanation": {"type": "string"}},
    "required": ["command", "explanation"],
    "additionalProperties": False,
}

MAX_EXPLANATION_CHARS: Final = 600
OTHER_ROWS: Final = 3  # Of the screen: the blank lines around the command, and the question

SYSTEM: Final = (
    "Propose one command line for the shell {shell} on {system} that does what is asked, and "
    "explain in one to three short sentences what it does and what it changes. Prefer commands "
    "that change nothing beyond what is asked, and never hide a part of a command."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCommand:
    """A command line as a worker wrote it, and what it says of it."""

    command: str
    explanation: str


@opt.with_options(
    omit=(
        "mode",
        "workers",
        "pool",
        "conductor",
        "tools",
        "allow_tools",
        "max_steps",
        "recursion",
        "max_tokens",
        "max_calls",
        "fit",
        "seed",
        "approve",
        "format",
        "rehearsal",
    )
)
def do_command(
    context: typer.Context,
    options: opt.RunOptions,
    words: opt.Words = None,
    model: opt.PlainModel = None,
) -> None:
    """Propose one command for your shell, explain it, and run it only after your yes.

    A worker is asked in one call: that of --model, else the one with the best card. It is told the
    name of your shell and system, and nothing else. policy.no_commands has commands only shown.
    """
    if not can_ask() or not sys.stdout.isatty():
        hint = 'in a script, have the command written and read it: conductor ask -m NAME "…"'
        raise UsageError("conductor do needs a terminal, because a person decides", hint=hint)
    text = join_words(words or ())
    if not text:
        raise UsageError("there is nothing to do", hint='for example: conductor do "free port 80"')
    flags = options.settings()
    if model is None:
        model = best_worker(opt.stored_settings(context, flags))
    session = _QuietSession(context.obj, options, flags, model=model)
    shell = _shell()
    system = SYSTEM.format(shell=Path(shell).name, system=platform.system())
    result = session.run(Question(text=text, system=system, schema=SCHEMA))
    if result.run.trace.partial:
        print_notice(f"the worker proposed no command that can be read; {OTHER_WORKER}")
    if result.exit_code != 0:
        raise typer.Exit(result.exit_code)
    proposed = read_proposal(result.run.trace.answer)
    _show_proposal(proposed)
    if session.settings[SWITCH]:
        raise PolicyError(f"the command is not run: {SWITCH} is true", hint="run it by hand")
    if not confirm("Run it?", default=False):
        print_notice("nothing was run")
        raise typer.Exit(130)
    raise typer.Exit(_run_in_shell(shell, proposed.command))


def _show_proposal(proposed: ProposedCommand) -> None:
    """Print the explanation, and then the command, which is on the screen while it is asked about.

    The explanation comes first and in one paragraph: however it is written, it stands for no
    command, and moves none off the screen. Raises `ConductorError` for a command with more rows
    than the screen has.
    """
    width = max(1, terminal_width(sys.stdout) - len(_MARGIN))
    rows = command_rows(proposed.command, width)
    room = shutil.get_terminal_size().lines - OTHER_ROWS
    print_text(f"\n{short_line(proposed.explanation, MAX_EXPLANATION_CHARS)}")
    if len(rows) > room:
        message = f"the proposed command has {len(rows)} lines, and the screen shows {room}"
        hint = "it is not run; to read it: conductor trace show last --step 1"
        raise ConductorError(message, hint=hint)
    print_line("\n" + "\n".join(f"{_MARGIN}{row}" for row in rows) + "\n")


_MARGIN: Final = "  "
OTHER_WORKER: Final = "another worker may do better: conductor do -m NAME …"


def command_rows(command: str, width: int) -> list[str]:
    """Return a command in rows of at most `width` cells, with every space that it has."""
    rows: list[str] = []
    for line in command.split("\n"):
        row = ""
        for letter in line:
            if row and text_cells(row + letter) > width:
                rows.append(row)
                row = ""
            row += letter
        rows.append(row)
    return rows


class _QuietSession(Session):
    """A session whose answers go nowhere: what they say is shown in another form."""

    @property
    def output_context(self) -> OutputContext:
        return replace(super().output_context, stdout=io.StringIO())


def read_proposal(answer: str) -> ProposedCommand:
    """Return the command in an answer.

    Raises `ConductorError` where there is none, or where the screen would not show all of it.
    """
    try:
        proposal = json.loads(answer)
        command = str(proposal["command"]).strip()
        explanation = str(proposal["explanation"]).strip()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConductorError("the worker proposed no command", hint=OTHER_WORKER) from None
    if not command:
        raise ConductorError(f"there is no such command: {explanation}", hint="say more of it")
    shown = KNOWN_SECRETS.redact(without_hidden(sanitize(command)))
    is_printable = all(letter.isprintable() or letter == "\n" for letter in command)
    if shown != command or not is_printable:
        hint = "look at it: conductor trace show last --step 1"
        raise ConductorError(
            "the proposed command has characters that a screen does not show, so it is not run",
            hint=hint,
        )
    return ProposedCommand(command=command, explanation=explanation)


def _shell() -> str:
    """Return the shell of the user, which runs the command."""
    if os.name == "nt":
        return os.environ.get("COMSPEC", "cmd.exe")
    return os.environ.get("SHELL") or "/bin/sh"


def _run_in_shell(shell: str, command: str) -> int:
    """Run a command as if it had been typed, and return its exit code as a shell has it."""
    option = "/c" if os.name == "nt" else "-c"
    if command.startswith(("-", "+")):  # a shell would take it for an option of its own
        command = f" {command}"
    # Ctrl-C is for the command, which is in the same group of processes
    with handle_signal(signal.SIGINT, lambda *_: None):
        try:
            code = subprocess.call([shell, option, command])  # noqa: S603 - the person said yes
        except OSError as error:
            hint = "set SHELL to the path of your shell"
            raise ConductorError(f"{shell} cannot be run: {error.strerror}", hint=hint) from None
    return code if code >= 0 else 128 - code
