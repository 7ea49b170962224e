"""Programs under bubblewrap: what they see, and that none runs without its sandbox."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.catalog import open_model
from conductor_cli.models.command.process import find_sandbox, own_files, sandbox_words, shares_network
from conductor_cli.models.command.programs import PROGRAMS
from tests.models.kit import asked, text
from tests.models.test_programs import play


def boxed(*command: str, **options: Any) -> Worker:
    """A program in a sandbox."""
    return Worker(name="w", kind="command", options={"command": list(command), "sandbox": True, **options})


def environ(home: Path, *first: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*map(str, first), os.environ["PATH"]]), "HOME": str(home)}


def script(place: Path, name: str, content: str) -> Path:
    """An executable file in a directory of its own, which may come first in PATH."""
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(content)
    (place / name).chmod(0o755)
    return place


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A home directory with a key and with traces, beside a directory to work in."""
    home = tmp_path / "home"
    for name in (".ssh/id", ".local/state/conductor-llm/traces/run.jsonl", "work/mine.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    return home


@pytest.mark.parametrize(
    ("bwrap", "words"),
    [
        ("", "sandbox = true needs bubblewrap, which is not installed"),
        ("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n", "No permissions"),
        ("nonsense", "Exec format error"),
    ],
)
def test_without_a_sandbox_nothing_runs(bwrap: str, words: str, tmp_path: Path) -> None:
    place = script(tmp_path / "bin", "bwrap", bwrap) if bwrap else tmp_path / "none"
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    with pytest.raises(ModelError, match=words) as error:
        open_model(
            boxed("sh", "-c", "touch ran; echo ok", cwd=str(tmp_path)),
            environ={"PATH": f"{place}:{tmp_path / 'bin'}", "HOME": "/nonexistent"},
        )
    assert (error.value.reason, "sandbox" in error.value.hint) == ("missing", True)
    assert not (tmp_path / "ran").exists()


def test_a_program_in_its_sandbox_or_none_at_all(house: Path) -> None:
    work = house / "work"
    looks = (
        "cat mine.txt; echo; for f in $HOME/.ssh/id $HOME/.local/state/*/*/*; do cat $f; done; ls -A $HOME /tmp /run"
    )
    writes = "echo hi > new.txt; touch /usr/x $HOME/y /etc/z && echo secret; mkdir /new && echo secret; mktemp -d"
    counts = "ls -d /proc/[0-9]* | wc -l"
    worker = boxed("sh", "-c", f"{looks}; {writes}; {counts}", cwd=str(work))
    if refused(worker, house):
        assert not (work / "new.txt").exists()
        return
    said = text(play(open_model(worker, environ=environ(house) | {"TMPDIR": "/nowhere"}))).splitlines()
    assert said[0] == "secret"
    assert "secret" not in said[1:]
    assert int(said[-1]) < 10
    assert [line for line in said if line.startswith("/tmp/tmp.")]
    assert (work / "new.txt").read_text() == "hi\n"
    assert not (house / "y").exists()


def test_a_program_cannot_change_the_settings_of_the_kernel(house: Path) -> None:
    # Nothing is written.
    code = "if : 2>/dev/null >> /proc/sys/kernel/core_pattern; then echo open; else echo closed; fi"
    worker = boxed("sh", "-c", f"({code}) || echo closed")
    if refused(worker, house):
        return
    assert text(play(open_model(worker, environ=environ(house)))).strip() == "closed"


def refused(worker: Worker, home: Path) -> bool:
    """Whether this system lets nobody make a sandbox. Then the worker must say so and cannot be opened."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        find_sandbox(environ(home))
    except ModelError as error:
        why = error.message
    else:
        return False
    with pytest.raises(ModelError) as found:
        open_model(worker, environ=environ(home))
    assert (found.value.message, why.startswith("sandbox = true needs bubblewrap")) == (why, True)
    return True


@pytest.mark.parametrize("network", [False, True])
def test_the_network_and_sockets_are_reached_only_where_that_is_allowed(
    network: bool, house: Path, tmp_path: Path
) -> None:
    """An abstract UNIX socket is a part of the network: it is reached only where the sandbox shares the host's."""
    abstract = f"\0conductor-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as display,
    ):
        for each, name in ((unix, str(tmp_path / "agent.sock")), (display, abstract)):
            each.bind(name)
            each.listen()
        code = (
            f"import socket\nfor f, a in ((socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})),"
            f" (socket.AF_UNIX, {str(tmp_path / 'agent.sock')!r}), (socket.AF_UNIX, {abstract!r})):\n"
            "  try:\n    s = socket.socket(f); s.connect(a); print('yes')\n  except OSError: print('no')\n"
        )
        worker = boxed("/usr/bin/python3", "-c", code, network=network)
        if refused(worker, house):
            return
        said = text(play(open_model(worker, environ=environ(house)))).split()
    shared = shares_network(worker, environ(house))
    assert said == ["yes" if network else "no", "no", "yes" if shared else "no"]
    assert network or not shared


