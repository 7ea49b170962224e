"""A system that allows no further thread, process or file: a message of its own and exit code 3, never a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from conductor_cli.cli.entry import _unexpected
from tests.cli.stage import Stage

WITHOUT_THREADS = """
import sys, threading
left = int(sys.argv.pop(1))
start = threading._start_new_thread
def refuse(*arguments):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    return start(*arguments)
threading._start_new_thread = refuse
from conductor_cli.__main__ import main
main()
"""


@pytest.mark.parametrize("left", [0, 1])
def test_a_system_without_threads_is_named(stage: Stage, left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS, str(left), "ask", "--rehearsal", "How many letters has apple"],
        env=stage.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "the system allows no further thread or process\n  end other programs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EAGAIN, "no further thread or process"),
        (errno.EMFILE, "no further open file"),
        (errno.ENFILE, "open file"),
    ],
)
def test_what_is_used_up_is_named(number: int, said: str) -> None:
    error = _unexpected(OSError(number, os.strerror(number)))
    assert (error.exit_code, said in error.message) == (3, True)
    full = _unexpected(BlockingIOError(errno.EAGAIN, "write could not complete without blocking"))
    assert "thread" not in full.message
