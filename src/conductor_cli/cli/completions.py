"""`conductor completions`: the completion script of a shell, to be sourced or installed."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Shell(str, Enum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completions(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script: source <(conductor completions bash)"""
    from pathlib import Path  # noqa: PLC0415

    from conductor_cli.cli.output import say  # noqa: PLC0415
    from conductor_cli.core.errors import ConductorError  # noqa: PLC0415

    here = Path(__file__).resolve()
    # In a wheel the scripts lie inside the package; in a checkout at the top level.
    places = (here.parents[1] / "completions", here.parents[3] / "completions")
    for place in places:
        script = place / f"conductor.{shell.value}"
        if script.is_file():
            say(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="install conductor-llm again")