@pytest.mark.parametrize("kind", [kind for kind, program in PROGRAMS.items() if program.state])
def test_an_agent_cannot_change_what_its_next_start_reads(kind: str, house: Path, tmp_path: Path) -> None:
    """Settings and hooks are as before, nothing new is there, and its login and sessions are what it wrote."""
    program = PROGRAMS[kind]
    kept, changed = dict[Path, str](), list[Path]()
    for state in program.state:
        place = Path(state.path.replace("~", str(house)))
        place.mkdir(parents=True, exist_ok=True)
        for name in (*state.writable, *state.readable, *state.copied):
            (place / name).write_text("mine")
        kept |= {place / name: "mine" for name in (*state.readable, *state.copied)}
        changed += [place / name for name in state.writable]
    lines = [f"rm -f {path}; echo evil > {path}; echo evil > {path}.new" for path in (*kept, *changed)]
    agent = script(tmp_path / "bin", program.command[0], "#!/bin/sh\n" + "\n".join([*lines, "exit 5"]))
    worker = Worker(name="w", kind=kind, options={"sandbox": True, "network": True})
    if refused(worker, house):
        return
    with pytest.raises(ModelError, match="exit code 5"):
        play(open_model(worker, environ=environ(house, agent)))
    assert {path: path.read_text() for path in kept} == kept
    assert {path.read_text() for path in changed} <= {"evil\n"}
    assert not [*house.rglob("*.new")]


def test_a_failure_in_the_sandbox_is_that_of_the_program(house: Path) -> None:
    worker = boxed("sh", "-c", "echo why >&2; exit 7")
    if refused(worker, house):
        return
    with pytest.raises(ModelError, match="sh ended with exit code 7: why"):
        play(open_model(worker, environ=environ(house)))
    slow = boxed("sh", "-c", "trap '' TERM; setsid sleep 61.25 & echo on; sleep 61.25")
    with pytest.raises(ModelError) as error:
        play(open_model(slow, environ=environ(house)), asked(deadline=0.4))
    assert error.value.reason == "timeout"
    running = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline") if place.exists()]
    assert not [each for each in running if b"61.25" in each]


@pytest.mark.parametrize("shown", ["", "..", ".local", ".local/state", ".local/state/conductor-llm", "work/link"])
@pytest.mark.parametrize("setting", ["cwd", "read"])
def test_a_directory_with_private_files_in_it_is_refused(shown: str, setting: str, house: Path, tmp_path: Path) -> None:
    (house / "work/link").symlink_to(house)
    path = str(house / shown)
    worker = boxed("cat", **{setting: path if setting == "cwd" else [path]})
    works = script(tmp_path / "bin", "bwrap", "#!/bin/sh\nexit 0\n")
    with pytest.raises(ModelError, match="cannot show") as error:
        open_model(worker, environ=environ(house, works))
    assert error.value.reason == "refused"


def test_a_program_brings_its_own_files(tmp_path: Path) -> None:
    place = tmp_path / "home/lib/node_modules/agent/bin"
    script(place, "agent.js", "#!/usr/bin/env -S node --flag\n")
    runtime = script(tmp_path / "home/node/bin", "node", "#!/bin/sh\n")
    (tmp_path / "home/bin").mkdir()
    (tmp_path / "home/bin/agent").symlink_to(place / "agent.js")
    found = own_files(str(tmp_path / "home/bin/agent"), {"PATH": str(runtime)})
    assert found == (str(tmp_path / "home/bin/agent"), str(tmp_path / "home/lib/node_modules"), str(runtime / "node"))


def test_the_command_line_of_a_sandbox_shares_nothing_unasked() -> None:
    words = sandbox_words("bwrap", ["cat"], cwd=Path("/w"), home="/h", shown=["--ro-bind", "/r", "/r"])
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(words)
    assert "--share-net" not in words
    assert [words[index + 1] for index, word in enumerate(words) if word == "--bind"] == ["/w"]
    assert "--share-net" in sandbox_words("bwrap", ["cat"], cwd=Path("/w"), network=())
