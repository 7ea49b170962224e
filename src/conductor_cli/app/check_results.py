"""What a check found: of this machine, a worker, a key, a server of tools, or a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conductor_cli.core.errors import ConductorError, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was checked.

    `state` is ok, warning or failed; of a key, what its provider said about it.

    A failure has the exit code that it would lead to. `seconds` is how long the check took, where
    that is of interest. `data` has the fields for `--json` of checks that say more than a text and
    a hint.
    """

    name: str
    state: str = "ok"
    text: str = ""
    hint: str = ""
    code: int = 0
    seconds: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def failed(
        cls, name: str, error: ConductorError | Failure, *, seconds: float | None = None
    ) -> CheckResult:
        """Return a check that ended with an error: its message, its hint and its exit code."""
        return cls(
            name=name,
            state="failed",
            text=error.message,
            hint=error.hint,
            code=error.exit_code,
            seconds=seconds,
        )

    def to_json(self, name: str = "name") -> dict[str, Any]:
        """For `--json`; `name` is what its name is called there."""
        seconds = None
        if self.seconds is not None:
            seconds = round(self.seconds, 3)
        fields = self.fields or {"found": self.text, "hint": self.hint}
        return {name: self.name, "state": self.state, **fields, "seconds": seconds}


def first_code(results: Iterable[CheckResult]) -> int:
    """Return the exit code of several checks: that of the first one that failed, else 0."""
    for result in results:
        if result.code:
            return result.code
    return 0
