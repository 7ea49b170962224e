"""`conductor doctor` about the local model: the build, the GPU and how to use it, memory, disk, the model's state."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from conductor_cli.cli.doctor.model import gpu_check
from conductor_cli.cli.installing import INDEX, Place, build, for_gpu
from conductor_cli.config import load_settings
from conductor_cli.models.llama.build_info import BuildInfo, Device
from conductor_cli.models.machine import Gpu
from tests.cli.stage import Stage

LINUX = Place(python="/opt/my env/bin/python", system="linux", machine="x86_64")
CPU = Device(name="CPU", about="Some CPU", kind="cpu")
PLAIN = BuildInfo(version="0.3.36", features=frozenset({"AVX2"}), backends=("CPU",), devices=(CPU,), gpu=False)
A100 = Gpu(kind="cuda", name="NVIDIA A100", cuda=(12, 8), capability=(8, 0))


def place(**changes: object) -> Place:
    values = {"python": "/v/bin/python", "system": "linux", "machine": "x86_64", "pip": True, "checkout": False}
    return Place(**(values | changes))  # type: ignore[arg-type]


# the line that installs


def test_a_wheel_is_named_by_its_exact_version_and_index() -> None:
    """Copied into a shell it is one command: this Python, no other package, no source, the newest fitting CUDA."""
    command, needs = for_gpu(A100, "0.3.36", LINUX)
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
    command, _ = for_gpu(Gpu(kind="cuda", name="x", cuda=cuda, capability=capability), "0.3.36", place())
    assert command.endswith(f"{INDEX}/{name}") if name else "-DGGML_CUDA=on" in command


@pytest.mark.parametrize(
    ("kind", "where", "part"),
    [
        ("metal", {"system": "darwin", "machine": "arm64"}, f"{INDEX}/metal"),
        ("rocm", {}, f"{INDEX}/rocm72"),
        ("rocm", {"system": "win32", "machine": "AMD64"}, f"{INDEX}/hip-radeon"),
        ("vulkan", {}, f"{INDEX}/vulkan"),
        ("rocm", {"machine": "aarch64"}, 'CMAKE_ARGS="-DGGML_HIP=on" /v/bin/python -m pip install'),
        ("vulkan", {"machine": "aarch64"}, 'CMAKE_ARGS="-DGGML_VULKAN=on" '),
        ("cuda", {"machine": "aarch64"}, "--no-cache-dir --no-binary llama-cpp-python llama-cpp-python==0.3.36"),
        ("cuda", {"machine": "aarch64", "checkout": True}, 'CMAKE_ARGS="-DGGML_CUDA=on" make setup'),
        ("cuda", {"machine": "ARM64", "system": "win32"}, '$env:CMAKE_ARGS="-DGGML_CUDA=on"; & "/v/bin/python" -m pip'),
        ("cuda", {"pip": False}, "uv pip install --python /v/bin/python --reinstall --no-deps --only-binary"),
    ],
)
def test_the_line_is_that_of_the_machine(kind: str, where: dict[str, object], part: str) -> None:
    """A wheel where the index has one for the system and processor, else a build, in the words of its shell."""
    gpu = Gpu(kind=kind, name="x", cuda=(12, 5) if kind == "cuda" else (0, 0))  # type: ignore[arg-type]
    assert part in for_gpu(gpu, "0.3.36", place(**where))[0]


def test_a_build_for_the_processor_needs_no_flags() -> None:
    """llama.cpp builds for the machine it is on; pip must only be kept from an older wheel."""
    assert build("0.3.36", place(checkout=True)) == (
        "/v/bin/python -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python "
        "llama-cpp-python==0.3.36"
    )


# the verdict on a GPU


def test_a_gpu_that_is_not_used_is_a_warning_with_the_command() -> None:
    """The GPU and its CUDA are named, and the first line of the hint is the command."""
    check = gpu_check(PLAIN, (A100,), LINUX)
    assert (check.state, check.code) == ("warning", 0)
    assert "NVIDIA A100 (CUDA 12.8)" in check.found
    assert check.hint.splitlines()[0] == for_gpu(A100, "0.3.36", LINUX)[0]


def test_a_gpu_in_use_is_well() -> None:
    """What llama.cpp itself lists as a device is what counts."""
    device = Device(name="CUDA0", about="NVIDIA A100", kind="gpu")
    used = BuildInfo(version="0.3.36", features=frozenset(), backends=("CUDA", "CPU"), devices=(device, CPU), gpu=True)
    assert gpu_check(used, (A100,), LINUX).found == "NVIDIA A100, used by llama.cpp"


def test_a_build_for_a_gpu_that_it_does_not_see_points_at_the_driver() -> None:
    """Installing again would not help."""
    blind = BuildInfo(version="0.3.36", features=frozenset(), backends=("CUDA", "CPU"), devices=(CPU,), gpu=False)
    check = gpu_check(blind, (A100,), LINUX)
    assert check.state == "warning"
    assert "nvidia-smi" in check.hint
    assert "pip" not in check.hint


def test_a_gpu_for_vulkan_only_is_no_warning() -> None:
    """It may be slower than the processor, so the command is offered and nothing is said to be wrong."""
    check = gpu_check(PLAIN, (Gpu(kind="vulkan", name="Intel GPU"),), LINUX)
    assert check.state == "ok"
    assert f"{INDEX}/vulkan" in check.hint
    assert gpu_check(PLAIN, (), LINUX).hint == ""


# the command


def test_doctor_tells_build_memory_disk_and_the_model(stage: Stage, tiny: Path) -> None:
    """With a local model: features of the build, what the model needs, free disk, size and who vouches for it."""
    stage.configure(conductor=str(tiny))
    done = stage.inside("doctor", "--json")
    assert done.code == 0
    found = {check["name"]: check for check in done.json["checks"]}
    assert {"llama.cpp", "GPU", "memory", "downloads", "models", "prefixes", "traces"} <= set(found)
    assert "llama-cpp-python 0." in found["llama.cpp"]["found"]
    assert "CPU" in found["llama.cpp"]["found"]
    assert "needs 60" in found["memory"]["found"]  # 600 MB and a little: the file is a quarter of a megabyte
    assert "free" in found["prefixes"]["found"]
    assert found["conductor model"]["state"] == "ok"
    assert "SHA-256 never checked" in found["conductor model"]["found"]


def test_a_model_that_is_too_large_is_a_warning_with_a_smaller_one(stage: Stage, tiny: Path, tmp_path: Path) -> None:
    """Two terabytes do not fit: the need is said, and the largest model of the registry that does fit is named."""
    path = tmp_path / "large.gguf"
    path.write_bytes(tiny.read_bytes())
    with suppress(OSError):
        os.truncate(path, 2 << 40)  # a hole, which takes no disk
    if path.stat().st_size < 2 << 40:
        pytest.skip("this file system has no files of this size")
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    check = next(check for check in done.json["checks"] if check["name"] == "memory")
    assert check["state"] == "warning"
    assert "needs 2200 GB" in check["found"]
    assert "conductor model pull qwen2.5-" in check["hint"]


def test_a_damaged_model_is_found_without_loading_it(stage: Stage, tiny: Path, tmp_path: Path) -> None:
    """A file that is cut off is a failure with the exit code of an unusable conductor."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.read_bytes()[:2000])
    stage.configure(conductor=str(path))
    done = stage.inside("doctor", "--json")
    failed = {check["name"]: check["found"] for check in done.json["checks"] if check["state"] == "failed"}
    assert done.code == 5
    assert list(failed) == ["conductor model"]
    assert "cut.gguf" in failed["conductor model"]


