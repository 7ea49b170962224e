"""`conductor do`: a proposed command is shown whole, and runs only after a yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conductor_cli.cli.do import read_proposal
from conductor_cli.core.errors import ConductorError
from tests.cli.stage import Stage, says

terminals = pytest.importorskip("tests.cli.terminals", reason="it needs a terminal")


def proposes(stage: Stage, command: str, explanation: str = "It makes a file.") -> None:
    stage.models["alpha"] = says(json.dumps({"command": command, "explanation": explanation}))


@pytest.mark.parametrize(("key", "is_run"), [("y", True), ("n", False), ("", False)])
def test_a_command_runs_only_after_a_yes(
    stage: Stage, tmp_path: Path, key: str, *, is_run: bool
) -> None:
    made = tmp_path / "made"
    proposes(stage, f"touch {made}")
    wide = (200, 24)  # the path of the file is long
    with terminals.terminal(stage, "do", "-m", "alpha", "make a file", size=wide) as screen:
        screen.until("Run it? [y/N]")
        assert f"touch {made}" in " ".join(screen.scrolled.split())
        assert "It makes a file." in screen.scrolled
        assert not made.exists()
        screen.program.send(f"{key}\r")
        assert screen.end() == (0 if is_run else 130)
    assert made.exists() == is_run
    [request] = stage.posts
    assert request.json["model"] == "alpha"


def test_no_command_is_taken_for_an_option_of_the_shell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    proposes(stage, "--version; exit 3")
    with terminals.terminal(stage, "do", "-m", "alpha", "say the version") as screen:
        screen.until("Run it? [y/N]")
        screen.program.send("y\r")
        assert screen.end() == 3


def test_no_explanation_moves_the_command_off_the_screen(stage: Stage, tmp_path: Path) -> None:
    """Nor does one look like a command, as it stands in one paragraph above it."""
    made = tmp_path / "made"
    proposes(stage, f"touch {made}", "It makes a file." + "\n" * 60 + "  ls\n\nIt lists. " * 90)
    with terminals.terminal(stage, "do", "-m", "alpha", "make a file") as screen:
        screen.until("Run it? [y/N]")
        below = screen.screen.partition("It makes a file. ls It lists.")[2]
        command, _, _ = below.partition("Run it?")
        assert "".join(command.split()).endswith(f"…touch{made}")
        screen.program.send("n\r")
        assert screen.end() == 130


@pytest.mark.parametrize("gap", ["\n" * 40, " " * 2000])
def test_a_command_that_is_longer_than_the_screen_is_not_run(stage: Stage, gap: str) -> None:
    proposes(stage, f"true{gap}; touch made")
    with terminals.terminal(stage, "do", "-m", "alpha", "make a file") as screen:
        screen.until("lines, and the screen shows 21")
        assert screen.end() == 1
        assert "Run it?" not in screen.scrolled


def test_a_worker_that_writes_no_command_is_not_the_last_word(stage: Stage) -> None:
    stage.models["alpha"] = says("touch it")
    with terminals.terminal(stage, "do", "-m", "alpha", "make a file", size=(120, 24)) as screen:
        assert screen.end() == 7
        assert "another worker may do better: conductor do -m NAME" in screen.scrolled


def test_a_policy_has_commands_only_shown(stage: Stage, tmp_path: Path) -> None:
    made = tmp_path / "made"
    stage.configure("[policy]\nno_commands = true")
    proposes(stage, f"touch {made}")
    with terminals.terminal(stage, "do", "-m", "alpha", "make a file") as screen:
        screen.until("the command is not run: policy.no_commands is true")
        assert screen.end() == 3
    assert not made.exists()


def test_without_a_terminal_nobody_is_asked(stage: Stage) -> None:
    stage.costs_nothing(2, "do", "make a file")
    stage.fails(2, "do", "make a file", given="y\n", told="needs a terminal")
    stage.fails(2, "do", "make a file", "--yes", told="there is no option --yes")


@pytest.mark.parametrize(
    "command", ["echo \x1b[8mrm -rf ~\x1b[0m", "echo a\r rm b", "echo \u202eab", "echo\u200b a"]
)
def test_a_command_that_a_screen_does_not_show_whole_is_refused(command: str) -> None:
    answer = json.dumps({"command": command, "explanation": "It is harmless."})
    with pytest.raises(ConductorError, match="characters that a screen does not show"):
        read_proposal(answer)


def test_an_answer_without_a_command_is_an_error() -> None:
    for answer in ("no JSON", "[]", "{}", '{"command": "ls"}'):
        with pytest.raises(ConductorError, match="proposed no command"):
            read_proposal(answer)
    with pytest.raises(ConductorError, match="there is no such command: None does it"):
        read_proposal('{"command": " ", "explanation": "None does it"}')
