"""One holder at a time of what processes change together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.models.lock import exclusive_lock

HOLD = """
import sys
from pathlib import Path
from conductor_cli.models.lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


class Enough(Exception):
    """Ends the waiting."""


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    """While it holds the lock, the waiting one is told each time, and may give up; afterwards it is free."""
    path = tmp_path / "some/where/lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    waited = []

    def wait() -> None:
        waited.append(1)
        if len(waited) == 2:
            raise Enough

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Enough), exclusive_lock(path, wait):
            pytest.fail("two hold it")
        other.communicate("\n")
    with exclusive_lock(path, wait):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_free_after_an_error(tmp_path: Path) -> None:
    """What goes wrong inside ends the holding, and the error goes on."""
    path = tmp_path / "lock"
    for _ in range(2):
        with pytest.raises(OSError, match="mine"), exclusive_lock(path):
            raise OSError("mine")


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A file in the place of its directory is the system's error, for the caller to put into words."""
    (tmp_path / "taken").touch()
    with pytest.raises(OSError, match="taken"), exclusive_lock(tmp_path / "taken/lock"):
        pytest.fail("it is held")
