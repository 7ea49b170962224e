"""Running a question: plan, schedule, steps, attempts.

`start_run(orchestra, spec)` gives the stream of events.
"""

from conductor_cli.run.orchestra import Orchestra
from conductor_cli.run.runner import Run, start_run
from conductor_cli.run.spec import RunSpec, Team

__all__ = ["Orchestra", "Run", "RunSpec", "Team", "start_run"]
