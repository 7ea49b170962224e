"""Other users of the machine.

What they can open and change under any umask, and what a crash leaves for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from conductor_cli.cli import entry
from tests.cli.stage import Stage, stalls

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """What this process makes gets no more permissions than the code says, or hardly any."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def open_to_others(*directories: Path) -> list[str]:
    """What somebody else could read or change in these places, with its permissions.

    The places count too.
    """
    public = {"cards.json"}  # figures of workers, for whoever they are given to
    open_paths = []
    for path in chain.from_iterable(
        (directory, *directory.rglob("*")) for directory in directories
    ):
        mode = path.stat().st_mode
        if mode & 0o077 and path.name not in public:
            open_paths.append(f"{mode & 0o777:03o} {path}")
    return open_paths


def test_nothing_is_open_to_others_whatever_the_umask(
    stage: Stage, umask: None, tmp_path: Path
) -> None:
    """Traces, spending, settings, keys, ratings, files and evaluations are the user's alone.

    So are the index and the directories above them. The directories count as much as the files: who
    can write into one can put another file in the place of ours.
    """
    stage.config.parent.chmod(0o700)
    stage.config.chmod(0o600)
    notes = tmp_path / "notes.txt"
    cases = tmp_path / "cases.jsonl"
    notes.write_text("private")
    cases.write_text('{"id": "a", "question": "1 + 1?", "answer": "2"}\n')
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("ask", "hi", "-f", notes),
        ("ask", "--resume", "last"),
        ("trace", "list"),
        ("trace", "rate", "last", "good"),
        ("config", "set", "limits.calls_day", "90"),
        ("keys", "set", "openai", "--insecure-storage"),
        ("serve", "keys", "add", "laptop"),
        ("eval", cases, "--yes"),
        ("workers", "calibrate", cases, "--yes"),
        ("plan", "hi"),
        ("workers", "add", "up", "--kind", "command", "--", "true"),
    )
    for words in commands:
        stage.ends(0, *words, given="sk-other-users-0123456789")
    made = [stage.home / name for name in ("config/conductor-llm", "state", "data")]
    paths = chain.from_iterable(directory.rglob("*") for directory in made)
    assert {
        "settings.toml",
        "serve-keys.json",
        "keys.json",
        "spending.sqlite",
        "traces.index",
        "evals",
    } <= {path.name for path in paths}
    assert open_to_others(*made) == []


def core_limit(process: subprocess.Popen[bytes]) -> str:
    """The most that a crash of this process may write now."""
    text = Path(f"/proc/{process.pid}/limits").read_text()
    return next(
        line for line in text.splitlines() if line.startswith("Max core file size")
    ).split()[4]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_crash_leaves_no_copy_of_the_memory(stage: Stage) -> None:
    stage.models["alpha"] = stalls("so")
    unlimited = ("bash", "-c", 'ulimit -c unlimited 2>/dev/null; exec "$@"', "bash")
    with stage.start("ask", "hi", under=unlimited) as process:
        while not stage.asked("alpha"):
            assert process.poll() is None
            time.sleep(0.01)
        assert core_limit(process) == "0"
        process.kill()


@pytest.mark.parametrize(
    ("words", "forbidden"), [((), 1), (("--debug",), 0)], ids=["always", "with --debug"]
)
def test_debug_keeps_the_core_limit(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], forbidden: int
) -> None:
    done: list[int] = []
    monkeypatch.setattr(entry, "forbid_core_dumps", lambda: done.append(1))
    monkeypatch.setattr(sys, "argv", ["conductor", *words, "config", "show"])
    with pytest.raises(SystemExit):
        entry.run_and_exit()
    assert len(done) == forbidden
