"""The examples of the documents.

Each block of Python runs in a process of its own, each command is understood.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from typer.core import TyperCommand, TyperGroup

from conductor_cli.cli import entry
from tests.cli import conftest
from tests.cli.stage import Stage
from tests.test_links import ROOT

EXAMPLE: Final = re.compile(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
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
    "extend.md": "its commands and formats are those that a reader adds",
}
NO_COMMANDS: Final = ("=", "did")
"""What follows the word in code, and in what `eval` prints."""

PAGES: Final = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in LEFT_OUT),
]


def test_the_page_has_these_examples() -> None:
    """Every section with code is run by this module."""
    assert [title for title, _ in EXAMPLES] == list(PRINTED)
    assert "```python" not in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_runs_in_a_new_process(title: str, code: str, home: Path) -> None:
    """An example runs without a key or a download, and prints what it should.

    Whatever was imported before.
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ), cwd=home, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINTED[title] in done.stdout


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each command in a page, in blocks of code and inside text.

    Without what a shell does with them.
    """
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
            ends = [
                -1,
                *(n for n, word in enumerate(words) if set(word) <= set("|<>&;()") and word),
                len(words),
            ]
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
    (base,) = {kind for kind in TyperCommand.__mro__ if "invoke" in vars(kind)} & {
        *TyperGroup.__mro__
    }
    monkeypatch.setattr(base, "invoke", lambda *_: None)
    wrong = []
    for words in commands_of(page):
        for word in words:
            if re.fullmatch(r"\w[\w-]*\.[a-z]{2,5}", word):
                (tmp_path / word).touch()
        code = entry.run_command_line(words)
        stderr = capsys.readouterr().err
        # A sentence names a command without what it takes, or with a placeholder.
        if code and "missing argument" not in stderr and not any(word.isupper() for word in words):
            wrong.append((" ".join(words), stderr.splitlines()))
    assert wrong == []


CLIENT: Final = r"""#!PYTHON
import json, os, re, sys, urllib.request
told = " ".join([*sys.argv[1:], *os.environ.values()])
url = re.search(r"http://(?:127\.0\.0\.1|localhost):\d+", told)[0]
key = (re.findall(r"\bck-[\w-]{20,}", told) or ["none"])[0]
body = json.dumps({"model": "conductor", "messages": [{"role": "user", "content": "Is all well?"}]}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + key}
answer = json.load(urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, headers)))
with open("LOG", "a") as file:
    file.write(os.path.basename(sys.argv[0]) + ": " + answer["choices"][0]["message"]["content"].splitlines()[0] + "\n")
"""
"""Stands for a coding client: asks the server that its arguments and variables name."""

stage = conftest.stage

DOUBLES: Final = ("codex", "claude", "opencode", "aider", "llm", "inspect")

SERVING: Final = """[limits]
attempts = 1
[pools.cheap]
workers = ["alpha"]
"""


_SHELL: Final = re.compile(
    r"^ *```\n(.*?)^ *```$|^ {4,}(conductor [^\n]*)|`([^`\n]+)`", re.MULTILINE | re.DOTALL
)


def shell_of(page: Path) -> Iterator[str]:
    """The commands of a page that can be run as they stand.

    In blocks, in tables, and those of `conductor` in text.
    """
    for fenced, line, quoted in _SHELL.findall(page.read_text("utf-8")):
        name = next((word for word in quoted.split() if not re.match(r"[A-Z_]+=", word)), "")
        is_whole = quoted.startswith(
            ("conductor launch ", "conductor config set ")
        ) and not re.search("[A-Z]{3}", quoted)
        if (
            line
            or fenced.strip()[:1] not in {"", "{"}
            or is_whole
            or (name in DOUBLES and " " in quoted)
        ):
            yield (fenced or line or quoted).strip()


@pytest.mark.parametrize("name", ["clients", "serve"])
def test_the_commands_of_a_page_about_serving_run(stage: Stage, tmp_path: Path, name: str) -> None:
    """Each runs as a user would type it, with doubles for workers and clients.

    The server is the one that the page has at 8080.
    """
    stage.configure(SERVING)
    log = tmp_path / "log"
    programs = tmp_path / "bin"
    programs.mkdir()
    for double in DOUBLES:
        (programs / double).write_text(
            CLIENT.replace("PYTHON", sys.executable).replace("LOG", str(log))
        )
        (programs / double).chmod(0o755)
    path = {"PATH": f"{programs}:/usr/bin:/bin"}
    commands = sorted(shell_of(ROOT / f"docs/{name}.md"), key=lambda command: " rm " in command)
    ran = {"launch": 0, "serve": 0, "other": 0, "client": 0}
    with served_by(stage, "serve", *(["--demo"] * (name == "serve")), "--port", "0") as address:
        for command in commands:
            words = shlex.split(command, comments=True)
            if words[0] != "conductor":
                kind = "client"
                shown = command.replace("http://127.0.0.1:8080", address)
                environ = stage.environ(path)
                done = subprocess.run(
                    ["sh", "-c", shown], env=environ, cwd=tmp_path, capture_output=True, check=False
                )
                assert done.returncode == 0, (command, done.stderr)
                assert words[0] != "curl" or b"SIRAP" in done.stdout
            elif words[1] == "serve" and (not words[2:] or words[2].startswith("--")):
                kind = "serve"
                # At a free port: the usual one may be that of another test, or of somebody else
                with served_by(stage, *words[1:], "--port", "0"):
                    pass
            else:
                kind = words[1] if words[1] == "launch" else "other"
                assert (ended := stage.inside(*words[1:], env=path)).code == 0, (command, ended.err)
            ran[kind] += 1
    answers = log.read_text().splitlines()
    assert len(answers) == ran["launch"] + ran["client"] - sum(
        command.startswith("curl") for command in commands
    )
    assert {answer.partition(": ")[2][:20] for answer in answers} <= {
        "alpha answers",
        "[simulated answer: c",
    }
    assert (
        ran
        == {
            "clients": {"launch": 9, "serve": 0, "other": 1, "client": 6},
            "serve": {"launch": 4, "serve": 4, "other": 5, "client": 1},
        }[name]
    )


@contextmanager
def served_by(stage: Stage, *words: str) -> Iterator[str]:
    """The address that a server prints first, which answers there, until it is told to end."""
    with stage.start(*words) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().decode().split()[-1].rstrip("/")
            yield address
        finally:
            server.terminate()
