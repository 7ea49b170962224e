"""No progress at all: quiet, unless something goes wrong or should be known. What a script's standard error holds."""

from __future__ import annotations

from conductor_cli.core.events import Event, Notice
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import Stderr
from conductor_cli.views.plain import describe_event
from conductor_cli.views.run_text import apply_without_deltas, innermost_event, problem_lines


class SilentProgress:
    """Writes at most three lines, and only when there is no answer or a part of one."""

    def __init__(self, stderr: Stderr, *, kept: bool = True) -> None:
        self._stderr = stderr
        self._kept = kept
        self._trace = Trace()

    def show(self, event: Event) -> None:
        self._trace = apply_without_deltas(self._trace, event)

    def rest(self) -> None:
        """Nothing is on the screen."""

    def wake(self) -> None:
        """Nor will be."""

    def close(self) -> None:
        self._stderr.write("".join(f"{line}\n" for line in problem_lines(self._trace, kept=self._kept)))
        self._stderr.flush()


class NoticesProgress(SilentProgress):
    """Beside that, a line for each notice: whoever uses the answer should know what stands behind it."""

    def show(self, event: Event) -> None:
        super().show(event)
        if isinstance(innermost_event(event), Notice):
            self._stderr.write(f"conductor: {describe_event(event, self._trace)}\n")
            self._stderr.flush()
