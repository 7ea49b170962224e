"""Values of options: most are taken without Pydantic, and none is read in another way than Typer reads it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typer.core import TyperCommand
from typer.exceptions import TyperException

from conductor_cli.cli.command import load_command, take_plain_values
from tests.cli.stage import Stage

VALUES = (
    "", "a", "auto", "AUTO", "mini", "0", "1", "7", "01", "+1", "-1", "1_0", " 1", "1.0", "70000",
    "9" * 18, "9" * 30, "\u0661", "\x1b[1m",
)  # fmt: skip
"""What may stand behind an option, also numbers that few people write so."""


def parameters(name: str, target: str) -> list[Any]:
    """The arguments and options of a command, as Typer makes them."""
    return [*load_command(name, target).params]


def outcome(parameter: Any, value: Any) -> tuple[str, Any]:
    """What a command gets for a value, or what Typer says is wrong with it."""
    given = (value,) if getattr(parameter, "multiple", False) or parameter.nargs == -1 else value
    context = TyperCommand("x", params=[]).make_context("x", [])
    try:
        read = parameter.get_runtime_param().coerce(given, param=parameter, ctx=context)
    except TyperException as error:
        return "refused", error.format_message()
    return type(read).__name__, read


@pytest.mark.parametrize(
    ("name", "target"), [("serve", "conductor_cli.cli.serve:app"), ("ask", "conductor_cli.cli.ask:ask")]
)
def test_every_value_is_read_as_typer_reads_it(name: str, target: str) -> None:
    """Each option gives the same value, of the same type, or the same error as without the shortcut."""
    typers, ours = parameters(name, target), parameters(name, target)
    take_plain_values(ours)
    for expected, found in zip(typers, ours, strict=True):
        for value in VALUES:
            assert outcome(found, value) == outcome(expected, value), (found.name, value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--rehearsal", "--port", "0", "--host", "0.0.0.0"],
        ["ask", "--mode", "mini", "--max-steps", "3", "--continue-from", "none", "Why?"],
        ["serve", "--help"],
    ],
    ids=["serve", "ask", "help"],
)
def test_plain_values_load_no_pydantic(stage: Stage, arguments: list[str]) -> None:
    """A command with the values that people write has read its options, and Pydantic is not loaded."""
    code = (
        "import sys; from conductor_cli.cli.start import run; code = run(sys.argv[1:]); "
        "print(code, 'typer' in sys.modules, 'pydantic' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=stage.environ(), capture_output=True, text=True, check=True)
    assert done.stderr.split()[-2:] == ["True", "False"], done.stderr
