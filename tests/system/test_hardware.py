"""What is found out about a machine.

From files in Linux's own forms, and from this machine itself.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from conductor_cli.system import hardware

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the files are those of Linux")

MIB = 1 << 20


@LINUX
def test_a_container_limits_memory_and_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "CGROUP", tmp_path)
    stat_lines = f"anon 5\ninactive_file {MIB}\n"
    files = {
        "memory.max": 4 * MIB,
        "memory.current": 3 * MIB,
        "memory.stat": stat_lines,
        "cpu.max": "100000 100000",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    assert hardware.read_memory() == hardware.Memory(total=4 * MIB, available=2 * MIB)
    assert hardware.physical_cores() == 1
    (tmp_path / "memory.current").write_text(f"{9 * MIB}\n")
    assert hardware.read_memory().available == 0


@LINUX
def test_no_limit_and_garbage_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("many\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert hardware.read_memory().total > 64 * MIB
    assert hardware.physical_cores() >= 1


@LINUX
def test_cores_that_others_use_are_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "LOAD_FILE", tmp_path / "none")
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    idle = []
    for load in (0.0, 4.4, 5.2, 7.0, 30.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        idle.append(hardware.idle_cores())
    assert idle == [4, 4, 3, 1, 1]


@LINUX
@pytest.mark.parametrize(("running", "idle"), [(1, 4), (4, 4), (6, 3), (9, 1), (40, 1)])
def test_cores_that_others_used_a_moment_ago_are_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: int, idle: int
) -> None:
    """The plan of the question before, for one."""
    file = tmp_path / "loadavg"
    file.write_text(f"7.00 3.00 1.00 {running}/180 4711\n")
    monkeypatch.setattr(hardware, "LOAD_FILE", file)
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (7.0, 3.0, 1.0))
    assert hardware.idle_cores() == idle


def program(directory: Path, body: str) -> dict[str, str]:
    """An `nvidia-smi` of ours, on a path of its own."""
    path = directory / "bin/nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{path.parent}{os.pathsep}{os.defpath}"}


@LINUX
def test_nvidia_smi_names_the_gpus(tmp_path: Path) -> None:
    gpus = hardware.find_gpus(program(tmp_path, "echo 'NVIDIA A, B'; echo 'NVIDIA Old'"))
    assert [gpu.name for gpu in gpus if gpu.kind == "cuda"] == ["NVIDIA A, B", "NVIDIA Old"]


@LINUX
@pytest.mark.parametrize("body", ["echo 'Failed, to start'; exit 9", "exec sleep 60"])
def test_a_program_that_fails_or_hangs_finds_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(hardware, "NVIDIA_SMI_SECONDS", 0.2)
    assert not [gpu for gpu in hardware.find_gpus(program(tmp_path, body)) if gpu.kind == "cuda"]


@LINUX
def test_an_amd_gpu_is_known_by_its_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "DRM", tmp_path)
    for number, maker in enumerate(("0x8086", "0x1002")):
        folder = tmp_path / f"renderD{number}/device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{maker}\n")
    assert [gpu.kind for gpu in hardware.find_gpus({"PATH": ""})] == ["rocm"]
