"""`conductor completions`: the completion script of a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from conductor_cli.cli.completion_offers import COMPLETION_DIRECTORIES
from conductor_cli.cli.options import argument
from conductor_cli.cli.output import print_line
from conductor_cli.core.errors import ConductorError


def completions_command(
    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], argument(None, "The shell.")],
) -> None:
    """Print the completion script of a shell.

    For bash, fish and PowerShell, the line of the example belongs in the startup file; zsh needs
    its file once.
    """
    suffix = "ps1" if shell == "powershell" else shell
    for directory in COMPLETION_DIRECTORIES:
        script = Path(directory, f"conductor.{suffix}")
        if script.is_file():
            print_line(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="reinstall conductor-llm")
