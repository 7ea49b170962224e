"""The exact command that installs llama-cpp-python for a machine: a ready wheel where there is one, else a build. Pure.

The wheels stand on the project's own index, read in November 2026. pip takes one of them only for an exact version:
PyPI has the source of the same and of later versions.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from conductor_cli.models.machine import Gpu

INDEX: Final = "https://abetlen.github.io/llama-cpp-python/whl"

CUDA: Final = ((11, 8), (12, 1), (12, 2), (12, 3), (12, 4), (12, 5), (13, 0), (13, 2))
"""The versions of CUDA that there are wheels for."""

_CAPABLE: Final = {11: ((6, 0), (8, 9)), 12: ((6, 0), (99, 0)), 13: ((7, 5), (99, 0))}
"""The compute capabilities that the wheels of a major version serve, both ends included."""

_FLAG: Final = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "rocm": "GGML_HIP", "vulkan": "GGML_VULKAN"}

_NEEDED: Final = {
    "cuda": "this builds it: it needs the CUDA toolkit (nvcc) and a C++ compiler",
    "metal": "this builds it: it needs Xcode's command-line tools",
    "rocm": "this builds it: it needs ROCm with its compilers",
    "vulkan": "this builds it: it needs the Vulkan SDK and a C++ compiler",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it is to be installed. `system` and `machine` as `sys.platform` and `platform.machine` have them.

    `pip` is whether that Python has pip; what uv installs has none. `checkout` is whether this is our source, with its
    `make setup`.
    """

    python: str
    system: str
    machine: str
    pip: bool = True
    checkout: bool = False


def for_gpu(gpu: Gpu, version: str, place: Place) -> tuple[str, str]:
    """The command that makes llama.cpp use this GPU, and what it needs."""
    name = wheel(gpu, place)
    if not name:
        return build(version, place, f"-D{_FLAG[gpu.kind]}=on"), _NEEDED[gpu.kind]
    options = f"--only-binary llama-cpp-python llama-cpp-python=={version} --extra-index-url {INDEX}/{name}"
    libraries = f"the wheel needs the libraries of CUDA {name[2:4]} (libcudart, libcublas) on this machine"
    needs = {"cuda": libraries, "rocm": "the wheel needs ROCm on this machine"}.get(gpu.kind, "")
    return f"{_install(place)} {options}", needs


def wheel(gpu: Gpu, place: Place) -> str:
    """The part of the index with a wheel for this GPU, or empty."""
    intel = place.machine.lower() in {"x86_64", "amd64"}
    if gpu.kind == "metal":
        return "metal"
    if not intel or place.system not in {"linux", "win32"}:
        return ""
    if gpu.kind == "cuda":
        return _cuda_wheel(gpu)
    return {"rocm": "rocm72" if place.system == "linux" else "hip-radeon", "vulkan": "vulkan"}[gpu.kind]


def build(version: str, place: Place, flags: str = "") -> str:
    """The command that builds it for exactly this machine, with CMake flags where they are given."""
    command = "make setup" if place.checkout and flags else _build(version, place)
    if not flags:
        return command
    return f'$env:CMAKE_ARGS="{flags}"; {command}' if place.system == "win32" else f'CMAKE_ARGS="{flags}" {command}'


def _cuda_wheel(gpu: Gpu) -> str:
    """The newest one that the driver and the GPU are able to run."""
    fitting = [cuda for cuda in CUDA if cuda <= gpu.cuda]
    if gpu.capability != (0, 0):
        fitting = [cuda for cuda in fitting if _CAPABLE[cuda[0]][0] <= gpu.capability <= _CAPABLE[cuda[0]][1]]
    return "cu{}{}".format(*fitting[-1]) if fitting else ""


def _build(version: str, place: Place) -> str:
    cache = "--no-cache-dir" if place.pip else "--no-cache"  # there may be a wheel in it that was built otherwise
    return f"{_install(place)} {cache} --no-binary llama-cpp-python llama-cpp-python=={version}"


def _install(place: Place) -> str:
    quoted = f'"{place.python}"' if place.system == "win32" else shlex.quote(place.python)
    if not place.pip:
        return f"uv pip install --python {quoted} --reinstall --no-deps"
    return f"{'& ' if place.system == 'win32' else ''}{quoted} -m pip install --force-reinstall --no-deps"
