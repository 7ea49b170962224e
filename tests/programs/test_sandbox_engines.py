"""Which sandbox is taken, what its command line closes, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from conductor_cli.programs.sandbox import (
    IMAGE,
    NoSandbox,
    SandboxEngine,
    SandboxError,
    SandboxLimits,
    SandboxProcess,
    SandboxProgram,
    find_engine,
)


def program(place: Path, name: str, text: str) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / name).chmod(0o755)


def test_without_bubblewrap_and_containers_there_is_no_sandbox(tmp_path: Path) -> None:
    program(tmp_path / "bin", "bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    program(tmp_path / "bin", "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(NoSandbox) as error:
        find_engine("", {"PATH": str(tmp_path / "bin")})
    assert str(error.value) == (
        "code is run only in a sandbox, and there is none here: bubblewrap does not work here: bwrap: No "
        "permissions to create a new namespace; docker: Cannot connect to the Docker daemon; podman is not installed"
    )
    assert error.value.hint.startswith("install bubblewrap (apt install bubblewrap")


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("chroot", "unknown sandbox 'chroot'"), ("podman", "podman is not installed"),
        ("docker:no/image", r"the image no/image is not here \(docker pull no/image\)"),
    ],
)  # fmt: skip
def test_a_sandbox_that_is_named_is_the_only_one(choice: str, words: str, tmp_path: Path) -> None:
    program(tmp_path, "docker", '[ "$1" = version ]')
    with pytest.raises(NoSandbox, match=words):
        find_engine(choice, {"PATH": str(tmp_path)})


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_is_closed(kind: str, tmp_path: Path) -> None:
    program(tmp_path, kind, "exit 0")
    engine = find_engine("", {"PATH": str(tmp_path)})
    assert (engine.kind, engine.python, engine.local) == (kind, IMAGE, False)
    line = " ".join(engine.words("conductor-1", SandboxLimits(), "SCRIPT"))
    for words in (
        "--rm --interactive --name conductor-1 --pull never --network none", "--read-only", "--cap-drop ALL",
        "--security-opt no-new-privileges", "--user 65534:65534", "--pids-limit 64", "--memory 2147483648",
        "--memory-swap 2147483648", "--tmpfs /tmp:rw,nosuid,nodev,size=67108864", f"{IMAGE} python3 -I -c SCRIPT",
    ):  # fmt: skip
        assert words in line
    assert "--volume" not in line


def test_a_container_that_must_be_ended_is_removed(tmp_path: Path) -> None:
    program(tmp_path, "docker", f'[ "$1" = rm ] && echo "$@" > {tmp_path}/removed; exit 1')
    with pytest.raises(SandboxError, match="the sandbox does not start"):
        SandboxProcess(
            SandboxEngine(kind="docker", program=str(tmp_path / "docker"), python=IMAGE), SandboxProgram(code="")
        ).__enter__()
    assert (tmp_path / "removed").read_text().startswith("rm --force conductor-")


def test_an_interpreter_of_ones_own(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        find_engine("bubblewrap", os.environ)
    except NoSandbox:
        return
    engine = find_engine(f"bubblewrap:{sys.executable}", os.environ)
    assert engine.python == find_engine("bubblewrap", os.environ).python
    with pytest.raises(NoSandbox, match="is no Python interpreter"):
        find_engine("bubblewrap:/bin/true", os.environ)
    program(tmp_path, "python", f'echo \'["/x", "{Path.home().parent}", "/usr"]\'')
    with pytest.raises(NoSandbox, match="would show the home directory"):
        find_engine(f"bubblewrap:{tmp_path}/python", os.environ)
