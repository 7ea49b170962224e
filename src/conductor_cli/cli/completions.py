"""`conductor completions`: the completion script of a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from conductor_cli.cli.output import print_line
from conductor_cli.core.errors import ConductorError

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completions(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell.

    For bash, fish and PowerShell, the line of the example belongs in the startup file; zsh needs its file once.
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
