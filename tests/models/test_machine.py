"""What is found out about a machine: from real files in Linux's own forms, and from this machine itself."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from conductor_cli.models import machine
from conductor_cli.models.machine import Gpu, Memory

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the files are those of Linux")

GIB = 1 << 30


def written(root: Path, **files: str) -> Path:
    """Files under `root`; in their names two underscores stand for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(total: int = 16, free: int = 10) -> str:
    return f"MemTotal:    {total << 20} kB\nMemFree:     1 kB\nMemAvailable:  {free << 20} kB\nHugePages_Total:   0\n"


@LINUX
def test_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    """Without a bound: all there is, and what is available rather than what is merely free."""
    written(tmp_path, proc__meminfo=meminfo(), proc__self__cgroup="0::/\n")
    assert machine.read_memory(tmp_path) == Memory(total=16 * GIB, available=10 * GIB)


@LINUX
def test_a_container_bounds_the_memory(tmp_path: Path) -> None:
    """The tightest limit above this process counts; pages of files that were not used lately are as good as free."""
    written(tmp_path, proc__meminfo=meminfo(), proc__self__cgroup="0::/box/inner\n")
    group = tmp_path / "sys/fs/cgroup"
    written(group, **{"memory.max": "max\n", "memory.current": "5\n"})
    written(group / "box", **{
        "memory.max": f"{4 * GIB}\n", "memory.current": f"{3 * GIB}\n", "memory.stat": f"anon 5\ninactive_file {GIB}\n",
    })  # fmt: skip
    written(group / "box/inner", **{"memory.max": f"{8 * GIB}\n", "memory.current": f"{GIB}\n"})
    assert machine.read_memory(tmp_path) == Memory(total=4 * GIB, available=2 * GIB)


@LINUX
def test_the_older_kind_of_group_bounds_too(tmp_path: Path) -> None:
    """Version 1 has other names; inside a container the path may be one that only exists outside."""
    lines = "9:name=systemd:/x\n4:cpu,memory:/docker/abc\n0::/\n"
    written(tmp_path, proc__meminfo=meminfo(), proc__self__cgroup=lines)
    written(tmp_path / "sys/fs/cgroup/memory", **{
        "memory.limit_in_bytes": f"{2 * GIB}\n", "memory.usage_in_bytes": f"{3 * GIB}\n",
    })  # fmt: skip
    assert machine.read_memory(tmp_path) == Memory(total=2 * GIB, available=0)


@LINUX
def test_an_endless_limit_is_none(tmp_path: Path) -> None:
    """Version 1 writes a number near the largest there is."""
    written(tmp_path, proc__meminfo=meminfo(), proc__self__cgroup="4:memory:/\n")
    written(tmp_path / "sys/fs/cgroup/memory", **{
        "memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "1\n",
    })  # fmt: skip
    assert machine.read_memory(tmp_path) == Memory(total=16 * GIB, available=10 * GIB)


@LINUX
def test_without_any_file_nothing_is_known(tmp_path: Path) -> None:
    """An empty root gives zeros and empty texts, and no error."""
    assert machine.read_memory(tmp_path) == Memory()
    assert machine.cpu_features(tmp_path) == frozenset()
    assert machine.find_gpus({"PATH": str(tmp_path)}, tmp_path) == ()
    assert machine.processor_name(tmp_path)


@LINUX
def test_garbage_in_the_files_is_no_error(tmp_path: Path) -> None:
    """What cannot be read as a number counts as unknown."""
    written(tmp_path, proc__meminfo="MemTotal: many kB\n\0\0:", proc__self__cgroup="x\n0::/../..\n:\n")
    assert machine.read_memory(tmp_path) == Memory()


def test_this_machine_has_memory_and_a_name() -> None:
    """The real thing: more than nothing, no more available than there is, and a processor."""
    found = machine.read_memory()
    assert 0 < found.available <= found.total
    assert machine.processor_name()


@LINUX
def test_the_processor_and_what_it_can_do(tmp_path: Path) -> None:
    """By the first processor's lines, in llama.cpp's words."""
    text = "model name\t: Some CPU @ 3\nflags\t\t: fpu avx2 fma avx512f nonsense\n\nmodel name\t: Other\n"
    one, two = written(tmp_path / "1", proc__cpuinfo=text), written(tmp_path / "2", proc__cpuinfo="Features : i8mm\n")
    assert machine.processor_name(one) == "Some CPU @ 3"
    assert machine.cpu_features(one) == {"AVX2", "FMA", "AVX512"}
    assert machine.cpu_features(two) == {"MATMUL_INT8"}


def program(place: Path, body: str) -> dict[str, str]:
    """An `nvidia-smi` of ours, on a path of its own."""
    path = place / "bin/nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{path.parent}{os.pathsep}{os.defpath}"}


@LINUX
def test_nvidia_smi_names_the_gpus(tmp_path: Path) -> None:
    """Each line is one GPU, with its compute capability where the program knows it."""
    environ = program(tmp_path, "echo 'NVIDIA A, B, 8.9'; echo 'NVIDIA Old, [N/A]'")
    found = machine.find_gpus(environ, tmp_path)
    assert [(gpu.kind, gpu.name, gpu.capability) for gpu in found] == [
        ("cuda", "NVIDIA A, B", (8, 9)),
        ("cuda", "NVIDIA Old", (0, 0)),
    ]


@LINUX
def test_the_drivers_files_serve_where_nvidia_smi_fails(tmp_path: Path) -> None:
    """A program that fails says nothing, whatever it prints; the kernel's files still name the GPU."""
    environ = program(tmp_path, "echo 'Failed, to start'; exit 9")
    written(tmp_path, **{"proc__driver__nvidia__gpus__0000:01__information": "Model: \t\t NVIDIA T4\nIRQ: 5\n"})
    assert [gpu.name for gpu in machine.find_gpus(environ, tmp_path)] == ["NVIDIA T4"]


@LINUX
def test_a_program_that_hangs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its timeout it is ended, and no GPU is found by it."""
    monkeypatch.setattr(machine, "PATIENCE", 0.2)
    assert machine.find_gpus(program(tmp_path, "exec sleep 60"), tmp_path) == ()


@LINUX
def test_an_amd_gpu_is_a_node_that_computes(tmp_path: Path) -> None:
    """The processor is a node too, without any such units."""
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    written(tmp_path, dev__kfd="")
    written(nodes / "0", properties="cpu_cores_count 8\nsimd_count 0\n", name="\n")
    written(nodes / "1", properties="cpu_cores_count 0\nsimd_count 152\n", name="navi31\n")
    assert machine.find_gpus({"PATH": ""}, tmp_path) == (Gpu(kind="rocm", name="AMD navi31"),)
