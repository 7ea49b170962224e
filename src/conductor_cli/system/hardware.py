"""Facts about this machine.

Its memory, its processor, and the GPUs that it could offer to llama.cpp.

Nothing here is slow or heavy: psutil is imported when it is asked, and `nvidia-smi` gets two
seconds. What cannot be found out is 0 or empty, never an error.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

# How long `nvidia-smi` may take. It never ends if the driver hangs.
NVIDIA_SMI_SECONDS: Final = 2.0
DRM: Final = Path("/sys/class/drm")
CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of RAM that this process may have: in total, and what is free now. 0 if unknown."""

    total: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, and the interface by which llama.cpp could use it."""

    kind: Literal["cuda", "metal", "rocm"]
    name: str


def read_memory() -> Memory:
    """Return the RAM of this machine, or of the container that limits this process."""
    import psutil  # slow to import, and most commands do not need it

    memory = psutil.virtual_memory()
    total = memory.total
    available = memory.available
    # The control group of this process, then those around it. In a container the path may be that
    # outside of it; then only the directories above exist.
    path = CGROUP / _field(_text(Path("/proc/self/cgroup")), "0").removeprefix(":").strip("/")
    for group in (path, *path.parents):
        if not group.is_relative_to(CGROUP):
            break
        limit = _text(group / "memory.max").strip()
        used = _text(group / "memory.current").strip()
        if limit.isdecimal() and used.isdecimal():
            # The kernel gives pages of files back when a program wants memory, so they count as
            # free.
            cached = _field(_text(group / "memory.stat").replace(" ", ":"), "inactive_file")
            total = min(total, int(limit))
            available = min(available, int(limit) - int(used) + int(cached or 0))
    return Memory(total=total, available=max(0, available))


def physical_cores() -> int:
    """Return how many cores this process may use, a core with two hardware threads counted once.

    At least 1.
    """
    import psutil

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if sys.platform == "linux":
        cores = min(cores, len(os.sched_getaffinity(0)))
        # A container may have fewer cores than the machine: more threads would only wait for each
        # other.
        with suppress(ValueError):
            quota, period = _text(CGROUP / "cpu.max").split()
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def idle_cores() -> int:
    """Return how many of this process's physical cores others leave free, at least 1.

    The threads of llama.cpp wait for each other at every layer, so one more than there are free
    cores makes all of them slow.
    """
    cores = physical_cores()
    try:
        busy, _, _ = os.getloadavg()
    except (AttributeError, OSError):  # not on Windows
        return cores
    # The mean of a minute has what ended meanwhile, such as the plan of the question before
    if round(busy) > 0:
        running = _count_running()
        if running is not None:
            busy = min(busy, running)
    free = (os.cpu_count() or cores) - round(busy)
    return max(1, min(cores, free))


LOAD_FILE: Final = Path("/proc/loadavg")  # Such as 0.20 0.18 0.12 2/80 11206
SAMPLES: Final = 5
SAMPLE_SECONDS: Final = 0.005  # Between two looks; a process that works is seen in most of them


def _count_running() -> float | None:
    """Return how many threads beside this one run or wait for a core now; None where unknown."""
    counts = list[int]()
    for _ in range(SAMPLES):
        try:
            running, _, _ = LOAD_FILE.read_text(encoding="ascii").split()[3].partition("/")
            counts.append(int(running) - 1)
        except (OSError, ValueError, IndexError):
            return None
        time.sleep(SAMPLE_SECONDS)
    return max(0.0, sum(counts) / SAMPLES)


def find_gpus(environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine. Whether they are free is not checked."""
    if sys.platform == "darwin":
        if platform.machine() != "arm64":
            return ()
        return (Gpu(kind="metal", name=platform.processor()),)
    program = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
    listed = ""
    if program is not None:
        query = [program, "--query-gpu=name", "--format=csv,noheader"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(  # noqa: S603 - a program of the driver, by its path
                query,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=NVIDIA_SMI_SECONDS,
                check=False,
            )
            listed = ""
            if done.returncode == 0:
                listed = done.stdout
    gpus = []
    for line in filter(None, map(str.strip, listed.splitlines())):
        gpus.append(Gpu(kind="cuda", name=line))
    for file in sorted(DRM.glob("render*/device/vendor")):
        if _text(file).strip() == "0x1002":  # AMD's number as a maker of PCI devices
            gpus.append(Gpu(kind="rocm", name="AMD GPU"))
    return tuple(gpus)


def _field(text: str, name: str) -> str:
    """Return the value of the first line `name: value`, empty if there is none."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
