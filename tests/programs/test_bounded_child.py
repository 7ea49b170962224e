"""Children of our own with bounds: which of them give way to others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conductor_cli.programs.bounded_child import (
    LONG_NICENESS,
    LONG_SECONDS,
    NICENESS,
    ChildLimits,
    run_child,
)
from conductor_cli.programs.turns import CURRENT_CLIENT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs autogroups of Linux")

SESSION_NICENESS = "/proc/self/autogroup"  # Where Linux shares processors among sessions
MAX_NICENESS = 19

LONG_WORK = f"""
import os, time

def niceness():
    session = None
    if os.access("{SESSION_NICENESS}", os.W_OK):
        with open("{SESSION_NICENESS}") as file:
            session = int(file.read().split()[-1])
    return [os.nice(0), session]

def answer(job):
    begin = niceness()
    yield begin
    while niceness() == begin and time.process_time() < {LONG_SECONDS + 1.0}:
        pass
    yield niceness()
"""


@contextmanager
def working_for(client: str) -> Iterator[None]:
    token = CURRENT_CLIENT.set(client)
    try:
        yield
    finally:
        CURRENT_CLIENT.reset(token)


@pytest.mark.parametrize(("client", "gives_way"), [("key a", True), ("", False)])
def test_long_work_for_a_client_gives_way_to_the_first_work_of_others(
    client: str, tmp_path: Path, *, gives_way: bool
) -> None:
    """A child of a client does so as a session, too: between sessions Linux compares nothing else.

    A user alone has nobody to give way to but the loop that waits.
    """
    own_niceness = os.nice(0)
    at_first = min(own_niceness + NICENESS, MAX_NICENESS)
    later = min(own_niceness + LONG_NICENESS, MAX_NICENESS) if gives_way else at_first
    sessions: list[int | None] = [None, None]
    if os.access(SESSION_NICENESS, os.W_OK):
        sessions = [0, later if gives_way else 0]
    script = tmp_path / "long_work.py"
    script.write_text(LONG_WORK)
    limits = ChildLimits(seconds=60, memory=1 << 30, cpu_seconds=30)
    with working_for(client):
        (before, after) = run_child(script, b"", limits)
    assert before == [at_first, sessions[0]]
    assert after == [later, sessions[1]]
