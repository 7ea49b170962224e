"""Running a question: plan, schedule, steps, attempts.

`start_run(conductor, question)` gives the stream of events.
"""

from conductor_cli.run.conductor import Conductor
from conductor_cli.run.runner import Run, start_run

__all__ = ["Conductor", "Run", "start_run"]
