"""How much memory this process holds: what it has written and what it has mapped from files."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident() -> int:
    """Bytes held now."""
    return _line("VmRSS") or peak()


def peak() -> int:
    """The most bytes held so far."""
    return _line("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def _line(name: str) -> int:
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
