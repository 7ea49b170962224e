"""`conductor completions`: the completion script of a shell, and the names that such a script asks for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import typer


class Shell(StrEnum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


SUFFIXES: Final = {Shell.powershell: "ps1"}
"""How the script of a shell ends where that is not the shell's own name."""


def completions(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a shell, as in: source <(conductor completions bash).

    For good: `conductor completions fish > ~/.config/fish/completions/conductor.fish`; for zsh a file `_conductor` in a
    directory of `$fpath`; for bash and PowerShell a line in the profile, in PowerShell
    `conductor completions powershell | Out-String | Invoke-Expression`.
    """
    from pathlib import Path

    from conductor_cli.cli.output import print_line
    from conductor_cli.core.errors import ConductorError

    here = Path(__file__).resolve()
    # In a wheel the scripts lie inside the package; in a checkout at the top level.
    places = (here.parents[1] / "completions", here.parents[3] / "completions")
    for place in places:
        script = place / f"conductor.{SUFFIXES.get(shell, shell.value)}"
        if script.is_file():
            print_line(script.read_text(encoding="utf-8").rstrip("\n"))
            return
    raise ConductorError("the completion scripts are not installed", hint="install conductor-llm again")


def worker_names(environ: Mapping[str, str], config: str | None, *, own: bool) -> list[str]:
    """The workers of the settings, or if `own` those of `workers add`. What cannot be read is left out."""
    return _names("workers", "--own" if own else "", environ, config)


def pool_names(environ: Mapping[str, str], config: str | None, *, own: bool, known: bool) -> list[str]:
    """The pools of the settings, if `own` those of `pools add`, and if `known` those that ship with this tool."""
    return _names("pools", "--own" if own else "--known" if known else "", environ, config)


def model_names(environ: Mapping[str, str], *, known: bool) -> list[str]:
    """The models on this machine, and if `known` those that can be pulled. What cannot be read is left out."""
    return _names("model", "--known" if known else "", environ, None)


def _names(section: str, flag: str, environ: Mapping[str, str], config: str | None) -> list[str]:
    from conductor_cli.cli.completion_names import names

    return names([section, "names", *filter(None, [flag])], environ, config) or []
