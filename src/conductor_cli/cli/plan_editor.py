"""A plan in the user's editor."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConfigError, Failure, UsageError
from conductor_cli.core.plan import Plan
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question

FILE_NAME: Final = "plan.json"
USUAL_EDITORS: Final = ("sensible-editor", "nano", "vi")
"""What is tried where the environment names no editor."""
POLL: Final = 0.2
"""Seconds between two checks whether the run was stopped while the editor is open."""


def plan_as_text(question: Question, plan: Plan, limits: Limits) -> str:
    """The plan as the editor gets it: a plan file without the attachments and history of the question."""
    return format_plan_file(Question(text=question.text), plan, limits) + "\n"


def edit_text(text: str, environ: Mapping[str, str], terminal: int, stopped: Callable[[], bool]) -> str:
    """`text` as the user's editor leaves it. Raises `ConfigError` where the editor cannot be started or fails."""
    with tempfile.TemporaryDirectory(prefix="conductor-") as directory:
        file = Path(directory) / FILE_NAME
        file.write_text(text, encoding="utf-8")
        command = [*find_editor(environ), str(file)]
        # The editor gets the terminal itself, since stdin and stdout may be pipes.
        try:
            with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as editor:  # noqa: S603
                code = _wait_for(editor, stopped)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}", hint="export EDITOR=nano") from None
        if code:
            raise ConfigError(f"{command[0]} exited with code {code}; the plan is unchanged")
        try:
            return file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"{file.name} is gone or is no longer text; the plan is unchanged") from None


def find_editor(environ: Mapping[str, str]) -> list[str]:
    """The user's editor as a command. Raises `ConfigError`."""
    named = environ.get("VISUAL") or environ.get("EDITOR") or ""
    with suppress(ValueError):
        command = shlex.split(named) or [name for name in USUAL_EDITORS if shutil.which(name)][:1]
        if command and shutil.which(command[0]):
            return command
    message = f"the editor {named!r:.60} was not found" if named else "no editor was found"
    raise ConfigError(message, hint="name one, for example: export EDITOR=nano")


def _wait_for(editor: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> int:
    while True:
        try:
            return editor.wait(POLL)
        except subprocess.TimeoutExpired:
            if stopped():
                editor.terminate()


def parse_edited_plan(text: str, given: str, problem: Callable[[Plan], Failure | None]) -> Plan:
    """The plan in an edited text that was `given` to the editor. Raises `UsageError`.

    `problem` says why a plan cannot be run, None where it can.
    """
    edited, before = parse_plan_file(text, FILE_NAME), parse_plan_file(given, FILE_NAME)
    if (edited.question, edited.limits) != (before.question, before.limits):
        hint = "to change them: conductor plan … > plan.json, edit, conductor run plan.json"
        raise UsageError(f"{FILE_NAME}: only the steps can be changed here, not the question or the limits", hint=hint)
    failure = problem(edited.plan)
    if failure is not None:
        raise UsageError(f"{FILE_NAME}: {failure.message}", hint=failure.hint)
    return edited.plan
