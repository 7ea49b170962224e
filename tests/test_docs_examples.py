"""The examples of the documents: each block of Python runs in a process of its own, each command is understood."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from typer.core import TyperCommand, TyperGroup

from conductor_cli.cli import entry
from tests.test_links import ROOT

EXAMPLE: Final = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES: Final = EXAMPLE.findall((ROOT / "docs/python.md").read_text("utf-8"))

PRINTED: Final = {
    "Ask a question": "SIRAP",
    "Events": "planned: ",
    "Asynchronous code": "OYKOT",
    "Stored runs": "RunFinished",
    "Approving plans": "SIRAP",
    "Errors": "limit",
    "Your own models": "Forty-two.",
}
"""What each example of docs/python.md prints, among other things."""

LEFT_OUT: Final = {
    **dict.fromkeys(("cli.md", "config.md", "events.md"), "it is generated from the commands"),
    "decisions.md": "it names what was rejected and dropped",
    "extend.md": "its commands and formats are those that a reader adds",
}
NO_COMMANDS: Final = ("=", "did")
"""What follows the word in code, and in what `eval` prints."""

PAGES: Final = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in LEFT_OUT),
]


def test_the_page_has_these_examples() -> None:
    """Every section with code is run by this module."""
    assert [title for title, _ in EXAMPLES] == list(PRINTED)
    assert "```python" not in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_runs_in_a_new_process(title: str, code: str, home: Path) -> None:
    """An example runs without a key or a download, whatever was imported before, and prints what it should."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), cwd=home, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINTED[title] in done.stdout


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each command in a page, in blocks of code and inside text, without what a shell does with them."""
    fenced = False
    for line in page.read_text("utf-8").splitlines():
        fenced ^= line.startswith("```")
        for text in [line] if fenced or line.startswith("    ") else re.findall(r"`([^`]+)`", line):
            try:
                lexer = shlex.shlex(text.replace("\\|", "|"), posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                words = list(lexer)
            except ValueError:  # an apostrophe in a sentence
                continue
            ends = [-1, *(n for n, word in enumerate(words) if set(word) <= set("|<>&;()") and word), len(words)]
            for start, end in pairwise(ends):
                part = words[start + 1 : end]
                if part[1:] and part[0] == "conductor" and part[1] not in NO_COMMANDS:
                    yield part[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_page_is_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its command and options exist, and their values can be read; nothing is run."""
    monkeypatch.chdir(tmp_path)
    # What a command and a group do by themselves; the commands below a group are still read.
    (base,) = {kind for kind in TyperCommand.__mro__ if "invoke" in vars(kind)} & {*TyperGroup.__mro__}
    monkeypatch.setattr(base, "invoke", lambda *_: None)
    wrong = []
    for words in commands_of(page):
        for word in words:
            if re.fullmatch(r"\w[\w-]*\.[a-z]{2,5}", word):
                (tmp_path / word).touch()
        code, said = entry.run_command_line(words), capsys.readouterr().err
        # A sentence names a command without what it takes, or with a placeholder.
        if code and "missing argument" not in said and not any(word.isupper() for word in words):
            wrong.append((" ".join(words), said.splitlines()))
    assert wrong == []
