"""The colours of what the terminal shows, by the name of a style."""

from __future__ import annotations

from typing import Final

STYLES: Final[dict[str, str]] = {
    "question": "bold",
    "number": "dim",
    "guide": "dim",
    "worker": "bold",
    "plain": "",
    "quiet": "dim",
    "thinking": "dim italic",
    "waiting": "dim",
    "skipped": "dim",
    "planning": "cyan",
    "running": "cyan",
    "answering": "cyan",
    "done": "green",
    "retrying": "yellow",
    "stopped": "yellow",
    "note": "yellow",
    "rejected": "yellow",
    "failed": "red",
}
"""The style of each name, as Rich writes it, in the terminal's own colours."""
