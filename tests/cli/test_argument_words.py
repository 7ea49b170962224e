"""Words that Typer cannot read by itself: several files after one `-f`."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from conductor_cli.cli.command import describe_files, with_each_file
from conductor_cli.core.errors import UsageError
from tests.cli.stage import COMMAND, Stage, explained


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files, one with a space in its name, and a directory."""
    place = tmp_path / "folder"
    (place / "docs").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "my notes.md", "make"):
        place.joinpath(name).write_text(f"in {name}")
    monkeypatch.chdir(place)
    return place


def files_of(stage: Stage) -> list[str]:
    """Which files the planner was shown, and the question after them."""
    shown = str(stage.asked("planner")[-1].json["messages"])
    return [name for name in ("a.txt", "b.txt", "my notes.md", "make") if f"in {name}" in shown]


def test_a_c_of_another_command_is_a_word(stage: Stage) -> None:
    """Commands that continue nothing read `-c` as they read any other word."""
    stage.inside("ask", "hi")
    assert stage.inside("ask", "-c", "and", "now?").code == 0
    assert stage.inside("workers", "add", "x", "--about", "-c").code == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Compare -f a.txt b.txt", "Compare -f a.txt -f b.txt"),
        ("-f a.txt 'my notes.md' 'Which is better?'", "-f a.txt -f 'my notes.md' 'Which is better?'"),
        ("--file a.txt b.txt --mode mini", "--file a.txt --file b.txt --mode mini"),
        ("-f a.txt -f b.txt Why?", "-f a.txt -f b.txt Why?"),
        ("-f a.txt make it shorter", "-f a.txt -f make it shorter"),
        ("-f a.txt -- make it shorter", "-f a.txt -- make it shorter"),
        ("-f a.txt -", "-f a.txt -"),
        ("-f a.txt is b.txt better", "-f a.txt is b.txt better"),
        ("Compare a.txt b.txt", "Compare a.txt b.txt"),
        ("-- -f a.txt b.txt", "-- -f a.txt b.txt"),
        ("-f", "-f"),
    ],
)
def test_files_after_a_file_are_files(folder: Path, given: str, meant: str) -> None:
    """Words right after `-f FILE` are attached while they name files; the rest is as it was."""
    assert with_each_file(shlex.split(given), ("-f", "--file"))[0] == shlex.split(meant)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("-f a.txt c.txt", "there is no file c.txt"),
        ("-f a.txt *.rst", "there is no file *.rst"),
        ("-f a.txt src/main", "there is no file src/main"),
        ("-f a.txt docs", "docs is a directory"),
    ],
)
def test_what_looks_like_a_file_and_is_none_is_refused(folder: Path, given: str, said: str) -> None:
    """A mistyped name would silently become a part of the question."""
    with pytest.raises(UsageError) as found:
        with_each_file(given.split(), ("-f",))
    assert found.value.message == said
    assert "words of the question go before -f, or after --" in found.value.hint


def test_words_that_name_files_are_told(folder: Path) -> None:
    """Attached files are listed; a word of the question that is a file says how to attach it."""
    assert describe_files(["a.txt", "b.txt"], ["Compare"]) == ["2 files are attached: a.txt, b.txt"]
    assert describe_files([*"abcdef"], []) == ["6 files are attached: a, b, c, d and 2 more"]
    (told,) = describe_files([], ["Compare", "a.txt", "b.txt", "make", "docs", "c.txt"])
    assert told.startswith("a.txt, b.txt are read as a part of the question")
    assert "-f a.txt" in told
    assert describe_files([], ["what is make?"]) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_pattern_of_the_shell_attaches_every_file(stage: Stage, folder: Path, shell: str) -> None:
    """`-f *.txt` and names with spaces reach the planner as files; one line says so."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder.joinpath("my notes.txt").write_text("in my notes.md")
    line = f"{shlex.join(COMMAND)} ask Compare -f *.txt"
    done = subprocess.run([shell, "-c", line], env=stage.environ(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "3 files are attached: a.txt, b.txt, my notes.txt\n")
    assert files_of(stage) == ["a.txt", "b.txt", "my notes.md"]


def test_quiet_says_nothing_about_files(stage: Stage, folder: Path) -> None:
    """`-q` attaches as many files and prints nothing."""
    done = stage.inside("ask", "Compare", "-f", "a.txt", "b.txt", "-q")
    assert (done.code, done.err) == (0, "")
    assert files_of(stage) == ["a.txt", "b.txt"]


def test_a_missing_file_asks_nobody(stage: Stage, folder: Path) -> None:
    """The mistake is found before anything is sent: 2."""
    done = stage.inside("ask", "Compare", "-f", "a.txt", "c.txt")
    assert done.code == 2
    explained(done)
    assert stage.server.requests == []
