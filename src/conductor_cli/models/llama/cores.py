"""How many threads are worth having: physical cores, as far as this process may use them."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def physical_cores() -> int:
    """How many cores this process may use, a core with two threads counted once."""
    cores = _linux_cores() if sys.platform == "linux" else 0
    if sys.platform == "darwin":
        cores = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu")
    return cores or max(1, (os.cpu_count() or 2) // (2 if sys.platform == "win32" else 1))


def _linux_cores() -> int:
    allowed = os.sched_getaffinity(0)
    cores = set()
    for number in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            cores.add(tuple((topology / name).read_text() for name in ("physical_package_id", "core_id")))
        except OSError:
            cores.add((str(number),))
    return min(len(cores), _quota() or len(cores))


def _quota() -> int | None:
    """Whole cores that a container may use, where it is bounded."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None


def _sysctl(name: str) -> int:
    value, size = ctypes.c_int(0), ctypes.c_size_t(4)
    ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value
