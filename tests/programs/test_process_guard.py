"""Whoever watches or ends a program sees all processes that descend from it, and only those."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conductor_cli.programs import process_guard
from conductor_cli.programs.process_guard import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes so")

FAMILY = """
import os, signal, sys, threading
from conductor_cli.programs.process_guard import PR_SET_CHILD_SUBREAPER, prctl

def wait_for_ever():
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()

def fork_child():
    if not os.fork():
        wait_for_ever()

prctl(PR_SET_CHILD_SUBREAPER, 1)
fork_child()
between = os.fork()
if not between:
    os.setsid()
    fork_child()  # an orphan soon
    os._exit(0)
os.waitpid(between, 0)
if not os.fork():
    fork_child()
    wait_for_ever()
thread = threading.Thread(target=lambda: (fork_child(), threading.Event().wait()), daemon=True)
thread.start()
threading.Event().wait()
"""
"""A child, an orphan with a session of its own, a grandchild and its parent, a child of a thread."""


@contextmanager
def family() -> Iterator[set[int]]:
    """The processes of the program above, which descend from this one."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        members = {program.pid}
        try:
            for _ in range(5):
                members.add(int(program.stdout.readline()))
            yield members
        finally:
            for member in members:
                os.kill(member, 9)


def test_every_descendant_is_listed_after_its_parent() -> None:
    """Those of threads, those with sessions of their own, and those whose parent has ended."""
    earlier = {*descendants(os.getpid())}
    with family() as members:
        listed = descendants(os.getpid())
        assert {*listed} - earlier == members


def test_a_kernel_without_lists_of_children_shows_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with family():
        listed = descendants(os.getpid())
        monkeypatch.setattr(process_guard, "CHILDREN_LIST", "/proc/none")
        assert {*descendants(os.getpid())} == {*listed}


def test_other_processes_of_the_machine_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are, a look takes no longer for them."""
    paths: list[str] = []
    listdir = os.listdir

    def noting_listdir(path: str) -> list[str]:
        paths.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", noting_listdir)
    with family() as members:
        descendants(os.getpid())
    assert {f"/proc/{member}/task" for member in members} <= {*paths}
    assert "/proc" not in paths
