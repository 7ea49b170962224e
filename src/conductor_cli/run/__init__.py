"""Running a question: plan, schedule, steps, attempts.

`start_run(orchestra, question)` gives the stream of events.
"""

from conductor_cli.run.orchestra import Orchestra
from conductor_cli.run.runner import Run, start_run

__all__ = ["Orchestra", "Run", "start_run"]
