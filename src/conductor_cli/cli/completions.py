"""`conductor completions`: the completion script of a shell, to be sourced or installed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completions(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a shell, as in: source <(conductor completions bash)."""
    from pathlib import Path

    from conductor_cli.cli.output import say
    from conductor_cli.core.errors import ConductorError

    here = Path(__file__).resolve()
    # In a wheel the scripts lie inside the package; in a checkout at the top level.
    places = (here.parents[1] / "completions", here.parents[3] / "completions")
    for place in places:
        script = place / f"conductor.{shell.value}"
        if script.is_file():
            say(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="install conductor-llm again")
