"""What is written for a person: broken between words and stacked where a terminal is narrow; never for a program."""

from __future__ import annotations

import os
import subprocess
import sys

import pexpect
import pytest

from conductor_cli.cli import output, trace
from conductor_cli.cli.output import wrap_lines
from tests.cli.stage import SOURCE, Stage

HINT = "  set OPENAI_API_KEY, or store the key in a file: --insecure-storage"
TABLE = (
    "from conductor_cli.cli.output import print_table; "
    "print_table(('NAME', 'SIZE', 'NOTE'), [('a-name', '12', 'some words, and then some more'), ('b', '', 'few')])"
)
WIDE = ["NAME    SIZE  NOTE", "a-name  12    some words, and then some more", "b             few"]


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_a_line_is_broken_between_words_only(width: int) -> None:
    """Every word stays whole, the indent stays, and each line fits."""
    lines = wrap_lines(HINT, width).split("\n")
    assert max(map(len, lines)) <= width
    assert all(line.startswith("  ") for line in lines)
    assert " ".join(line.strip() for line in lines) == HINT.strip()


def test_what_follows_a_label_or_a_number_stays_behind_it() -> None:
    """The other lines begin under the first one's text."""
    assert wrap_lines("conductor  qwen, mode auto", 20) == "conductor  qwen,\n           mode auto"
    assert wrap_lines("  2. beta  sees 1 and 2  done", 20) == "  2. beta  sees 1\n     and 2  done"


def test_what_fits_or_has_no_width_is_left_as_it_is() -> None:
    """A line with spaces of its own, several lines, a word that is longer than the terminal."""
    assert wrap_lines("a  b\n\n  c", 20) == "a  b\n\n  c"
    assert wrap_lines(HINT * 9, 0) == HINT * 9
    assert wrap_lines("see /a/very-long-path/to-a-file", 20) == "see\n/a/very-long-path/to-a-file"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, WIDE),
        (44, WIDE),
        (40, ["NAME    SIZE  NOTE", "a-name  12    some words, and then some", " " * 14 + "more", "b             few"]),
        (30, ["NAME    SIZE  NOTE", "a-name  12    some words, and", " " * 14 + "then some more", "b             few"]),
    ],
)
def test_a_table_is_as_wide_as_the_terminal(width: int, lines: list[str]) -> None:
    """Where the terminal is too narrow, the last column is wrapped."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environ.pop("COLUMNS", None)
    program = pexpect.spawn(
        sys.executable, ["-c", TABLE], env=environ, encoding="utf-8", timeout=30, dimensions=(24, width)
    )  # fmt: skip
    assert program.read().splitlines() == lines
    program.close()


def test_columns_says_how_wide_a_terminal_is() -> None:
    """Whatever the terminal says of itself."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "30"}
    program = pexpect.spawn(
        sys.executable, ["-c", TABLE], env=environ, encoding="utf-8", timeout=30, dimensions=(24, 80)
    )  # fmt: skip
    assert program.read().splitlines()[:2] == ["NAME    SIZE  NOTE", "a-name  12    some words, and"]
    program.close()


def test_a_table_in_a_pipe_has_a_line_a_row() -> None:
    """Whatever terminal the program that reads it may have."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "20"}
    done = subprocess.run([sys.executable, "-c", TABLE], env=environ, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == WIDE


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_list_is_wider_than_the_terminal(stage: Stage, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Each row takes one line, the names are there, and a line says which columns are not. A pipe gets everything."""
    name = "a-worker-with-quite-a-long-name"
    stage.configure(workers=("alpha", name))
    key = stage.worker("beta", 'key_env = "A_RATHER_LONG_NAME_OF_A_VARIABLE"\ntags = ["cheap", "european"]')
    stage.config.write_text(f'{stage.config.read_text()}{key}\n[pools.both]\nworkers = ["alpha", "{name}"]\n')
    monkeypatch.setenv("A_RATHER_LONG_NAME_OF_A_VARIABLE", "sk-" + "a" * 40)
    assert stage.inside("ask", "Which?").code == 0
    lists = [("workers", "list"), ("keys", "list"), ("pools", "list"), ("trace", "list"), ("cost",), ("config", "show")]
    whole = [stage.inside(*command).out for command in lists]
    for module in (output, trace):
        monkeypatch.setattr(module, "terminal_width", lambda _: width)
    for command, wide in zip(lists, whole, strict=True):
        lines = stage.inside(*command).out.splitlines()
        assert "\u2026" not in wide
        assert "not shown here" not in wide
        assert command == ("pools", "list") or len(lines) <= len(wide.splitlines()) + 1
        assert command == ("pools", "list") or max(map(len, lines)) <= width
    shown = stage.inside("workers", "list").out
    assert "alpha" in shown
    assert "not shown here: " in shown
