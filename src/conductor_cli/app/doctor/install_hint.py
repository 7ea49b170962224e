"""The exact command that installs llama-cpp-python for a machine: a prebuilt wheel if there is one, else a build. Pure.

The wheels are on the project's own index, as it was in November 2026. pip takes one of them only for an exact version:
PyPI has the source of the same version and of later ones.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from conductor_cli.models.machine import Gpu

INDEX: Final = "https://abetlen.github.io/llama-cpp-python/whl"

CUDA_VERSIONS: Final = ((11, 8), (12, 1), (12, 2), (12, 3), (12, 4), (12, 5), (13, 0), (13, 2))
"""The versions of CUDA that there are wheels for."""

_CAPABILITIES: Final = {11: ((6, 0), (8, 9)), 12: ((6, 0), (99, 0)), 13: ((7, 5), (99, 0))}
"""The lowest and highest compute capability that the wheels of a major version of CUDA support."""

_FLAGS: Final = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "rocm": "GGML_HIP"}

_BUILD_NEEDS: Final = {
    "cuda": "this builds it, which needs the CUDA toolkit (nvcc) and a C++ compiler",
    "metal": "this builds it, which needs Xcode's command-line tools",
    "rocm": "this builds it, which needs ROCm with its compilers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """Where it is to be installed. `system` and `machine` are as in `sys.platform` and `platform.machine()`.

    `pip` is whether that Python has pip, which the environments of uv have not. `checkout` is whether this is our
    source, with its `make setup`.
    """

    python: str
    system: str
    machine: str
    pip: bool = True
    checkout: bool = False


def gpu_command(gpu: Gpu, version: str, environment: PythonEnvironment) -> tuple[str, str]:
    """The command that makes llama.cpp use this GPU, and what it needs."""
    name = wheel_name(gpu, environment)
    if not name:
        return build_command(version, environment, f"-D{_FLAGS[gpu.kind]}=on"), _BUILD_NEEDS[gpu.kind]
    options = f"--only-binary llama-cpp-python llama-cpp-python=={version} --extra-index-url {INDEX}/{name}"
    needs = {
        "cuda": f"the wheel needs the libraries of CUDA {name[2:4]} (libcudart, libcublas) on this machine",
        "rocm": "the wheel needs ROCm on this machine",
    }
    return f"{_install(environment)} {options}", needs.get(gpu.kind, "")


def wheel_name(gpu: Gpu, environment: PythonEnvironment) -> str:
    """The part of the index that has a wheel for this GPU, or an empty string."""
    if gpu.kind == "metal":
        return "metal"
    if environment.machine.lower() not in {"x86_64", "amd64"} or environment.system not in {"linux", "win32"}:
        return ""
    if gpu.kind == "rocm":
        return "rocm72" if environment.system == "linux" else "hip-radeon"
    fitting = [cuda for cuda in CUDA_VERSIONS if cuda <= gpu.cuda]
    if gpu.capability != (0, 0):
        fitting = [cuda for cuda in fitting if _CAPABILITIES[cuda[0]][0] <= gpu.capability <= _CAPABILITIES[cuda[0]][1]]
    return "cu{}{}".format(*fitting[-1]) if fitting else ""


def build_command(version: str, environment: PythonEnvironment, flags: str = "") -> str:
    """The command that builds it for exactly this machine, with CMake flags if there are any."""
    if environment.checkout and flags:
        command = "make setup"
    else:
        # The cache may hold a wheel that was built with other flags.
        cache = "--no-cache-dir" if environment.pip else "--no-cache"
        command = f"{_install(environment)} {cache} --no-binary llama-cpp-python llama-cpp-python=={version}"
    if not flags:
        return command
    on_windows = environment.system == "win32"
    return f'$env:CMAKE_ARGS="{flags}"; {command}' if on_windows else f'CMAKE_ARGS="{flags}" {command}'


def _install(environment: PythonEnvironment) -> str:
    on_windows = environment.system == "win32"
    quoted = f'"{environment.python}"' if on_windows else shlex.quote(environment.python)
    if not environment.pip:
        return f"uv pip install --python {quoted} --reinstall --no-deps"
    return f"{'& ' if on_windows else ''}{quoted} -m pip install --force-reinstall --no-deps"
