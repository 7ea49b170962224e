"""The programs of `examples/`, each run as its first lines say, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests import fork_server
from tests.cli import conftest
from tests.cli.stage import SOURCE, Stage
from tests.test_docs_examples import served_by

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = ROOT / "examples"
MOST_LINES: Final = 60

stage = conftest.stage


def start_anew(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """How an example ended that a user has started."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """How an example ended, forked where that makes no difference."""
    words = [str(EXAMPLES / name), *arguments]
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    how: dict[str, Any] = {"env": environ, "stdin": subprocess.DEVNULL, **pipes}
    program: fork_server.Command
    if fork_server.can_start(words, environ):
        program = fork_server.ForkedProgram(words, **how)
    else:
        program = fork_server.Command([sys.executable, *words], **how)
    with program:
        out, err = program.communicate(timeout=60)
    return subprocess.CompletedProcess(words, program.returncode, out.decode(), err.decode())


def printed(name: str, *arguments: str) -> str:
    """What an example prints. It ends well."""
    done = run(name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_question_is_answered_with_its_workers_and_cost_on_stderr() -> None:
    done = start_anew("ask.py")
    assert (done.returncode, done.stdout) == (0, "SIRAP\n")
    assert done.stderr == "geography then spelling: 3 calls, 0 US dollars\n"


def test_a_question_that_fails_says_why_and_gives_exit_code_1() -> None:
    done = run("ask.py", CONDUCTOR_LLM_LIMITS_CALLS="1")
    assert done.returncode == 1
    assert "limit: " in done.stderr


def test_a_stream_shows_plan_text_and_answer_in_order() -> None:
    lines = printed("stream.py").splitlines()
    assert lines[0].startswith("step 1 is planned: geography is asked ")
    assert "step 3 writes: '6'" in lines
    assert lines[-1] == "answer: 6"


def test_a_batch_writes_an_answer_or_an_error_for_each_question(tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    answers = tmp_path / "answers.jsonl"
    questions.write_text(
        "Find the capital of Italy.\n\nFind the capital of Atlantis.\n", encoding="utf-8"
    )
    printed("batch.py", str(questions), str(answers))
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    by_question = {row["question"]: row for row in rows}
    assert len(rows) == 2
    assert by_question["Find the capital of Italy."]["answer"] == "ROME"
    assert by_question["Find the capital of Atlantis."]["error"]


def test_a_view_draws_a_new_run_and_a_stored_one_alike() -> None:
    table = printed("view.py")
    assert table.splitlines()[2:] == ["| 1 | geography | TOKYO |", "| 2 | spelling | OYKOT |"]
    assert printed("view.py", "last") == table


def test_a_client_prints_the_answer_of_a_server_as_it_comes(stage: Stage) -> None:
    with served_by(stage, "serve", "--demo", "--port", "0") as address:
        answer = printed(
            "client.py", address, "Find the capital of Japan, then spell it backwards."
        )
    assert answer.splitlines()[-1].endswith("OYKOT")


def test_a_hook_adds_a_line_by_its_template_and_never_stops_a_commit(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    templates = home / "config/conductor-llm/templates"
    templates.mkdir(parents=True)
    shutil.copy(EXAMPLES / "codename.toml", templates)
    beside_python = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", beside_python + os.pathsep + os.environ["PATH"])
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "release/france"], check=True)
    message = tmp_path / "message"
    message.write_text("Ship it\n", encoding="utf-8")
    printed("hook.py", str(message))
    assert message.read_text(encoding="utf-8") == "Ship it\n\nCode-Name: SIRAP\n"

    message.write_text("Ship it\n", encoding="utf-8")
    templates.joinpath("codename.toml").unlink()
    done = run("hook.py", str(message))
    assert (done.returncode, message.read_text(encoding="utf-8")) == (0, "Ship it\n")
    assert "hook: no code name: " in done.stderr


def test_every_example_is_short_and_in_the_table_of_the_readme() -> None:
    programs = sorted(EXAMPLES.glob("*.py"))
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tested = Path(__file__).read_text(encoding="utf-8")
    assert programs
    for program in programs:
        lines = program.read_text(encoding="utf-8").splitlines()
        assert len(lines) < MOST_LINES, program.name
        assert f"[{program.name}]({program.name})" in readme
        assert f'"{program.name}"' in tested
