"""A plan in the user's editor: the plan file without what came with the question, and what became of it."""

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
from conductor_cli.core.plan_file import format_plan_file, line_of_step, parse_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question

NAME: Final = "plan.json"
USUAL: Final = ("sensible-editor", "nano", "vi")
"""What is taken where the environment names no editor."""
GLANCE: Final = 0.2
"""Seconds between two looks at whether somebody stopped the run meanwhile."""


def editor_of(environ: Mapping[str, str]) -> list[str]:
    """The user's editor as a command. Raises `ConfigError`."""
    named = environ.get("VISUAL") or environ.get("EDITOR") or ""
    with suppress(ValueError):
        command = shlex.split(named) or [name for name in USUAL if shutil.which(name)][:1]
        if command and shutil.which(command[0]):
            return command
    said = f"there is no editor {named!r:.60}" if named else "no editor is known"
    raise ConfigError(said, hint="name one: export EDITOR=nano")


def text_of(question: Question, plan: Plan, limits: Limits) -> str:
    """The plan as it is given to the editor."""
    return format_plan_file(Question(text=question.text), plan, limits) + "\n"


def edited(text: str, environ: Mapping[str, str], terminal: int, stopped: Callable[[], bool]) -> str:
    """`text` as the user's editor leaves it. Raises `ConfigError` for an editor that cannot be started or fails."""
    with tempfile.TemporaryDirectory(prefix="conductor-") as place:
        file = Path(place) / NAME
        file.write_text(text, encoding="utf-8")
        command = [*editor_of(environ), str(file)]
        try:
            with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as editor:  # noqa: S603
                code = _end_of(editor, stopped)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}", hint="export EDITOR=nano") from None
        if code:
            raise ConfigError(f"{command[0]} ended with {code}; the plan stays as it was")
        return _kept(file)


def _end_of(editor: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> int:
    while True:
        try:
            return editor.wait(GLANCE)
        except subprocess.TimeoutExpired:
            if stopped():
                editor.terminate()


def _kept(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{file.name} is gone or no text any more; the plan stays as it was") from None


def plan_in(text: str, given: str, problem: Callable[[Plan], Failure | None]) -> Plan:
    """The plan in an edited text, of which `given` was the first form. Raises `UsageError` that names the line."""
    made, before = parse_plan_file(text, NAME), parse_plan_file(given, NAME)
    if (made.question, made.limits) != (before.question, before.limits):
        hint = "to change them: conductor plan … > plan.json, edit, conductor run plan.json"
        raise UsageError(f"{NAME}: only the steps can be changed here, not the question or the limits", hint=hint)
    failure = problem(made.plan)
    if failure is not None:
        line = line_of_step(text, failure.message)
        raise UsageError(f"{NAME}: {f'line {line}: ' if line else ''}{failure.message}", hint=failure.hint)
    return made.plan
