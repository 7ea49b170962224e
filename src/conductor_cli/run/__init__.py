"""Running a question: plan, schedule, steps, attempts. `Conductor.run(question)` gives the stream of events."""

from conductor_cli.run.conductor import Conductor
from conductor_cli.run.runner import Run

__all__ = ["Conductor", "Run"]
