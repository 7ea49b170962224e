"""Words that Typer cannot read by itself: several files after one `-f`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from conductor_cli.cli.typer_classes import with_each_file
from conductor_cli.core.errors import UsageError
from tests.cli.stage import Stage


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files, one with a space in its name, and a directory."""
    place = tmp_path / "folder"
    (place / "docs").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "my notes.md", "make"):
        place.joinpath(name).write_text(f"in {name}")
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Compare -f a.txt b.txt", "Compare -f a.txt -f b.txt"),
        ("-f a.txt 'my notes.md' 'Which is better?'", "-f a.txt -f 'my notes.md' 'Which is better?'"),
        ("--file a.txt b.txt --mode mini", "--file a.txt --file b.txt --mode mini"),
        ("-f a.txt make it shorter", "-f a.txt -f make it shorter"),
        ("-f a.txt -- make it shorter", "-f a.txt -- make it shorter"),
        ("-f a.txt -", "-f a.txt -"),
        ("-f a.txt is b.txt better", "-f a.txt is b.txt better"),
        ("Compare a.txt b.txt", "Compare a.txt b.txt"),
        ("-- -f a.txt b.txt", "-- -f a.txt b.txt"),
        ("-f a.txt https://example.com/x Why?", "-f a.txt -f https://example.com/x Why?"),
    ],
)
def test_files_after_a_file_are_files(folder: Path, given: str, meant: str) -> None:
    assert with_each_file(shlex.split(given), ("-f", "--file")) == shlex.split(meant)


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
    with pytest.raises(UsageError) as found:
        with_each_file(given.split(), ("-f",))
    assert found.value.message == said
    assert "words of the question go before -f, or after --" in found.value.hint


def test_words_that_name_files_are_told(stage: Stage, folder: Path) -> None:
    told = stage.inside("ask", "Compare", "a.txt", "b.txt", "make", "docs", "c.txt").err
    assert told.startswith("a.txt, b.txt are read as a part of the question; to attach a file: -f a.txt\n")
    assert stage.inside("ask", "what is make?").err == ""
    assert stage.inside("ask", "Compare", "-f", "a.txt", "b.txt", "-q").err == ""
    many = [str(shutil.copy("a.txt", f"{number}.txt")) for number in range(6)]
    assert "6 files are attached: 0.txt, 1.txt, 2.txt, 3.txt and 2 more\n" in stage.inside("ask", "?", "-f", *many).err


def test_a_missing_file_asks_nobody(stage: Stage, folder: Path) -> None:
    stage.fails(2, "ask", "Compare", "-f", "a.txt", "c.txt")
    assert stage.server.requests == []


def test_a_question_without_a_command_proposes_ask(stage: Stage) -> None:
    stage.fails(2, "Why is the sky blue?", told='to ask a question: conductor ask "…"')
