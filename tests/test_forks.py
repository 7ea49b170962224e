"""Files of tests in several processes: each test runs once, and a file stays together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

pytestmark = pytest.mark.skipif(forks.FORK is None, reason="this system does not fork well")

CONFTEST = """
import os, pytest

@pytest.fixture(scope="session")
def session():
    yield
    with open(f"{os.environ['LOG']}.ends", "a") as log:
        log.write(f"{os.getpid()}\\n")

@pytest.fixture(autouse=True)
def note(session, request, tmp_path, capfd):
    print("printed by", request.node.name)
    assert capfd.readouterr().out == f"printed by {request.node.name}\\n"
    yield
    with open(os.environ["LOG"], "a") as log:
        log.write(f"{request.node.name} {os.getpid()} {tmp_path.parent}\\n")
"""
FILE = """
import os, pytest, subprocess, sys

STREAM = sys.stderr

@pytest.mark.parametrize("number", range(4))
def test_{name}(number):
    pass

def test_{name}_prints(capfd):
    print("to a stream that was kept", file=STREAM)
    subprocess.run([sys.executable, "-c", "print('from a process')"], stderr=STREAM)
    assert "from a process" in capfd.readouterr().out

def test_{name}_skips():
    pytest.skip("tmux is not installed")
"""
DIES = """
import os

def test_before(): pass
def test_dies(): os._exit(3)
def test_behind(): pass
"""
FAILS = """
def test_fails():
    print("this was printed")
    assert 1 == 2
"""


def run(directory: Path, *words: str, **files: str) -> tuple[int, str]:
    """Run files of tests in two processes. Returns the exit code and what is shown."""
    for name, text in files.items():
        directory.joinpath(f"{name}.py").write_text(text)
    plugins = ("-p", "tests.forks", "-p", "no:cacheprovider", "--rootdir", str(directory))
    environment = {
        "LOG": str(directory / "log"),
        "PYTHONPATH": str(Path(forks.__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", *plugins, "--forks", "2", *words],
        env={**os.environ, **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_test_runs_once_and_a_file_in_one_process(tmp_path: Path) -> None:
    """With directories of its process, and what is made once for a process is ended once."""
    names = "abcde"
    files = {f"test_{name}": FILE.format(name=name) for name in names}
    code, shown = run(tmp_path, conftest=CONFTEST, **files)
    assert (code, "25 passed, 5 skipped" in shown) == (0, True), shown
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    tests = sorted(name for name, _, _ in lines)
    assert tests == sorted(
        [
            *(f"test_{name}[{number}]" for name in names for number in range(4)),
            *(f"test_{name}_skips" for name in names),
            *(f"test_{name}_prints" for name in names),
        ]
    )
    for name in names:
        places = {(process, tmp) for test, process, tmp in lines if test[5] == name}
        assert len(places) == 1
    processes = {process for _, process, _ in lines}
    assert len({tmp for *_, tmp in lines}) == len(processes) == 2
    assert sorted((tmp_path / "log.ends").read_text().split()) == sorted(processes)


def test_a_test_that_ends_its_process_fails_and_the_others_run(tmp_path: Path) -> None:
    code, shown = run(tmp_path, test_dies=DIES, test_fails=FAILS, test_a=FILE.format(name="a"))
    assert (code, "2 failed, 7 passed, 1 skipped" in shown) == (1, True), shown
    assert "the process of this test ended with exit code 3" in shown
    assert "this was printed" in shown
    assert "PASSED test_dies.py::test_behind" in shown


def test_the_first_failure_can_end_all(tmp_path: Path) -> None:
    code, shown = run(tmp_path, "-x", test_a=FAILS, test_b=FAILS, test_c=FAILS, test_d=FAILS)
    assert (code, "1 failed" in shown) == (1, True), shown
