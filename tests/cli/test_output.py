"""What is written for a person: broken between words, stacked where a terminal is narrow.

And how far a task is.
"""

from __future__ import annotations

import io
import os
import pty
import termios

import pytest

from conductor_cli.cli import output, trace
from conductor_cli.cli.output import print_table
from conductor_cli.cli.progress import ProgressLines, crop_label
from conductor_cli.system.terminal_tables import terminal_width, wrap_lines
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
        (
            40,
            [
                "NAME    SIZE  NOTE",
                "a-name  12    some words, and then some",
                " " * 14 + "more",
                "b             few",
            ],
        ),
        (
            30,
            [
                "NAME    SIZE  NOTE",
                "a-name  12    some words, and",
                " " * 14 + "then some more",
                "b             few",
            ],
        ),
    ],
)
def test_a_table_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    lines: list[str],
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    print_table(
        ("NAME", "SIZE", "NOTE"),
        [("a-name", "12", "some words, and then some more"), ("b", "", "few")],
    )
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
def test_no_list_is_wider_than_the_terminal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    name = "a-worker-with-quite-a-long-name"
    stage.configure(workers=("alpha", name))
    key = stage.worker(
        "beta", 'key_env = "A_RATHER_LONG_NAME_OF_A_VARIABLE"\ntags = ["cheap", "european"]'
    )
    stage.config.write_text(
        f'{stage.config.read_text()}{key}\n[pools.both]\nworkers = ["alpha", "{name}"]\n'
    )
    monkeypatch.setenv("A_RATHER_LONG_NAME_OF_A_VARIABLE", "sk-" + "a" * 40)
    assert stage.inside("ask", "Which?").code == 0
    lists = [
        ("workers", "list"),
        ("keys", "list"),
        ("trace", "list"),
        ("cost",),
        ("config", "show"),
    ]
    whole = [stage.inside(*command).out for command in lists]
    for module in (output, trace):
        monkeypatch.setattr(module, "terminal_width", lambda _: width)
    for command, wide in zip(lists, whole, strict=True):
        # Paths are never broken
        lines = stage.inside(*command).out.partition("\n\n")[0].splitlines()
        assert "\u2026" not in wide
        assert "not shown here" not in wide
        assert len(lines) <= len(wide.partition("\n\n")[0].splitlines()) + 1
        assert max(map(len, lines)) <= width
    shown = stage.inside("workers", "list").out
    # What answers is the last thing to be cropped
    assert "openai-compatible/alpha" in shown or width == 40
    assert "openai-compatible/al" in shown
    assert "not shown here: " in shown


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_task_is_shown_when_it_begins_and_every_few_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    display = ProgressLines("bytes", clock)
    for seconds, done in ((0, 0), (1, 1_000_000), (5, 5_000_000), (6, 6_000_000), (7, 10_000_000)):
        clock.now = 100 + seconds
        display.update("downloading a.gguf", done, 10_000_000)
    assert lines(capsys) == [
        "downloading a.gguf, 0 bytes of 10.0 MB",
        "downloading a.gguf, 5.00 MB of 10.0 MB, about 5.0 s left",
    ]


def test_runs_are_counted_to_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = ProgressLines("runs", clock)
    display.update("", 0, 1200)
    clock.now += 1
    display.update("", 600, 1200, "2 failed, $0.12")
    display.update("", 1200, 1200, "2 failed, $0.24")
    assert lines(capsys) == ["0 of 1,200 runs", "1,200 of 1,200 runs, 2 failed, $0.24"]


def test_a_label_is_one_safe_line(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLines("bytes").update("one\ntwo\x1b[2J", 0)
    assert len(lines(capsys)) == 1


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "checking model-00001-of-00002.gguf"),
        (70, "checking …00001-of-00002.gguf"),
        (20, "checking …02.gguf"),
    ],
)
def test_a_long_file_name_keeps_its_end(width: int, shown: str) -> None:
    assert crop_label("checking model-00001-of-00002.gguf", width) == shown
