"""That this process was stopped, as by Ctrl-Z, and goes on.

Whoever draws in place holds the lock while it does, so that no drawing is interrupted half-way, and
compares the count: after a stop, the rows above the cursor are the shell's.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class Suspensions:
    """How often this process was stopped, and the lock of whoever draws."""

    count: int = 0
    drawing: threading.RLock = field(default_factory=threading.RLock)


SUSPENSIONS: Final = Suspensions()