def test_a_registry_that_cannot_be_read_is_a_failure(
    stage: Stage, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model that plans does not need it; a whole one says how many models it has."""
    stage.configure(conductor=str(tiny))
    checks = {check["name"]: check for check in stage.inside("doctor", "--json").json["checks"]}
    assert checks["registry"]["state"] == "ok"
    (tmp_path / "registry.toml").write_text("models = 3\n")
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(tmp_path / "registry.toml"))
    done = stage.inside("doctor", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["registry"]["state"] == "failed"
    assert str(tmp_path / "registry.toml") in checks["registry"]["found"]
    assert checks["registry"]["hint"]
    assert done.code == 3


def test_a_damaged_entry_of_the_model_store_is_seen(stage: Stage, tiny: Path) -> None:
    """Also one that does not plan; the hint is the command that takes it away."""
    stage.configure(conductor=str(tiny))
    assert stage.inside("model", "import", str(tiny), "--name", "mine").code == 0
    manifests = load_settings(stage.environ()).paths.models
    (manifests / "mine" / "manifest.toml").write_text("name = 'mine'\nfiles = 3\n")
    done = stage.inside("doctor", "--json")
    check = next(check for check in done.json["checks"] if check["name"] == "model mine")
    assert check["state"] == "warning"
    assert "manifest.toml cannot be read" in check["found"]
    assert "conductor model rm mine" in check["hint"]


def test_hints_of_several_lines_stay_in_their_column(stage: Stage) -> None:
    """The lines of a hint stand under each other, right of the names."""
    stage.config.write_text("[limits]\nattempts = 1\n")
    lines = stage.inside("doctor").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "no conductor model is chosen" in line)
    column = lines[place].index("no conductor")
    assert lines[place + 1][:column].strip() == ""
    assert lines[place + 1][column:].startswith("conductor model")
