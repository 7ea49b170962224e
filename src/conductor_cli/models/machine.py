"""Facts about this machine: its memory, its processor, and the GPUs that it could offer to llama.cpp.

Nothing here is slow or heavy: files are read, small C functions asked, and `nvidia-smi` gets two seconds. What cannot
be found out is 0 or empty, never an error. `root` is where the system's files are looked for.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path("/")

PATIENCE: Final = 2.0
"""Seconds that `nvidia-smi` may take; with a driver that hangs it never ends."""

Version = tuple[int, int]
"""Major and minor; (0, 0) if unknown."""

_UNKNOWN: Final = (0, 0)

_FLAGS: Final = {
    "avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "bmi2": "BMI2", "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512", "avx512vbmi": "AVX512_VBMI", "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8", "asimddp": "DOTPROD", "i8mm": "MATMUL_INT8", "sve": "SVE",
}  # fmt: skip
"""The CPU features that matter to llama.cpp: Linux's name and llama.cpp's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of RAM that this process may have: in total, and what is free now. 0 if unknown."""

    total: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, and the interface by which llama.cpp could use it.

    `cuda` is the newest CUDA that its driver can serve, `capability` what NVIDIA calls its compute capability.
    """

    kind: Literal["cuda", "metal", "rocm", "vulkan"]
    name: str
    cuda: Version = _UNKNOWN
    capability: Version = _UNKNOWN


