"""No progress at all: quiet, unless something goes wrong. What a script's standard error should hold."""

from __future__ import annotations

from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace
from conductor_cli.views import words
from conductor_cli.views.port import Stderr


class Silent:
    """Writes at most three lines, and only when there is no answer or a part of one."""

    def __init__(self, stderr: Stderr, *, kept: bool = True) -> None:
        self._stderr = stderr
        self._kept = kept
        self._trace = Trace()

    def show(self, event: Event) -> None:
        self._trace = words.settled(self._trace, event)

    def rest(self) -> None:
        """Nothing is on the screen."""

    def close(self) -> None:
        self._stderr.write("".join(f"{line}\n" for line in words.trouble(self._trace, kept=self._kept)))
        self._stderr.flush()
