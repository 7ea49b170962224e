"""The worked examples of docs/extend.md, put into a copy of the package and run as a user would."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
CODE_BLOCK: Final = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"^`(src/\S+)`:$", re.MULTILINE)
QUESTION: Final = "Find the capital of Japan, then spell it backwards."


def examples() -> list[tuple[str, str, str]]:
    """Each block of code: the file it is for, its language and its text."""
    page = (ROOT / "docs/extend.md").read_text(encoding="utf-8")
    return [
        (NAMED.findall(page[: match.start()])[-1], match[1], match[2])
        for match in CODE_BLOCK.finditer(page)
    ]


def changed(text: str, diff: str) -> str:
    """The text with one change made.

    What the diff shows without its `+` lines stands there once.
    """
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    assert text.count(before) == 1, (
        f"docs/extend.md is stale, this stands nowhere or twice:\n{before}"
    )
    return text.replace(before, "".join(line[1:] for line in lines if line[0] in " +"))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all examples in it.

    All else is links, also what Python has compiled.
    """
    directory = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "src", directory / "src", copy_function=os.symlink)
    for name, language, text in examples():
        path = directory / name
        whole = text if language == "python" else changed(path.read_text(encoding="utf-8"), text)
        path.unlink(missing_ok=True)
        path.write_text(whole, encoding="utf-8")
    return directory / "src"


def run(source: Path, *arguments: str) -> str:
    """What the extended command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "conductor_cli", *arguments],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def test_the_page_has_one_example_of_each_kind() -> None:
    assert [name for name, language, _ in examples() if language == "python"] == [
        "src/conductor_cli/models/program.py",
        "src/conductor_cli/views/steps.py",
        "src/conductor_cli/cli/asked.py",
    ]


def test_an_example_worker_answers_and_one_that_fails_is_told(
    extended: Path, home: Path, tmp_path: Path
) -> None:
    """A program is sent the prompt, and what it writes is the answer.

    One that is not there is no fault of ours.
    """
    path = home / "config/conductor-llm/config.toml"
    plan = tmp_path / "plan.json"
    path.parent.mkdir(parents=True)
    step = {"worker": "last", "subtask": "Say MARK", "access": []}
    plan.write_text(json.dumps({"question": "Which?", "steps": [step]}))
    path.write_text('[workers.last]\nkind = "program"\nmodel = "grep -o MARK"\n')
    assert run(extended, "run", str(plan)) == "MARK\n"
    path.write_text('[workers.last]\nkind = "program"\nmodel = "no-such-program"\n')
    with pytest.raises(AssertionError, match="no-such-program: No such file"):
        run(extended, "run", str(plan))


def test_an_example_view_and_command_show_a_run(extended: Path) -> None:
    """The rehearsal's run through the new format, live and replayed.

    Then who was asked, from its trace.
    """
    shown = run(extended, "ask", "--demo", QUESTION, "--format", "steps")
    assert [line.split("\t")[:2] for line in shown.splitlines()] == [
        ["1", "geography"],
        ["2", "spelling"],
    ]
    assert shown.splitlines()[-1].endswith("\tOYKOT")
    assert run(extended, "trace", "replay", "last", "--speed", "0", "--format", "steps") == shown
    assert set(json.loads(run(extended, "asked", "--json"))) == {"geography", "spelling"}
    assert run(extended, "asked", "--least", "9999").split() == ["WORKER", "SECONDS"]


@pytest.mark.parametrize("name", [name for name, language, _ in examples() if language == "python"])
def test_an_example_keeps_the_house_rules(extended: Path, name: str) -> None:
    """The code of the page passes the linter and the formatter that hold for the rest."""
    text = next(text for path, language, text in examples() if (path, language) == (name, "python"))
    ast.parse(text)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "-q",
                "--no-cache",
                "--stdin-filename",
                str(ROOT / name),
                "-",
            ],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