def read_memory(root: Path = ROOT) -> Memory:
    """The RAM of this machine, or of the container that limits this process."""
    if sys.platform == "darwin":
        total = _sysctl("hw.memsize")
        return Memory(total=total, available=total * _sysctl("kern.memorystatus_level") // 100)
    return _windows_memory() if sys.platform == "win32" else _linux_memory(root)


def processor_name(root: Path = ROOT) -> str:
    """The processor's name."""
    if sys.platform == "darwin":
        name = _sysctl_bytes("machdep.cpu.brand_string").rstrip(b"\0").decode("utf-8", "replace")
        return name or platform.machine()
    info = _fields(root / "proc/cpuinfo")
    return info.get("model name") or info.get("Model") or platform.processor() or platform.machine()


def cpu_features(root: Path = ROOT) -> frozenset[str]:
    """What the processor has that llama.cpp can be built for, by llama.cpp's names. Empty if unknown."""
    info = _fields(root / "proc/cpuinfo")  # the first processor's
    flags = f"{info.get('flags', '')} {info.get('Features', '')}".split()
    return frozenset(_FLAGS[flag] for flag in flags if flag in _FLAGS)


def physical_cores() -> int:
    """How many cores this process may use, a core with two hardware threads counted once; at least 1."""
    cores = _linux_cores() if sys.platform == "linux" else 0
    if sys.platform == "darwin":
        cores = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu")
    return cores or max(1, (os.cpu_count() or 2) // (2 if sys.platform == "win32" else 1))


def find_gpus(environ: Mapping[str, str] = os.environ, root: Path = ROOT) -> tuple[Gpu, ...]:
    """The GPUs of this machine, those with the fastest interface first. Whether they are free is not checked."""
    if sys.platform == "darwin":
        return (Gpu(kind="metal", name=processor_name()),) if platform.machine() == "arm64" else ()
    found = [*_cuda(environ, root), *_rocm(root)]
    return tuple(found or _vulkan(root))


def _linux_memory(root: Path) -> Memory:
    info = _fields(root / "proc/meminfo")
    numbers = (info.get(name, "").removesuffix("kB").strip() for name in ("MemTotal", "MemAvailable"))
    total, available = (int(number) * 1024 if number.isdecimal() else 0 for number in numbers)
    for limit, left in _bounds(root):
        total, available = min(total, limit), min(available, left)
    return Memory(total=total, available=max(0, available))


def _bounds(root: Path) -> Iterator[tuple[int, int]]:
    """The memory limit, and what is left of it, of each cgroup (version 1 or 2) that this process is in."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        names = ("memory.max", "memory.current", "inactive_file")
        base = root / "sys/fs/cgroup"
        if controllers:
            base /= "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        place = base / path.strip("/")
        # In a container the path may be that outside of it; then only the directories above exist.
        for directory in (place, *place.parents)[: len(place.relative_to(base).parts) + 1]:
            yield from _bound(directory, *names)


def _bound(directory: Path, limit: str, usage: str, reclaimable: str) -> Iterator[tuple[int, int]]:
    most, used = _text(directory / limit).strip(), _text(directory / usage).strip()
    if most.isdecimal() and used.isdecimal():
        # What was read from files and not touched lately is given back when memory is wanted.
        cached = dict(line.split(" ", 1) for line in _text(directory / "memory.stat").splitlines() if " " in line)
        yield int(most), int(most) - int(used) + int(cached.get(reclaimable, "0"))


def _linux_cores() -> int:
    cores = set()
    for number in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            cores.add(tuple((topology / name).read_text() for name in ("physical_package_id", "core_id")))
        except OSError:
            cores.add((str(number),))
    try:
        # A container's CPU quota: more threads than this would only wait for each other.
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(len(cores), max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        return len(cores)


def _windows_memory() -> Memory:
    if sys.platform != "win32":
        return Memory()

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("total", ctypes.c_uint64),
            ("available", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 5),
        )  # fmt: skip

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return Memory(total=status.total, available=status.available)


def _cuda(environ: Mapping[str, str], root: Path) -> list[Gpu]:
    """From `nvidia-smi`, or else from the driver's own files."""
    version = _cuda_version()
    rows = [line.rsplit(",", 1) for line in _nvidia_smi(environ).splitlines() if "," in line]
    if rows:
        return [Gpu(kind="cuda", name=name.strip(), cuda=version, capability=_version(last)) for name, last in rows]
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    names = [_fields(file).get("Model", "NVIDIA GPU") for file in files]
    return [Gpu(kind="cuda", name=name, cuda=version) for name in names]


def _nvidia_smi(environ: Mapping[str, str]) -> str:
    program = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
    if program is None:
        return ""
    query = [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - a program of the driver, by its path
            query, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""
    return ""


def _cuda_version() -> Version:
    """The newest CUDA that the driver supports. Asking does not initialise the GPU."""
    for name in ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        with suppress(OSError, AttributeError):
            number = ctypes.c_int(0)
            if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(number)) == 0:
                return number.value // 1000, number.value % 1000 // 10
    return _UNKNOWN


def _rocm(root: Path) -> list[Gpu]:
    """The nodes of the kernel's compute driver that are not a CPU; each names its architecture by a number."""
    if not (root / "dev/kfd").exists():
        return []
    nodes = sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"))
    # Processors are nodes as well, but have no SIMD units of this kind.
    used = [node for node in nodes if re.search(r"^simd_count [1-9]", _text(node / "properties"), re.MULTILINE)]
    return [Gpu(kind="rocm", name=f"AMD {_text(node / 'name').strip()}".strip()) for node in used]


def _vulkan(root: Path) -> list[Gpu]:
    """A GPU of another maker: a render device, if the Vulkan library is installed."""
    makers = {"0x1002": "AMD", "0x10de": "NVIDIA", "0x8086": "Intel"}
    try:
        ctypes.CDLL("vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1")
    except OSError:
        return []
    if sys.platform == "win32":
        return [Gpu(kind="vulkan", name="a GPU")]
    vendors = [_text(file).strip() for file in sorted((root / "sys/class/drm").glob("render*/device/vendor"))]
    return [Gpu(kind="vulkan", name=f"{makers[vendor]} GPU") for vendor in vendors if vendor in makers]


def _fields(path: Path) -> dict[str, str]:
    """The `name: value` lines of a file; for a name that comes twice, the first."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(text: str) -> Version:
    found = re.fullmatch(r"\s*(\d{1,3})\.(\d{1,3})\s*", text)
    return (int(found[1]), int(found[2])) if found else _UNKNOWN


def _sysctl(name: str) -> int:
    raw = _sysctl_bytes(name)
    return int.from_bytes(raw, sys.byteorder) if len(raw) in {4, 8} else 0


def _sysctl_bytes(name: str) -> bytes:
    data, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), data, ctypes.byref(size), None, ctypes.c_size_t(0))
    return b"" if failed else data.raw[: size.value]
