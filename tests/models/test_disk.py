"""Files that are written completely or not at all, and the lock that one process holds at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.models import disk
from conductor_cli.models.disk import exclusive_lock


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """Text and bytes take the place of what stood there; no other name remains."""
    path = tmp_path / "a"
    disk.write_atomically(path, "ä\n")
    assert path.read_bytes() == b"\xc3\xa4\n"
    disk.write_atomically(path, b"\xff")
    assert path.read_bytes() == b"\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the middle of it leaves what stood there, and no part of the new one."""
    path = tmp_path / "a"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_its_owners_alone_however_open_the_old_one_was(tmp_path: Path) -> None:
    """The rights are those that are asked for; those of the file before do not count."""
    path = tmp_path / "a"
    path.touch(mode=0o644)
    disk.write_atomically(path, "secret", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_links_in_a_circle_are_replaced(tmp_path: Path) -> None:
    """They lead to no file, so what is written takes the place of one of them."""
    one, other = tmp_path / "a", tmp_path / "b"
    one.symlink_to(other)
    other.symlink_to(one)
    disk.write_atomically(one, "new")
    assert (one.read_text(), other.is_symlink()) == ("new", True)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Whoever keeps settings elsewhere, and links them here, keeps them there."""
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a", tmp_path / "a"
    target.write_text("old")
    link.symlink_to(target)
    disk.write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


HOLD = """
import sys
from pathlib import Path
from conductor_cli.models.disk import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


class Enough(Exception):
    """Ends the waiting."""


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    """While the lock is held the waiting process is called back each time, and may give up; afterwards it is free."""
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
