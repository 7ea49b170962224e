"""`conductor completions`: the completion script of a shell."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor_cli.cli.output import print_line
from conductor_cli.core.errors import ConductorError


class Shell(StrEnum):
    """The shells that have a completion script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


SUFFIXES: Final = {Shell.powershell: "ps1"}
"""File endings of scripts that are not called after the shell."""


def completions(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell, as in: source <(conductor completions bash).

    To install it: `conductor completions fish > ~/.config/fish/completions/conductor.fish`; for zsh write a file
    `_conductor` in a directory of `$fpath`; for bash and PowerShell a line in the profile, in PowerShell
    `conductor completions powershell | Out-String | Invoke-Expression`.
    """
    here = Path(__file__).resolve()
    # In a wheel the scripts are inside the package, in a checkout at the top level.
    places = (here.parents[1] / "completions", here.parents[3] / "completions")
    for place in places:
        script = place / f"conductor.{SUFFIXES.get(shell, shell.value)}"
        if script.is_file():
            print_line(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="reinstall conductor-llm")
