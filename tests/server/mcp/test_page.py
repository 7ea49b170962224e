"""The forms and the example of docs/mcp.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from conductor_cli.server.mcp import handlers, process, tools
from tests.cli.stage import SOURCE

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs/mcp.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_form_starts_the_command() -> None:
    claude, code = map(json.loads, blocks("json"))
    (codex,) = map(tomllib.loads, blocks("toml"))
    forms: list[dict[str, Any]] = [
        claude["mcpServers"]["conductor"], code["servers"]["conductor"], codex["mcp_servers"]["conductor"],
    ]  # fmt: skip
    assert [(form["command"], form["args"]) for form in forms] == [("conductor", ["mcp"])] * 3
    lines = re.findall(r"(?:claude|codex) mcp add [^\n`]*", PAGE)
    assert len(lines) == 2
    assert all(shlex.split(line)[-3:] == ["--", "conductor", "mcp"] for line in lines)


def test_the_example_runs(tmp_path: Path) -> None:
    """The client of the page gets an answer from the demo models."""
    (example,) = blocks("python")
    command = tmp_path / "conductor"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m conductor_cli "$@"\n')
    command.chmod(0o755)
    parameters = f"env={{'PYTHONPATH': {str(SOURCE)!r}}}, command={str(command)!r}"
    code = example.replace('command="conductor"', parameters)
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False)
    assert done.stdout == "SIRAP\n", done.stderr


def test_the_bounds_are_those_of_the_code() -> None:
    assert (process.MAX_MESSAGE, tools.MAX_ATTACHED_FILES, tools.MAX_GIVEN_STEPS) == (16 << 20, 100, 20)
    assert (handlers.MAX_RESULT_TEXT, handlers.MAX_CALLS) == (100_000, 16)
    assert all(each in PAGE for each in ("16 MiB", "100 files", "20 steps", "100,000 characters", "Sixteen calls"))
