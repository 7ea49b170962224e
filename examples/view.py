"""A view of your own: a Markdown table of the steps, drawn from the events of a stored run.

Run it with: python examples/view.py [RUN]
A view gets each event with the trace so far, as those of the command line do (docs/extend.md).
"""

from __future__ import annotations

import sys
from typing import TextIO

import conductor_cli
from conductor_cli.core.events import Event, StepFinished
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace, fold
from conductor_cli.views.base import RunView

QUESTION = "Find the capital of Japan, then spell it backwards."


class StepTable(RunView):
    """Prints a row for each step when it has finished."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._stdout.write("| step | worker | answer |\n|---|---|---|\n")

    def show(self, event: Event, trace: Trace) -> None:
        """Add a row. What a worker wrote is cleaned: it may hold what a terminal would obey."""
        if isinstance(event, StepFinished):
            step = trace.steps[event.step - 1]
            answer = one_line(event.text).replace("|", "\\|")
            self._stdout.write(f"| {step.number} | {step.worker} | {answer} |\n")


def main(run: str) -> None:
    """Show a stored run, or make one first."""
    if not run:
        with conductor_cli.open(demo=True) as conductor:
            made = conductor.ask(QUESTION)
            list(made)  # reads all events, so that the run comes to its end
            run = made.id
    view = StepTable(sys.stdout)
    for event, trace in fold(conductor_cli.replay(run)):
        view.show(event, trace)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "")
