"""Our own work in a child process: what it is given, what it may not do, and that nothing of it is left."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

LOOKS = """
import os
def answer(data):
    print("noise")
    yield data.decode()
    yield sorted(os.environ)
    try:
        yield os.write(os.open(__file__ + ".new", os.O_WRONLY | os.O_CREAT), b"x")
    except OSError:
        yield "refused"
"""
STAYS = """
import os, subprocess, sys, time
def answer(data):
    yield os.getpid()
    yield subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def script(place: Path, text: str) -> Path:
    path = place / "work.py"
    path.write_text(text)
    return path


def test_a_child_has_no_keys_writes_no_file_and_prints_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    limits = ChildLimits(seconds=60, memory=512 << 20, cpu_seconds=30)
    given, variables, written = run_child(script(tmp_path, LOOKS), b"given", limits)
    assert (given, written) == ("given", "refused")
    assert "PATH" in variables
    assert "OPENAI_API_KEY" not in variables


def test_a_child_that_takes_too_long_ends_with_what_it_has_started(tmp_path: Path) -> None:
    """What it gave before is known."""
    with pytest.raises(ChildStopped) as stopped:
        run_child(script(tmp_path, STAYS), b"", ChildLimits(seconds=2))
    assert stopped.value.why == "time"
    for pid in stopped.value.values:
        end = time.monotonic() + 10  # it is killed, and a moment later gone
        while is_alive(pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert not is_alive(pid)


@pytest.mark.parametrize("text", ["def answer(data):\n    yield 1\n    raise MemoryError\n", "def answer(data: yes"])
def test_a_child_that_breaks_down_is_no_answer(text: str, tmp_path: Path) -> None:
    with pytest.raises(ChildStopped) as stopped:
        run_child(script(tmp_path, text), b"", ChildLimits(seconds=60))
    assert stopped.value.why == "broken"
