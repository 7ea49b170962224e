"""Files that are written completely or not at all, and the lock that one process holds."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.system import disk
from conductor_cli.system.disk import exclusive_lock


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    disk.write_atomically(path, "ä\n")
    assert path.read_bytes() == b"\xc3\xa4\n"
    disk.write_atomically(path, b"\xff")
    assert path.read_bytes() == b"\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    path = tmp_path / "a"
    path.touch(mode=0o644)
    disk.write_atomically(path, "secret", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_links_in_a_circle_are_replaced(tmp_path: Path) -> None:
    first = tmp_path / "a"
    second = tmp_path / "b"
    first.symlink_to(second)
    second.symlink_to(first)
    disk.write_atomically(first, "new")
    assert (first.read_text(), second.is_symlink()) == ("new", True)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "a"
    link = tmp_path / "a"
    target.write_text("old")
    link.symlink_to(target)
    disk.write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    link = tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    disk.write_atomically(link, "new")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert (pipe.is_fifo(), link.is_symlink(), sorted(tmp_path.iterdir())) == (
        True,
        True,
        [link, pipe],
    )


@pytest.mark.parametrize("private", [False, True])
def test_a_full_device_is_an_error_and_stays(tmp_path: Path, private: bool) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        disk.write_atomically(link, "new", mode=0o600 if private else 0o666)
    assert Path("/dev/full").is_char_device()


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "place"
    directory.mkdir()
    with pytest.raises(IsADirectoryError):
        disk.write_atomically(directory, "new")
    assert directory.is_dir()


def test_standard_output_by_its_name() -> None:
    code = (
        "from pathlib import Path; from conductor_cli.system.disk import write_atomically as "
        "write; "
    )
    code += "print(1, flush=True); write(Path('/dev/stdout'), '2\\n'); print(3)"
    assert (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
        == b"1\n2\n3\n"
    )


def test_a_file_that_everybody_may_read_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch(mode=0o600)
    disk.write_atomically(path, "new")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, "new")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_every_directory_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        disk.make_private_directory(tmp_path / "a/b/c")
        disk.make_private_directory(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in (".", "a", "a/b", "a/b/c")]
    assert modes == [0o755, 0o700, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        disk.make_private_directory(tmp_path / "file/a")


def test_the_directory_of_a_lock_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with disk.exclusive_lock(tmp_path / "a/b/lock"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/lock")]
    assert modes == [0o700, 0o700, 0o600]


HOLD = """
import sys
from pathlib import Path
from conductor_cli.system.disk import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


class Enough(Exception):
    """Ends the waiting."""


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "some/where/lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    waited = []

    def wait() -> None:
        waited.append(1)
        if len(waited) == 2:
            raise Enough

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Enough), exclusive_lock(path, wait, seconds=0.02):
            pytest.fail("two hold it")
        other.communicate("\n")
    with exclusive_lock(path, wait):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_free_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with pytest.raises(OSError, match="mine"), exclusive_lock(path):
            raise OSError("mine")


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(OSError, match="taken"), exclusive_lock(tmp_path / "taken/lock"):
        pytest.fail("it is held")
