"""A command that is forked is as one that starts anew, and what would differ starts anew."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.programs.bounded_child import ChildLimits, run_child
from conductor_cli.programs.process_guard import children_of
from tests import fork_server
from tests.cli.conftest import stage
from tests.cli.stage import COMMAND, Stage, finished, stalls, stopped
from tests.server.plain_api import address_of, until

__all__ = ["stage"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems start all anew")

RUN_OR_NUMBER = re.compile(r"\d+-\d+-\w+|\d+")
"""What differs in the names of open files: the random name of a run, and numbers."""

# Not how many threads it has: how busy the machine is decides how many of a pool begin.
FIELDS = ("PPid", "Umask", "SigBlk", "SigIgn", "SigCgt")


@pytest.fixture
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all other tests start commands anew."""
    for name in ("CI_REAL_STARTS", *fork_server.MEASURED):
        monkeypatch.delenv(name, raising=False)


def seen_from_outside(process: int) -> dict[str, Any]:
    """What the system says of a process."""
    directory = Path(f"/proc/{process}")
    status = dict(re.findall(r"(\w+):\t(.*)", (directory / "status").read_text()))
    links = [str(file.readlink()) for file in (directory / "fd").iterdir()]
    return {
        **{name: status[name] for name in FIELDS},
        "session": os.getsid(process) == process == os.getpgid(process),
        "directory": str((directory / "cwd").readlink()),
        "limits": (directory / "limits").read_text(),
        "files": {RUN_OR_NUMBER.sub("N", link) for link in links},
    }


def sights_of(*processes: int) -> list[dict[str, Any]]:
    """Return what the system says of two processes, once it is the same.

    Where it never becomes the same, both are returned as they are after a minute.
    """
    end = time.monotonic() + 60
    while True:
        first, second = map(seen_from_outside, processes)
        if first == second or time.monotonic() > end:
            return [first, second]
        time.sleep(0.01)


@pytest.mark.usefixtures("_forks")
def test_the_system_sees_no_difference(stage: Stage, tmp_path: Path) -> None:
    how: Any = {
        "env": stage.environ(),
        "cwd": tmp_path,
        "start_new_session": True,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "bufsize": 0,
    }
    words = ["serve", "--port", "0"]
    before = os.umask(0o037)
    try:
        assert fork_server.can_start(words, stage.environ())
        processes = [
            fork_server.ForkedCommand(words, **how),
            fork_server.Command([*COMMAND, *words], **how),
        ]
    finally:
        os.umask(before)
    with processes[0], processes[1]:
        for process in processes:
            httpx.get(f"{address_of(process)}/health")
        sights = sights_of(*(process.pid for process in processes))
        for process in processes:
            assert stopped(process, signal.SIGTERM).code == 143
    assert sights[0] == sights[1]
    assert sights[0]["PPid"] == str(os.getpid())
    assert sights[0]["directory"] == str(tmp_path)


