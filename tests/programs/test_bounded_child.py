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

LONG_WORK = f"""
import os, time

def niceness():
    with open("/proc/self/autogroup") as file:
        return [os.nice(0), int(file.read().split()[-1])]

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


@pytest.mark.parametrize(
    ("client", "niceness"),
    [("key a", [LONG_NICENESS, LONG_NICENESS]), ("", [NICENESS, 0])],
)
def test_long_work_for_a_client_gives_way_to_the_first_work_of_others(
    client: str, niceness: list[int], tmp_path: Path
) -> None:
    """A child of a client does so as a session, too: between sessions Linux compares nothing else.

    A user alone has nobody to give way to but the loop that waits.
    """
    if not Path("/proc/self/autogroup").exists() or os.nice(0):
        pytest.skip("needs autogroups of Linux, and tests that are not nice")
    script = tmp_path / "long_work.py"
    script.write_text(LONG_WORK)
    limits = ChildLimits(seconds=60, memory=1 << 30, cpu_seconds=30)
    with working_for(client):
        assert run_child(script, b"", limits) == [[NICENESS, 0], niceness]
