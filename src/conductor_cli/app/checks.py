"""The result of one check of `doctor` or of `train --dry-run`: a name, a state, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conductor_cli.core.errors import ConductorError, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked. `state` is ok, warning or failed; a failure has the exit code it would lead to.

    `seconds` is how long it took, for checks where that is of interest.
    """

    name: str
    state: str
    found: str
    hint: str = ""
    code: int = 0
    seconds: float | None = None

    @classmethod
    def failed(cls, name: str, error: ConductorError | Failure, *, seconds: float | None = None) -> Check:
        """A check that ended with an error: its message, its hint and its exit code."""
        return cls(
            name=name, state="failed", found=error.message, hint=error.hint, code=error.exit_code, seconds=seconds
        )

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {"name": self.name, "state": self.state, "found": self.found, "hint": self.hint, "seconds": seconds}