@pytest.mark.usefixtures("_forks")
def test_the_system_sees_no_difference_in_the_background(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `ask --bg` starts is a fork of one that has not begun, or starts anew."""
    stage.models["alpha"] = stalls("so")
    processes: list[int] = []
    for is_forked in (True, False):
        monkeypatch.setattr(fork_server, "can_start", lambda *_, answer=is_forked: answer)
        command = stage.start("ask", "--bg", "-", stdin=subprocess.PIPE)
        earlier = {*children_of(os.getpid())}
        fork_server.adopt_orphans(True)
        try:
            assert finished(command, "Why?").code == 0
        finally:
            fork_server.adopt_orphans(False)
        (process,) = {*children_of(os.getpid())} - earlier
        processes.append(process)
        until(lambda: len(stage.asked("alpha")) == len(processes))
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        assert (b"fork_server.py" in words) == is_forked
    first, second = sights_of(*processes)
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    assert first == second


@pytest.mark.usefixtures("_forks")
def test_a_fork_has_the_words_the_variables_and_the_streams_of_its_command(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "can_start", lambda *_: True)
    done = stage.run("ask", "-", "--format", "json", given="grüße ✓")
    assert json.loads(done.out)["answer"] == "alpha answers"
    assert "grüße ✓" in json.loads(stage.asked("alpha")[0].body)["messages"][-1]["content"]
    elsewhere = stage.home / "elsewhere"
    done = stage.run("config", "show", env={"CONDUCTOR_LLM_CONFIG_DIR": str(elsewhere)})
    assert (done.code, done.err) == (0, "")
    assert "alpha" not in done.out
    assert stage.run("nonsense").code == 2


@pytest.mark.usefixtures("_forks")
def test_a_fork_ends_by_its_signal_and_the_server_forks_on(stage: Stage) -> None:
    stage.models["alpha"] = stalls("so")
    for number in (signal.SIGKILL, signal.SIGINT):
        stage.server.requests.clear()
        with stage.start("ask", "hi") as process:
            assert isinstance(process, fork_server.ForkedCommand)
            until(lambda: stage.asked("alpha"))
            process.send_signal(number)
            assert finished(process).code == 128 + number
    assert stage.run("--version").out.startswith("conductor ")


@pytest.mark.usefixtures("_forks")
@pytest.mark.parametrize("is_forked", [True, False])
def test_a_command_ends_with_the_block_of_a_test_that_fails(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_forked: bool
) -> None:
    """A server that nobody stops would be waited for without an end."""
    monkeypatch.setattr(fork_server, "can_start", lambda *_: is_forked)
    with pytest.raises(pytest.fail.Exception), stage.start("serve", "--port", "0") as process:
        pytest.fail("as a test does")
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("variables", "forks"),
    [
        ({}, True),
        ({"COLUMNS": "40", "HOME": "/nonexistent", "NO_COLOR": "1"}, True),
        ({"LC_ALL": "C"}, False),
        ({"PYTHONUTF8": "0"}, False),
        ({"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}, False),
        ({"TZ": "Asia/Tokyo"}, False),
        ({"TYPER_USE_RICH": "1"}, False),  # read while typer is imported
    ],
    ids=str,
)
@pytest.mark.usefixtures("_forks")
def test_what_python_or_a_module_reads_once_starts_anew(
    stage: Stage, variables: dict[str, str], forks: bool
) -> None:
    assert fork_server.can_start(["ask"], stage.environ(variables)) is forks


@pytest.mark.usefixtures("_forks")
@pytest.mark.parametrize("name", ["CI_REAL_STARTS", *fork_server.MEASURED])
def test_all_start_anew_where_that_is_asked_or_measured(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert not fork_server.can_start(["ask"], stage.environ())


@pytest.mark.usefixtures("_forks")
def test_a_program_that_is_forked_is_as_one_that_starts_anew(tmp_path: Path, stage: Stage) -> None:
    """It has the same words, name, file and place for its modules, and ends with its own code."""
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n", encoding="utf-8")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nimport beside\n"
        "print(sys.argv, sys.path[0], __name__, __file__, beside.WORD)\nsys.exit(3)\n",
        encoding="utf-8",
    )
    words = [str(script), "one", "two words"]
    how: dict[str, Any] = {"env": stage.environ(), "stdout": subprocess.PIPE}
    with (
        fork_server.ForkedProgram(words, **how) as forked,
        fork_server.Command([sys.executable, *words], **how) as anew,
    ):
        outs = [program.communicate(timeout=60)[0] for program in (forked, anew)]
    assert outs[0] == outs[1] != b""
    assert (forked.returncode, anew.returncode) == (3, 3)


CHILD = """\
import os, resource, sys

def answer(job):
    limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
    is_leader = os.getsid(0) == os.getpid()
    is_path = os.path.dirname(sys.argv[0]) in sys.path
    environ = {name: text for name, text in os.environ.items() if name != "LC_CTYPE"}
    yield [job.decode(), sys.argv, environ, is_leader, is_path, os.nice(0), limits]
    yield "jinja2" in sys.modules
"""


@pytest.mark.usefixtures("_forks")
def test_a_bounded_child_is_the_same_whether_forked_or_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a variable that Python reads, and a module that the server does not know, it starts."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    limits = ChildLimits(seconds=60, memory=512 << 20, cpu_seconds=7)
    started = run_child(script, b"job", limits)
    monkeypatch.setattr(subprocess, "Popen", fork_server.ChildOrOther)
    assert run_child(script, b"job", limits) == started
    assert started[1] is False
    monkeypatch.setitem(fork_server.MODULES_OF_WORDS, str(script), ("jinja2",))
    assert run_child(script, b"job", limits) == [started[0], True]
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert run_child(script, b"job", limits)[1] is False
