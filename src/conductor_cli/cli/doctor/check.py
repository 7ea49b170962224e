"""What one look of `doctor` finds: a name, a state, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. `state` is ok, warning or failed; a failure has the exit code it would lead to.

    `seconds` is how long it took, where that says something.
    """

    name: str
    state: str
    found: str
    hint: str = ""
    code: int = 0
    seconds: float | None = None

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {"name": self.name, "state": self.state, "found": self.found, "hint": self.hint, "seconds": seconds}
