"""Bytes and times in words, for commands that move files. Pure."""

from __future__ import annotations


def size_text(size: int) -> str:
    """`264 kB`, `4.68 GB`: a thousand to a thousand, as disks are sold."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            value = size / one
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{size} bytes"


def time_text(seconds: float) -> str:
    """`40 s`, `8 min`, `2 h 5 min`."""
    whole = round(max(0.0, seconds))
    if whole < 100:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
