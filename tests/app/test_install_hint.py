"""The command that installs llama.cpp for a machine, and what `doctor` says about the GPUs of one."""

from __future__ import annotations

import shlex

import pytest

from conductor_cli.app.doctor.install_hint import INDEX, PythonEnvironment, build_command, gpu_command
from conductor_cli.app.doctor.local_model import check_gpu
from conductor_cli.models.llama.build_info import BuildInfo, Device
from conductor_cli.models.machine import Gpu

LINUX = PythonEnvironment(python="/opt/my env/bin/python", system="linux", machine="x86_64")
CPU = Device(name="CPU", about="Some CPU", kind="cpu")
PLAIN = BuildInfo(version="0.3.36", features=frozenset({"AVX2"}), backends=("CPU",), devices=(CPU,), gpu=False)
A100 = Gpu(kind="cuda", name="NVIDIA A100", cuda=(12, 8), capability=(8, 0))


def environment(**changes: object) -> PythonEnvironment:
    values = {"python": "/v/bin/python", "system": "linux", "machine": "x86_64", "pip": True, "checkout": False}
    return PythonEnvironment(**(values | changes))  # type: ignore[arg-type]


# the line that installs


def test_a_wheel_is_named_by_its_exact_version_and_index() -> None:
    """Copied into a shell it is one command: this Python, no other package, no source, the newest fitting CUDA."""
    command, needs = gpu_command(A100, "0.3.36", LINUX)
    assert shlex.split(command) == [
        "/opt/my env/bin/python", "-m", "pip", "install", "--force-reinstall", "--no-deps",
        "--only-binary", "llama-cpp-python", "llama-cpp-python==0.3.36", "--extra-index-url", f"{INDEX}/cu125",
    ]  # fmt: skip
    assert "CUDA 12" in needs


@pytest.mark.parametrize(
    ("cuda", "capability", "name"),
    [
        ((13, 2), (9, 0), "cu132"),
        ((13, 1), (9, 0), "cu130"),
        ((13, 2), (7, 0), "cu125"),  # Volta: the wheels for CUDA 13 begin at 7.5
        ((12, 4), (0, 0), "cu124"),
        ((12, 0), (8, 0), "cu118"),
        ((12, 0), (9, 0), ""),  # Hopper: the wheel for CUDA 11.8 ends at 8.9
        ((11, 4), (8, 0), ""),
        ((13, 0), (5, 2), ""),
        ((0, 0), (8, 0), ""),
    ],
)
def test_the_wheel_fits_driver_and_gpu(cuda: tuple[int, int], capability: tuple[int, int], name: str) -> None:
    """No newer than the driver serves, and none that was not made for the GPU; else it is built."""
    command, _ = gpu_command(Gpu(kind="cuda", name="x", cuda=cuda, capability=capability), "0.3.36", environment())
    assert command.endswith(f"{INDEX}/{name}") if name else "-DGGML_CUDA=on" in command


@pytest.mark.parametrize(
    ("kind", "where", "part"),
    [
        ("metal", {"system": "darwin", "machine": "arm64"}, f"{INDEX}/metal"),
        ("rocm", {}, f"{INDEX}/rocm72"),
        ("rocm", {"system": "win32", "machine": "AMD64"}, f"{INDEX}/hip-radeon"),
        ("rocm", {"machine": "aarch64"}, 'CMAKE_ARGS="-DGGML_HIP=on" /v/bin/python -m pip install'),
        ("cuda", {"machine": "aarch64"}, "--no-cache-dir --no-binary llama-cpp-python llama-cpp-python==0.3.36"),
        ("cuda", {"machine": "aarch64", "checkout": True}, 'CMAKE_ARGS="-DGGML_CUDA=on" make setup'),
        ("cuda", {"machine": "ARM64", "system": "win32"}, '$env:CMAKE_ARGS="-DGGML_CUDA=on"; & "/v/bin/python" -m pip'),
        ("cuda", {"pip": False}, "uv pip install --python /v/bin/python --reinstall --no-deps --only-binary"),
    ],
)
def test_the_line_is_that_of_the_machine(kind: str, where: dict[str, object], part: str) -> None:
    """A wheel where the index has one for the system and processor, else a build, in the words of its shell."""
    gpu = Gpu(kind=kind, name="x", cuda=(12, 5) if kind == "cuda" else (0, 0))  # type: ignore[arg-type]
    assert part in gpu_command(gpu, "0.3.36", environment(**where))[0]


def test_a_build_for_the_processor_needs_no_flags() -> None:
    """llama.cpp builds for the machine it is on; pip must only be kept from an older wheel."""
    assert build_command("0.3.36", environment(checkout=True)) == (
        "/v/bin/python -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python "
        "llama-cpp-python==0.3.36"
    )


# the verdict on a GPU


def test_a_gpu_that_is_not_used_is_a_warning_with_the_command() -> None:
    """The GPU and its CUDA are named, and the first line of the hint is the command."""
    check = check_gpu(PLAIN, (A100,), LINUX)
    assert (check.state, check.code) == ("warning", 0)
    assert "NVIDIA A100 (CUDA 12.8)" in check.found
    assert check.hint.splitlines()[0] == gpu_command(A100, "0.3.36", LINUX)[0]


def test_a_gpu_in_use_is_well() -> None:
    """What llama.cpp itself lists as a device is what counts."""
    device = Device(name="CUDA0", about="NVIDIA A100", kind="gpu")
    used = BuildInfo(version="0.3.36", features=frozenset(), backends=("CUDA", "CPU"), devices=(device, CPU), gpu=True)
    assert check_gpu(used, (A100,), LINUX).found == "NVIDIA A100, used by llama.cpp"


def test_a_build_for_a_gpu_that_it_does_not_see_points_at_the_driver() -> None:
    """Installing again would not help."""
    blind = BuildInfo(version="0.3.36", features=frozenset(), backends=("CUDA", "CPU"), devices=(CPU,), gpu=False)
    check = check_gpu(blind, (A100,), LINUX)
    assert check.state == "warning"
    assert "nvidia-smi" in check.hint
    assert "pip" not in check.hint


def test_without_a_gpu_there_is_nothing_to_do() -> None:
    """Models run on the processor, and no command is offered."""
    assert check_gpu(PLAIN, (), LINUX).hint == ""
