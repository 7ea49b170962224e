"""`conductor completions`: the completion script of a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from conductor_cli.cli.output import print_line
from conductor_cli.core.errors import ConductorError

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completions(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell, as in: source <(conductor completions bash).

    To install it: `conductor completions fish > ~/.config/fish/completions/conductor.fish`; for zsh write a file
    `_conductor` in a directory of `$fpath`; for bash and PowerShell a line in the profile, in PowerShell
    `conductor completions powershell | Out-String | Invoke-Expression`.
    """
    here = Path(__file__).resolve()
    # In a wheel the scripts are inside the package, in a checkout at the top level.
    places = (here.parents[1] / "completions", here.parents[3] / "completions")
    suffix = "ps1" if shell == "powershell" else shell
    for place in places:
        script = place / f"conductor.{suffix}"
        if script.is_file():
            print_line(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="reinstall conductor-llm")
