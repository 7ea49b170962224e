"""What is written for a person: broken between words and stacked where a terminal is narrow; never for a program."""

from __future__ import annotations

import io
import os
import pty
import termios

import pytest

from conductor_cli.cli import output
from conductor_cli.cli.output import print_table, terminal_width, wrap_lines
from tests.cli.stage import Stage

HINT = "  set OPENAI_API_KEY, or store the key in a file: --insecure-storage"
WIDE = ["NAME    SIZE  NOTE", "a-name  12    some words, and then some more", "b             few"]


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_a_line_is_broken_between_words_only(width: int) -> None:
    lines = wrap_lines(HINT, width).split("\n")
    assert max(map(len, lines)) <= width
    assert all(line.startswith("  ") for line in lines)
    assert " ".join(line.strip() for line in lines) == HINT.strip()


def test_what_follows_a_label_or_a_number_stays_behind_it() -> None:
    assert wrap_lines("conductor  qwen, mode auto", 20) == "conductor  qwen,\n           mode auto"
    assert wrap_lines("  2. beta  sees 1 and 2  done", 20) == "  2. beta  sees 1\n     and 2  done"


def test_what_fits_or_has_no_width_is_left_as_it_is() -> None:
    assert wrap_lines("a  b\n\n  c", 20) == "a  b\n\n  c"
    assert wrap_lines(HINT * 9, 0) == HINT * 9
    assert wrap_lines("see /a/very-long-path/to-a-file", 20) == "see\n/a/very-long-path/to-a-file"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, WIDE),  # a pipe
        (44, WIDE),
        (40, ["NAME    SIZE  NOTE", "a-name  12    some words, and then some", " " * 14 + "more", "b             few"]),
        (30, ["NAME    SIZE  NOTE", "a-name  12    some words, and", " " * 14 + "then some more", "b             few"]),
    ],
)
def test_a_table_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, lines: list[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    print_table(("NAME", "SIZE", "NOTE"), [("a-name", "12", "some words, and then some more"), ("b", "", "few")])
    assert capsys.readouterr().out.splitlines() == lines


def test_columns_says_how_wide_a_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    user, program = pty.openpty()
    termios.tcsetwinsize(user, (24, 80))
    with os.fdopen(program, "w") as stream:
        widths = []
        for columns in ("", "30"):
            monkeypatch.setenv("COLUMNS", columns)
            widths.append((terminal_width(stream), terminal_width(io.StringIO())))
    os.close(user)
    assert widths == [(80, 0), (30, 0)]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_list_is_wider_than_the_terminal(stage: Stage, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    name = "a-worker-with-quite-a-long-name"
    stage.configure(workers=("alpha", name))
    key = stage.worker("beta", 'key_env = "A_RATHER_LONG_NAME_OF_A_VARIABLE"\ntags = ["cheap", "european"]')
    stage.config.write_text(f'{stage.config.read_text()}{key}\n[pools.both]\nworkers = ["alpha", "{name}"]\n')
    monkeypatch.setenv("A_RATHER_LONG_NAME_OF_A_VARIABLE", "sk-" + "a" * 40)
    assert stage.inside("ask", "Which?").code == 0
    lists = [("workers", "list"), ("keys", "list"), ("trace", "list"), ("cost",), ("config", "show")]
    whole = [stage.inside(*command).out for command in lists]
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    for command, wide in zip(lists, whole, strict=True):
        lines = stage.inside(*command).out.partition("\n\n")[0].splitlines()  # paths are never broken
        assert "\u2026" not in wide
        assert "not shown here" not in wide
        assert len(lines) <= len(wide.partition("\n\n")[0].splitlines()) + 1
        assert max(map(len, lines)) <= width
    shown = stage.inside("workers", "list").out
    assert "openai-compatible/alpha" in shown or width == 40  # what answers is the last thing to be cropped
    assert "openai-compatible/al" in shown
    assert "not shown here: " in shown
